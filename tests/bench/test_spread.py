"""Two processes give what one would, errors included."""

import subprocess
import sys

import pytest

from vcrl.bench import spread as module
from vcrl.bench.spread import spread

# In a process of its own: one with threads, such as that of these tests, is not forked.
START = """
import os
from vcrl.bench import spread as module
from vcrl.bench.spread import spread
here = os.getpid()
module.os.sched_getaffinity = lambda _: {0, 1}
assert module._may_fork()
"""


def ran(body):
    done = subprocess.run([sys.executable, "-c", START + body], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_in_order_and_in_two_processes():
    told = ran("print(spread(lambda n: (n, os.getpid() == here), range(5)))")
    assert told == str([(0, True), (1, False), (2, True), (3, False), (4, True)])
    assert ran("print(spread(lambda n: os.getpid() == here, range(5), least=6))") == str([True] * 5)


def test_a_large_answer_comes_whole():
    assert ran("print(sum(map(len, spread(lambda n: bytes(10**7), range(4)))))") == "40000000"


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)", "1 / 0"])
def test_what_the_copy_fails_at_is_done_here(end):
    told = ran(f"""
def work(n):
    if os.getpid() != here:
        {end}
    return n
print(spread(work, range(5)))
""")
    assert told == "[0, 1, 2, 3, 4]"


@pytest.mark.parametrize("bad", [2, 3])
def test_errors_are_raised_and_nobody_is_left(bad):
    told = ran(f"""
import multiprocessing
def work(n):
    return 1 / (n - {bad})
try:
    spread(work, range(5))
except ZeroDivisionError:
    print("raised", multiprocessing.active_children())
""")
    assert told == "raised []"


def test_a_process_with_threads_is_not_copied():
    assert (
        ran("""
import threading
stop = threading.Event()
threading.Thread(target=stop.wait).start()
print(module._may_fork(), spread(lambda n: os.getpid() == here, range(3)))
stop.set()
""")
        == "False [True, True, True]"
    )


def test_where_there_is_one_core_or_no_linux(monkeypatch):
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: {0})
    assert spread(lambda n: 2 * n, range(3)) == [0, 2, 4]
    monkeypatch.delattr(module.os, "sched_getaffinity")
    assert spread(lambda n: 2 * n, range(3)) == [0, 2, 4]
