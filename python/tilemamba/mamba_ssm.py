# SPDX-License-Identifier: Apache-2.0
"""A drop-in for mamba_ssm's `mamba_chunk_scan_combined`, and `patch`, which makes installed packages use it.

PyTorch is imported by the first call. docs/python.md lists where results differ from mamba_ssm's, and why.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["mamba_chunk_scan_combined", "patch"]


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    state_dtype: torch.dtype | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The forward of mamba_ssm's function of this name; its backward raises NotImplementedError.

    As there, tensors that do not suit are copied: those whose last dimension is not contiguous; A, dt, dt_bias and D of another
    floating type; indices that are not int32.

    Args:
        x: (batch, seqlen, nheads, headdim), float32, float16 or bfloat16.
        dt: (batch, seqlen, nheads).
        A: (nheads).
        B: (batch, seqlen, ngroups, dstate), as x.
        C: (batch, seqlen, ngroups, dstate), as x.
        chunk_size: a hint; results differ only by rounding.
        D: (nheads, headdim) or (nheads).
        z: (batch, seqlen, nheads, headdim), as x.
        dt_bias: (nheads).
        initial_states: (batch, nheads, headdim, dstate).
        seq_idx: (batch, seqlen); a change of value starts a new document, from a state of zero.
        cu_seqlens: (num_sequences + 1), with batch = 1. Only used if return_varlen_states: it does not cut the scan.
        dt_softplus: whether to apply softplus to dt + dt_bias.
        dt_limit: (lo, hi), 0 <= lo <= hi.
        return_final_states: also return the states after the last token, (batch, nheads, headdim, dstate), float32.
        return_varlen_states: also return the states at the end of each sequence of cu_seqlens, every sequence by itself, (num_sequences,
            nheads, headdim, dstate). The first one starts from initial_states, the others from zero.
        state_dtype: of the varlen states; absent: as C.

    Returns:
        out, (batch, seqlen, nheads, headdim), as x; then the final states, if asked for; then the varlen states, if asked for.

    Raises:
        ValueError, TypeError: as `tilemamba.scan`.
    """
    import torch

    from .torch import scan

    def suited(tensor: Tensor | None, *dtypes: torch.dtype) -> Tensor | None:
        """With the last dimension contiguous, and of the last of the dtypes if it is of none of them."""
        if tensor is None:
            return None
        if dtypes and tensor.dtype not in dtypes:
            tensor = tensor.to(dtypes[-1])
        return tensor if tensor.stride(-1) == 1 else tensor.contiguous()

    dt = suited(dt, x.dtype, torch.float32)
    options: dict[str, Any] = {
        "D": suited(D, x.dtype, torch.float32),
        "z": suited(z),
        "dt_bias": suited(dt_bias, dt.dtype, torch.float32),
        "seq_idx": suited(seq_idx, torch.int32),
        "dt_softplus": dt_softplus,
        "dt_limit": dt_limit,
        "chunk_size": chunk_size,
    }
    tensors = (suited(x), dt, suited(A, torch.float32), suited(B), suited(C))
    initial_states = suited(initial_states)
    y, final_states = scan(*tensors, **options, initial_states=initial_states, final_states=return_final_states)
    results = [y, final_states] if return_final_states else [y]
    if return_varlen_states:
        if cu_seqlens is None:
            raise ValueError("cu_seqlens was not passed; return_varlen_states asks for the states of its sequences")
        if initial_states is not None:
            sequences = cu_seqlens.shape[0] - 1
            first = initial_states[:sequences]
            initial_states = torch.cat([first, first.new_zeros(sequences - first.shape[0], *first.shape[1:])])
        _, varlen_states = scan(
            *tensors,
            **options,
            initial_states=initial_states,
            cu_seqlens=suited(cu_seqlens, torch.int32),
            final_states=True,
            state_dtype=state_dtype or C.dtype,
        )
        results.append(varlen_states)
    return results[0] if len(results) == 1 else tuple(results)


_PARAMETERS = frozenset(inspect.signature(mamba_chunk_scan_combined).parameters)


def _mamba2_chunk_scan(*args: Any, **kwargs: Any) -> Any:
    """As transformers calls it, with keywords for whoever may want them."""
    return mamba_chunk_scan_combined(*args, **{name: kwargs[name] for name in kwargs if name in _PARAMETERS})


_TRANSFORMERS = ("mamba2", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2")


def patch() -> list[str]:
    """Makes mamba_ssm and transformers, whichever are installed, use `mamba_chunk_scan_combined` of this module: also models that
    are there already, for inference. Training still needs mamba_ssm's own.

    Returns:
        What was replaced, as "module.name".

    Raises:
        ImportError: neither is installed.
    """
    try:
        theirs = importlib.import_module("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined
    except ImportError:
        theirs = None
    for model in _TRANSFORMERS:
        try:
            importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        except ImportError:
            pass
    ours = {"mamba_chunk_scan_combined": mamba_chunk_scan_combined, "mamba2_chunk_scan": _mamba2_chunk_scan}
    replaced = []
    for name, module in list(sys.modules.items()):
        for attribute, our in ours.items():
            found = vars(module).get(attribute)
            if callable(found) and (found is theirs or name.startswith("transformers.models.")):
                setattr(module, attribute, our)
                replaced.append(f"{name}.{attribute}")
    if not replaced:
        raise ImportError("there is nothing to patch: neither mamba_ssm nor a transformers with Mamba-2 can be imported")
    return replaced
