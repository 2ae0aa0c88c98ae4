"""Settings that a person may turn while a lab runs."""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Dials"]

Settings = TypeVar("Settings")


class Dials(Generic[Settings]):
    """The newest frozen settings and how often they have changed; safe from any thread.

    A lab that follows its controls compares `version` with the one it acted on last, which costs next to nothing:

    >>> dials = Dials("greedy")
    >>> seen = dials.version
    >>> dials.set("max-wait")
    >>> dials.version != seen, dials.get()
    (True, 'max-wait')
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._version = 0
        self._lock = Lock()

    @property
    def version(self) -> int:
        """How many times the settings have changed since the start."""
        return self._version

    def get(self) -> Settings:
        """The settings that hold now."""
        return self._settings

    def set(self, settings: Settings) -> None:
        """Replace the settings; equal ones change nothing."""
        with self._lock:
            if settings != self._settings:
                self._settings = settings
                self._version += 1
