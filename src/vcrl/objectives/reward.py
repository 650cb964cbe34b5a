"""Reward prediction: an imagined state should tell the reward of arriving there."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def reward_prediction(
    logits: Float[Array, "K B 3"], reward: Float[Array, "K B"], mask: Float[Array, "K B"]
) -> Float[Array, " B"]:
    """(1/K) sum_k mask_k (-log p_k(sign r_k)), in nats, one number a sample; what is masked counts in K.

    The three classes are a loss, nothing and a gain.
    """
    actual = 1 + jnp.sign(reward).astype(jnp.int32)
    likely = jnp.take_along_axis(jax.nn.log_softmax(logits), actual[..., None], axis=-1)[..., 0]
    return -jnp.mean(mask * likely, axis=0)
