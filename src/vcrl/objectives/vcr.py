"""Value consistency: an imagined state should be worth what the real one is worth, action by action."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.objectives.distance import Distance


def value_consistency(
    taken: Float[Array, "K B E"],
    taken_target: Float[Array, "K B E"],
    others: Float[Array, "K B M E"],
    others_target: Float[Array, "K B M E"],
    keep: Float[Array, "K B M"],
    alive: Float[Array, "K B"],
    *,
    distance: Distance,
    taken_weight: float = 1.0,
    others_weight: float = 0.1,
    summed: bool = False,
) -> tuple[Float[Array, " B"], dict[str, Array]]:
    """L_VCR = sum_k alive_k (taken_weight d(taken_k, y_k) + others_weight mean_{kept m} d(others_km, Q_T_km)).

    `taken` is the imagined state's value of the action really taken and `taken_target` its Bellman target;
    `others` are the imagined state's values of the other actions and `others_target` the target head's values of the
    real state. `keep` says which of the M others count, `alive` which real states exist. E is whatever `distance`
    compares: log-probabilities against probabilities for `cross_entropy`, one or two critics for `squared_error`.
    Targets must come without gradient. For d_MSE pass the real state's value as `taken_target` and an empty M; for
    d_MSE-A keep every action and set `taken_weight=0`. `summed` takes the sum over the others for their mean.

    Returns one loss a sample and its two unweighted parts.
    """
    vcr1 = jnp.sum(alive * distance(taken, taken_target), axis=0)
    kept = jnp.ones(alive.shape) if summed else jnp.maximum(jnp.sum(keep, axis=-1), 1.0)
    vcr2 = jnp.sum(alive * jnp.sum(keep * distance(others, others_target), axis=-1) / kept, axis=0)
    return taken_weight * vcr1 + others_weight * vcr2, {"taken": vcr1, "others": vcr2}
