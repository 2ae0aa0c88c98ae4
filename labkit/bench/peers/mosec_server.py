"""The synthetic service behind mosec: one worker process, batches up to the cap, the window counted by mosec."""

from __future__ import annotations

import os
from typing import Any

from .service import CAP, WAIT_MS, Service

try:
    from mosec import Server, Worker  # type: ignore[import-not-found]
except ImportError:  # outside of its environment this file is only looked at
    Worker = object

__all__ = ["Rows", "main"]


class Rows(Worker):  # type: ignore[misc]
    """What mosec calls, in its worker process. It is found there by name, so it stands at the top of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.service = Service()

    def forward(self, data: list[Any]) -> list[Any]:
        """A batch of decoded requests."""
        return self.service(data)


def main(port: str) -> None:
    """Serve until terminated; mosec reads its settings from the environment."""
    os.environ.update(MOSEC_ADDRESS="127.0.0.1", MOSEC_PORT=port, MOSEC_LOG_LEVEL="warning")
    server = Server()
    server.append_worker(Rows, num=1, max_batch_size=CAP, max_wait_time=WAIT_MS)
    server.run()
