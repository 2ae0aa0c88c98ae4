"""The preparing stage: in order of rank, and what is withdrawn is not prepared."""

from threading import Event

from labkit.batching.request import State
from labkit.batching.stage import PrepareStage
from labkit.batching.submitted import Submitted


def make(number, arrived_s, priority=0):
    request = Submitted(lambda _: None)
    request.arrive(number, None, arrived_s, None, deadline_s=1e9, priority=priority, ageing_s=10.0)
    return request


class Blocked:
    """A stage of one thread, held up by its first item."""

    def __init__(self):
        self.order, self.begun, self.go_on = [], Event(), Event()
        self.stage = PrepareStage(self.work, 1, "test")
        self.stage.put(make(-1, 0.0))
        assert self.begun.wait(20)

    def work(self, request):
        if request.number == -1:
            self.begun.set()
            assert self.go_on.wait(20)
        elif request.number == 13:
            raise SystemExit
        self.order.append(request.number)


def test_items_are_prepared_in_order_of_rank_not_of_arrival(until):
    blocked = Blocked()
    requests = [make(0, 5.0), make(1, 1.0, priority=1), make(2, 4.0), make(3, 1.0), make(4, 1.0)]
    for request in requests:
        blocked.stage.put(request)
    blocked.go_on.set()
    until(lambda: len(blocked.order) == 6)
    assert blocked.order == [-1, 3, 4, 2, 0, 1]
    blocked.stage.stop()
    blocked.stage.join(20)


def test_withdrawn_items_are_skipped_and_a_deadly_one_ends_no_thread(until):
    blocked = Blocked()
    requests = [make(n, float(n)) for n in (11, 12, 13, 14)]
    for request in requests:
        blocked.stage.put(request)
    requests[1].state = State.DONE
    blocked.go_on.set()
    until(lambda: blocked.order == [-1, 11, 14])
    blocked.stage.stop()
    blocked.stage.join(20)


def test_after_stop_nothing_more_is_prepared_or_kept():
    blocked = Blocked()
    blocked.stage.put(make(1, 1.0))
    blocked.stage.stop()
    blocked.stage.put(make(2, 2.0))
    blocked.go_on.set()
    blocked.stage.join(20)
    assert blocked.order == [-1]
    assert blocked.stage._waiting == []
