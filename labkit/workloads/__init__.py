"""What is sent to an engine, and when: arrival processes and recorded traces."""

from labkit.workloads.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Replay
from labkit.workloads.traces import Trace, read_azure, read_mooncake, read_trace

__all__ = [
    "Arrivals",
    "Constant",
    "Gamma",
    "OnOff",
    "Poisson",
    "Replay",
    "Trace",
    "read_azure",
    "read_mooncake",
    "read_trace",
]
