"""The clock that budgets go by: it stands still while kernels are compiled, which happens once per machine."""

from __future__ import annotations

import time

from walksum.backends.cpu.compile import compiling_seconds


def now() -> float:
    """Seconds since some moment, without those that this process has compiled."""
    return time.monotonic() - compiling_seconds()
