"""What a chart shows: declared once, drawn live by `LiveChart` and in reports by `figures`."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from labkit.errors import require

__all__ = ["Chart", "Level"]


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line for orientation, such as an SLO.

    `value` is in the unit of the chart's y axis, or the name of the setting that holds it (the line then moves when
    the setting is changed).
    """

    label: str
    value: float | str

    def at(self, settings: Any) -> float:
        """Where the line stands under `settings`.

        >>> Level("SLO", 100.0).at(None), Level("real part", "real").at(3 + 4j)
        (100.0, 3.0)
        """
        return float(getattr(settings, self.value)) if isinstance(self.value, str) else self.value


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: axis labels carry their units, `series` says by name or pattern (`p99*`) which points it takes.

    With `dots` the points are not joined by lines. With `bars` each series is a row of a Gantt chart: its points come
    in pairs, the begin and the end of a bar at the height y, and only the newest bars are shown. A logarithmic axis
    leaves out what is not above zero.

    >>> latency = Chart("Latency", x="time (s)", y="latency (ms)", series=("p*",), levels=(Level("SLO", 100.0),))
    >>> latency.takes("p99"), latency.takes("queue")
    (True, False)
    """

    title: str
    x: str
    y: str
    series: tuple[str, ...] = ("*",)
    levels: tuple[Level, ...] = ()
    caption: str = ""
    log_x: bool = False
    log_y: bool = False
    dots: bool = False
    bars: bool = False

    def __post_init__(self) -> None:
        require(bool(self.title and self.x and self.y), "A chart has an empty title or axis label", "Name all three.")
        require(not isinstance(self.series, str), f"series is the text {self.series!r}", "Give a tuple of names.")

    def takes(self, series: str) -> bool:
        """Whether points of `series` are drawn here."""
        return any(fnmatchcase(series, pattern) for pattern in self.series)
