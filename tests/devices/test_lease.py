import importlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from labkit.devices import lease
from labkit.errors import Unavailable, UnknownName

module = importlib.import_module("labkit.devices.lease")


@pytest.fixture(autouse=True)
def queue(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases" / "cpu"


class Waiter(threading.Thread):
    """Somebody else who wants the device: shows each place it was told, and holds the device until told to go."""

    def __init__(self, order):
        super().__init__(daemon=True)
        self.places, self.order = [], order
        self.told, self.go = threading.Condition(), threading.Event()
        self.start()

    def run(self):
        with lease("cpu", on_place=self.note):
            self.order.append(self)
            self.go.wait(30)

    def note(self, place):
        with self.told:
            self.places.append(place)
            self.told.notify_all()

    def reaches(self, place):
        with self.told:
            return self.told.wait_for(lambda: place in self.places, timeout=30)


def test_the_device_goes_to_those_who_wait_in_the_order_in_which_they_asked():
    order = []
    with lease("cpu"):
        first = Waiter(order)
        assert first.reaches(1)
        second = Waiter(order)
        assert second.reaches(2)
        assert order == []
    assert first.reaches(0)
    assert second.reaches(1)
    assert order == [first]
    first.go.set()
    assert second.reaches(0)
    second.go.set()
    second.join(30)
    assert order == [first, second]
    assert second.places == [2, 1, 0]


def test_one_device_is_held_by_one_at_a_time_under_contention():
    inside, most = [], []

    def use():
        for _ in range(5):
            with lease("cpu"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    users = [threading.Thread(target=use) for _ in range(4)]
    [user.start() for user in users]
    [user.join(60) for user in users]
    assert most == [1] * 20


def test_the_lease_of_a_killed_process_is_free_again():
    code = "from labkit.devices import lease\nwith lease('cpu'):\n  print('held', flush=True)\n  input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable), lease("cpu", timeout_s=0.0):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        with lease("cpu", timeout_s=30):
            pass
    finally:
        holder.kill()
        holder.communicate()


def test_a_forked_child_does_not_keep_its_parents_lease():
    reading, writing = os.pipe()
    with lease("cpu"):
        child = os.fork()
        if child == 0:  # lives on until the parent has tried again
            os.read(reading, 1)
            os._exit(0)
    try:
        with lease("cpu", timeout_s=5):
            pass
    finally:
        os.write(writing, b".")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_impatience_says_the_device_the_limit_and_the_place():
    complaint = r"cpu was still in use.*limit 0\.1 s.*place 1"
    with lease("cpu"), pytest.raises(Unavailable, match=complaint), lease("cpu", timeout_s=0.1):
        pass


def test_a_stopped_run_leaves_the_queue(queue):
    stop = threading.Event()
    with lease("cpu"):
        with pytest.raises(Unavailable, match="Stopped"), lease("cpu", on_place=lambda _: stop.set(), stop=stop):
            pass
        assert len(module._tickets(queue)) == 1
    assert module._tickets(queue) == []


def test_an_error_inside_the_block_gives_the_device_back():
    with pytest.raises(ZeroDivisionError), lease("cpu"):
        raise ZeroDivisionError
    with lease("cpu", timeout_s=5):
        pass


def test_a_ticket_number_is_never_used_twice(queue):
    numbers = []
    for _ in range(3):
        with lease("cpu"):
            numbers += module._tickets(queue)
    assert numbers == [1, 2, 3]


def test_every_user_of_the_machine_may_stand_in_the_line(queue):
    with lease("cpu"):
        pass
    assert queue.stat().st_mode & 0o777 == 0o777


def test_a_device_that_is_not_attached_cannot_be_leased():
    with pytest.raises(UnknownName), lease("cuda:99"):
        pass
