"""The same work on many things, in two processes where that can be done safely."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")


def spread(work: Callable[[Thing], Result], things: Sequence[Thing], least: int = 2) -> list[Result]:
    """The results in order; fewer things than `least` are not worth a second process.

    Every other thing is left to a forked copy of this process, which needs nothing sent to it. What the copy fails at
    is done again here, so that errors are raised as if there were no copy.
    """
    if len(things) < least or not _may_fork():
        return [work(thing) for thing in things]
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    other = fork.Process(target=_send, args=(sender, work, things[1::2]), daemon=True)
    try:
        other.start()
    except OSError:  # no room for another process
        return [work(thing) for thing in things]
    sender.close()  # so that a copy that died is noticed
    try:
        mine = [work(thing) for thing in things[::2]]
        try:
            theirs = receiver.recv()
        except (EOFError, OSError):  # it failed, or was killed
            theirs = [work(thing) for thing in things[1::2]]
    finally:
        receiver.close()
        other.terminate()
        other.join()
    return [(theirs if place % 2 else mine)[place // 2] for place in range(len(things))]


def _send(sender: Connection, work: Callable[[Thing], Result], things: Sequence[Thing]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ended by who started it
    try:
        sender.send([work(thing) for thing in things])
    except Exception:  # whoever waits does the work again, and meets it
        sender.close()


def _may_fork() -> bool:
    """Whether there is a core to win, and no thread besides this one: a copy would lack it, and may wait for it."""
    if multiprocessing.current_process().daemon:  # which may have no children
        return False
    try:
        return len(os.sched_getaffinity(0)) > 1 and len(os.listdir("/proc/self/task")) == 1
    except (AttributeError, OSError):  # not Linux
        return False
