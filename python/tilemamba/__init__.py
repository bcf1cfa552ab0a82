# SPDX-License-Identifier: Apache-2.0
"""The forward pass of the Mamba-2 chunked scan (SSD; Dao & Gu 2024, "Transformers are SSMs") on any device.

    delta_t = dt_t + dt_bias, softplus if asked, clamped to dt_limit
    h_t     = exp(delta_t A) h_(t-1) + delta_t x_t B_t^T          h in R^(P x N), fp32
    y_t     = h_t C_t + D x_t;   y_t = y_t * z_t * sigmoid(z_t) if z is given

`scan` takes arrays of NumPy, PyTorch, JAX (on the CPU) and CuPy, and any others that export DLPack, where they lie.
`tilemamba.torch` has it as an operator of PyTorch, `tilemamba.mamba_ssm` under the names and with the conventions of mamba_ssm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _core, _frameworks

__all__ = ["Array", "Backend", "Scan", "__version__", "backends", "scan"]

__version__: str = _core.version()

Array = Any
"""An array of NumPy, PyTorch, JAX or CuPy, or any other that exports DLPack."""


class Scan(NamedTuple):
    """What `scan` returns. None: not asked for."""

    y: Array
    """(B,T,H,P)"""
    final_states: Array | None
    """(B,H,P,N), packed: (S,H,P,N)"""
    chunk_states: Array | None
    """(B, T div K, H,P,N), packed: (sum of len div K, H,P,N)"""


class Backend(NamedTuple):
    """A backend of this build, as it is now."""

    name: str
    """Member, e.g. "kokkos-openmp"."""
    family: str
    """E.g. "kokkos"."""
    can_run: bool
    reason: str
    """Why not, or a word on what it is."""
    devices: list[str]
    """What it would run on."""


def backends() -> list[Backend]:
    """Every backend of this build in the order in which they are tried, each probed now."""
    return [Backend(*backend) for backend in _core.backends()]


def _extent(array: Array, dimension: int) -> int:
    """0 where there is no such dimension: the library says what is wrong with the array, before it looks at states."""
    shape = getattr(array, "shape", ())
    return shape[dimension] if len(shape) > dimension else 0


def scan(
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    *,
    D: Array | None = None,
    z: Array | None = None,
    dt_bias: Array | None = None,
    initial_states: Array | None = None,
    seq_idx: Array | None = None,
    cu_seqlens: Array | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    y: Array | None = None,
    final_states: Array | bool = False,
    chunk_states: Array | None = None,
    chunk_states_every: int = 0,
    state_dtype: Any = "float32",
    chunk_size: int = 0,
    batch_invariant: bool = False,
    allow_tf32: bool = False,
    backend: str = "",
    schedule: str = "automatic",
    policy: str = "",
    stream: int | None = None,
    check_values: bool = False,
) -> Scan:
    """Runs the scan on the device that holds the arrays, without copying them.

    Sizes: batch B, tokens T, heads H, head dimension P, groups G (head h reads group h // (H/G)), state size N, packed
    sequences S. Any strides, as long as the last dimension is contiguous. bfloat16 in NumPy is that of ml_dtypes.

    Args:
        x: (B,T,H,P), float32, float16 or bfloat16.
        dt: (B,T,H), as x or float32.
        A: (H), float32; values <= 0 in every real model.
        B: (B,T,G,N), as x.
        C: (B,T,G,N), as x.
        D: (H) or (H,P), float32 or as x.
        z: (B,T,H,P), as x: the gate.
        dt_bias: (H), float32 or as dt.
        initial_states: (B,H,P,N), packed: (S,H,P,N), float32, float16 or bfloat16; zeros if absent.
        seq_idx: (B,T) int32; a change of value starts a new document, from a state of zero.
        cu_seqlens: (S+1) int32, with B = 1: sequence s is tokens cu_seqlens[s] to cu_seqlens[s+1] - 1.
        dt_softplus: whether delta is softplus(dt + dt_bias).
        dt_limit: (lo, hi), 0 <= lo <= hi: delta is clamped to it, both ends inclusive.
        y: where the output goes, (B,T,H,P), as x or float32; a new array as x if absent.
        final_states: True for a new array of the states after the last token, or the array they go to, (B,H,P,N), packed:
            (S,H,P,N), float32, float16 or bfloat16.
        chunk_states: the array that the states after every `chunk_states_every` tokens of each sequence go to. Needed only where
            packed sequences are in a GPU's memory: then its first extent cannot be known here.
        chunk_states_every: tokens between those states, a multiple of 16; 0: they are not asked for.
        state_dtype: of new arrays of states: "float32", "float16" or "bfloat16", or the framework's own.
        chunk_size: a hint that published interfaces pass; results differ only by rounding; 0: none.
        batch_invariant: a sequence packed among others gives bit for bit what it gives alone.
        allow_tf32: float32 inputs may be multiplied as tf32 (about 1e-3) where the device gains by it.
        backend: a family ("kokkos") or a member ("kokkos-openmp"); "": TILEMAMBA_BACKEND, else the device decides.
        schedule: "automatic", "staged", "fused" or "recurrent".
        policy: the name of a tile configuration; "": the planner's choice.
        stream: a cudaStream_t or hipStream_t as a number; absent: the framework's current stream.
        check_values: cu_seqlens in a GPU's memory is read back and checked as well, which waits for the GPU.

    Raises:
        ValueError: an argument is wrong, no backend can run here or the one asked for cannot; the message names the array or
            option, what it was and what would be right.
        TypeError: something is not an array, or of a dtype or on a device that there is not.
        MemoryError: there is no room for the workspace.
        RuntimeError: a launch or the device failed.
    """
    framework = _frameworks.of(x)
    framework.check((x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens), (y, final_states, chunk_states))
    if chunk_states is None and chunk_states_every > 0:
        if cu_seqlens is None:
            count: tuple[int, ...] = (_extent(x, 0), _extent(x, 1) // chunk_states_every)
        else:
            starts = framework.values(cu_seqlens)
            count = (sum(max(end - start, 0) // chunk_states_every for start, end in zip(starts, starts[1:])),)
        chunk_states = framework.empty((*count, *x.shape[2:], _extent(B, 3)), state_dtype, x)
    y, final_states = _core.call(
        x,
        dt,
        A,
        B,
        C,
        D,
        z,
        dt_bias,
        initial_states,
        seq_idx,
        cu_seqlens,
        y,
        final_states,
        state_dtype,
        chunk_states,
        dt_softplus,
        dt_limit[0],
        dt_limit[1],
        chunk_size,
        chunk_states_every,
        batch_invariant,
        allow_tf32,
        backend,
        schedule,
        policy,
        stream,
        framework,
        check_values,
    )
    return Scan(*framework.results(y, final_states, chunk_states))
