"""One hop to a Ray actor: arrays through the object store of a small cluster of its own, which ends with it."""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any

import numpy as np

from .hop import serve_hop

__all__ = ["RayHop", "main"]

CORES = 2
STORE_BYTES = 200 * 1024**2
# It tells nobody that it ran, and does not end workers because others on this machine need memory.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


class RayHop:
    """An actor that answers with a copy of what it is given."""

    def __init__(self) -> None:
        os.environ.update(QUIET)
        try:
            import ray
        except ModuleNotFoundError as error:
            raise RuntimeError("Ray is not installed: pip install 'labkit[bench]'") from error

        self._ray: Any = ray
        self._folder = tempfile.TemporaryDirectory(prefix="hop", ignore_cleanup_errors=True)
        ray.init(
            num_cpus=CORES,
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
            _temp_dir=self._folder.name,
        )

        # In a function, so that Ray sends its code along; it could not be imported over there.
        class Echo:
            def echo(self, value: Any) -> Any:
                return value.copy()

        self._echo = self._ray.remote(Echo).remote()

    def value(self, size_bytes: int, times: int) -> Any:
        """An array."""
        return np.ones(size_bytes // 4, np.float32)

    def bounce(self, value: Any) -> Any:
        """There and back; what lies in the object store is copied out of it."""
        return self._ray.get(self._echo.echo.remote(value)).copy()

    def close(self) -> None:
        """End the cluster."""
        self._ray.shutdown()
        self._folder.cleanup()


def main() -> None:
    """Answer the bench's requests."""
    serve_hop(RayHop)
