"""In the networks, no array changes its rank or its dtype in silence."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import pytest


@pytest.fixture(autouse=True, scope="module")
def strict() -> Iterator[None]:
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def tf32() -> Callable[..., Callable[..., jax.Array]]:
    """A bilinear function as a GPU computes it of float32: of each factor ten bits are read, forward and backward."""

    def ten_bits(x: jax.Array) -> jax.Array:
        whole = jax.lax.bitcast_convert_type(x, jnp.int32)
        return jax.lax.bitcast_convert_type((whole + 0x1000) & ~0x1FFF, jnp.float32)

    def rounded(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        @jax.custom_vjp
        def forward(*factors: jax.Array) -> jax.Array:
            return function(*(ten_bits(x) for x in factors))

        def backward(kept: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, ...]:
            return jax.vjp(function, *(ten_bits(x) for x in kept))[1](ten_bits(gradient))

        forward.defvjp(lambda *factors: (forward(*factors), factors), backward)
        return forward

    return rounded
