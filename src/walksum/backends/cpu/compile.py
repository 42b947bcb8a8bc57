"""``jit``: numba with the settings of every CPU kernel, and with machine code kept on disk.

Numba renews the code on disk when the file of a kernel changes, but not when a helper in another file does. So the code
is kept in folders named after a hash of the kernel's file and of all files of this package that it imports.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from walksum.backends.cpu.numba_api import CPUDispatcher, numba

HERE, PACKAGE = Path(__file__).parent, "walksum.backends.cpu"
LONGEST_WAIT = 60.0  # seconds for another process to compile a kernel


def jit(function: Callable[..., Any]) -> Any:
    """Compile on first use and keep the machine code on disk, where there is a folder to write to.

    ``nogil`` lets blocks of columns run in threads, ``error_model="numpy"`` makes a division by zero an infinity
    instead of a branch.
    """
    kernel = _compiled(function, {"nogil": True, "error_model": "numpy"})
    if isinstance(kernel, CPUDispatcher):
        kernel.__class__ = _Interruptible
    return kernel


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    folder, before = _folder(), numba.config.CACHE_DIR
    if folder is None:
        return numba.njit(function, **options)
    numba.config.CACHE_DIR = str(folder / _hash(Path(function.__code__.co_filename)))
    try:
        return _one_process_compiles(numba.njit(function, cache=True, **options), folder / "locks")
    except RuntimeError:  # numba finds no place to write to: compile in every process
        return numba.njit(function, **options)
    finally:
        numba.config.CACHE_DIR = before


class _Interruptible(CPUDispatcher):
    """A kernel out of which an interrupt comes as itself.

    To make a numpy array of a result numba calls a function in Python. If a signal handler raises there, numba goes on,
    and the interpreter raises a SystemError whose causes lead to what the handler raised. A kernel that returns numbers
    is safe: after its first call it is a plain dispatcher again, which is 0.2 microseconds quicker.
    """

    def __call__(self, *args: Any) -> Any:
        try:
            result = CPUDispatcher.__call__(self, *args)
        except SystemError as error:
            first = _first_cause(error)
        else:
            if not isinstance(result, np.ndarray | tuple):
                self.__class__ = CPUDispatcher
            return result
        raise first


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error


@lru_cache(maxsize=1)
def _folder() -> Path | None:
    """The first of these that can be written to: what the user names, beside this file, the user's cache."""
    named = numba.config.CACHE_DIR
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    places = [Path(named)] if named else [HERE / "__pycache__" / "numba", Path(home) / "walksum" / "numba"]
    return next((place for place in places if _writable(place)), None)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def _hash(file: Path) -> str:
    """Of a file and all files of this package that it imports, directly or through others."""
    found, left = set(), [file]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path)
    parts = (f"{path.name}\0".encode() + path.read_bytes() for path in sorted(found))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


@cache
def _imported(file: Path) -> tuple[Path, ...]:
    """The files of this package that a file names in its imports."""
    parts = (name.removeprefix(PACKAGE).split(".") for name in _names(file))
    return tuple(path for names in parts if (path := HERE.joinpath(*names).with_suffix(".py")).exists())


def _names(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))  # type: ignore[misc]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(PACKAGE))


def _one_process_compiles(kernel: Any, folder: Path) -> Any:
    """Processes that start together compile each kernel once: the others wait, and load what the first has written."""
    try:
        import fcntl

        # private: without these every process compiles
        from numba.core.compiler_lock import global_compiler_lock
        from numba.core.types.misc import unliteral
    except ImportError:
        return kernel
    compile_or_load, path = kernel.compile, folder / f"{kernel.__module__}.{kernel.__qualname__}"

    def compile_locked(signature: Any) -> Any:
        # numba's lock of threads first: whoever waits for a file then holds nothing that its owner could wait for
        with global_compiler_lock, _locked(path, fcntl):
            return compile_or_load(tuple(map(unliteral, signature)))  # called with 0 or True it is no other kernel

    kernel.compile = compile_locked
    return kernel


_held: set[Path] = set()


@contextmanager
def _locked(path: Path, fcntl: Any) -> Iterator[None]:
    """Alone among processes; after ``LONGEST_WAIT`` not alone any more, for the owner may have been stopped."""
    if path in _held:
        yield
        return
    with ExitStack() as stack:
        with suppress(OSError):  # a folder that cannot be written to any more: compile without waiting
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("w"))
            begun = time.monotonic()
            while not _taken(file, fcntl) and time.monotonic() < begun + LONGEST_WAIT:
                time.sleep(0.02)
            if not _compiling.depth:  # another process compiled for this one: no budget pays for that
                _compiling.seconds += time.monotonic() - begun
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a forked child may still hold the file open
        _held.add(path)
        stack.callback(_held.discard, path)
        yield


def _taken(file: Any, fcntl: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Compiling:
    """Says once per process why the first call takes seconds, and counts them. A warm cache triggers no event."""

    def __init__(self) -> None:
        self.said, self.depth, self.since, self.seconds = False, 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        if not self.depth:  # a kernel's helpers are compiled inside it
            self.since = time.monotonic()
        self.depth += 1
        module = event.data["dispatcher"].py_func.__module__
        if not self.said and module.startswith("walksum."):
            self.said = True
            print("walksum: compiling kernels, once, up to half a minute", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if not self.depth:
            self.seconds += time.monotonic() - self.since


_compiling = _Compiling()


def compiling_seconds() -> float:
    """How long this process has compiled kernels so far, or waited for another one that did."""
    running = time.monotonic() - _compiling.since if _compiling.depth else 0.0
    return _compiling.seconds + running


def _listen() -> None:
    try:
        from numba.core import event  # private: without it compiling is silent, and counts as work
    except ImportError:
        return

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            _compiling.on_start(event)

        def on_end(self, event: Any) -> None:
            _compiling.on_end(event)

    event.register("numba:compile", Listener())


_listen()
