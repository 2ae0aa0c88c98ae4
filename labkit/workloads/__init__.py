"""What is sent to an engine, and when: arrival processes, recorded traces, photos and sentences."""

from labkit.workloads.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Replay
from labkit.workloads.payloads import Workload, photos, sentences
from labkit.workloads.traces import Trace, read_azure, read_mooncake, read_trace

__all__ = [
    "Arrivals",
    "Constant",
    "Gamma",
    "OnOff",
    "Poisson",
    "Replay",
    "Trace",
    "Workload",
    "photos",
    "read_azure",
    "read_mooncake",
    "read_trace",
    "sentences",
]
