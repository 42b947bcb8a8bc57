"""Records of runs in one file, which many processes append to and a kill cannot spoil.

A folder with records.jsonl (one RunRecord per line), lock (held while a line is appended), run-locks (one locked byte
per run in progress) and, after a process was killed in the middle of a line, torn (what was cut off). Reading takes no
lock. Locks are the kernel's, which lets them go when a process ends, however it ends; on network drives they need a
server that hands out locks: NFS 4, or NFS 3 with its lock daemon; SMB without the mount option nobrl.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import RunSpec


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
        self._fcntl, self._file = _fcntl(), os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def take(self, keys: Iterable[str]) -> set[str]:
        """Lock what no other process works on; returns the keys that are now ours."""
        return {key for key in keys if self._try(key)}

    def free(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._fcntl.lockf(self._file, self._fcntl.LOCK_UN, 1, _byte(key))

    def close(self) -> None:
        os.close(self._file)

    def _try(self, key: str) -> bool:
        try:
            self._fcntl.lockf(self._file, self._fcntl.LOCK_EX | self._fcntl.LOCK_NB, 1, _byte(key))
        except (BlockingIOError, PermissionError):  # POSIX allows either errno for "held by another"
            return False
        return True


def _byte(key: str) -> int:
    """Two keys that shared a byte would only wait for each other."""
    return int(key[:12], 16)


RECORDS, APPEND_LOCK, TORN, RUN_LOCKS = "records.jsonl", "lock", "torn", "run-locks"
SETTLED = ("ok", "oom", "diverged", "failed")  # what a sweep does not try again by itself


class StoreError(ValueError):
    """A store that cannot be read or written, in words that say which file and what to do."""


class AlreadyRecorded(StoreError):
    """The run is there; the record at hand was not written."""


class Store:
    """A folder of records.

    Args:
        folder: need not exist yet; :meth:`make` makes it.

    ``since`` in the methods is a size of the file (:attr:`size`): runs that failed, ran out of memory or diverged
    before it count as missing, so that they can be tried again. Runs that were interrupted always do.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self._forget()

    @property
    def path(self) -> Path:
        return self.folder / RECORDS

    @property
    def size(self) -> int:
        """Bytes of whole lines read so far."""
        return self._size

    def make(self) -> None:
        """Make the folder if there is none; say now rather than after an hour that it cannot be written."""
        with _as_store_error(f"store {self.folder} cannot be written"):
            self._check_folder()
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._appending():
                pass

    def append(self, record: RunRecord, since: int = 0) -> None:
        """Write one record for good, or AlreadyRecorded: a run is never there twice."""
        line = (record.to_line() + "\n").encode()
        with _as_store_error(f"{self.path} cannot be appended to; what it holds is whole"), self._appending() as file:
            if self.is_done(record.key, since):
                raise AlreadyRecorded(f"{self.path} already holds run {record.key}")
            _write(file, line)
            self.refresh()

    def refresh(self) -> None:
        """Read what was appended since the last time, by whomever."""
        with _as_store_error(f"{self.path} cannot be read"):
            self._check_folder()
            try:
                self._read_on()
            except StoreError:
                # a torn line may have been cut off and written over between two reads of this one
                self._forget()
                self._read_on()

    def latest(self) -> list[RunRecord]:
        """The newest record of each run, without curves and solves, as of the last refresh."""
        return [record for _, record in self._known.values()]

    def is_done(self, key: str, since: int = 0) -> bool:
        start, record = self._known.get(key, (0, None))
        if record is None:
            return False
        return record.outcome == "ok" or (record.outcome in SETTLED and start >= since)

    def missing(self, specs: Iterable[RunSpec], since: int = 0) -> list[RunSpec]:
        return [spec for spec in specs if not self.is_done(spec.key, since)]

    def _check_folder(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"store {self.folder} is a file; name a folder")

    @contextmanager
    def _appending(self) -> Iterator[int]:
        """The file under its lock, ending in a whole line, all of it known."""
        with locked(self.folder / APPEND_LOCK):
            # opened anew each time: network drives show what others wrote to those who open after them
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                self._repair(file)
                self.refresh()
                yield file
            finally:
                os.close(file)

    def _repair(self, file: int) -> None:
        """Deal with a last line that a killed process left without its end."""
        whole, torn = _split_tail(file)
        if not torn:
            return
        if _is_record(torn):
            _write(file, b"\n")
            return
        aside = os.open(self.folder / TORN, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _write(aside, torn + b"\n")
        finally:
            os.close(aside)
        os.ftruncate(file, whole)
        os.fsync(file)

    def _forget(self) -> None:
        self._known: dict[str, tuple[int, RunRecord]] = {}  # key -> where its newest line begins, what it says
        self._size = self._lines = self._inode = 0

    def _read_on(self) -> None:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._forget()
            return
        with file:
            found = os.fstat(file.fileno())
            if found.st_size < self._size or found.st_ino != self._inode:
                self._forget()  # another file than last time
            self._inode = found.st_ino
            file.seek(self._size)
            for line in _whole_lines(file.read(found.st_size - self._size)):
                self._take(line)

    def _take(self, line: bytes) -> None:
        record = _parse(line, self.path, self._lines + 1)
        self._known[record.key] = (self._size, replace(record, curve=(), steps_by_epoch=(), solves=()))
        self._size += len(line) + 1
        self._lines += 1


def read_records(folder: str | os.PathLike[str]) -> list[RunRecord]:
    """Every run of a store in the order of writing, whole; of a run that was done again, the newest record."""
    path = Path(folder) / RECORDS
    with _as_store_error(f"{path} cannot be read"):
        lines = _whole_lines(path.read_bytes())
    records = (_parse(line, path, number) for number, line in enumerate(lines, 1))
    return list({record.key: record for record in records}.values())


def _whole_lines(content: bytes) -> list[bytes]:
    """Without what stands after the last line end: it is being written, or torn."""
    return content.split(b"\n")[:-1]


def _parse(line: bytes, path: Path, number: int) -> RunRecord:
    try:
        return RunRecord.from_line(line.decode())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(
            f"{path}, line {number} is not a record that this walksum can read ({reason}); if a newer walksum wrote "
            "it, use that one, else take the line out: its run is then done again"
        ) from error


def _is_record(line: bytes) -> bool:
    with suppress(StoreError):
        return bool(_parse(line, Path(), 0))
    return False


def _split_tail(file: int) -> tuple[int, bytes]:
    """Where the last whole line ends, and what stands after it."""
    end = os.fstat(file).st_size
    tail, start = b"", end
    while start and b"\n" not in tail:
        step = min(start, 1 << 16)
        start -= step
        tail = os.pread(file, step, start) + tail
    torn = tail[tail.rfind(b"\n") + 1 :]
    return end - len(torn), torn


def _write(file: int, line: bytes) -> None:
    """All of it or none: one system call unless the disk fills up, and then what was written is taken back."""
    before = os.fstat(file).st_size
    try:
        while line:
            line = line[os.write(file, line) :]
        os.fsync(file)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, before)
        raise


@contextmanager
def _as_store_error(trouble: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{trouble}: {error.strerror or error}") from error
