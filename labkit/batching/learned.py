"""What the batcher has learned about each bucket: its service time, and how many of its rows fit into memory."""

from __future__ import annotations

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
    """Lessons by bucket key; of the keys not used for longest, those beyond 256 are forgotten. Its owner locks it."""

    def __init__(self) -> None:
        self._lessons: dict[Hashable, Lesson] = {}

    def of(self, key: Hashable) -> Lesson:
        """The lesson of `key`, empty at first."""
        lesson = self._lessons.pop(key, None) or Lesson()
        # A dict keeps the order of insertion: the key that was used last stands last.
        self._lessons[key] = lesson
        if len(self._lessons) > _MAX_KEYS:
            del self._lessons[next(iter(self._lessons))]
        return lesson

    def lowered(self, max_rows: int) -> dict[Hashable, int]:
        """The buckets whose memory cap is below `max_rows` now."""
        caps = {key: lesson.memory.within(max_rows) for key, lesson in list(self._lessons.items())}
        return {key: cap for key, cap in caps.items() if cap < max_rows}
