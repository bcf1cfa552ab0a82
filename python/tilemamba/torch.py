# SPDX-License-Identifier: Apache-2.0
"""`tilemamba.scan` as an operator of PyTorch, torch.ops.tilemamba.scan: torch.compile traces it, also where T varies, and CUDA
graphs capture it from the first call on. It takes part in autograd up to the backward, which raises NotImplementedError. Where nobody
looks (no compiler, no gradient, no mode of PyTorch's) `scan` here spares the way through PyTorch's dispatcher."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _core, _frameworks

__all__ = ["scan"]

_framework = _frameworks.named("torch")
_library = torch.library.Library("tilemamba", "DEF")
_library.define(
    "scan(Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? dt_bias, Tensor? initial_states, "
    "Tensor? seq_idx, Tensor? cu_seqlens, bool dt_softplus, float dt_min, float dt_max, int chunk_size, bool final_states, "
    "ScalarType? state_dtype) -> (Tensor, Tensor)",
    tags=[torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order],
)


def _run(
    x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens,
    dt_softplus, dt_min, dt_max, chunk_size, final_states, state_dtype,
):  # fmt: skip
    """y, and the final states or None."""
    return _core.call(
        x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens, None, final_states, state_dtype or torch.float32, None,
        dt_softplus, dt_min, dt_max, chunk_size, 0, False, False, "", "automatic", "",
        None, _framework, False,
    )  # fmt: skip


def _operator(x, *others):
    """An operator's results are all there: an empty tensor for states that are not asked for."""
    y, states = _run(x, *others)
    return y, x.new_empty((0,), dtype=others[-1] or torch.float32) if states is None else states


def _fake(
    x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens,
    dt_softplus, dt_min, dt_max, chunk_size, final_states, state_dtype,
):  # fmt: skip
    batch, tokens, heads, head_dim = x.shape
    states_shape: tuple[int, ...] = (0,)
    if final_states:
        sequences = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
        states_shape = (sequences, heads, head_dim, B.shape[3])
    return x.new_empty((batch, tokens, heads, head_dim)), x.new_empty(states_shape, dtype=state_dtype or torch.float32)


def _no_backward(context, *gradients):
    raise NotImplementedError("the backward of tilemamba's scan does not exist yet; call the forward under torch.no_grad()")


_library.impl("scan", _operator, "CPU")
_library.impl("scan", _operator, "CUDA")
torch.library.register_fake("tilemamba::scan", _fake, lib=_library)
torch.library.register_autograd("tilemamba::scan", _no_backward, lib=_library)


_PLAIN = (Tensor, torch.nn.Parameter)


def _observed(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether somebody would miss the operator: a compiler or a tracer, autograd, a mode or a subclass of tensors."""
    gradients = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or gradients and tensor.requires_grad):
            return True
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.maybe_current_level() is not None
        or torch._C._get_tracing_state() is not None
    )


def scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    chunk_size: int = 0,
    final_states: bool = False,
    state_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As `tilemamba.scan`, which explains the arguments, and in a compiled function.

    Returns:
        y, (B,T,H,P), as x, and the final states, (B,H,P,N), packed: (S,H,P,N), of state_dtype, float32 if absent; None unless
        `final_states`.
    """
    tensors = (x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens)
    call = torch.ops.tilemamba.scan.default if _observed(tensors) else _run
    y, states = call(*tensors, dt_softplus, dt_limit[0], dt_limit[1], chunk_size, final_states, state_dtype)
    return y, states if final_states else None
