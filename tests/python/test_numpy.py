# SPDX-License-Identifier: Apache-2.0
"""tilemamba.scan over arrays of NumPy: stored cases, strides, types, errors, threads, memory."""

import gc
import inspect
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import golden
import ml_dtypes
import numpy as np
import pytest

import tilemamba

INF = float("inf")


def problem(tokens=70, batch=2, heads=4, head_dim=8, groups=2, state=16, dtype=np.float32, seed=0):
    """x, dt, A, B, C; and what else a call may have, by name."""
    draw = np.random.default_rng(seed).standard_normal
    tensors = [
        draw((batch, tokens, heads, head_dim)).astype(dtype),
        draw((batch, tokens, heads)).astype(np.float32),
        -np.abs(draw(heads)).astype(np.float32),
        draw((batch, tokens, groups, state)).astype(dtype),
        draw((batch, tokens, groups, state)).astype(dtype),
    ]
    more = {
        "D": draw(heads).astype(np.float32),
        "z": draw((batch, tokens, heads, head_dim)).astype(dtype),
        "dt_bias": draw(heads).astype(np.float32),
        "initial_states": draw((batch, heads, head_dim, state)).astype(np.float32),
        "dt_softplus": True,
    }
    return tensors, more


@pytest.mark.parametrize("backend", ["kokkos-openmp", "kokkos-serial"])
@pytest.mark.parametrize("file", golden.files(), ids=lambda file: file.stem)
def test_stored_case(file, backend):
    case = golden.Case(file)
    result = tilemamba.scan(*case.tensors, **case.options, final_states="final_states" in case.right, backend=backend)
    assert result.y.dtype == case.tensors[0].dtype
    assert golden.worst_share(result.y, case.right["out"], case.bars["bar_out"], case.bars["bar_block"]) <= 1
    for name in ("final_states", "chunk_states"):
        states = getattr(result, name)
        assert (states is None) == (name not in case.right)
        if states is not None:
            assert states.shape == case.right[name].shape
            assert golden.worst_share_of_states(states, case.right[name], case.bars["bar_state"]) <= 1


def test_strides_are_walked_and_nothing_is_copied():
    tensors, more = problem()
    plain = tilemamba.scan(*tensors, **more, final_states=True)
    wide = np.concatenate([array.reshape(2, 70, -1) for array in (tensors[0], tensors[3], tensors[4])], -1)
    x, B, C = np.split(wide, [32, 64], -1)  # views of one wider buffer
    y = np.full((70, 2, 4, 16), np.nan, np.float32).swapaxes(0, 1)[..., 3:11]
    views = tilemamba.scan(
        x.reshape(2, 70, 4, 8), tensors[1], tensors[2], B.reshape(2, 70, 2, 16), C.reshape(2, 70, 2, 16),
        **more, y=y, final_states=True,
    )  # fmt: skip
    assert views.y is y
    np.testing.assert_array_equal(views.y, plain.y)
    np.testing.assert_array_equal(views.final_states, plain.final_states)
    backwards = [array[:, ::-1] if array.ndim > 1 else array for array in tensors]
    twice = [array[:, ::-1].copy() if array.ndim > 1 else array for array in tensors]
    np.testing.assert_array_equal(tilemamba.scan(*backwards).y, tilemamba.scan(*twice).y)


def test_read_only_inputs_are_taken_and_read_only_outputs_are_not():
    tensors, _ = problem()
    for array in tensors:
        array.flags.writeable = False
    y = np.empty_like(tensors[0])
    tilemamba.scan(*tensors, y=y)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="y cannot be written to; it is an output"):
        tilemamba.scan(*tensors, y=y)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_types_of_outputs(dtype):
    tensors, more = problem(dtype=dtype)
    result = tilemamba.scan(*tensors, **more, final_states=True, state_dtype="bfloat16")
    assert result.y.dtype == dtype and result.final_states.dtype == ml_dtypes.bfloat16
    wide = tilemamba.scan(*tensors, **more, y=np.empty(result.y.shape, np.float32))
    np.testing.assert_allclose(wide.y, result.y.astype(np.float32), rtol=2**-7, atol=1e-6)  # a rounding to bf16


