"""From a photo's JPEG bytes to the row that an image network takes."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from labkit.engine import Place
from labkit.errors import SettingError, require
from labkit.models.plain import fresh

__all__ = ["PreparePhoto"]

EXPECTED = "Give the bytes of a JPEG, a uint8 array [height, width, 3], or a PIL image."
FORMATS = ("JPEG", "PNG", "WEBP")


@dataclass(frozen=True, slots=True)
class PreparePhoto:
    """Decode, scale the short side to `short_side`, cut `side` x `side` from the centre, and normalise.

    A payload is the bytes of a JPEG (PNG and WebP are read too), a uint8 array [H, W, 3] (or [H, W], [H, W, 4]), or a
    PIL image. Grey, CMYK and images with transparency are converted to RGB; a photo that its camera marked as turned
    is turned back. The row is float32 [3, side, side], (pixel - mean) / scale.

    JPEG's cheap decoding at a fraction of the size (Pillow's `draft`) is not used: it changes the pixels.

    Holds no state, so that any number of threads may call it. Raises `SettingError` for what is not a photo.

    >>> PreparePhoto()(np.full((300, 400, 3), 127, np.uint8)).shape
    torch.Size([3, 224, 224])
    """

    short_side: int = 256
    side: int = 224
    mean: float = 127.0
    scale: float = 128.0

    def __post_init__(self) -> None:
        require(
            1 <= self.side <= self.short_side,
            f"side is {self.side} with a short side of {self.short_side}",
            "Cut at least 1 pixel and no more than the short side.",
        )
        require(self.scale != 0, "scale is 0", "Give the divisor of the pixels, for instance 128.")

    def __call__(self, payload: Any) -> Tensor:
        """Return the row as a new tensor."""
        return self.into(payload, fresh)

    def into(self, payload: Any, place: Place) -> Tensor:
        """Write the row into the tensor that `place` gives, and return that tensor."""
        pixels = np.asarray(self._cut(_as_rgb(payload)))  # [side, side, 3]
        row = place((3, self.side, self.side), torch.float32)
        target = row.numpy()
        np.subtract(pixels.transpose(2, 0, 1), np.float32(self.mean), out=target)
        np.divide(target, np.float32(self.scale), out=target)
        return row

    def _cut(self, photo: Image.Image) -> Image.Image:
        width, height = photo.size
        ratio = self.short_side / min(width, height)
        width, height = max(self.side, round(width * ratio)), max(self.side, round(height * ratio))
        left, top = (width - self.side) // 2, (height - self.side) // 2
        scaled = photo.resize((width, height), Image.Resampling.BICUBIC)
        return scaled.crop((left, top, left + self.side, top + self.side))


def _as_rgb(payload: Any) -> Image.Image:
    if isinstance(payload, bytes | bytearray | memoryview):
        photo = _decoded(bytes(payload))
    elif isinstance(payload, np.ndarray):
        photo = _from_array(payload)
    elif isinstance(payload, Image.Image):
        photo = payload
    else:
        raise SettingError(f"The payload is a {type(payload).__name__}, which is no photo", EXPECTED)
    return photo if photo.mode == "RGB" else photo.convert("RGB")


def _decoded(payload: bytes) -> Image.Image:
    try:
        with Image.open(BytesIO(payload), formats=FORMATS) as photo:
            photo.load()
            return ImageOps.exif_transpose(photo)
    except UnidentifiedImageError:
        raise SettingError(
            f"The payload of {len(payload)} bytes starts with {payload[:8]!r}: no photo", EXPECTED
        ) from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise SettingError(f"The photo of {len(payload)} bytes cannot be decoded ({error})", EXPECTED) from error


def _from_array(payload: NDArray[Any]) -> Image.Image:
    fits = payload.dtype == np.uint8 and payload.size > 0
    fits = fits and (payload.ndim == 2 or (payload.ndim == 3 and payload.shape[2] in (3, 4)))
    require(fits, f"The payload is a {payload.dtype} array of the shape {payload.shape}", EXPECTED)
    return Image.fromarray(payload)
