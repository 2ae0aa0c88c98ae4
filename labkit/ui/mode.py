"""Live or headless, which depends on who is at the other end of the kernel.

A kernel that JupyterLab, Voila, VS Code or Colab started has a person in front of it; one that papermill, nbclient or
nbval started has not. The front ends tell by what they put into the environment, and `LABKIT_MODE` overrules them. It
is no notebook parameter, because a parameter would be printed in every report.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, cast

from labkit.errors import require

__all__ = ["Mode", "mode"]

Mode = Literal["live", "headless"]

_CHOICES = ("auto", "live", "headless")
_FRONT_ENDS = ("JPY_SESSION_NAME", "VOILA_KERNEL_ID", "VSCODE_PID", "COLAB_RELEASE_TAG")


def mode(environ: Mapping[str, str] = os.environ) -> Mode:
    """How labs run in this process: `"live"` with widgets or `"headless"` without.

    Raises `SettingError` when `LABKIT_MODE` is none of auto, live and headless.

    >>> mode({"JPY_SESSION_NAME": "11_batching_live.ipynb"}), mode({})
    ('live', 'headless')
    >>> mode({"JPY_SESSION_NAME": "11_batching_live.ipynb", "LABKIT_MODE": "headless"})
    'headless'
    """
    wish = environ.get("LABKIT_MODE", "auto").strip().lower() or "auto"
    require(
        wish in _CHOICES,
        f"LABKIT_MODE is {wish!r}; it must be one of {', '.join(_CHOICES)}",
        "Unset it, or set it before the kernel starts.",
    )
    if wish == "auto":
        return "live" if any(environ.get(name) for name in _FRONT_ENDS) else "headless"
    return cast(Mode, wish)
