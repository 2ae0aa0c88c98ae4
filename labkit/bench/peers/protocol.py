"""One JSON line in, one JSON line out; and nothing survives the end of the input.

A worker leads a process group of its own, so that servers which it starts, and whatever these start, belong to the
group. When the input ends, because the bench closed it or because the bench itself has died, the group is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any

__all__ = ["serve"]

Command = Callable[..., Mapping[str, Any]]


def serve(commands: Mapping[str, Command]) -> None:
    """Answer requests such as `{"do": "open", "at_s": [0.1, 0.2]}` by calling `commands["open"](at_s=[0.1, 0.2])`.

    What a command raises is answered as `{"error": "..."}`.
    """
    # Answers keep the real standard output; whatever a system prints goes to the log.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=_listen, args=(lines,), daemon=True).start()
        while True:
            print(json.dumps(_answer(commands, lines.get())), file=answers, flush=True)


def _answer(commands: Mapping[str, Command], line: str) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
        return commands[request.pop("do")](**request)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _listen(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)
