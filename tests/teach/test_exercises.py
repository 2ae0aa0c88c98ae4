"""Each exercise: its solution passes, plausible mistakes do not, and the notebooks use exactly these exercises."""

import re
from itertools import pairwise
from math import ceil, floor, inf
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from labkit.batching import Run, WaitUntil
from labkit.errors import UnknownName
from labkit.sharding.partition import partition
from labkit.sharding.problem import Problem
from labkit.teach import Exercise, exercise, exercises

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
USE = re.compile(r"""exercise\(\s*["']([^"']+)["']\s*\)""")

# What a student may well write first; each list must name the exercise's typical mistakes.
MISTAKES: dict[str, list[Any]] = {
    "00a": [lambda rate, ms: rate * ms, lambda rate, ms: rate / ms if ms else 0.0, lambda rate, ms: rate + ms],
    "10a": [
        lambda sizes, times: (times[0], (times[-1] - times[0]) / (sizes[-1] - sizes[0])),
        lambda sizes, times: tuple(np.polyfit(sizes, times, 1)),  # slope first
        lambda sizes, times: (0.0, float(np.mean(np.divide(times, sizes)))),
    ],
    "10b": [
        lambda fixed, row, slo, cap: min(cap, floor((slo - fixed) / row)),  # one batch, not two
        lambda fixed, row, slo, cap: floor((slo / 2 - fixed) / row),  # no cap
        lambda fixed, row, slo, cap: min(cap, (slo / 2 - fixed) / row),  # not whole, not clipped
        lambda fixed, row, slo, cap: max(1, min(cap, floor((slo / 2 - fixed) / row))),
        lambda fixed, row, slo, cap: max(0, min(cap, ceil((slo / 2 - fixed) / row))),
    ],
    "11a": [
        lambda ms, misses, level: float(np.percentile(ms, level)) if ms else inf,  # the misses vanish
        lambda ms, misses, level: sorted(ms)[int(level / 100 * len(ms)) - 1] if ms else inf,
        lambda ms, misses, level: ([*ms, *[inf] * misses])[ceil(level * (len(ms) + misses) / 100) - 1],  # unsorted
    ],
    "11b": [
        lambda rate, fixed, row: rate * fixed / (1 - rate * row),  # seconds against milliseconds
        lambda rate, fixed, row: rate / 1000 * fixed / (1 - rate / 1000 * row) if rate * row != 1000 else inf,
        lambda rate, fixed, row: rate / 1000 * (fixed + row),
    ],
    "12a": [
        lambda view: Run(1),  # no batching
        lambda view: WaitUntil(inf),  # nobody is ever answered
        lambda view: view.rows,  # no decision
        lambda view: Run(view.rows) if view.rows >= 32 else WaitUntil(view.oldest_s + 1.0),  # waits past the goal
    ],
    "12b": [
        lambda rows: ceil(np.log2(rows)),
        lambda rows: 2 * ceil(np.log2(rows)),  # forgets the whole
        lambda rows: 2 * rows - 1,  # as if all were bad
    ],
    "13a": [
        lambda rows, row_bytes, rate: 1000 * rows * row_bytes / rate,  # read, but never written
        lambda rows, row_bytes, rate: 2 * rows * row_bytes / rate,  # seconds
        lambda rows, row_bytes, rate: 2000 * row_bytes / rate,
    ],
    "13b": [
        lambda prepare, threads, compute, cores: 1000 / max(prepare / threads, compute),  # endless cores
        lambda prepare, threads, compute, cores: 1000 / (prepare + compute),  # one after the other
        lambda prepare, threads, compute, cores: 1000 / max(prepare, compute),
    ],
    "20a": [
        lambda ms, kb, cuts, link, rate: max(sum(ms[a:b]) for a, b in pairwise(cuts)),  # links cost nothing
        lambda ms, kb, cuts, link, rate: max(  # one layer too many in each stage
            [sum(ms[a : b + 1]) for a, b in pairwise(cuts)] + [link + kb[c] / rate for c in cuts[1:-1]]
        ),
        lambda ms, kb, cuts, link, rate: max(  # the input and the output cross no link
            [sum(ms[a:b]) for a, b in pairwise(cuts)] + [link + kb[c] / rate for c in cuts]
        ),
        lambda ms, kb, cuts, link, rate: max(  # a stage and its link one after the other
            sum(ms[a:b]) + (link + kb[b] / rate if b < len(ms) else 0) for a, b in pairwise(cuts)
        ),
        lambda ms, kb, cuts, link, rate: sum(ms) + sum(link + kb[c] / rate for c in cuts[1:-1]),  # the latency
    ],
    "20b": [
        lambda ms, slower: len(ms) // 2,  # equal count
        lambda ms, slower: min(range(1, len(ms)), key=lambda cut: max(sum(ms[:cut]), sum(ms[cut:]))),  # equal devices
        lambda ms, slower: min(range(1, len(ms)), key=lambda cut: max(slower * sum(ms[:cut]), sum(ms[cut:]))),
        lambda ms, slower: min(range(len(ms) + 1), key=lambda cut: max(sum(ms[:cut]), slower * sum(ms[cut:]))),
    ],
    "21a": [
        lambda stages, m: 1 - m / (m + len(stages) - 1),  # equal stages only
        lambda stages, m: m / (m + len(stages) - 1),  # the efficiency
        lambda stages, m: 1 - sum(stages) / (len(stages) * max(stages)),  # never empty
        lambda stages, m: 1 - sum(stages) / (sum(stages) + (m - 1) * max(stages)),
    ],
    "22a": [
        lambda stages, link, m: max(stages),  # what many guides claim
        lambda stages, link, m: sum(stages) * m + (len(stages) - 1) * link,  # one after the other
        lambda stages, link, m: sum(stages) + len(stages) * link + (m - 1) * max(stages),  # a link too many
        lambda stages, link, m: sum(stages) + (len(stages) - 1) * link + (m - 1) * max(stages),  # a slow link
    ],
}


