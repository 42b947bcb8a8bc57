"""Files and folders that are written whole or not at all, lines added to a file, and JSON in which NaN is null."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_file(path: str | os.PathLike[str], content: str | bytes | Callable[[Path], Any]) -> None:
    """Write text, bytes, or what a function writes to the path that it is given.

    All of it goes into a new file beside ``path`` that takes its place at the end, so what was there stays until then.

    Raises:
        ValueError: the place cannot be written; the message says why.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise _cannot_write(path, error) from error
    scratch = Path(name)
    try:
        if callable(content):
            content(scratch)
        else:
            scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        scratch.chmod(0o644)
        os.replace(scratch, path)
    except BaseException as error:
        scratch.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Add lines by one write: a reader sees all of them, or after a crash a torn end, which keeps a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            lines = lines if file.read(1) == b"\n" else ["", *lines]
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.flush()  # which goes on where a part was written, and so ends in the error of a full disk
        os.fsync(file.fileno())


@contextmanager
def whole_folder(folder: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """A scratch folder beside ``folder`` that takes its place when the block ends well, and goes away if not.

    ``overwrite``: what is at the place stays until then, and goes away after.

    It is made before the block runs, so a place that cannot be written to is known before any work is done.
    """
    folder = Path(folder)
    missing = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise _cannot_write(folder, error) from error
    try:
        yield scratch
        scratch.chmod(0o755)
        if overwrite and folder.exists():
            before = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            os.rename(folder, before / "old")
            os.rename(scratch, folder)
            shutil.rmtree(before, ignore_errors=True)
        else:
            if folder.exists():
                raise ValueError(f"{folder} was written by another process meanwhile; name a new folder")
            os.rename(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):  # another process may have written there meanwhile
            for parent in missing:
                parent.rmdir()
        raise


def to_json(value: Any, **layout: Any) -> str:
    """JSON text; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(finite_or_none(value), allow_nan=False, **layout)


def finite_or_none(value: Any) -> Any:
    """``value`` with None for every number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite_or_none(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(each) for each in value]
    return value


def _cannot_write(path: Path, error: OSError) -> ValueError:
    reason = f"{path.parent} is a file" if isinstance(error, FileExistsError) else error.strerror
    return ValueError(f"{path} cannot be written ({reason}); choose another place")
