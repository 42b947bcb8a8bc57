"""Groups of runs as tasks of a Ray cluster; their records come back here, where they are appended."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import RUN_LOCKS, AlreadyRecorded, RunLocks, Store
from walksum.paper.sweep.sweep import Ended, Group
from walksum.paper.sweep.worker import WorkerSettings, in_words
from walksum.workflow.search import connect


@dataclass
class _TaskState:
    """A group on its way: the locks held for it, how many runs were sent, and how far it is, in words."""

    group: Group
    ours: set[str]
    trained: int = 0
    status: str = ""


class RayEngine:
    """``workers`` tasks at a time on the cluster of $RAY_ADDRESS, or on a Ray of this machine alone.

    The locks of runs in progress are held here: tasks need walksum and the data, not the store.
    """

    def __init__(self, settings: WorkerSettings, workers: int, store: Store):
        self.settings, self.workers, self.store = settings, workers, store
        self._ray, self._ours = connect()
        from ray.util.queue import Queue

        self._messages = Queue(actor_options={"num_cpus": 0})
        self._locks = RunLocks(store.folder / RUN_LOCKS)
        self._running: dict[Any, _TaskState] = {}
        self._idle: list[Ended] = []
        # several tasks may share a GPU: most of a step is the host's
        share = self._ray.cluster_resources().get("GPU", 0) / workers if settings.device == "cuda" else 0
        self._task = self._ray.remote(_train).options(num_cpus=1, num_gpus=min(1, share), max_retries=0)

    def running(self) -> int:
        return len(self._running) + len(self._idle)

    def start(self, group: Group) -> None:
        ours = self._locks.take(spec.key for spec in group.specs)
        self.store.refresh()
        todo = self.store.missing([spec for spec in group.specs if spec.key in ours], self.settings.since)
        if not todo:
            self._idle.append(self._end(_TaskState(group, ours)))
            return
        task = self._task.remote(todo, self.settings, self._messages, todo[0].key)
        self._running[task] = _TaskState(group, ours, len(todo))

    def poll(self, seconds: float) -> list[Ended]:
        ended, self._idle = self._idle, []
        done: list[Any] = []
        if self._running:
            done, _ = self._ray.wait(list(self._running), timeout=0 if ended else seconds)
        elif not ended:
            time.sleep(seconds)
        self._read_messages()
        return ended + [self._finish(task) for task in done]

    def doing(self) -> list[str]:
        return [f"{state.group.title} {state.status}".strip() for state in self._running.values()]

    def stop(self) -> None:
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._read_messages()
        self._running.clear()
        self._locks.close()
        self._messages.shutdown()
        if self._ours:  # ends a Ray of this machine with all its processes, leaves a cluster
            self._ray.shutdown()

    def _finish(self, task: Any) -> Ended:
        died = ""
        try:
            self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            died = type(error).__name__
        self._read_messages()
        return self._end(self._running.pop(task), died)

    def _end(self, state: _TaskState, died: str = "") -> Ended:
        self._locks.free(state.ours)
        busy = tuple(spec for spec in state.group.specs if spec.key not in state.ours)
        return Ended(state.group, busy, 0 if died else state.trained, died)

    def _read_messages(self) -> None:
        tasks = {spec.key: state for state in self._running.values() for spec in state.group.specs}
        for key, kind, content in self._messages.get_nowait_batch(self._messages.size()):
            if kind == "status" and key in tasks:
                tasks[key].status = content
            elif kind == "record":
                with suppress(AlreadyRecorded):
                    self.store.append(RunRecord.from_line(content), self.settings.since)


def _train(specs: Any, settings: WorkerSettings, messages: Any, key: str) -> None:
    """In a task, on whatever machine of the cluster."""
    settings.train(
        specs,
        lambda record: messages.put((key, "record", record.to_line())),
        lambda progress: messages.put((key, "status", in_words(progress))),
    )
