"""Which data type each layer computes in.

A precision belongs to layers, not to devices: when a boundary moves or a stage is lost, the answer stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labkit.errors import require, require_known
from labkit.sharding.layout import Layout
from labkit.sharding.state import inner

__all__ = ["resolved_dtypes"]

_NAMES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolved_dtypes(
    layers: Sequence[Any], dtypes: Sequence[torch.dtype | str | None] | None, layout: Layout
) -> list[torch.dtype | None]:
    """Return each layer's data type: that of its stage, or, if another stage has one, that of its own weights.

    Without any, values are not cast at all: what the unsharded model refuses is refused here too.

    >>> layers = [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]
    >>> resolved_dtypes(layers, ["bfloat16", None], Layout((0, 1, 2), ((0,), (1,))))
    [torch.bfloat16, torch.float32]
    """
    if dtypes is None or not any(dtypes):
        return [None] * len(layers)
    require(len(dtypes) == len(layout), f"{len(dtypes)} dtypes for {len(layout)} stages", "Give one for each.")
    found = [_dtype(one) for one in dtypes]
    return [found[layout.stage_of(number)] or _own(layer) for number, layer in enumerate(layers)]


def _dtype(given: torch.dtype | str | None) -> torch.dtype | None:
    if isinstance(given, str):
        require_known("dtype", given, _NAMES)
        return _NAMES[given]
    return given


def _own(layer: Any) -> torch.dtype | None:
    module = inner(layer)
    parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    return next((one.dtype for one in parameters if one.is_floating_point()), None)
