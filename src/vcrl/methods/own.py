"""A loss of one's own: what a user's module marks as one, and how it is found by its name.

    @vcrl.loss
    def smooth(view, key):
        jumps = view.imagined[1:] - view.imagined[:-1]
        return (jumps**2).reshape(*jumps.shape[:2], -1).mean((0, 2))  # one number a sample

`spr+my_ideas:smooth` is SPR with it beside its own terms. Only what is marked can be named: a run folder of a
stranger's cannot have any function of any module called.
"""

import inspect
import marshal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, overload

from vcrl.core.config import digest
from vcrl.core.errors import UserError, unknown
from vcrl.core.modules import bring, imported


class OwnLoss(NamedTuple):
    """A marked function: view, key, numbers by name -> one loss a sample, or that and metrics by name."""

    function: Callable[..., Any]
    nets: Callable[..., Any] | None  # key, shape of a state, actions -> what it learns besides, a module
    targets: bool  # whether it reads Bellman targets at imagined steps, `view.td_target[1:]`
    code: str  # digest of what it is written in, as it was when it was imported: other code is another method

    def __call__(self, *arguments: Any, **numbers: Any) -> Any:
        return self.function(*arguments, **numbers)


@overload
def loss(function: Callable[..., Any], /) -> OwnLoss: ...
@overload
def loss(
    *, nets: Callable[..., Any] | None = None, targets: bool = False
) -> Callable[[Callable[..., Any]], OwnLoss]: ...
def loss(
    function: Callable[..., Any] | None = None,
    /,
    *,
    nets: Callable[..., Any] | None = None,
    targets: bool = False,
) -> Any:
    """Mark a function as a loss that a method may have beside its terms: `vcrl train METHOD+module:function TASK`.

    It is called with a `View` and a key, and returns one number a sample, or these and a dict of metrics. `nets(key,
    shape of a state, number of actions)` makes what it learns besides the agent's nets, `view.online.own`. `targets`
    asks for Bellman targets at imagined steps.
    """

    def mark(function: Callable[..., Any]) -> OwnLoss:
        return OwnLoss(function, nets, targets, digest(_source(function)))

    return mark if function is None else mark(function)


def _source(function: Callable[..., Any]) -> str:
    """The whole file that it is written in; in a notebook the function alone; typed elsewhere what it compiled to."""
    file = Path(function.__code__.co_filename)
    if file.is_file():
        return file.read_text("utf8")
    try:
        return inspect.getsource(function)
    except OSError:
        return marshal.dumps(function.__code__).hex()


def with_loss(method: str) -> tuple[str, str | None]:
    """`spr+my_ideas:smooth` -> spr, my_ideas:smooth; a plain method has no loss of one's own."""
    plain, plus, name = method.partition("+")
    return plain, name if plus else None


def bring_loss(method: str) -> None:
    """Import the loss that the name of a method asks for: whoever types it wants it."""
    _, name = with_loss(method)
    if name is not None:
        module, _ = _parts(name)
        bring(module, f"which {method} names")
        found(name)


def found(name: str) -> OwnLoss:
    """The loss `module:function`, of a module that is imported already."""
    module, word = _parts(name)
    there = vars(imported(module, f"the loss {name}"))
    marked = {key: value for key, value in there.items() if isinstance(value, OwnLoss)}
    if word not in marked:
        why = "it is not marked with @vcrl.loss" if word in there else f"{module} marks no function so"
        if word in there or not marked:
            raise UserError(f"{name} is no loss: {why}; write @vcrl.loss above it")
        raise unknown(f"loss in {module}", word, marked)
    return marked[word]


def code_of(name: str) -> str:
    """The digest of a loss's file; empty where its module is not imported."""
    module, _ = _parts(name)
    return found(name).code if module in sys.modules else ""


def _parts(name: str) -> tuple[str, str]:
    module, _, word = name.partition(":")
    if not (module and word):
        raise UserError(f"'{name}' names no loss: write METHOD+module:function, such as spr+my_ideas:smooth")
    return module, word
