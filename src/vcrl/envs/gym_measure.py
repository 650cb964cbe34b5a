"""What the pictures of a random play say: how small they may be, whether gray will do, whether one is enough."""

from itertools import pairwise

import numpy as np

from vcrl.envs.pixels import gray


def new_size(frame: tuple[int, int, int]) -> tuple[int, int] | None:
    """What to resize to: sides of more than 100 pixels to 84, as Atari has it, below 16 to a multiple; None: stay."""
    height, width = frame[:2]
    if max(height, width) > 100:
        return min(84, max(16, height)), min(84, max(16, width))
    if min(height, width) < 16:
        times = -(-16 // min(height, width))
        return height * times, width * times
    return None


def unseen_in_gray(whole: list[np.ndarray]) -> float:
    """Of the pixels that differ clearly between two pictures, the share that hardly differ in gray."""
    if len(whole) < 2 or whole[0].shape[2] == 1:
        return 0.0
    clear = hidden = 0
    for one, two in pairwise(whole):
        changed = (np.abs(one.astype(int) - two).max(axis=-1)) > 24
        same = np.abs(gray(one).astype(int) - gray(two))[..., 0] < 6
        clear, hidden = clear + int(changed.sum()), hidden + int((changed & same).sum())
    return hidden / clear if clear else 0.0


def foretold(
    small: np.ndarray, taken: np.ndarray, number: np.ndarray, parts: int = 24, near: int = 5
) -> tuple[float, float] | None:
    """How much of the change of the next picture is known from the moments most alike, by one picture and by two.

    1 is all of it, 0 is no better than the mean change. The moments compared have the same action; those of the same
    few steps are left out, for they are alike anyway. None where there is too little to compare.
    """
    seen = small.reshape(len(small), -1).astype(np.float64)
    seen -= seen.mean(axis=0)
    at = np.flatnonzero(number[2:] == number[:-2]) + 1 if len(seen) > 2 else np.zeros(0, int)
    if len(at) < 50:
        return None
    strength, left = np.linalg.eigh(
        seen @ seen.T
    )  # principal components, of the moments and not of the pixels
    state = (left * np.sqrt(np.clip(strength, 0, None)))[:, -parts:]
    now, before, change = state[at], state[at] - state[at - 1], state[at + 1] - state[at]
    if change.var() == 0 or before.std() == 0:
        return None
    kinds = np.unique(taken, axis=0)
    whole = taken.shape[1] == 1 and len(kinds) <= 64 and np.array_equal(kinds, np.rint(kinds))
    acted = taken[at] == kinds.T if whole else taken[at]
    acted = acted * 3 * now.std()
    before = before * (now.std() / before.std())
    total = ((change - change.mean(axis=0)) ** 2).sum()
    shares = []
    for features in ((now, acted), (now, before, acted)):
        point = np.concatenate(features, axis=1)
        length = (point**2).sum(axis=1)
        distance = length[:, None] + length[None] - 2 * point @ point.T
        distance[np.abs(at[:, None] - at[None]) < 8] = np.inf
        closest = np.argpartition(distance, near, axis=1)[:, :near]
        shares.append(1 - ((change - change[closest].mean(axis=1)) ** 2).sum() / total)
    return float(shares[0]), float(shares[1])
