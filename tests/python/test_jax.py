# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX, on the CPU."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import tilemamba


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax_on_the_cpu(dtype):
    with jax.default_device(jax.devices("cpu")[0]):
        keys = iter(jax.random.split(jax.random.key(0), 8))
        shapes = ((2, 70, 4, 8), (2, 70, 4), (4,), (2, 70, 2, 16), (2, 70, 2, 16))
        x, dt, A, B, C = (jax.random.normal(next(keys), shape) for shape in shapes)
        tensors = [x.astype(dtype), dt, -jnp.exp(A), B.astype(dtype), C.astype(dtype)]
        result = tilemamba.scan(*tensors, dt_softplus=True, final_states=True)
    assert isinstance(result.y, jax.Array) and isinstance(result.final_states, jax.Array) and result.y.dtype == dtype
    right = tilemamba.scan(*map(np.asarray, tensors), dt_softplus=True, final_states=True)
    np.testing.assert_array_equal(np.asarray(result.y), right.y)
    np.testing.assert_array_equal(np.asarray(result.final_states), right.final_states)


def test_jax_does_not_trace_it_and_takes_no_outputs():
    x = jnp.zeros((1, 4, 1, 8))
    dt, A, BC = jnp.zeros((1, 4, 1)), jnp.zeros(1), jnp.zeros((1, 4, 1, 8))
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(lambda x: tilemamba.scan(x, dt, A, BC, BC).y)(x)
    with pytest.raises(ValueError, match="an output was passed along with arrays of JAX"):
        tilemamba.scan(x, dt, A, BC, BC, y=x)
