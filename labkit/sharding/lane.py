"""A device as one stage uses it: with a stream of its own, so that stages on the same device overlap.

On an accelerator, copies and kernels of a stage are queued on its stream without waiting, peer copies between devices
included; `finish` waits for that stream alone, before the outcome is announced. Whoever receives a tensor may
therefore use it on any stream at once, and the sender keeps its input alive until then, which is what the caching
allocator needs to know.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from labkit.sharding.copying import cloned
from labkit.sharding.nested import map_leaves

__all__ = ["Lane", "cast", "kept"]


class Lane:
    """Where a stage runs.

    >>> lane = Lane("cpu")
    >>> with lane.entered():
    ...     lane.move(torch.ones(2)).device.type
    'cpu'
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = torch.device(device)
        self._module: Any = None if self.device.type == "cpu" else torch.get_device_module(self.device)
        # Not every backend has streams (MPS has one queue): there, `finish` waits for the device.
        make_stream = getattr(self._module, "Stream", None)
        self._stream: Any = None if make_stream is None else make_stream(self.device)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Compute here until the block ends: without gradients, on this device, in its stream."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            if self._stream is not None:
                stack.enter_context(self._module.device(self.device))
                stack.enter_context(self._module.stream(self._stream))
            yield

    def own(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a view of shared memory to this device."""
        return cloned(tensor) if self._module is None else tensor.to(self.device, non_blocking=True)

    def move(self, value: Any) -> Any:
        """Bring all tensors of `value` here; what is here already is not copied."""
        return map_leaves(self._moved, value)

    def finish(self) -> None:
        """Wait until everything in the stream has run."""
        if self._stream is not None:
            self._stream.synchronize()
        elif self._module is not None:
            self._module.synchronize()

    def pin(self, memory: memoryview) -> bool:
        """Let the device copy from and to this memory by itself; whether it can. CUDA only."""
        runtime = getattr(self._module, "cudart", None)
        if runtime is None:
            return False
        bytes_ = torch.frombuffer(memory, dtype=torch.uint8)
        return int(runtime().cudaHostRegister(bytes_.data_ptr(), bytes_.numel(), 0)) == 0

    def unpin(self, memory: memoryview) -> None:
        """Undo `pin`, before the memory is unmapped."""
        self._module.cudart().cudaHostUnregister(torch.frombuffer(memory, dtype=torch.uint8).data_ptr())

    def release(self) -> None:
        """Give cached memory back, after it ran out."""
        if hasattr(self._module, "empty_cache"):
            self._module.empty_cache()

    def _moved(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.device == self.device:
            return leaf
        return leaf.to(self.device, non_blocking=True)


def kept(leaf: Any) -> Any:
    """A leaf that the caller may keep and change: tensors made without gradients are marked by torch as fixed."""
    if not isinstance(leaf, torch.Tensor) or not leaf.is_inference():
        return leaf
    copied = leaf.clone()
    if leaf.device.type != "cpu":
        # The original goes back to its stage's stream at once; the copy from it must have run by then.
        torch.accelerator.current_stream(leaf.device).synchronize()
    return copied


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Cast the floating-point tensors of `value`, and nothing else; None leaves them as they are.

    >>> [leaf.dtype for leaf in cast([torch.ones(1), torch.tensor([1])], torch.bfloat16)]
    [torch.bfloat16, torch.int64]
    """
    if dtype is None:
        return value
    return map_leaves(lambda leaf: leaf.to(dtype) if _is_floating(leaf) else leaf, value)


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