def test_options_reach_the_library():
    tensors, more = problem()
    plain = tilemamba.scan(*tensors, **more).y
    for option in ({"dt_softplus": False}, {"dt_limit": (0.5, 0.75)}):
        assert not np.array_equal(tilemamba.scan(*tensors, **{**more, **option}).y, plain)
    for option in ({"schedule": "recurrent"}, {"chunk_size": 64}, {"batch_invariant": True}, {"check_values": True}):
        np.testing.assert_allclose(tilemamba.scan(*tensors, **{**more, **option}).y, plain, rtol=1e-3, atol=1e-5)


def test_packed_sequences_and_documents():
    tensors, more = problem(batch=1)
    more.pop("initial_states")
    cu_seqlens = np.array([0, 33, 33, 70], np.int32)
    packed = tilemamba.scan(*tensors, **more, cu_seqlens=cu_seqlens, final_states=True, chunk_states_every=16)
    assert packed.final_states.shape == (3, 4, 8, 16) and packed.chunk_states.shape == (4, 4, 8, 16)
    assert not packed.final_states[1].any()
    seq_idx = np.repeat(np.array([7, 5], np.int32), [33, 37])[None]
    documents = tilemamba.scan(*tensors, **more, seq_idx=seq_idx, final_states=True)
    np.testing.assert_allclose(documents.y, packed.y, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(documents.final_states[0], packed.final_states[2], rtol=1e-4, atol=1e-6)


def test_zero_sizes():
    for batch, tokens in ((0, 5), (2, 0)):
        tensors, more = problem(batch=batch, tokens=tokens)
        result = tilemamba.scan(*tensors, **more, final_states=True)
        assert result.y.shape == (batch, tokens, 4, 8)
        np.testing.assert_array_equal(result.final_states, more["initial_states"])


@pytest.mark.parametrize(
    "error, words, change, options",
    [
        (ValueError, "heads H = 3.*groups G = 2", lambda t: [t[0][:, :, :3].copy(), t[1][:, :, :3].copy(), t[2][:3], *t[3:]], {}),
        (ValueError, "x has 5 dimensions; it must have 4", lambda t: [t[0][None], *t[1:]], {"final_states": True}),
        (ValueError, "B has 2 dimensions; it must have 4", lambda t: [*t[:3], t[3][0, 0], t[4]], {"final_states": True}),
        (ValueError, "D has 7 dimensions", None, {"D": np.zeros((1,) * 7, np.float32)}),
        (ValueError, "x has strides .*; the last dimension must be contiguous", lambda t: [t[0][..., ::2], *t[1:]], {}),
        (ValueError, "A has dtype bf16; it must be f32", lambda t: [*t[:2], t[2].astype(ml_dtypes.bfloat16), *t[3:]], {}),
        (ValueError, r"dt_limit = \(-1, inf\)", None, {"dt_limit": (-1, INF)}),
        (ValueError, "unknown backend 'abacus'; valid:", None, {"backend": "abacus"}),
        (ValueError, "no backend|cannot run", None, {"policy": "none"}),
        (ValueError, "unknown schedule 'x'; valid:", None, {"schedule": "x"}),
        (ValueError, "chunk_states_every K = 17", None, {"chunk_states_every": 17}),
        (ValueError, "stream", None, {"stream": 64}),
        (ValueError, "elements overlap", None, {"y": np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (2, 70, 4, 8), (0, 0, 0, 4))}),
        (TypeError, "x is a list; it must be an array", lambda t: [t[0].tolist(), *t[1:]], {}),
        (TypeError, "z is a str; it must be an array", None, {"z": "gate"}),
        (TypeError, "x has dtype float64; it must be float32", lambda t: [t[0].astype(np.float64), *t[1:]], {}),
        (TypeError, "x has dtype uint16; it must be", lambda t: [t[0].astype(np.uint16), *t[1:]], {}),
        (TypeError, "dt_bias is a ndarray of dtype complex|dt_bias has dtype complex64", None, {"dt_bias": np.zeros(4, np.complex64)}),
        (TypeError, "incompatible function arguments", None, {"dt_softplus": "yes"}),
    ],
)  # fmt: skip
def test_error(error, words, change, options):
    tensors, more = problem()
    with pytest.raises(error, match=words):
        tilemamba.scan(*(change(tensors) if change else tensors), **{**more, **options})


