"""The generators of the workers: who is answered, who is not, over coroutines and over HTTP."""

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from labkit.bench.peers import load
from labkit.bench.peers.coroutines import burst, drive_calls
from labkit.bench.peers.http_client import Client
from labkit.bench.peers.load import drive
from labkit.bench.peers.server import free_port
from labkit.bench.peers.service import Service


def test_every_request_is_sent_in_order_and_never_early() -> None:
    sent: list[tuple[int, float]] = []

    def send(number: int, due_s: float, answered: load.Answered) -> None:
        sent.append((number, time.perf_counter() - due_s))
        answered(number, True)

    report = drive([0.0, 0.001, 0.001, 0.02], send)
    assert [number for number, _ in sent] == [0, 1, 2, 3]
    assert all(late_s >= 0 for _, late_s in sent)
    assert all(ms >= 0 for ms in report["lags_ms"] + report["latencies_ms"])


def test_latency_counts_from_the_intended_moment() -> None:
    def blocking(number: int, due_s: float, answered: load.Answered) -> None:
        time.sleep(0.03)
        answered(number, True)

    # The second request waits behind the first in the sender itself, and that is counted.
    latencies = drive([0.0, 0.0], blocking)["latencies_ms"]
    assert latencies[0] >= 30.0
    assert latencies[1] >= 60.0


def test_errors_and_missing_answers_have_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "DRAIN_S", 0.05)

    def send(number: int, due_s: float, answered: load.Answered) -> None:
        if number != 1:
            answered(number, number == 0)

    latencies = drive([0.0, 0.0, 0.0], send)["latencies_ms"]
    assert latencies[0] is not None
    assert latencies[1:] == [None, None]


def test_coroutines_are_called_in_their_loop_and_may_fail() -> None:
    async def call(number: int) -> int:
        await asyncio.sleep(0)
        return 1 // (number - 2)

    report = asyncio.run(drive_calls(call, [0.0, 0.0, 0.001, 0.002]))
    assert [ms is None for ms in report["latencies_ms"]] == [False, False, True, False]


def test_a_burst_counts_all_waves_but_the_first() -> None:
    calls: list[int] = []

    async def call(number: int) -> None:
        calls.append(number)

    report = asyncio.run(burst(call, requests=30, in_flight=10))
    assert len(calls) == 40
    assert report["wall_s"] > 0


def test_the_synthetic_service_takes_its_time_and_answers_each_row() -> None:
    service, begun_s = Service(), time.perf_counter()
    assert service([1, 2, 3]) == [1, 2, 3]
    assert time.perf_counter() - begun_s >= 0.023
    assert service.batch_rows == [3]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 200 if self.path == "/good" else 503
        self.server.peers.add(self.client_address)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.peers = set()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_http_answers_come_back_over_one_kept_connection(server: ThreadingHTTPServer) -> None:
    async def posts() -> list[bytes]:
        client = Client(server.server_port, "/good", b'{"row":1}')
        bodies = [await client.post() for _ in range(3)]
        client.close()
        return bodies

    assert asyncio.run(posts()) == [b'{"row":1}'] * 3
    assert len(server.peers) == 1  # type: ignore[attr-defined]


def test_http_requests_in_flight_have_a_connection_each(server: ThreadingHTTPServer) -> None:
    async def posts() -> list[bytes]:
        client = Client(server.server_port, "/good", b"{}" * 2000)
        bodies = await asyncio.gather(*(client.post() for _ in range(5)))
        client.close()
        return bodies

    assert asyncio.run(posts()) == [b"{}" * 2000] * 5
    assert len(server.peers) == 5  # type: ignore[attr-defined]


def test_an_http_error_is_a_failed_request(server: ThreadingHTTPServer) -> None:
    client = Client(server.server_port, "/bad", b"{}")
    report = asyncio.run(drive_calls(lambda number: client.post(), [0.0]))
    assert report["latencies_ms"] == [None]


def test_nobody_listening_is_an_error() -> None:
    client = Client(free_port(), "/good", b"{}")
    with pytest.raises(OSError, match=r"[Cc]onnect"):
        asyncio.run(client.post())


def test_not_a_number_never_gets_into_a_report() -> None:
    report = drive([0.0], lambda number, due_s, answered: answered(number, True))
    assert all(ms is None or math.isfinite(ms) for ms in report["latencies_ms"])
