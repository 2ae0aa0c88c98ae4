"""The synthetic service behind LitServe, set up as its manual says: one worker process, batches up to the cap."""

from __future__ import annotations

from typing import Any

from .service import CAP, WAIT_MS, Service

try:
    from litserve import LitAPI, LitServer  # type: ignore[import-not-found]
except ImportError:  # outside of its environment this file is only looked at
    LitAPI = object

__all__ = ["Api", "main"]


class Api(LitAPI):  # type: ignore[misc]
    """What LitServe calls, in its worker process. It is found there by name, so it stands at the top of the file."""

    def setup(self, device: str) -> None:
        """Called once."""
        self.service = Service()

    def predict(self, rows: Any) -> Any:
        """A batch of decoded bodies; by default LitServe takes and gives JSON as it is."""
        return self.service(rows)


def main(port: str) -> None:
    """Serve until terminated."""
    server = LitServer(Api(max_batch_size=CAP, batch_timeout=WAIT_MS / 1000), accelerator="cpu", devices=1)
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False, log_level="warning")
