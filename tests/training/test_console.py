"""Progress of a training, in a terminal and in a log file."""

import io

import numpy as np
import pytest
import rich.console

from vcrl.training.console import Console, Speed, duration


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The machine that runs the tests may itself be a CI, or a terminal without colours."""
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


class Time:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def sink(terminal=False, **rest):
    return rich.console.Console(file=io.StringIO(), force_terminal=terminal, width=100, **rest)


def written(log):
    return log.file.getvalue()


LOSSES = {"rl": [0.5, 0.72], "spr": [0.22, 0.22], "vcr": [0.05, 0.05]}


def test_a_plain_line_tells_everything():
    clock, log = Time(), sink()
    with Console("catch vcr", [0, 1], 3000, log, clock=clock) as console:
        console.update(580, 290, [None, None], {}, {})
        clock.now += 2
        console.update(1200, 600, [-0.1, 0.8], LOSSES, {})
    first, last = written(log).splitlines()
    assert first == "catch vcr     580/3,000 agent steps  score -"
    assert last == (
        "catch vcr   1,200/3,000 agent steps  score 0.35 (min -0.10 max 0.80)"
        "  rl 0.61  spr 0.22  vcr 0.05  310 steps/s  left 0:06"
    )


def test_plain_lines_come_at_most_every_few_seconds_and_at_the_end():
    clock, log = Time(), sink()
    with Console("catch vcr", [0], 1000, log, clock=clock, every=5) as console:
        for step in range(0, 130, 10):  # a second each
            console.update(step, step, [0.0], {}, {})
            clock.now += 1
    steps = [int(line.split()[2].split("/")[0]) for line in written(log).splitlines()]
    assert steps == [0, 50, 100, 120]


def test_the_last_line_is_not_printed_twice():
    log = sink()
    with Console("catch vcr", [0], 1000, log, clock=Time()) as console:
        console.update(10, 0, [0.0], {}, {})
        console.finish("done [all of it]")
    assert written(log).splitlines()[1:] == ["done [all of it]"]


def test_an_interrupted_training_still_shows_where_it_was():
    clock, log = Time(), sink()
    with pytest.raises(KeyboardInterrupt), Console("catch vcr", [0], 1000, log, clock=clock) as console:
        console.update(10, 0, [0.0], {}, {})
        console.update(20, 0, [0.0], {}, {})
        raise KeyboardInterrupt
    assert "20/1,000" in written(log).splitlines()[-1]


def test_a_note_is_printed_at_once_and_once():
    log = sink()
    with Console("catch vcr", [3, 4], 1000, log, clock=Time()) as console:
        console.update(10, 0, [0.0, 0.0], {"rl": [0.1, 0.1]}, {})
        for step in (20, 30):
            console.update(step, 0, [0.0, 0.0], {"rl": [0.1, np.nan]}, {4: "non-finite since 15"})
    text = written(log)
    assert text.count("seed 4: non-finite since 15") == 1
    assert "rl 0.10" in text.splitlines()[-1]  # of the seed that is still finite


def test_a_loss_that_is_nowhere_finite_says_so():
    log = sink()
    with Console("catch vcr", [0], 1000, log, clock=Time()) as console:
        console.update(10, 0, [None], {"rl": [np.inf], "spr": [0.0004]}, {})
    assert written(log).endswith("score -  rl nan  spr 4e-04\n")


def test_lines_are_neither_wrapped_nor_coloured():
    log = sink()
    with Console("catch vcr", [0], 1000, log) as console:
        console.line("x" * 300 + " [bold]1[/bold]")
    assert written(log) == "x" * 300 + " [bold]1[/bold]\n"


def test_speed_of_a_resumed_run_counts_from_where_this_process_started():
    clock = Time()
    speed = Speed(clock)
    speed.record(90_000, 180_000)
    assert speed.rates() is None
    clock.now += 2
    speed.record(90_100, 180_200)
    assert speed.rates() == (50.0, 100.0)


def test_speed_forgets_the_distant_past_and_stays_small():
    clock = Time()
    speed = Speed(clock)
    speed.record(0, 0)
    clock.now += 500  # compiling
    for step in range(60_000):
        speed.record(step, step)
        clock.now += 0.001
    assert speed.rates() == pytest.approx((1000, 1000))
    assert len(speed._past) < 200


def test_speed_survives_rare_updates():
    clock = Time()
    speed = Speed(clock)
    for minute, step in enumerate((0, 600, 660)):
        clock.now = 60.0 * minute
        speed.record(step, 0)
    assert speed.rates() == (1.0, 0.0)  # of the last minute


def test_a_terminal_gets_a_live_table_with_a_row_per_seed():
    clock, log = Time(), sink(terminal=True, height=30)
    with Console("catch vcr", [7, 8], 3000, log, clock=clock) as console:
        console.update(580, 290, [None, None], LOSSES, {})
        clock.now += 2
        console.update(1200, 600, [None, 0.8], LOSSES, {8: "non-finite since 1,200"})
        console.line("evaluated [once]")
        console.finish("done")
    text = written(log)
    assert "\x1b[" in text
    for part in (
        "7",
        "8",
        "0.80",
        "0.72",
        "non-finite since 1,200",
        "1,200/3,000 agent steps",
        "evaluated [once]",
    ):
        assert part in text
    assert "310 steps/s   155 updates/s   left 0:06" in text
    assert text.rstrip().endswith("done")
    assert "catch vcr   1,200" not in text  # no plain lines in between


def test_a_low_terminal_shows_the_seeds_that_need_a_look():
    log = sink(terminal=True, height=14)
    seeds = list(range(100))
    with Console("catch vcr", seeds, 3000, log, clock=Time()) as console:
        console.update(10, 5, [0.0] * 100, {"rl": [0.1] * 100}, {77: "non-finite since 5"})
        frame = rich.console.Console(file=io.StringIO(), width=100)
        frame.print(console._table())
    assert "non-finite since 5" in written(frame)
    assert "and 94 more seeds" in written(frame)
    assert len(written(frame).splitlines()) <= 14


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("CI", "true"), ("TERM", "dumb")])
def test_some_terminals_want_plain_lines(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    log = sink(terminal=True)
    with Console("catch vcr", [0], 1000, log, clock=Time()) as console:
        console.update(10, 0, [0.5], {}, {})
    assert written(log) == "catch vcr      10/1,000 agent steps  score 0.50\n"


def test_numbers_must_come_one_per_seed():
    with Console("catch vcr", [0, 1], 1000, sink()) as console, pytest.raises(ValueError, match="2 seeds"):
        console.update(10, 0, [0.5], {}, {})


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.6, "0:06"), (750, "12:30"), (11_100, "3:05:00"), (59.6, "1:00")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_an_evaluation_is_told_of_now_and_then_and_not_once_it_is_over():
    clock, log = Time(), sink()
    with Console("pong vcr", [0], 1000, log, clock=clock, every=5) as console:
        for done in range(0, 1300, 100):  # a second each
            console.evaluating(done, 1200)
            clock.now += 1
        clock.now += 100
        console.evaluating(1200, 1200)
        assert console._doing == ""
    assert written(log).splitlines() == [
        "pong vcr   evaluating: 500 of 1,200 games",
        "pong vcr   evaluating: 1,000 of 1,200 games",
    ]


def test_a_short_evaluation_says_nothing():
    clock, log = Time(), sink()
    with Console("catch vcr", [0], 1000, log, clock=clock, every=5) as console:
        for _ in range(50):  # many of them, a long time apart
            clock.now += 0.01
            for done in range(101):
                console.evaluating(done, 100)
    assert written(log) == ""


def test_a_live_table_shows_how_far_an_evaluation_is():
    def shown(console):
        frame = rich.console.Console(file=io.StringIO(), width=100)
        frame.print(console._table())
        return written(frame)

    clock, log = Time(), sink(terminal=True, height=30)
    with Console("pong vcr", [0], 1000, log, clock=clock, every=5) as console:
        console.update(1000, 5, [0.5], {}, {})
        clock.now += 60
        console.evaluating(1, 1200)
        assert "evaluating: 1 of 1,200 games" in shown(console)
        console.evaluating(1200, 1200)
        assert "evaluating" not in shown(console) and "1,000/1,000 agent steps" in shown(console)
    assert "pong vcr   evaluating" not in written(log)  # no plain line in between
