"""Where and with what a record was made: machine, versions, commit, time."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import walksum


def made_by(device: torch.device) -> dict[str, Any]:
    """The fields of a record that say how it was made."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": name,
        "versions": versions(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    return {"walksum": walksum.__version__, "torch": torch.__version__, "python": platform.python_version()}


@lru_cache(maxsize=1)
def commit() -> str | None:
    """$WALKSUM_COMMIT, else the commit of the checkout that this source lies in; None for an installed package."""
    if named := os.environ.get("WALKSUM_COMMIT"):
        return named
    root = Path(walksum.__file__).parents[2]
    if not (root / ".git").exists():
        return None
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None
