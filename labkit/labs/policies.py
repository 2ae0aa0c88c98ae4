"""The batching policies by the names under which labs and reports offer them."""

from __future__ import annotations

from collections.abc import Callable

from labkit.batching import AIMD, Deferral, FixedSize, Goodput, Greedy, MaxWait, Policy, PreferredSizes
from labkit.errors import require_known

__all__ = ["NO_BATCHING", "POLICIES", "policy"]

NO_BATCHING = "no batching"

# name -> policy, from the cap, the longest wait for company and the latency goal
_MAKERS: dict[str, Callable[[int, float, float], Policy]] = {
    "greedy": lambda cap, wait_ms, slo_ms: Greedy(),
    "max wait": lambda cap, wait_ms, slo_ms: MaxWait(wait_ms),
    "fixed size": lambda cap, wait_ms, slo_ms: FixedSize(cap, max_wait_ms=max(wait_ms, slo_ms / 2)),
    "preferred sizes": lambda cap, wait_ms, slo_ms: PreferredSizes(tuple(sorted({max(1, cap // 4), cap})), wait_ms),
    "AIMD": lambda cap, wait_ms, slo_ms: AIMD(slo_ms / 2),
    "deferral": lambda cap, wait_ms, slo_ms: Deferral(slo_ms),
    "goodput": lambda cap, wait_ms, slo_ms: Goodput(slo_ms),
    NO_BATCHING: lambda cap, wait_ms, slo_ms: FixedSize(1),
}

POLICIES = tuple(_MAKERS)


def policy(name: str, *, cap: int = 16, wait_ms: float = 5.0, slo_ms: float = 100.0) -> Policy:
    """The policy called `name`; raises `UnknownName`.

    >>> policy("max wait", wait_ms=10.0)
    MaxWait(wait_ms=10.0)
    """
    require_known("policy", name, POLICIES)
    return _MAKERS[name](cap, wait_ms, slo_ms)
