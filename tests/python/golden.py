# SPDX-License-Identifier: Apache-2.0
"""Stored cases (tests/golden/README.md) and their bars, for NumPy."""

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I32": np.int32}
INPUTS = ("D", "z", "dt_bias", "initial_states", "seq_idx", "cu_seqlens")


def files():
    """All stored cases: those in the tree, and those in TILEMAMBA_GOLDEN_DIR. One that is in both counts once."""
    folders = [Path(__file__).parents[1] / "golden", os.environ.get("TILEMAMBA_GOLDEN_DIR")]
    found = {file.stem: file for folder in folders if folder for file in Path(folder).glob("*.safetensors")}
    return [found[name] for name in sorted(found)]


class Case:
    """tensors: x, dt, A, B, C. options: for tilemamba.scan. right: out, and states where there are any. bars: by name."""

    def __init__(self, file):
        content = file.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        metadata = header.pop("__metadata__")
        arrays = {}
        for name, entry in header.items():
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(content[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        self.tensors = [arrays[name] for name in ("x", "dt", "A", "B", "C")]
        self.options = {name: arrays[name] for name in INPUTS if name in arrays}
        self.options["dt_softplus"] = metadata.get("dt_softplus") == "true"
        self.options["dt_limit"] = (float(metadata.get("dt_limit_lo", 0)), float(metadata.get("dt_limit_hi", "inf")))
        self.options["chunk_size"] = int(metadata.get("chunk_size", 0))
        self.options["chunk_states_every"] = int(metadata.get("chunk_states_every", 0))
        self.right = {name: arrays[name] for name in ("out", "final_states", "chunk_states") if name in arrays}
        self.bars = {name: float(metadata[name]) for name in ("bar_out", "bar_block", "bar_state") if name in metadata}


def relative(error, right):
    """Where right is zero, the answer must be zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0, np.sqrt(error / right))


def worst_share(y, right, bar_out, bar_block):
    """The worst error of y (B,T,H,P) as a share of its bar: over everything, over each (batch, head, 64 tokens), over each row."""
    right = right.astype(np.float64)
    error, norm = ((y.astype(np.float64) - right) ** 2).sum(-1), (right**2).sum(-1)
    shares = [relative(error.sum(), norm.sum()) / bar_out]
    for begin in range(0, y.shape[1], 64):
        block, block_norm = error[:, begin : begin + 64], norm[:, begin : begin + 64]
        shares.append((relative(block.sum(1), block_norm.sum(1)) / bar_block).max())
        limit = np.maximum(6 * np.sqrt(block.mean(1, keepdims=True)), 2 * bar_out * np.sqrt(block_norm))
        shares.append(np.divide(np.sqrt(block), limit, out=np.zeros_like(block), where=block > 0).max())
    return max(shares)


def worst_share_of_states(states, right, bar):
    """The same for states (...,H,P,N), over each head of each."""
    right = right.astype(np.float64)
    error, norm = ((states.astype(np.float64) - right) ** 2).sum((-1, -2)), (right**2).sum((-1, -2))
    return (relative(error, norm) / bar).max(initial=0)
