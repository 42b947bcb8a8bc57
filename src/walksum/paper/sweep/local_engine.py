"""Groups of runs in processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from walksum.paper.sweep.spec import threads_pay
from walksum.paper.sweep.store import RUN_LOCKS, RunLocks, Store
from walksum.paper.sweep.sweep import Ended, Group
from walksum.paper.sweep.worker import WorkerSettings, in_words, work_on

if TYPE_CHECKING:
    from walksum.paper.runs import Progress

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
EVERY = 0.5  # seconds between two reports of a worker


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """One process and the pipe to it. Spawned, not forked: CUDA and threads do not survive a fork."""

    def __init__(self, settings: WorkerSettings, threads: int):
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, settings), daemon=True)
        self.group: Group | None = None
        self.ready, self.status = False, ""
        with _environment(threads), _sigint_blocked():
            self.process.start()
        theirs.close()  # so that the pipe ends when the process does

    def give(self, group: Group) -> None:
        self.group, self.status = group, ""
        self.pipe.send(group.specs)

    def death(self) -> str:
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return name + (", out of memory?" if name == "SIGKILL" else "")


class LocalEngine:
    """``workers`` processes, started when there is work for them, each with its share of the cores."""

    def __init__(self, settings: WorkerSettings, workers: int):
        self.settings, self.workers = settings, workers
        self._threads = max(1, cores() // workers)
        self._pool: list[_Worker] = []

    def running(self) -> int:
        return sum(worker.group is not None for worker in self._pool)

    def start(self, group: Group) -> None:
        idle = [worker for worker in self._pool if worker.group is None]
        if not idle:
            idle = [_Worker(self.settings, self._threads)]
            self._pool += idle
        # a process that died while idle is found by poll, like one that died at work
        try:
            idle[0].give(group)
        except OSError:
            idle[0].group = group

    def poll(self, seconds: float) -> list[Ended]:
        busy = {worker.pipe: worker for worker in self._pool if worker.group is not None}
        if not busy:
            time.sleep(seconds)
        return [end for pipe in wait(list(busy), seconds) if (end := self._receive(busy[pipe]))]  # type: ignore[index]

    def doing(self) -> list[str]:
        return [f"{worker.group.title} {worker.status}".strip() for worker in self._pool if worker.group is not None]

    def stop(self) -> None:
        for worker in self._pool:
            worker.process.terminate()
        for worker in self._pool:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self._pool = []

    def _receive(self, worker: _Worker) -> Ended | None:
        """One message, or the end of the pipe, which is the end of the process."""
        group = worker.group
        assert group is not None
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            self._pool.remove(worker)
            worker.pipe.close()
            if not worker.ready:
                raise RuntimeError(f"a worker could not start ({worker.death()})") from None
            return Ended(group, died=worker.death())
        if kind == "ended":
            worker.group = None
            busy, trained = content
            return Ended(group, busy, trained)
        if kind == "broken":
            raise content
        worker.ready, worker.status = True, content
        return None


def _serve(pipe: Connection, settings: WorkerSettings) -> None:
    """What a worker process runs: it receives groups and reports their progress; records go straight into the store."""
    _end_with_parent()
    os.dup2(2, 1)  # whatever a library prints, stdout belongs to the results
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    store, locks = Store(settings.folder), RunLocks(Store(settings.folder).folder / RUN_LOCKS)
    pipe.send(("status", ""))
    while True:
        try:
            specs = pipe.recv()
        except EOFError:
            return
        _use_threads(specs[0].dataset)
        try:
            pipe.send(("ended", work_on(specs, settings, store, locks, _reporter(pipe))))
        except Exception as error:
            pipe.send(("broken", error))


def _use_threads(dataset: str) -> None:
    """At most this worker's share of the cores, which the environment says."""
    import torch

    torch.set_num_threads(int(os.environ[THREADS[0]]) if threads_pay(dataset) else 1)


def _reporter(pipe: Connection) -> Callable[[Progress], None]:
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            pipe.send(("status", in_words(progress)))

    return report


def _end_with_parent() -> None:
    """A sweep that is killed must not leave workers behind that go on locking runs."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """A process started here never sees Ctrl-C, which a terminal sends to all: the sweep ends its workers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Libraries read the number of their threads once, when they are loaded."""
    ours = {name: str(threads) for name in THREADS if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
