"""A loss of one's own: what a user's module marks as one, and how it is found by its name.

    @vcrl.loss
    def smooth(view, key):
        jumps = view.imagined[1:] - view.imagined[:-1]
        return (jumps**2).reshape(*jumps.shape[:2], -1).mean((0, 2))  # one number a sample

`spr+my_ideas:smooth` is SPR with it beside its own terms. Only what is marked can be named: a run folder of a
stranger's cannot have any function of any module called.
"""

import inspect
import linecache
import marshal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from vcrl.core.config import digest
from vcrl.core.errors import UserError, unknown
from vcrl.core.modules import bring, imported, names_in


class OwnLoss(NamedTuple):
    """A marked function: view, key, numbers by name -> one loss a sample, or that and metrics by name."""

    function: Callable[..., Any]
    nets: Callable[..., Any] | None  # key, shape of a state, actions -> what it learns besides, a module
    targets: bool  # whether it reads Bellman targets at imagined steps, `view.td_target[1:]`
    code: str  # digest of the file it is marked in, as that was when it was imported

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
    file = _caller()

    def mark(function: Callable[..., Any]) -> OwnLoss:
        parts = [function] if nets is None else [function, nets]
        return OwnLoss(function, nets, targets, digest(_source(file, parts)))

    return mark if function is None else mark(function)


def _caller() -> str:
    """The file in which the loss is marked: there are its numbers, wrappers and nets, wherever its parts come from."""
    frame, ours = sys._getframe(1), ("vcrl", "jaxtyping", "beartype")  # and what checks our types
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame = frame.f_back
    return frame.f_code.co_filename


def _source(file: str, parts: Sequence[Callable[..., Any]]) -> list[str]:
    """The whole file; in a notebook the cell, and what stands in other cells; typed elsewhere what it compiled to."""
    if Path(file).is_file():
        return [Path(file).read_bytes().hex()]
    found = ["".join(linecache.getlines(file))]
    for part in map(inspect.unwrap, parts):
        try:
            found.append(inspect.getsource(part))
        except (TypeError, OSError):
            code = getattr(part, "__code__", None)
            if code is None:
                raise UserError(f"the code of {part} cannot be seen: write the loss in a file") from None
            # Version 2 of the format depends on nothing but the code.
            found.append(marshal.dumps(code, 2).hex())
    return found


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
    there = names_in(imported(module, f"the loss {name}"))
    marked = {key: value for key, value in there.items() if type(value) is OwnLoss}
    if word in marked:
        return marked[word]
    if word in there:
        raise UserError(f"{name} is no loss: write @vcrl.loss above the function")
    if not marked:
        raise UserError(f"{name} is no loss: no function of {module} is marked with @vcrl.loss")
    raise unknown(f"loss in {module}", word, marked)


def known(name: str, code: str) -> OwnLoss | None:
    """The loss of this code; None where it is not imported or has changed. To play, it is not needed."""
    try:
        loss = found(name)
    except UserError:
        return None
    return loss if loss.code == code else None


def code_of(name: str) -> str:
    """The digest of a loss's code; empty where it is not imported."""
    try:
        return found(name).code
    except UserError:
        return ""


def _parts(name: str) -> tuple[str, str]:
    module, _, word = name.partition(":")
    if not (module and word):
        raise UserError(f"'{name}' names no loss: write METHOD+module:function, such as spr+my_ideas:smooth")
    return module, word
