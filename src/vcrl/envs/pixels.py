"""Pictures made smaller and gray."""

from functools import lru_cache

import numpy as np


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Every new pixel is the mean of the area it covers."""
    if image.shape[:2] == size:
        return image
    try:
        import cv2
    except ImportError:
        cv2 = None
    # OpenCV means this kind of resizing only where both sides shrink.
    if cv2 is not None and image.shape[0] >= size[0] and image.shape[1] >= size[1]:
        smaller = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        return smaller.reshape(*size, image.shape[2])
    return area_mean(image, size)


def area_mean(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The same without OpenCV, by two matrix products; now and then one level of 255 off from it, by rounding."""
    rows, columns = _overlap(image.shape[0], size[0]), _overlap(image.shape[1], size[1])
    tall = np.tensordot(rows, image.astype(np.float32), (1, 0))
    both = np.moveaxis(np.tensordot(columns, tall, (1, 1)), 0, 1)
    return np.rint(np.clip(both, 0, 255)).astype(np.uint8)


def gray(image: np.ndarray) -> np.ndarray:
    """One channel, by how bright colours look."""
    if image.shape[2] == 1:
        return image
    weighted = image.astype(np.uint32) @ np.array([299, 587, 114], np.uint32)
    return ((weighted + 500) // 1000).astype(np.uint8)[..., None]


@lru_cache(maxsize=64)
def _overlap(old: int, new: int) -> np.ndarray:
    """What share of each new pixel lies in each old one, in a line of pixels; rows sum to 1."""
    edges, cells = np.arange(new + 1) * (old / new), np.arange(old)
    shares = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    return (np.clip(shares, 0, None) * (new / old)).astype(np.float32)
