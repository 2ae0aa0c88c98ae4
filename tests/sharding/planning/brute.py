"""All plans of a small problem, one after the other: slow, plain, and written apart from the search."""

from itertools import combinations, pairwise, permutations
from math import inf, isfinite


def intervals(devices, replicas, start=0):
    """All rows of disjoint runs of neighbouring devices, each at most `replicas` long; any device may be left out."""
    yield ()
    for first in range(start, devices):
        for last in range(first + 1, min(first + replicas, devices) + 1):
            for rest in intervals(devices, replicas, last):
                yield (tuple(range(first, last)), *rest)


def plans(problem, replicas, order):
    """(groups of devices, boundaries) of every plan."""
    count, layers = len(problem.devices), len(problem)
    orders = permutations(range(count)) if order == "any" else [range(count)]
    for names in map(tuple, orders):
        for runs in intervals(count, replicas):
            if not runs or len(runs) > layers:
                continue
            groups = [tuple(names[place] for place in run) for run in runs]
            for inner in combinations(range(1, layers), len(groups) - 1):
                if all(problem.allowed[cut] for cut in inner):
                    yield groups, (0, *inner, layers)


def stage_memory(problem, first, last):
    own = sum(problem.param_bytes[layer] for layer in range(first, last))
    tied = sum(tie.weight_bytes for tie in problem.tied if set(tie.layers) & set(range(first, last)))
    return own + tied + max(problem.work_bytes[layer] for layer in range(first, last))


def cost(problem, groups, cuts):
    """(share of memory, bottleneck, latency) of a plan."""
    pairs = list(zip(groups, pairwise(cuts), strict=True))
    capped = isfinite(min(problem.memory_bytes))
    share = max(
        stage_memory(problem, *ends) / (problem.memory_bytes[device] if capped else 1)
        for group, ends in pairs
        for device in group
    )
    stages = [max(sum(problem.layer_s[device][slice(*ends)]) for device in group) for group, ends in pairs]
    links = [
        max(problem.alpha_s[a][b] + problem.cut_bytes[cut] / problem.bytes_per_s[a][b] for a in before for b in after)
        for before, after, cut in zip(groups, groups[1:], cuts[1:], strict=False)
    ]
    periods = [seconds / len(group) for seconds, group in zip(stages, groups, strict=True)]
    return share, max([*periods, *links]), sum(stages) + sum(links)


def best(problem, objective, replicas, order):
    """The least cost of all plans within the caps, as the objective compares them; None if there is no plan."""
    rank = {"throughput": lambda c: c[1:], "latency": lambda c: c[2:], "memory": lambda c: c}[objective]
    capped = isfinite(min(problem.memory_bytes))
    costs = (cost(problem, *plan) for plan in plans(problem, replicas, order))
    within = [rank(each) for each in costs if each[0] <= (1 if capped else inf)]
    return min(within, default=None)
