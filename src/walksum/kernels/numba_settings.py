"""How every CPU kernel is compiled: kept on disk, without the interpreter's lock so that threads can share it, and
with IEEE division (x / 0 is infinite) in place of an exception."""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
