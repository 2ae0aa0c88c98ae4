"""EfficientNet-Lite0: the photo classifier of the batching labs, 4.6 million parameters.

    photo [B, 3, 224, 224] -> stem -> 16 inverted bottlenecks -> head -> mean over space -> logits [B, 1000]

EfficientNet (Tan and Le, 2019) in its Lite form: no squeeze-and-excite, and ReLU6 in place of swish, so that it runs
well on small devices. Once loaded it is for inference only: each batch norm is folded into the convolution before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import convert_conv2d_weight_memory_format
from torch.nn.utils.fusion import fuse_conv_bn_eval

__all__ = [
    "Bottleneck",
    "Classifier",
    "ConvNorm",
    "EfficientNetLite0",
    "Stem",
    "from_checkpoint",
]

# One line per stage: repeats, kernel, stride of the first block, widening inside a block, channels out.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM_CHANNELS, HEAD_CHANNELS, CLASSES = 32, 1280, 1000
NORM_EPSILON = 1e-3

# The checkpoint's names for the parts, and ours.
OUTSIDE = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
    "_fc": "classifier",
}
IN_BLOCK = {
    "_expand_conv": "widen.conv",
    "_bn0": "widen.norm",
    "_depthwise_conv": "filter.conv",
    "_bn1": "filter.norm",
    "_project_conv": "narrow.conv",
    "_bn2": "narrow.norm",
}


class ConvNorm(nn.Module):
    """A convolution, its batch norm and, if `active`, a ReLU6; padded as TensorFlow's SAME does.

    SAME puts the odd pixel of padding at the bottom and on the right. With stride 1 there is none, and the convolution
    pads by itself; with stride 2 on an even image there is one, and torch's symmetric padding would be off by a pixel.
    """

    def __init__(
        self, channels: int, out: int, kernel: int, stride: int = 1, *, depthwise: bool = False, active: bool = True
    ) -> None:
        super().__init__()
        padding = kernel // 2 if stride == 1 else 0
        groups = channels if depthwise else 1
        self.conv = nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(out, eps=NORM_EPSILON)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, H, W] -> [B, out, ceil(H / stride), ceil(W / stride)]."""
        if self.conv.stride[0] > 1:
            x = functional.pad(x, (*self._same(x.shape[3]), *self._same(x.shape[2])))
        x = self.norm(self.conv(x))
        return functional.relu6(x, inplace=True) if self.active else x

    def fold(self) -> None:
        """Put the batch norm into the convolution's weights; the output stays the same but for rounding."""
        self.conv = fuse_conv_bn_eval(self.conv, cast(nn.BatchNorm2d, self.norm))
        self.norm = nn.Identity()

    def _same(self, size: int) -> tuple[int, int]:
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2


class Bottleneck(nn.Module):
    """An inverted bottleneck: widen, filter each channel by itself, narrow; a skip connection where shapes allow."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = channels * factor
        self.widen = ConvNorm(channels, wide, 1) if factor > 1 else nn.Identity()
        self.filter = ConvNorm(wide, wide, kernel, stride, depthwise=True)
        self.narrow = ConvNorm(wide, out, 1, active=False)
        self.skips = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, H, W] -> [B, out, ceil(H / stride), ceil(W / stride)]."""
        y: Tensor = self.narrow(self.filter(self.widen(x)))
        return y.add_(x) if self.skips else y


class EfficientNetLite0(nn.Module):
    """The whole network; [B, 3, 224, 224] normalised photos -> float32 [B, 1000] logits.

    Any height and width from 32 up work. The input may have any floating dtype: it is cast to that of the weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, STEM_CHANNELS, 3, stride=2)
        self.blocks = nn.Sequential(*_bottlenecks())
        self.head = ConvNorm(STAGES[-1][-1], HEAD_CHANNELS, 1)
        self.classifier = nn.Linear(HEAD_CHANNELS, CLASSES)

    def forward(self, photos: Tensor) -> Tensor:
        """[B, 3, H, W] -> [B, 1000]."""
        x = photos.to(self.classifier.weight.dtype, memory_format=torch.channels_last)
        x = self.head(self.blocks(self.stem(x))).mean((2, 3))
        logits: Tensor = self.classifier(x)
        return logits.float()

    def chain(self) -> list[tuple[str, nn.Module]]:
        """The network as layers from one tensor to the next, for cutting it."""
        blocks = ((f"block{number}", block) for number, block in enumerate(self.blocks))
        return [("stem", Stem(self.stem)), *blocks, ("head", self.head), ("classifier", Classifier(self.classifier))]


class Stem(nn.Module):
    """The first layer of the chain: photos in the weights' type and memory format, then the first convolution."""

    def __init__(self, stem: ConvNorm) -> None:
        super().__init__()
        self.stem = stem

    def forward(self, photos: Tensor) -> Tensor:
        """[B, 3, H, W] -> [B, 32, H / 2, W / 2]."""
        dtype = self.stem.conv.weight.dtype
        x: Tensor = self.stem(photos.to(dtype, memory_format=torch.channels_last))
        return x


class Classifier(nn.Module):
    """The last layer of the chain: the mean over space, then one number per class."""

    def __init__(self, classifier: nn.Linear) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1280, H, W] -> logits [B, 1000]."""
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits.float()


def from_checkpoint(tensors: Mapping[str, Tensor]) -> EfficientNetLite0:
    """Build the network from a checkpoint with the names of PyPI `efficientnet-lite-pytorch`, ready for inference.

    Raises `KeyError` for a tensor of an unknown name and `RuntimeError` for one that is missing or of another shape.
    """
    with torch.device("meta"):
        network = EfficientNetLite0()
    network.load_state_dict({_our_name(name): tensor for name, tensor in tensors.items()}, assign=True)
    network.eval()
    for layer in network.modules():
        if isinstance(layer, ConvNorm):
            layer.fold()
    convert_conv2d_weight_memory_format(network, torch.channels_last)
    return network.requires_grad_(False)


def _bottlenecks() -> Iterator[Bottleneck]:
    channels = STEM_CHANNELS
    for repeats, kernel, first_stride, factor, out in STAGES:
        for stride in (first_stride, *[1] * (repeats - 1)):
            yield Bottleneck(channels, out, kernel, stride, factor)
            channels = out


def _our_name(name: str) -> str:
    *block, part, leaf = name.split(".")
    if block:
        return f"blocks.{block[1]}.{IN_BLOCK[part]}.{leaf}"
    return f"{OUTSIDE[part]}.{leaf}"