@pytest.mark.parametrize("each", exercises(), ids=lambda each: each.id)
def test_the_solution_passes_its_own_check(each: Exercise) -> None:
    outcome = each.grade(each.reference)
    assert outcome.passed, str(outcome)
    assert dict(outcome.facts)["score"]


@pytest.mark.parametrize("each", exercises(), ids=lambda each: each.id)
def test_plausible_mistakes_do_not_pass(each: Exercise) -> None:
    states = [each.grade(mistake).state for mistake in MISTAKES[each.id]]
    assert states == ["wrong"] * len(states)
    assert len(states) >= 3


@pytest.mark.parametrize("each", exercises(), ids=lambda each: each.id)
def test_each_wrong_case_says_why_and_each_exercise_has_two_hints(each: Exercise) -> None:
    assert all(case.why for case in each.cases())
    assert len(each.hints) >= 2
    assert each.id.startswith(each.lab.split("_")[0])
    assert each.reference.__name__ in each.task


def test_checks_do_not_change_from_one_call_to_the_next() -> None:
    for each in exercises():
        assert each.cases() == each.cases()


def test_ids_are_unique() -> None:
    ids = [each.id for each in exercises()]
    assert len(ids) == len(set(ids))


def test_an_unknown_exercise_brings_the_near_match() -> None:
    with pytest.raises(UnknownName, match=r"no exercise '10x'. Did you mean '10"):
        exercise("10x")


def test_the_score_of_the_curve_is_its_error() -> None:
    slightly_off = exercise("10a").reference

    def answer(sizes: list[int], times_ms: list[float]) -> tuple[float, float]:
        fixed_ms, per_row_ms = slightly_off(sizes, times_ms)
        return fixed_ms * (1 + 4e-7), per_row_ms

    assert dict(exercise("10a").grade(answer).facts)["score"] == "largest relative error 4e-07"


def test_the_best_batch_agrees_with_trying_every_size() -> None:
    best_batch = exercise("10b").reference
    rng = np.random.default_rng(0)
    for _ in range(200):
        fixed_ms, per_row_ms, slo_ms = rng.uniform(0, 30), rng.uniform(0.5, 9), rng.uniform(5, 200)
        tried = [b for b in range(1, 33) if 2 * (fixed_ms + per_row_ms * b) <= slo_ms]
        assert best_batch(fixed_ms, per_row_ms, slo_ms, 32) == max(tried, default=0)


def test_the_mean_batch_is_the_one_that_reproduces_itself() -> None:
    mean_batch = exercise("11b").reference
    rows = mean_batch(700.0, 12.0, 1.1)
    assert rows == pytest.approx(0.7 * (12.0 + 1.1 * rows))


def test_percentiles_with_misses_are_those_of_a_list_with_infinities() -> None:
    percentile = exercise("11a").reference
    rng = np.random.default_rng(1)
    for misses in (0, 1, 30):
        latencies = rng.uniform(1, 100, 101).tolist()
        everyone = np.array(latencies + [inf] * misses)
        for level in (50.0, 90.0, 99.0):
            reference = np.quantile(everyone, level / 100, method="inverted_cdf")
            assert percentile(latencies, misses, level) == reference


def test_the_best_boundary_agrees_with_the_exact_partition() -> None:
    best_boundary = exercise("20b").reference
    rng = np.random.default_rng(2)
    for _ in range(100):
        layer_ms, slower = rng.uniform(1, 9, rng.integers(2, 12)).tolist(), float(rng.uniform(1, 1.5))
        problem = Problem([layer_ms, [slower * ms for ms in layer_ms]])
        plan = partition(problem)
        if len(plan) == 2:
            assert best_boundary(layer_ms, slower) == plan.boundaries[1]


def test_the_bubble_is_what_a_simulated_pipeline_leaves_idle() -> None:
    bubble_share = exercise("21a").reference
    rng = np.random.default_rng(3)
    for _ in range(50):
        stage_ms, microbatches = rng.uniform(1, 9, rng.integers(1, 6)).tolist(), int(rng.integers(1, 20))
        free_ms = [0.0] * len(stage_ms)
        for _ in range(microbatches):
            at_ms = 0.0
            for stage, took_ms in enumerate(stage_ms):
                free_ms[stage] = at_ms = max(at_ms, free_ms[stage]) + took_ms
        idle = 1 - microbatches * sum(stage_ms) / (len(stage_ms) * free_ms[-1])
        assert bubble_share(stage_ms, microbatches) == pytest.approx(idle)


@pytest.mark.skipif(not NOTEBOOKS.is_dir(), reason="there are no notebooks yet")
def test_checker_and_notebook_are_not_out_of_step() -> None:
    used = {name for path in NOTEBOOKS.glob("*.ipynb") for name in _used(path)}
    registered = {(each.lab, each.id) for each in exercises()}
    assert used == registered


def _used(path: Path) -> set[tuple[str, str]]:
    cells = nbformat.read(path, as_version=4).cells
    return {(path.stem, id) for cell in cells if cell.cell_type == "code" for id in USE.findall(cell.source)}


def test_uses_of_exercises_are_found_in_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "10_lab.ipynb"
    cells = [
        nbformat.v4.new_code_cell("exercise(\n    '10b').check(f)\ng = exercise(\"10a\").continue_with(f)"),
        nbformat.v4.new_markdown_cell('`exercise("zz")`'),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert _used(path) == {("10_lab", "10a"), ("10_lab", "10b")}
