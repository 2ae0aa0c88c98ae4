from dataclasses import dataclass
from threading import Thread

from labkit.labs import Dials


@dataclass(frozen=True)
class Settings:
    rate_per_s: float = 100.0


def test_the_version_counts_changes_and_not_repetitions():
    dials = Dials(Settings())
    dials.set(Settings())
    assert dials.version == 0
    dials.set(Settings(200.0))
    dials.set(Settings(200.0))
    assert (dials.version, dials.get()) == (1, Settings(200.0))


def test_no_change_from_any_thread_is_lost():
    dials = Dials(0)

    def turn(start: int) -> None:
        for step in range(500):
            dials.set(start + step)

    threads = [Thread(target=turn, args=(1 + 1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dials.version == 2000
