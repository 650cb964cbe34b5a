"""Watching an agent play: frames into an animated GIF."""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vcrl.core.errors import UserError
from vcrl.runs.files import write_atomic, writing

SIDE = 256  # pixels to which the shorter side of a small frame is enlarged
WIDEST = 1280  # pixels beyond which the longer side is not enlarged
SEPARATOR = 128  # grey between frames that stand side by side
COLORS = 256  # of one GIF palette
GREYS = np.arange(0, 256, 17, dtype=np.uint8)  # of captions: smooth, and few in the palette
BACKGROUND = int(GREYS[2])  # of captions: dark, yet not the black of most games


def write_gif(
    path: str | Path,
    frames: Iterable[np.ndarray],
    *,
    scale: int | None = None,
    fps: float = 8,
    captions: Sequence[str] | None = None,
) -> Path:
    """Write frames (uint8, H W or H W 3) as an endless animation, enlarged without blurring, captions below.

    Colours are exact while the whole animation has at most 256 of them, as grey frames and Atari's do.
    """
    out = Path(path)
    if out.suffix.lower() != ".gif":
        raise UserError(f"animations are written as .gif, not as '{out.name}'")
    pictures = [_checked(frame) for frame in frames]
    shapes = {picture.shape for picture in pictures}
    if len(shapes) != 1:
        raise UserError(f"frames differ in shape: {sorted(shapes)}" if shapes else "no frames to animate")
    if captions is not None and len(captions) != len(pictures):
        raise UserError(f"{len(pictures)} frames need as many captions, found {len(captions)}")
    images = _images(pictures, scale or _scale(*pictures[0].shape[:2]), captions)
    data, first = io.BytesIO(), next(images)
    # As an iterator: enlarged frames of a long episode need not all be in memory.
    rest = {"save_all": True, "append_images": images, "loop": 0, "optimize": False}
    first.save(data, format="GIF", duration=round(1000 / fps), **rest)
    with writing(out):
        write_atomic(out, data.getvalue())
    return out


def side_by_side(frames: Sequence[np.ndarray]) -> np.ndarray:
    """One frame out of several of the same height, a thin line between them."""
    if not frames:
        raise UserError("no frames to put side by side")
    rgb = any(frame.ndim == 3 for frame in frames)
    pictures = [_checked(frame) if rgb else frame for frame in frames]
    heights = {picture.shape[0] for picture in pictures}
    if len(heights) != 1:
        raise UserError(f"frames side by side need one height, found {sorted(heights)}")
    line = np.full((pictures[0].shape[0], 1, *pictures[0].shape[2:]), SEPARATOR, np.uint8)
    parts = [part for picture in pictures for part in (line, picture)][1:]
    return np.concatenate(parts, axis=1)


def _checked(frame: np.ndarray) -> np.ndarray:
    """The frame as H W 3."""
    if frame.dtype != np.uint8 or frame.ndim not in (2, 3) or (frame.ndim == 3 and frame.shape[2] != 3):
        raise UserError(f"a frame is uint8, H W or H W 3; found {frame.dtype} {frame.shape}")
    return frame if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, axis=2)


def _scale(height: int, width: int) -> int:
    """Whole multiples only: a pixel of the agent stays a square."""
    return max(1, min(round(SIDE / min(height, width)), WIDEST // max(height, width)))


def _images(pictures: list[np.ndarray], scale: int, captions: Sequence[str] | None) -> Iterator[Image.Image]:
    colors = np.unique(np.concatenate([np.unique(_codes(picture)) for picture in pictures]))
    bars: Iterable[np.ndarray | None] = [None] * len(pictures)
    if captions is not None:
        colors = np.union1d(colors, _codes(np.repeat(GREYS[:, None], 3, axis=1)))
        bars = _bars(captions, pictures[0].shape[1] * scale)
    for picture, bar in zip(pictures, bars, strict=True):
        large = picture.repeat(scale, axis=0).repeat(scale, axis=1)
        yield _with_palette(large if bar is None else np.concatenate([large, bar]), colors)


def _bars(captions: Sequence[str], width: int) -> Iterator[np.ndarray]:
    """A strip of text per frame, all in the largest size at which the longest caption fits."""
    margin = 6
    pen = ImageDraw.Draw(Image.new("L", (1, 1)))
    for size in range(16, 7, -1):
        font = ImageFont.load_default(size)
        boxes = [pen.multiline_textbbox((0, 0), text or " ", font=font) for text in captions]
        if max(box[2] for box in boxes) <= width - 2 * margin:
            break
    height = int(max(box[3] for box in boxes)) + 2 * margin
    for text in captions:
        bar = Image.new("L", (width, height), BACKGROUND)
        ImageDraw.Draw(bar).multiline_text((margin, margin - 1), text, fill=255, font=font)
        yield np.repeat(GREYS[np.asarray(bar) // 16][:, :, None], 3, axis=2)


def _codes(picture: np.ndarray) -> np.ndarray:
    """One number per colour."""
    red, green, blue = np.moveaxis(picture.astype(np.uint32), -1, 0)
    return red << 16 | green << 8 | blue


def _with_palette(picture: np.ndarray, colors: np.ndarray) -> Image.Image:
    """A palette image: exact, in a palette all frames share, if `colors` fit in one; else nearest colours."""
    if len(colors) > COLORS:
        return Image.fromarray(picture).quantize(COLORS, dither=Image.Dither.NONE)
    image = Image.fromarray(np.searchsorted(colors, _codes(picture)).astype(np.uint8))
    palette = np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=1)
    image.putpalette(palette.astype(np.uint8).tobytes())
    return image
