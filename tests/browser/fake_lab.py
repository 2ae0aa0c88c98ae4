"""The lab that the browser tests look at; it needs no model, and its curves are made to be seen."""

import math
from dataclasses import dataclass

from labkit.errors import require
from labkit.labs import Note, Point
from labkit.ui import Chart, Choice, Level, Number, Panel, Whole


@dataclass(frozen=True)
class Settings:
    policy: str = "greedy"
    rate_per_s: float = 200.0
    cap: int = 32
    wait_ms: float = 5.0
    slo_ms: float = 100.0
    fail: int = 0
    steps: int = 4000

    def __post_init__(self):
        require(self.rate_per_s < 5000, f"rate_per_s is {self.rate_per_s}; it must be below 5000", "Turn it down.")


def run(dials, stop):
    yield Note("Driving the model")
    for step in range(dials.get().steps):
        now = dials.get()
        if stop.wait(0.04):
            return
        if now.fail and step > 5:
            raise RuntimeError("the device fell off the bus")
        x = step * 0.04
        wave = 1 + 0.3 * math.sin(x)
        yield Point("p50", x, now.rate_per_s / 10 * wave)
        yield Point("p99", x, now.rate_per_s / 3.2 * wave + 6 * math.sin(7 * x))
        yield Point("queue", x, max(0.0, 12 + 14 * math.sin(x / 2)))
        yield Point("rows per step", x, 1 + now.cap * (1 + math.cos(x)) / 2)
        yield Point("fill", x, 55 + 40 * math.sin(x / 3))
        yield Point("busy", x, 70 + 20 * math.cos(x / 4))


CHARTS = [
    Chart("Latency", "time (s)", "latency (ms)", series=("p50", "p99"), levels=(Level("SLO", "slo_ms"),)),
    Chart("Queue", "time (s)", "waiting requests", series=("queue",)),
    Chart("Batches", "time (s)", "rows per step", series=("rows per step",), caption="Each step's real rows."),
    Chart("Device", "time (s)", "share (%)", series=("fill", "busy")),
]
CONTROLS = [
    Choice("policy", "Policy", ("greedy", "max wait")),
    Number("rate_per_s", "Arrival rate", 1, 10_000, "requests/s", step=10),
    Whole("cap", "Largest batch", 1, 256, "rows"),
    Number("wait_ms", "Longest wait", 0, 1000, "ms"),
    Number("slo_ms", "p99 goal (SLO)", 1, 10_000, "ms"),
    Whole("fail", "Fail on purpose", 0, 1),
]


def panel(key, **changes):
    return Panel(
        key,
        run,
        settings=Settings(**changes),
        controls=CONTROLS,
        charts=CHARTS,
        title=f"Dynamic batching, {key}",
        follows=True,
    )
