"""mosec over HTTP: the load comes from this worker, the server is `mosec_server` in the same environment."""

from __future__ import annotations

from functools import partial

from .protocol import serve
from .server import open_loop

__all__ = ["main"]


def main() -> None:
    """Answer the bench's requests."""
    serve({"open": partial(open_loop, "mosec_server", "/inference")})
