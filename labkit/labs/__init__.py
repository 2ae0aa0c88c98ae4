"""The run behind each notebook: plain functions that yield points, no widget in sight.

A lab is one function, `run(settings, stop) -> Iterator[Point]`. `settings` is the lab's own frozen dataclass, `stop`
a `threading.Event` that says "end soon". A lab may also yield a `Note`, one line that says which stage it is in; a lab
that follows its controls while it runs takes `Dials` in place of `settings`.

The same function runs live in a panel's thread and headless in a report; `labkit.ui` knows how, the lab does not.
"""

from labkit.labs.dials import Dials
from labkit.labs.note import Note
from labkit.labs.point import Point

__all__ = ["Dials", "Note", "Point"]
