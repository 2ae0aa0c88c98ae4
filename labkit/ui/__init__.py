"""Live panels and static figures: the front ends of the labs, and the only folder that knows of widgets.

Panel(key, run, settings=..., controls=[Choice(...), Whole(...), Number(...)], charts=[Chart(...)]).show()
figures.show(figures.lines(points, title=..., x=..., y=...))
"""

from labkit.ui import figures
from labkit.ui.chart import Chart, Level
from labkit.ui.controls import Action, Choice, Number, Whole
from labkit.ui.live_chart import LiveChart
from labkit.ui.mode import mode
from labkit.ui.panel import Panel

__all__ = ["Action", "Chart", "Choice", "Level", "LiveChart", "Number", "Panel", "Whole", "figures", "mode"]
