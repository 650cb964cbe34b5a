"""Trees of arrays on the device to flat named arrays on the host, and back."""

from typing import Any, TypeVar

import jax
import numpy as np

from vcrl.core.errors import UserError

T = TypeVar("T")


def pack(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """Every leaf by the path that leads to it, such as `state.online.encoder.convs[0].weight`."""
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in _leaves(tree)}


def unpack(like: T, arrays: dict[str, np.ndarray], prefix: str) -> T:
    """The tree shaped like `like` from its packed arrays; a leaf that is missing or misshapen is refused."""
    out: list[Any] = []
    for path, leaf in _leaves(like):
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays:
            raise UserError(
                f"the checkpoint lacks {name}: it is not of this run; delete its folder to start again"
            )
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise UserError(
                f"the checkpoint holds {name} as {found.dtype}{list(found.shape)} where this run has "
                f"{leaf.dtype}{list(leaf.shape)}: it is not of this run; delete its folder to start again"
            )
        out.append(jax.numpy.array(found))
    return jax.tree.unflatten(jax.tree.structure(like), out)


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_leaves_with_path(tree)
