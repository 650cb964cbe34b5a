"""A way out of code that does not come back."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SECONDS = 60.0  # that one step or reset of an environment may take


class Hang(BaseException):
    """The time is over. Not an Exception, so that a simulator's own `except Exception` does not swallow it."""


def patience() -> float:
    """Seconds that a call may take; VCRL_ENV_SECONDS changes it, 0 is for ever."""
    try:
        return min(max(0.0, float(os.environ.get("VCRL_ENV_SECONDS", SECONDS))), 1e9)
    except ValueError:
        return SECONDS


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """`Hang` in the code within if it takes longer.

    By the alarm of the system, which only the main thread can hear, and only where Python code or a waiting system
    call is running: a loop inside a library's compiled code is not interrupted, nor is anything on Windows.
    """
    alone = threading.current_thread() is threading.main_thread()
    if seconds <= 0 or not alone or not hasattr(signal, "setitimer"):
        yield
        return
    waiting = True

    def ring(number: int, frame: Any) -> None:
        if waiting:
            raise Hang(f"no answer for {seconds:g} s")

    before, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    # Again and again, should somebody catch it.
    left, every = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        waiting = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # somebody else's alarm, which was set before
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), every)
