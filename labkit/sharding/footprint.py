"""How much memory a layer's tensors take while it runs: counted, operation by operation.

Counted and not read from the device, so that it is the same on each kind and nothing else disturbs it. What a kernel
takes for itself inside one operation (a convolution's scratch space) is not seen.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.sharding.nested import leaves

__all__ = ["Footprint", "value_bytes", "working_bytes"]


def value_bytes(value: Any) -> int:
    """Bytes of all tensors in a value, as they are sent: dense, each by itself.

    >>> value_bytes((torch.zeros(2, 3), {"mask": torch.zeros(2, dtype=torch.bool)}, None, 5))
    26
    """
    return sum(int(leaf.nbytes) for leaf in leaves(value))


class Footprint(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, keeps the sum of all tensors that were made and still live; `peak_bytes` is its maximum.

    >>> with Footprint() as seen:
    ...     total = (torch.zeros(1000) + torch.zeros(1000)).sum()
    >>> seen.peak_bytes
    12000
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = self.peak_bytes = 0
        self._holders: Counter[int] = Counter()  # tensors that live, for each storage

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count what it returns."""
        out = func(*args, **(kwargs or {}))
        given = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and (_storage(leaf) not in given or _storage(leaf) in self._holders):
                self._hold(leaf)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return out

    def _hold(self, tensor: Tensor) -> None:
        key, size_bytes = _storage(tensor), tensor.untyped_storage().nbytes()
        if not self._holders[key]:
            self.live_bytes += size_bytes
        self._holders[key] += 1
        weakref.finalize(tensor, self._drop, key, size_bytes)

    def _drop(self, key: int, size_bytes: int) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self.live_bytes -= size_bytes


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def working_bytes(layer: Callable[[Any], Any], value: Any) -> tuple[Any, int]:
    """Run a layer; return its output and the most memory that its input and all it made took at once."""
    with torch.no_grad(), Footprint() as seen:
        out = layer(value)
    return out, value_bytes(value) + max(seen.peak_bytes, value_bytes(out))
