"""What the batcher has learned about each bucket: its service time, and how many of its rows fit into memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from labkit.batching.faults import MemoryCap
from labkit.batching.service import ServiceModel

__all__ = ["Learned", "Lesson"]

_MAX_KEYS = 256


@dataclass(slots=True)
class Lesson:
    """One bucket's service model and memory cap."""

    service: ServiceModel = field(default_factory=ServiceModel)
    memory: MemoryCap = field(default_factory=MemoryCap)


class Learned:
    """Lessons by bucket key; of the keys not used for longest, those beyond 256 are forgotten."""

    def __init__(self) -> None:
        self._lessons: OrderedDict[Hashable, Lesson] = OrderedDict()

    def of(self, key: Hashable) -> Lesson:
        """The lesson of `key`, empty at first."""
        lesson = self._lessons.get(key)
        if lesson is None:
            lesson = self._lessons[key] = Lesson()
            if len(self._lessons) > _MAX_KEYS:
                self._lessons.popitem(last=False)
        self._lessons.move_to_end(key)
        return lesson

    def lowered(self, max_rows: int) -> dict[Hashable, int]:
        """The buckets whose memory cap is below `max_rows` now."""
        caps = {key: lesson.memory.within(max_rows) for key, lesson in list(self._lessons.items())}
        return {key: cap for key, cap in caps.items() if cap < max_rows}
