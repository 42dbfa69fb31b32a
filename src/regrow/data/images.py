"""One image file to one array: decoding and the crops of ImageNet training."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from regrow.data.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

_Result = TypeVar("_Result")
Box = tuple[float, float, float, float]
SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm"))
# Images too, and often in floating point or 32 bits, which have no scale: to leave them out unsaid would train on a part of the data.
REFUSED = frozenset((".tif", ".tiff"))

ATTEMPTS = 10
DRAWS = 4 * ATTEMPTS + 1
# What files of these names hold; other formats are not even tried, as some of them start programs.
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM", "GIF")
_SIXTEEN_BITS = ("PNG", "PPM")
_END_BYTES = 1024
_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)


def training_view(path: str | Path, size: int, uniform: np.ndarray) -> np.ndarray:
    """Random resized crop and flip, as uint8 [size, size, 3].

    JPEGs are decoded at the smallest of the scales 1, 1/2, 1/4, 1/8 that still has a pixel for every target pixel.

    Args:
        path: the file.
        size: side of the result.
        uniform: `DRAWS` numbers in [0, 1) that decide the crop and the flip.
    """

    def view(image: Image) -> Image:
        width, height = image.size
        left, top, right, bottom = random_box(width, height, uniform)
        image.draft("RGB", (round(width * size / (right - left)), round(height * size / (bottom - top))))
        across, down = image.size[0] / width, image.size[1] / height
        return _resized(image, (size, size), (left * across, top * down, right * across, bottom * down))

    pixels = _pixels(path, view)
    return pixels[:, ::-1] if uniform[-1] < 0.5 else pixels


def evaluation_view(path: str | Path, size: int) -> np.ndarray:
    """Shorter side to size * 256 / 224, then the centre, as uint8 [size, size, 3].

    Only the pixels of the centre are computed; they are those of resizing the whole image first.
    """

    def view(image: Image) -> Image:
        return _resized(image, (size, size), centre_box(*image.size, size))

    return _pixels(path, view)


def random_box(width: int, height: int, uniform: np.ndarray) -> Box:
    """A crop of 8-100% of the area with an aspect ratio of 3/4 to 4/3 (log-uniform), as left, top, right, bottom.

    After ten crops that do not fit, the largest central crop of an allowed aspect ratio.
    """
    for attempt in range(ATTEMPTS):
        area, aspect, across, down = uniform[4 * attempt : 4 * attempt + 4]
        area = width * height * (_AREA[0] + area * (_AREA[1] - _AREA[0]))
        ratio = math.exp(math.log(_ASPECT[0]) + aspect * math.log(_ASPECT[1] / _ASPECT[0]))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(across * (width - w + 1)), int(down * (height - h + 1))
            return left, top, left + w, top + h
    ratio = min(max(width / height, _ASPECT[0]), _ASPECT[1])
    w, h = min(width, max(1, round(height * ratio))), min(height, max(1, round(width / ratio)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def centre_box(width: int, height: int, size: int) -> Box:
    """The part of a width x height image that is the central size x size of the image resized to 256/224 of `size`."""
    short = round(size * 256 / 224)
    scale = short / min(width, height)
    # The longer side is cut to whole pixels, so the two directions can differ slightly in scale.
    new_width, new_height = (short if side == min(width, height) else int(side * scale) for side in (width, height))
    left, top = round((new_width - size) / 2), round((new_height - size) / 2)
    across, down = width / new_width, height / new_height
    return left * across, top * down, (left + size) * across, (top + size) * down


def _resized(image: Image, size: tuple[int, int], box: Box) -> Image:
    from PIL.Image import Resampling

    return _rgb(image).resize(size, Resampling.BILINEAR, box=box)


def _rgb(image: Image) -> Image:
    """Eight bits per channel; 16 bits are scaled, which Pillow's own conversion would cut off to white."""
    from PIL import Image as module

    _refuse_scaleless(image)
    if image.mode.startswith("I"):
        return module.fromarray((np.asarray(image).astype(np.int64) // 257).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _refuse_scaleless(image: Image) -> None:
    """Whole numbers of 32 bits and floating point; PNG and PGM of 16 bits may come as the former."""
    if image.mode == "F" or (image.mode == "I" and image.format not in _SIXTEEN_BITS):
        raise ValueError(f"pixels of mode {image.mode} have no scale: save them with 8 or 16 bits")


def problem(path: str, quick: bool = False) -> str | None:
    """What is wrong with an image file, or None. A quick look opens it, and decodes it only where it has no proper end."""
    try:
        if quick and _has_end(path):
            _use(path, _refuse_scaleless)
        else:
            _use(path, lambda image: np.asarray(_rgb(image)).shape)
    except DataError as error:
        return str(error)
    return None


def _has_end(path: str) -> bool:
    """Whether a JPEG or PNG is closed as it must be: what is cut off is not."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
            file.seek(max(0, os.path.getsize(path) - _END_BYTES))
            tail = file.read()
    except OSError:
        return False
    return b"\xff\xd9" in tail if head.startswith(b"\xff\xd8") else b"IEND" in tail if head[1:4] == b"PNG" else False


def _pixels(path: str | Path, view: Callable[[Image], Image]) -> np.ndarray:
    return _use(path, lambda image: np.asarray(view(image)))


def _use(path: str | Path, action: Callable[[Image], _Result]) -> _Result:
    from PIL import Image

    try:
        with Image.open(path, formats=_FORMATS) as image:
            return action(image)
    except Exception as error:
        # Decoders raise nearly everything on damaged files (OSError, SyntaxError, struct.error, ...).
        raise DataError(f"{path}: cannot be read as an image ({error}); repair or remove the file") from error
