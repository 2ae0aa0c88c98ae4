"""Real input: photographs as JPEG bytes and sentences as text, with what a model should say about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.errors import Unavailable, require

__all__ = ["Workload", "photos", "sentences"]

CATS = ("tabby", "tiger cat", "Persian cat", "Siamese cat", "Egyptian cat")
# Photographs inside the wheels of scikit-image and scikit-learn, and the ImageNet labels that are right for them
# (none: nothing in ImageNet fits).
PHOTOS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("skimage/data/chelsea.png", CATS),
    ("skimage/data/coffee.png", ("espresso",)),
    ("skimage/data/camera.png", ("tripod",)),
    ("sklearn/datasets/images/china.jpg", ("palace",)),
    ("sklearn/datasets/images/flower.jpg", ("daisy",)),
    ("skimage/data/rocket.jpg", ("missile", "projectile")),
    ("skimage/data/motorcycle_left.png", ("moped", "motor scooter")),
    ("skimage/data/motorcycle_right.png", ("moped", "motor scooter")),
    ("skimage/data/astronaut.png", ()),
    ("skimage/data/clock_motion.png", ()),
    ("skimage/data/coins.png", ()),
    ("skimage/data/moon.png", ()),
    ("skimage/data/hubble_deep_field.jpg", ()),
    ("skimage/data/retina.jpg", ()),
    ("skimage/data/brick.png", ()),
    ("skimage/data/grass.png", ()),
    ("skimage/data/gravel.png", ()),
    ("skimage/data/page.png", ()),
)
QUALITY = 95


@dataclass(frozen=True, slots=True)
class Workload:
    """Payloads to send to an engine and, where known, what the answer to each should be.

    `truths[i]` belongs to `payloads[i]`; what it is depends on the workload, see `photos` and `sentences`.

    >>> workload = Workload("letters", ("a", "b", "c"))
    >>> [workload.payload(int(i)) for i in workload.order(5, seed=1)]
    ['b', 'b', 'c', 'c', 'a']
    """

    name: str
    payloads: tuple[Any, ...]
    truths: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        require(bool(self.payloads), f"The workload {self.name!r} has no payloads", "Give at least one.")
        known = len(self.payloads) if self.truths is None else len(self.truths)
        require(
            known == len(self.payloads),
            f"The workload {self.name!r} has {len(self.payloads)} payloads and {known} truths",
            "Give one truth for each payload, or none at all.",
        )

    def __len__(self) -> int:
        return len(self.payloads)

    def payload(self, index: int) -> Any:
        """The payload of that index, counting round and round."""
        return self.payloads[index % len(self.payloads)]

    def order(self, count: int, seed: int) -> NDArray[np.int64]:
        """Draw `count` indices at random, each payload as likely as any other; the same for the same seed."""
        require(count >= 0, f"count is {count}", "Give the number of requests, 0 or more.")
        return np.random.default_rng(seed).integers(0, len(self.payloads), count)


@cache
def photos() -> Workload:
    """18 photographs as JPEG bytes, grey ones among them, from 384 x 191 to 1411 x 1411 pixels.

    The truth of a photo is the tuple of ImageNet labels that are right for it, empty where none is. Files that are
    not JPEG are encoded once, in memory, at quality 95, so that decoding is real work for each.

    Raises `Unavailable` when a package that carries the photos is not installed.
    """
    return Workload("photos", tuple(_jpeg(_installed(path)) for path, _ in PHOTOS), tuple(truth for _, truth in PHOTOS))


@cache
def sentences() -> Workload:
    """64 sentences in pairs of the same meaning, from 3 to 125 tokens, on many topics.

    The truth of a sentence is the index of its paraphrase.
    """
    lines = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
    texts = tuple(text for line in lines for text in line.split("\t"))
    return Workload("sentences", texts, tuple(index ^ 1 for index in range(len(texts))))


def _installed(path: str) -> Path:
    package, _, rest = path.partition("/")
    spec = find_spec(package)  # finds the folder without importing the package, which would take a second
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / rest).is_file():
            return Path(folder) / rest
    raise Unavailable(f"The photo {path} is not installed", 'Run: pip install "labkit[models]"')


def _jpeg(path: Path) -> bytes:
    if path.suffix == ".jpg":
        return path.read_bytes()
    from PIL import Image

    encoded = BytesIO()
    with Image.open(path) as photo:
        photo.save(encoded, "JPEG", quality=QUALITY)
    return encoded.getvalue()
