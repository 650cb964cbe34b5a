"""How the built-in games look: 16 x 16 gray pictures of 8 x 8 cells, of snow, and of soft dots."""

import numpy as np

from vcrl.envs import chance

CELLS = 8
PIXELS = 16

SNOW = 110  # the texture stays below this, darker than anything that matters
SPRITE = 140

# Channels of randomness; the games' own are below 16.
_SPRITES = 16 + np.arange(8)
_TEXTURE = 64 + np.arange(PIXELS * PIXELS // 8)

# Row, column, down or up, right or left, of the first sprite and of the second.
_SPRITE_KINDS = np.array([CELLS, CELLS, 2, 2] * 2)


def cells(lanes: int) -> np.ndarray:
    """Black boards to draw on."""
    return np.zeros((lanes, CELLS, CELLS), np.uint8)


def put(board: np.ndarray, row: np.ndarray | int, column: np.ndarray | int, shade: int) -> None:
    """Paint one cell of every lane's board."""
    board[np.arange(len(board)), row, column] = shade


def enlarge(board: np.ndarray) -> np.ndarray:
    """Boards as pictures: every cell becomes 2 x 2 pixels."""
    scale = PIXELS // CELLS
    blocks = np.broadcast_to(board[:, :, None, :, None], (len(board), CELLS, scale, CELLS, scale))
    return blocks.reshape(-1, PIXELS, PIXELS, 1)


def background(seed: np.ndarray, time: np.ndarray) -> np.ndarray:
    """A fresh random texture and two sprites that drift diagonally, none of which touches the game."""
    words = chance.bits(seed[:, None], time[:, None], _TEXTURE)
    grain = words.astype("<u8").view(np.uint8)  # eight pixels from each word, on any machine the same
    texture = (grain.astype(np.uint16) * SNOW >> 8).astype(np.uint8).reshape(-1, PIXELS, PIXELS, 1)
    start = chance.below(_SPRITE_KINDS, seed[:, None], np.zeros_like(time)[:, None], _SPRITES)
    board = cells(len(seed))
    for row, column, down, right in (start.T[:4], start.T[4:]):
        put(board, (row + (2 * down - 1) * time) % CELLS, (column + (2 * right - 1) * time) % CELLS, SPRITE)
    return np.maximum(texture, enlarge(board))


def dot(centre: np.ndarray, radius: float, shade: int) -> np.ndarray:
    """Soft-edged squares at points of the unit square, so that a movement of a fraction of a pixel shows."""
    # A margin of two pixels keeps the whole dot in the picture wherever it is.
    at = 2 + (PIXELS - 5) * centre
    cover = np.clip(radius - np.abs(np.arange(PIXELS) - at[:, :, None]), 0, 1)
    return np.rint(shade * cover[:, 1, :, None] * cover[:, 0, None, :]).astype(np.uint8)[..., None]
