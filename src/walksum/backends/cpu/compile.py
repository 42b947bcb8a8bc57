"""``jit``: numba with the settings of every CPU kernel, and one line on stderr when it has to compile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event


def jit(function: Callable[..., Any]) -> Any:
    """Compile on first use and keep the machine code on disk.

    ``nogil`` lets blocks of columns run in threads, ``error_model="numpy"`` makes a division by zero an infinity
    instead of a branch. The code on disk is renewed when the file of ``function`` changes; a change of a
    helper in another file is not seen, so delete ``__pycache__/*.nb?`` after editing one.
    """
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # no folder numba may write to: compile in every process
        return numba.njit(function, **options)


class _Announce(event.Listener):
    """Says once a process why the first call takes seconds. A warm cache triggers no compile event."""

    said = False

    def on_start(self, event: Any) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if not self.said and module.startswith("walksum."):
            self.said = True
            print("walksum: compiling kernels, once, about 10 s", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announce())
