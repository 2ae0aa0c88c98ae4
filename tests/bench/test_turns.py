"""Strict turns between threads."""

import time
from threading import Thread

from labkit.bench.turns import Turns


def test_turns_are_taken_in_the_order_of_asking() -> None:
    turns = Turns()
    order: list[str] = []

    def ask(name: str) -> None:
        with turns.turn():
            order.append(name)

    threads = [Thread(target=ask, args=(name,)) for name in "abcde"]
    with turns.turn():
        for place, thread in enumerate(threads):
            thread.start()
            while turns._next < place + 2:  # until it stands in line
                time.sleep(0.001)
        assert order == []
    for thread in threads:
        thread.join(10)
    assert order == list("abcde")


def test_a_turn_that_ends_in_an_error_is_handed_on() -> None:
    turns = Turns()
    for _ in range(2):
        try:
            with turns.turn():
                raise ValueError
        except ValueError:
            pass
    with turns.turn():
        assert True
