# SPDX-License-Identifier: Apache-2.0
"""Arrays of CuPy, where there is a GPU: they are read where they lie, and CuPy's current stream is used."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

import tilemamba


def arrays(dtype, tokens=200):
    draw = np.random.default_rng(0).standard_normal
    x, B, C = (cupy.asarray(draw(shape).astype(dtype)) for shape in ((2, tokens, 4, 64), (2, tokens, 1, 128), (2, tokens, 1, 128)))
    return [x, cupy.asarray(np.abs(draw((2, tokens, 4))).astype(np.float32)), cupy.asarray(-np.abs(draw(4)).astype(np.float32)), B, C]


@pytest.fixture(autouse=True)
def gpu():
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return
    except cupy.cuda.runtime.CUDARuntimeError:
        pass
    pytest.skip("there is no GPU")


def recurrence(x, dt, A, B, C):
    x, dt, A, B, C = (array.get().astype(np.float64) for array in (x, dt, A, B, C))
    y, h = np.empty(x.shape), np.zeros((*x.shape[:1], *x.shape[2:], B.shape[3]))
    for t in range(x.shape[1]):
        h = np.exp(dt[:, t] * A)[..., None, None] * h + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        y[:, t] = (h * C[:, t, :, None]).sum(-1)
    return y, h


@pytest.mark.parametrize("dtype, bar", [("float32", 2e-6), ("float16", 1.5e-3)])  # as in test_torch.py
def test_right_and_new_arrays_are_cupys(dtype, bar):
    call = arrays(dtype)
    result = tilemamba.scan(*call, final_states=True)
    for answer, right in zip((result.y, result.final_states), recurrence(*call)):
        assert isinstance(answer, cupy.ndarray)
        assert np.linalg.norm(answer.get() - right) <= bar * np.linalg.norm(right)


def test_current_stream_is_used():
    call = arrays("float32", tokens=4096)
    right = tilemamba.scan(*call).y
    cupy.cuda.Device().synchronize()
    stream, matrix = cupy.cuda.Stream(non_blocking=True), cupy.ones((4096, 4096), dtype=cupy.float32)
    with stream:
        x = cupy.zeros_like(call[0])
        for _ in range(20):  # keeps the stream busy, so that a call on any other reads zeros
            matrix = matrix @ matrix * 1e-4
        cupy.copyto(x, call[0])
        y = tilemamba.scan(x, *call[1:]).y
    stream.synchronize()
    assert (y == right).all()
