# SPDX-License-Identifier: Apache-2.0
"""What differs between the frameworks that arrays come from: making one, the current stream. None is imported before one of its
arrays has come."""

from __future__ import annotations

import functools
from typing import Any


class Framework:
    """Arrays of which nothing is known but that they export DLPack."""

    def check(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        """Raises for arrays of which the framework asks more than a call can give."""

    def empty(self, shape: Any, dtype: Any, like: Any) -> Any:
        """A new array on the device of `like`; dtype is a name or the framework's own."""
        raise TypeError(
            f"x is a {type(like).__name__}, of which no new array can be made here; pass y, and arrays of states where they are wanted"
        )

    def empty_like(self, array: Any) -> Any:
        """A new array as this one."""
        return self.empty(array.shape, array.dtype, array)

    def stream(self, like: Any) -> int:
        """The current stream of the device of `like`, a GPU; 0: its default."""
        return 0

    def workspace(self, like: Any, size: int) -> Any:
        """An array of so many int32 on the device of `like` for work on the current stream; None: the library finds it."""
        return None

    def values(self, array: Any) -> list[int]:
        """The entries of cu_seqlens, if it is in host memory."""
        raise ValueError(
            "chunk_states must be passed: cu_seqlens is not known to be in host memory, and the number of states is the sum of "
            "len div chunk_states_every over the sequences"
        )

    def results(self, *arrays: Any) -> Any:
        """What the caller gets for outputs."""
        return arrays


class NumPy(Framework):
    def __init__(self) -> None:
        import numpy

        self._numpy = numpy

    def empty(self, shape, dtype, like):
        if dtype == "bfloat16":
            from ml_dtypes import bfloat16 as dtype
        return self._numpy.empty(shape, dtype)

    def values(self, array):
        return self._numpy.asarray(array).tolist()


class Torch(Framework):
    def __init__(self) -> None:
        import torch

        self._torch = torch
        # What current_stream(device).cuda_stream gives, without making a Python object of it.
        self._raw_stream = getattr(
            torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
        )

    def check(self, inputs, outputs):
        if self._torch.is_grad_enabled() and any(getattr(array, "requires_grad", False) for array in inputs):
            raise ValueError(
                "an input requires a gradient, and there is no backward yet; call this under torch.no_grad(), or detach the input"
            )

    def empty(self, shape, dtype, like):
        if isinstance(dtype, str):
            dtype = getattr(self._torch, dtype)
        return like.new_empty(shape, dtype=dtype)

    def empty_like(self, array):
        return self._torch.empty_like(array)

    def stream(self, like):
        return self._raw_stream(like.get_device())

    def workspace(self, like, size):
        return like.new_empty(size, dtype=self._torch.int32) if like.is_cuda else None

    def values(self, array):
        return super().values(array) if array.is_cuda else array.tolist()


class CuPy(Framework):
    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def empty(self, shape, dtype, like):
        with like.device:
            return self._cupy.empty(shape, dtype)

    def stream(self, like):
        with like.device:
            return self._cupy.cuda.get_current_stream().ptr

    def workspace(self, like, size):
        return self.empty((size,), "int32", like)


class Jax(NumPy):
    """On the CPU. Outputs are NumPy's until they are complete: JAX's own arrays never change."""

    def __init__(self) -> None:
        super().__init__()
        import jax

        self._jax = jax

    def check(self, inputs, outputs):
        if any(not isinstance(array, (bool, type(None))) for array in outputs):
            raise ValueError("an output was passed along with arrays of JAX, which never change; leave it out")
        for array in inputs:
            if isinstance(array, self._jax.core.Tracer):
                raise TypeError("scan runs on arrays and cannot be traced by a transformation of JAX")
            if isinstance(array, self._jax.Array) and any(device.platform != "cpu" for device in array.devices()):
                raise NotImplementedError("arrays of JAX on a GPU are not taken yet: their stream is XLA's own")
        self._jax.block_until_ready(inputs)

    def results(self, *arrays):
        return tuple(self._jax.numpy.asarray(array) if isinstance(array, self._numpy.ndarray) else array for array in arrays)


_FRAMEWORKS = {"numpy": NumPy, "torch": Torch, "cupy": CuPy, "jax": Jax, "jaxlib": Jax}


@functools.cache
def named(name: str) -> Framework:
    return _FRAMEWORKS.get(name, Framework)()


@functools.lru_cache(maxsize=256)
def _of_type(kind: Any) -> Framework:
    if not hasattr(kind, "__dlpack__"):
        raise TypeError(f"x is a {kind.__name__}; it must be an array of NumPy, PyTorch, JAX or CuPy, or another with __dlpack__")
    packages = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return named(next((package for package in packages if package in _FRAMEWORKS), ""))


def of(array: Any) -> Framework:
    return _of_type(type(array))  # type: ignore[arg-type]  # mypy: a type[Any] is hashable
