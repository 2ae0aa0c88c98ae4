"""A kernel that writes down what it would send to the browser."""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import Lock

import pytest
from comm.base_comm import BaseComm
from ipywidgets.widgets import widget as ipywidgets_widget


@dataclass
class Message:
    kind: str
    state: dict
    size: int


class Wire(list):
    """All messages so far."""

    def bytes_of(self, kind: str) -> int:
        return sum(message.size for message in self if message.kind == kind)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """The messages that widgets have sent, with the bytes of their JSON and buffers."""
    messages, lock = Wire(), Lock()

    class Recording(BaseComm):
        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            text = json.dumps({"data": data, "metadata": metadata, **keys})
            size = len(text.encode()) + sum(len(buffer) for buffer in buffers or ())
            with lock:
                messages.append(Message(msg_type, (data or {}).get("state", {}), size))

    monkeypatch.setattr(ipywidgets_widget.comm, "create_comm", Recording)
    return messages
