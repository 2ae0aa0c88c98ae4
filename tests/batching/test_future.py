"""A future that is made light must behave as the heavy one, and no race may leave anybody waiting."""

import asyncio
import os
import random
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import CancelledError, Future, InvalidStateError, as_completed, wait
from contextlib import suppress
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching.future import Cancellable, unwatched

PATIENCE_S = 20.0


def begin(futures):
    """Let work begin as the batcher does; those that were not cancelled."""
    with unwatched:
        calm = [future for future in futures if future.begins_unwatched()]
    return [future for future in futures if future in calm or future.set_running_or_notify_cancel()]


def finish(futures, result):
    """Answer as the batcher does."""
    with unwatched:
        watched = [future for future in futures if not future.ends_unwatched(result)]
    for future in watched:
        with suppress(InvalidStateError):
            future.set_result(result)


def outcome(action):
    try:
        return action()
    except BaseException as error:
        return type(error)


BAD = ValueError("bad")
ASKED = {
    "done": lambda future: future.done(),
    "cancelled": lambda future: future.cancelled(),
    "running": lambda future: future.running(),
    "result": lambda future: future.result(0),
    "exception": lambda future: future.exception(0),
    "wait": lambda future: len(wait([future], 0).done),
}
DONE = {
    "begin": lambda future: future.set_running_or_notify_cancel(),
    "finish": lambda future: future.set_result(7),
    "fail": lambda future: future.set_exception(BAD),
    "listen": lambda future: future.add_done_callback(lambda one: None),
}


@given(st.lists(st.sampled_from([*ASKED, *DONE])))
def test_whatever_is_done_to_it_it_behaves_as_a_plain_future(steps):
    """Cancelling is left out: there the two differ by design."""
    light, heavy, begun = Cancellable(), Future(), False
    for step in steps:
        if step == "begin" and (begun or heavy.done()):
            continue  # a plain future logs it as critical
        begun = begun or step == "begin"
        action = ASKED.get(step) or DONE[step]
        assert outcome(lambda: action(light)) == outcome(lambda: action(heavy)), step  # noqa: B023


@given(st.lists(st.sampled_from(sorted(ASKED)), max_size=3), st.booleans())
def test_the_light_way_and_the_ordinary_way_end_in_the_same_state(asked, watched):
    light, heavy = Cancellable(), Future()
    if watched:
        light.add_done_callback(lambda one: None)
    assert begin([light]) == [light]
    heavy.set_running_or_notify_cancel()
    assert light.running()
    finish([light], 7)
    heavy.set_result(7)
    for name in asked:
        assert ASKED[name](light) == ASKED[name](heavy)
    with pytest.raises(InvalidStateError):
        light.set_result(8)
    assert not light.cancel()


def test_an_unknown_attribute_is_no_reason_to_become_watched():
    future = Cancellable()
    with pytest.raises(AttributeError, match="'Cancellable' object has no attribute 'color'"):
        future.color  # noqa: B018
    assert not future._watched
    assert not future.done()
    assert not future._watched, "asking costs nothing"


def by_result(futures):
    return {future.result(PATIENCE_S) for future in futures}


def by_exception(futures):
    return {future.exception(PATIENCE_S) or future.result(0) for future in futures}


def by_wait(futures):
    done, not_done = wait(futures, PATIENCE_S)
    assert not not_done
    return {future.result(0) for future in done}


def by_as_completed(futures):
    seen = list(as_completed(futures, PATIENCE_S))
    assert Counter(seen) == Counter(futures), "each once"
    return {future.result(0) for future in seen}


def by_callback(futures):
    told = []
    for future in futures:
        future.add_done_callback(told.append)
    wait(futures, PATIENCE_S)
    assert all(future.done() for future in futures)
    return {future.result(0) for future in futures}


def by_await(futures):
    async def main():
        return set(await asyncio.wait_for(asyncio.gather(*map(asyncio.wrap_future, futures)), PATIENCE_S))

    return asyncio.run(main())


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("watch", [by_result, by_exception, by_wait, by_as_completed, by_callback, by_await])
def test_one_who_comes_in_the_instant_of_the_answer_never_waits_for_ever(watch):
    for _ in range(60):
        futures, barrier, seen = [Cancellable() for _ in range(12)], Barrier(4), []

        def look(futures=futures, barrier=barrier, seen=seen):
            barrier.wait()
            seen.append(watch(futures))

        def answer(futures=futures, barrier=barrier):
            barrier.wait()
            for start in range(0, 12, 4):
                finish(begin(futures[start : start + 4]), 7)

        threads = [Thread(target=look, daemon=True) for _ in range(3)] + [Thread(target=answer, daemon=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert seen == [{7}] * 3


class Instant:
    """Some futures, and several parties that come to them at once."""

    def __init__(self, rng):
        self.rng = rng
        self.futures = [Cancellable() for _ in range(8)]
        self.told, self.begun, self.withdrawn, self.seen = [], [], [], []
        self.barrier = Barrier(5)

    def answer(self):
        for start in (0, 4):
            mine = begin(self.futures[start : start + 4])
            self.begun += mine
            finish(mine, 7)

    def cancel(self):
        self.withdrawn += [future for future in self.rng.sample(self.futures, 4) if future.cancel()]

    def listen(self):
        for future in self.futures:
            future.add_done_callback(self.told.append)

    def look(self):
        self.seen.append(wait(self.futures, PATIENCE_S))
        for future in self.futures:
            with suppress(CancelledError):
                assert future.result(PATIENCE_S) == 7

    def come(self, party):
        self.barrier.wait()
        party()

    def run(self):
        parties = [self.answer, self.cancel, self.cancel, self.listen, self.look]
        threads = [Thread(target=self.come, args=(party,), daemon=True) for party in parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "somebody waits for ever"


@pytest.mark.usefixtures("_hasty")
@pytest.mark.parametrize("seed", range(4))
def test_answers_cancellations_callbacks_and_waits_in_one_instant_end_each_future_once(seed):
    rng = random.Random(seed)
    for _ in range(60):
        one = Instant(rng)
        one.run()
        assert not one.seen[0].not_done
        assert set(one.begun).isdisjoint(one.withdrawn), "withdrawn work was begun"
        assert {*one.begun, *one.withdrawn} == set(one.futures)
        assert Counter(one.told) == Counter(one.futures), "each callback is called once"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_that_is_forked_while_futures_are_answered_can_use_futures_of_its_own():
    script = """
    import os, signal, sys, threading
    from labkit.batching.future import Cancellable, unwatched
    sys.setswitchinterval(1e-6)
    def hold():
        while True:
            with unwatched:
                sum(range(50))
    threading.Thread(target=hold, daemon=True).start()
    for _ in range(40):
        child = os.fork()
        if not child:
            signal.alarm(10)
            future = Cancellable()
            future.add_done_callback(lambda one: None)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
