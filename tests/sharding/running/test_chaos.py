"""300 seeded schedules of kills, hangs, slowness, poison and sudden ends; whatever happens, each request ends once.

Every answer is either the right value or a named error. The limits are so short that a busy machine makes workers look
hung which are not; that must not matter either.
"""

import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import psutil
import pytest
import running_stages as stages
import torch
from running_stages import until

from labkit.errors import EngineClosed, EngineError, ModelFailed, WorkerDied
from labkit.sharding.nursery import hatch
from labkit.sharding.patience import Patience
from labkit.sharding.pipeline import Pipeline
from labkit.sharding.recovery import Budget

SCHEDULES = 300
PATIENCE = Patience(floor_s=0.15, factor=8.0, first_call_s=0.3, ping_s=0.05, silent_s=0.2, frozen_s=0.5, load_s=5.0)


@dataclass
class Story:
    """What a schedule did and what came of it."""

    seed: int
    sent: list = field(default_factory=list)
    ended: list = field(default_factory=list)
    events: list = field(default_factory=list)
    losses: int = 0


def run(seed: int) -> Story:
    rng = np.random.default_rng(seed)
    story = Story(seed)
    count = int(rng.integers(2, 4))
    layers = [stages.Scale(3), stages.poison, stages.plus_one, stages.Work(2)][: max(count, 3)]
    pipeline = Pipeline(
        layers,
        boundaries=(0, *sorted(rng.choice(range(1, len(layers)), count - 1, replace=False).tolist()), len(layers)),
        microbatch_rows=int(rng.integers(1, 3)),
        spares=int(rng.integers(0, 2)),
        budget=Budget(restarts=int(rng.choice([0, 20]))),
        patience=PATIENCE,
        name="chaos",
    )
    try:
        for number in range(int(rng.integers(4, 9))):
            send(pipeline, story, number, rng)
            if rng.random() < 0.3:
                disturb(pipeline, story, rng)
        if rng.random() < 0.2:
            story.events.append("close")
            pipeline.close(drain=False)
        for _, future, _ in story.sent:
            # A future that never ends shows here.
            future.exception(30)
        story.losses = pipeline.snapshot().losses
    finally:
        pipeline.close(drain=False)
    check(story, pipeline)
    return story


def send(pipeline, story, number, rng):
    values = torch.from_numpy(rng.integers(0, 100, int(rng.integers(1, 7))).astype(np.float32))
    poison = float(rng.choice([0, -1, -2], p=[0.9, 0.05, 0.05]))
    if poison:
        # Behind the first stage, which multiplies by 3.
        values[-1] = poison / 3
    try:
        future = pipeline.submit(values)
    except EngineClosed:
        story.events.append("refused")
        return
    future.add_done_callback(lambda _: story.ended.append(number))
    story.sent.append((number, future, (values * 3 + 1, poison)))


def disturb(pipeline, story, rng):
    fault = str(rng.choice(["kill", "hang", "slow"], p=[0.5, 0.2, 0.3]))
    stage = int(rng.integers(0, len(pipeline.snapshot().stages)))
    story.events.append((fault, stage))
    try:
        pipeline.inject(stage, fault, factor=float(rng.choice([1.5, 3.0])))
    except ValueError:
        # The stage was lost, and the model cut anew, between the two calls.
        story.events.append("gone")


def check(story, pipeline):
    assert sorted(story.ended) == [number for number, _, _ in story.sent], story
    rows = pipeline.records.requests()
    assert len(rows) == len({row.request for row in rows}) == len(story.sent), story
    for _, future, (expected, poison) in story.sent:
        error = future.exception(0)
        if error is None:
            assert not poison, story
            torch.testing.assert_close(future.result(), expected, rtol=1e-5, atol=1e-5)
        else:
            assert isinstance(error, EngineError), (story, error)
            assert str(error)
            if not (story.losses or "close" in story.events):
                assert isinstance(error, ModelFailed), (story, error)
                assert poison


def left():
    workers = {child.pid for child in psutil.Process().children(recursive=True)}
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("chaos")}
    shared = set(os.listdir("/dev/shm")) if sys.platform == "linux" else set()
    return workers, shared, psutil.Process().num_fds() if os.name == "posix" else 0, threads


@pytest.mark.timeout(300)
def test_every_request_ends_exactly_once_whatever_happens():
    hatch("first").close(5.0)
    with ThreadPoolExecutor(2) as executor:
        # The pool's own threads and torch's exist from here on.
        list(executor.map(run, (10_000, 10_001)))
        gc.collect()
        before = left()
        stories = list(executor.map(run, range(SCHEDULES)))
        gc.collect()
        assert until(lambda: left() == before, 10.0), (left(), before)
    outcomes = [type(future.exception(0)).__name__ for story in stories for _, future, _ in story.sent]
    events = [event[0] if isinstance(event, tuple) else event for story in stories for event in story.events]
    # The schedules have really done what they are for.
    assert {"kill", "hang", "slow", "close"} <= set(events)
    assert {"NoneType", WorkerDied.__name__, ModelFailed.__name__, EngineClosed.__name__} <= set(outcomes)
    assert outcomes.count("NoneType") > len(outcomes) / 2
    assert sum(story.losses for story in stories) > 50
