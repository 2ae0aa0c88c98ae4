"""A stage for the tests that does what its input says, so that one pipeline serves many of them."""

import os
import signal

from running_stages import Bad


def obey(value):
    """Pass the value on; or raise, abort or stop if it says so."""
    deed = value.get("do") if isinstance(value, dict) else None
    if deed == "raise":
        raise Bad("told to raise")
    if deed == "abort":
        os.abort()
    if deed == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    return value
