"""What returns can be, judged by the rewards of random play."""

import numpy as np

from vcrl.envs.gym_check import Facts

GAMMA = 0.99  # of all methods
LIMIT = 1000  # steps of a game, where none ends by itself
OFTEN = 0.9  # quantile: rewards as large as a tenth of the steps have


def value_range(facts: Facts, limit: int | None, kind: str) -> tuple[float, float, str]:
    """Ends of the support of C51: what discounted returns can be, judged by random play.

    A reward that a tenth of the steps have could come at every step, and the largest once more. Returns twice as large
    as those seen are allowed for, unless rewards come only as a game ends, or no return could be so large.
    """
    of = np.sign if kind == "sign" else np.asarray
    games = [of(np.array(game.rewards)) for game in facts.games if game.rewards]
    reward, total = np.concatenate(games), of_ones(limit or facts.limit)
    returns = np.concatenate([discounted(game) for game in games])

    def end(sign: int) -> float:
        worth, seen = sign * reward, sign * returns
        most = float(max(0.0, worth.max()))
        if not any((sign * game[:-1] > 0).any() for game in games):
            return most
        usual = float(max(0.0, np.quantile(worth, OFTEN)))
        return min(most * total, max(most, 2 * float(seen.max()), usual * total + most))

    low, high = 0.0 - _round_up(end(-1)), _round_up(end(1))
    if low == high:
        low, high = -1.0, 1.0
    seen = f"returns of {returns.min():.3g} to {returns.max():.3g} were seen, discounted by {GAMMA}"
    return low, high, seen + (", of signs" if kind == "sign" else "")


def discounted(reward: np.ndarray) -> np.ndarray:
    """The return from each step on, as far as it was played."""
    out, ahead = np.zeros(len(reward)), 0.0
    for t in range(len(reward) - 1, -1, -1):
        out[t] = ahead = reward[t] + GAMMA * ahead
    return out


def of_ones(limit: int | None) -> float:
    """What a reward of 1 at every step is worth."""
    return (1 - GAMMA ** (limit or LIMIT)) / (1 - GAMMA)


def _round_up(number: float) -> float:
    """To two digits."""
    if number == 0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(number)) - 1)
    return float(f"{np.ceil(number / unit - 1e-9) * unit:.3g}")