@pytest.mark.parametrize(
    "entries, words",
    [([0, 40, 30, 70], r"cu_seqlens\[2\] = 30 is below"), ([0, 69], r"cu_seqlens\[1\] = 69; the last entry must be T"), ([], "is empty")],
)  # fmt: skip
def test_wrong_cu_seqlens(entries, words):
    tensors, more = problem(batch=1)
    more.pop("initial_states")
    with pytest.raises(ValueError, match=words):
        tilemamba.scan(*tensors, **more, cu_seqlens=np.array(entries, np.int32), final_states=True, chunk_states_every=16)


def test_threads_run_at_the_same_time():
    calls = [(problem(seed=seed), seed) for seed in range(8)]
    alone = [tilemamba.scan(*tensors, **more).y for (tensors, more), _ in calls]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = pool.map(lambda call: tilemamba.scan(*call[0][0], **call[0][1]).y, calls)
            for one, other in zip(alone, together):
                np.testing.assert_array_equal(one, other)


def test_other_threads_run_during_a_call():
    tensors, more = problem(tokens=8192, heads=16, head_dim=64, state=128, batch=1)
    tilemamba.scan(*tensors, **more, backend="kokkos-serial")
    count, done = 0, threading.Event()

    def call():
        tilemamba.scan(*tensors, **more, backend="kokkos-serial")
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    while not done.wait(0.001):
        count += 1
    thread.join()
    assert count > 5  # with the GIL held it could count the call's beginning and end only


def test_nothing_leaks_in_ten_thousand_calls():
    tensors, more = problem(tokens=3, batch=1)
    bad = {**more, "D": more["D"][:1]}

    def calls(count):
        for _ in range(count):
            tilemamba.scan(*tensors, **more, final_states=True, backend="kokkos-serial")
            with pytest.raises(ValueError):
                tilemamba.scan(*tensors, **bad, backend="kokkos-serial")
        gc.collect()

    calls(1000)
    before, objects = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(gc.get_objects())
    calls(10000)
    # The smallest thing that a call could lose is an object of 32 bytes: 10,000 of them are 313 KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256  # KiB
    assert len(gc.get_objects()) - objects < 100


def test_workspace_of_the_framework_is_used(monkeypatch):
    """As on a GPU, where the framework's allocator knows of streams and of graphs that are captured."""
    tensors, more = problem(tokens=2000)
    more["schedule"] = "staged"
    right = tilemamba.scan(*tensors, **more, final_states=True)
    asked = []

    def workspace(count):
        asked.append(count)
        memory = np.full(count + 64, -1, np.int32)
        begin = -memory.ctypes.data % 256 // 4
        return memory[begin : begin + count]

    monkeypatch.setattr(tilemamba._frameworks.NumPy, "workspace", lambda self, like, size: workspace(size))
    for result in (tilemamba.scan(*tensors, **more, final_states=True) for _ in range(2)):
        np.testing.assert_array_equal(result.y, right.y)
        np.testing.assert_array_equal(result.final_states, right.final_states)
    assert len(asked) == 2 and asked[0] > 0


def test_backends():
    found = {backend.name: backend for backend in tilemamba.backends()}
    assert found["kokkos-serial"].can_run and found["kokkos-serial"].family == "kokkos" and found["kokkos-serial"].devices
    assert all(backend.reason for backend in found.values())


def test_documentation_names_every_argument():
    for name in inspect.signature(tilemamba.scan).parameters:
        assert f" {name}: " in tilemamba.scan.__doc__


def test_import_asks_for_no_framework():
    code = "import sys, tilemamba, tilemamba.mamba_ssm; print([n for n in ('numpy', 'torch', 'jax', 'cupy') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
