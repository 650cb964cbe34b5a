"""What follows from the facts about an environment: settings with their reasons, and what has to be mended first."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vcrl.core.spec import Box
from vcrl.envs.gym_adapt import LARGEST, Fit
from vcrl.envs.gym_check import Facts
from vcrl.envs.gym_rewards import LIMIT, of_ones, value_range
from vcrl.envs.gymnasium import REBUILDS

SEEDS = 5  # trained at once if nobody says otherwise
STEPS = 20_000  # the usual budget
LONG = 8 * 3600.0  # seconds that all seeds together may spend in the environment before the budget is cut

Setting = tuple[Any, str]  # a value and its reason


@dataclass
class Advice:
    fit: Fit
    steps: int = STEPS
    env: dict[str, Setting] = field(default_factory=dict)  # the lines of [env]
    train: dict[str, Setting] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)  # of the method, by path
    table: list[tuple[str, str, str]] = field(default_factory=list)  # topic, what was found, what follows
    warnings: list[str] = field(default_factory=list)  # it will train, but mislead or be slow
    failures: list[str] = field(default_factory=list)  # it will not train


def advise(facts: Facts, free: int | None = None) -> Advice:
    """`free` is the memory to be had, in bytes, where it is known."""
    advice = Advice(facts.fit)
    if len(facts.faults) > REBUILDS:
        advice.failures.append(f"it failed {len(facts.faults)} times, {facts.faults[-1]}: mend it first")
    else:
        told = "a training drops such a game and builds the environment again, three times in a row at most"
        advice.warnings += [f"it failed {fault}: {told}" for fault in facts.faults]
    for topic in (_pictures, _colour, _motion, _actions, _episodes, _rewards, _seeding, _speed):
        topic(facts, advice)
    _memory(facts, advice, free)
    return advice


def _pictures(facts: Facts, advice: Advice) -> None:
    height, width, channels = facts.frame
    kind = f"{height}x{width}, {'gray' if channels == 1 else 'colour'}, {facts.dtype}"
    kind += {"last": ", channels last", "first": ", channels first", "flat": ""}[facts.layout]
    if facts.fit.render:
        advice.env["render"] = (True, f"its observations are no pictures: {facts.observation}")
        kind += ", rendered"
    if facts.fit.key is not None:
        advice.env["key"] = (facts.fit.key, "the picture among its observations")
        kind += f", entry '{facts.fit.key}'"
    follows = "as it is"
    size = facts.size
    if size is not None:
        reason = f"from {height}x{width}: the encoders are made for 16 to {LARGEST} pixels a side"
        if facts.motion_lost > 0.05:
            lost = f"at {size[0]}x{size[1]} {facts.motion_lost:.0%} of all moves cannot be seen"
            size = (min(height, LARGEST), min(width, LARGEST))
            advice.warnings.append(f"{lost}: {size[0]}x{size[1]} is written instead; draw what moves larger")
            reason += f"; {lost}"
        advice.fit = replace(advice.fit, size=size)
        advice.env["size"] = (list(size), reason)
        follows = f"resize to {size[0]}x{size[1]}"
    advice.table.append(("pictures", kind, follows))
    if facts.brightest < 64:
        advice.warnings.append(
            f"its brightest pixel is {facts.brightest} of 255: the encoders see next to nothing; scale its pictures"
        )


def _colour(facts: Facts, advice: Advice) -> None:
    if facts.frame[2] == 1:
        return
    found = f"{facts.unseen_in_gray:.0%} of the pixels that change would not in gray"
    grey = facts.unseen_in_gray < 0.02
    if grey:
        advice.fit = replace(advice.fit, gray=True)
    advice.env["gray"] = (grey, found)
    advice.table.append(("colour", found, "gray" if grey else "keep colour"))


def _motion(facts: Facts, advice: Advice) -> None:
    if facts.moved == 0:
        advice.failures.append(
            "its picture never changes: there is nothing to see; mend what it shows, or give actions that do something"
        )
        advice.table.append(("motion", "the picture never changes", ""))
        return
    usual = 3 if isinstance(facts.actions, Box) else 4
    one, two = facts.past or (0.0, 0.0)
    if two - one > 0.1:
        found, stack = (
            f"the next picture is foretold {_share(two)} by two pictures, {_share(one)} by one",
            usual,
        )
    elif one > 0.3 and two - one <= 0.05:
        found, stack = f"one picture foretells the next as well as two do, {_share(one)}", 1
    else:
        found, stack = "it could not be told whether one picture is enough", usual
    advice.settings["observation.stack"] = (stack, found)
    advice.table.append(("motion", found, f"stack {stack}"))
    if facts.moved < 0.5:
        advice.warnings.append(
            f"after {1 - facts.moved:.0%} of the steps the picture is the same: repeat actions inside the environment"
        )


def _actions(facts: Facts, advice: Advice) -> None:
    follows = "rescaled to -1 to 1" if isinstance(facts.actions, Box) else ""
    advice.table.append(("actions", facts.action_words, follows))


def _episodes(facts: Facts, advice: Advice) -> None:
    ended = [game for game in facts.games if game.terminated or game.truncated]
    length = [len(game.rewards) for game in ended]
    terminated = sum(game.terminated for game in ended)
    found = f"no game ended within {facts.steps} steps"
    if ended:
        found = f"{len(ended)} games of {min(length)} to {max(length)} steps, {terminated} terminated"
        found += f", {len(ended) - terminated} cut" if terminated < len(ended) else ""
    limit = facts.limit
    follows = f"its own limit of {limit}" if limit else ""
    if limit is None and (not ended or max(length) < max(len(game.rewards) for game in facts.games)):
        limit, follows = LIMIT, f"limit {LIMIT}"
        advice.env["limit"] = (
            LIMIT,
            f"{found}, and it has no limit of its own; a cut is no end to what is learned",
        )
        advice.fit = replace(advice.fit, limit=LIMIT)
    advice.table.append(("episodes", found, follows))
    if len(ended) > 2 and terminated == len(ended) and len(set(length)) == 1 and length[0] >= 10:
        advice.warnings.append(
            f"every game was terminated after exactly {length[0]} steps: if that is a time limit, return "
            "truncated=True instead, or values are learned as if nothing came after"
        )
    horizon, reason = limit or 10**9, "a game has no more steps"
    if length and np.median(length) < 10 and not isinstance(facts.actions, Box):
        advice.settings["n_step"] = (3, f"half of the games had at most {np.median(length):g} steps")
    for path, usual in (("terms.spr.steps", 5), ("terms.vcr.steps", 5), ("terms.cycle.steps", 9)):
        if usual >= horizon:
            advice.settings[path] = (max(1, horizon - 1), reason)


def _rewards(facts: Facts, advice: Advice) -> None:
    reward = facts.rewards
    if not reward.any():
        advice.table.append(("rewards", f"none in {facts.steps} steps", "raw"))
        advice.settings["observation.reward"] = ("raw", "none was seen")
        advice.warnings.append(
            f"no reward in {facts.steps} random steps: nothing is learned until one is found; reward steps towards the "
            "goal, begin nearer to it, or check again with more --steps"
        )
        return
    some = np.abs(reward[reward != 0])
    often = len(some) / len(reward)
    spread = f"{reward.min():.3g} to {reward.max():.3g}" if np.ptp(reward) else f"{reward[0]:.3g}"
    found = (
        f"{spread}, at {f'{often:.0%}' if often >= 0.01 else f'{len(some)} of {len(reward)}'} of the steps"
    )
    uneven = often < 0.25 and some.max() > 20 * np.median(some)
    kind = "sign" if uneven else "raw"
    reason = f"the largest is {some.max() / np.median(some):.0f} times the usual" if uneven else found
    advice.settings["observation.reward"] = (kind, reason)
    follows = kind
    if not isinstance(facts.actions, Box):
        low, high, reason = value_range(facts, advice.fit.limit, kind)
        advice.settings["value.low"] = (low, reason)
        advice.settings["value.high"] = (high, "likewise")
        follows += f", values {low:g} to {high:g}"
        largest = max(-low, high)
    else:
        largest = float(some.max() * of_ones(advice.fit.limit or facts.limit))
    advice.table.append(("rewards", found, follows))
    if kind == "sign":
        advice.warnings.append(
            f"rewards differ much in size ({spread}), so only their signs are learned from: scale them yourself if "
            "sizes matter"
        )
    if kind == "raw" and largest > 1000:
        whose = (
            "all with continuous actions"
            if isinstance(facts.actions, Box)
            else "such as drq; C51 does not mind"
        )
        advice.warnings.append(
            f"returns may reach {largest:.0f}, too much for methods whose values are plain numbers ({whose}): "
            f"wrap it in gymnasium.wrappers.TransformReward and divide by {largest / 100:.0f}"
        )
    if np.ptp(reward) == 0 and not any(game.terminated for game in facts.games):
        advice.warnings.append(
            f"every step gave {reward[0]:g} and no game terminated: if that is always so, all actions are worth the "
            "same"
        )


def _seeding(facts: Facts, advice: Advice) -> None:
    found = "the same seed gave the same game" if facts.repeats else "the same seed gave another game"
    if facts.alike and len(facts.games) > 1:
        found += ", and all games begin alike"
    advice.table.append(("seeds", found, ""))
    if not facts.repeats:
        advice.warnings.append(
            "the same seed gives different games, so runs cannot be repeated or resumed exactly: call "
            "super().reset(seed=seed) and draw everything from self.np_random"
        )


def _speed(facts: Facts, advice: Advice) -> None:
    step = max(facts.step_seconds, 1e-9)
    if SEEDS * STEPS * step > LONG:
        advice.steps = max(2000, int(LONG / (SEEDS * step)) // 1000 * 1000)
    minutes = SEEDS * advice.steps * step / 60
    time = f"{SEEDS} seeds take {'under a minute' if minutes < 1 else f'about {minutes:.0f} min'} in the environment"
    advice.train["steps"] = (advice.steps, f"agent steps of each seed; {time}, learning comes on top")
    advice.table.append(("speed", f"{1 / step:.0f} steps/s", f"{advice.steps:,} steps: {time}"))
    if advice.steps < 10_000:
        advice.settings["learn_start"] = (advice.steps // 10, "a tenth of the budget")
    if advice.steps != STEPS:
        for path in ("terms.vcr.ramp", "terms.cycle.ramp"):
            advice.settings[path] = (advice.steps // 2, "half of the budget")


def _memory(facts: Facts, advice: Advice, free: int | None) -> None:
    height, width = advice.fit.size or facts.frame[:2]
    row = height * width * (1 if advice.fit.gray else facts.frame[2]) + 16
    rows = advice.steps
    if free is not None and SEEDS * rows * row > free / 2:
        rows = max(1000, int(free / 2 / (SEEDS * row)) // 1000 * 1000)
        advice.warnings.append(
            f"{SEEDS} seeds with all {advice.steps:,} steps would take more than half of the memory: {rows:,} are kept"
        )
    found = f"{rows * row / 1e9:.2f} GB a seed"
    advice.settings["replay.capacity"] = (rows, f"{found}, of {height}x{width} pictures")
    advice.table.append(("replay", found, f"{rows:,} steps"))


def _share(part: float) -> str:
    return f"{max(0.0, part):.0%}"
