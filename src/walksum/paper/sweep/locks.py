"""File locks that the kernel lets go when a process ends, however it ends.

On network drives both kinds need a server that hands out locks: NFS 4, or NFS 3 with its lock daemon; SMB without the
mount option nobrl.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


def _fcntl() -> ModuleType:
    try:
        import fcntl
    except ImportError as error:
        raise ValueError("sweeps need file locks of Linux or macOS; on Windows use WSL") from error
    return fcntl


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock of this file, hold it during the block. Threads exclude each other, too."""
    fcntl = _fcntl()
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


class RunLocks:
    """The runs that a process works on: each a locked byte of one file.

    One file for all of them, whatever their number. These locks belong to the process, and closing the file lets all
    of them go: use one object per process, and leave it open.
    """

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def take(self, keys: Iterable[str]) -> set[str]:
        """Lock what no other process works on; returns the keys that are now ours."""
        return {key for key in keys if self._try(key)}

    def free(self, keys: Iterable[str]) -> None:
        fcntl = _fcntl()
        for key in keys:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _byte(key))

    def close(self) -> None:
        os.close(self._file)

    def _try(self, key: str) -> bool:
        fcntl = _fcntl()
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except (BlockingIOError, PermissionError):  # POSIX allows either errno for "held by another"
            return False
        return True


def _byte(key: str) -> int:
    """Two keys that shared a byte would only wait for each other."""
    return int(key[:12], 16)
