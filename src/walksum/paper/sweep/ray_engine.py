"""Groups of runs as tasks of a Ray cluster; their records come back here, where they are appended."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from walksum.paper.sweep.locks import Claims
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import CLAIMS, AlreadyRecorded, Store
from walksum.paper.sweep.sweep import Ended, Group
from walksum.paper.sweep.work import Job, in_words


def find_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError("engine='ray' needs the package ray: pip install 'walksum[ray]'") from error
    return ray


@dataclass
class _Flight:
    """A group on its way: the claims held for it, how many runs were sent, and how far it is, in words."""

    group: Group
    ours: set[str]
    trained: int = 0
    at: str = ""


class RayEngine:
    """``workers`` tasks at a time on the cluster of $RAY_ADDRESS, or on a Ray of this machine alone.

    The claims of what is in flight are held here: tasks need walksum and the data, not the store.
    """

    def __init__(self, job: Job, workers: int, store: Store):
        self.job, self.workers, self.store = job, workers, store
        self._ray = find_ray()
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False, include_dashboard=False, logging_level="error", configure_logging=False)
        from ray.util.queue import Queue

        self._mail = Queue(actor_options={"num_cpus": 0})
        self._claims = Claims(store.folder / CLAIMS)
        self._flying: dict[Any, _Flight] = {}
        self._idle: list[Ended] = []
        # several tasks may share a GPU: most of a step is the host's
        share = self._ray.cluster_resources().get("GPU", 0) / workers if job.device == "cuda" else 0
        self._task = self._ray.remote(_train).options(num_cpus=1, num_gpus=min(1, share), max_retries=0)

    def running(self) -> int:
        return len(self._flying) + len(self._idle)

    def start(self, group: Group) -> None:
        ours = self._claims.take(spec.key for spec in group.specs)
        self.store.refresh()
        todo = self.store.missing([spec for spec in group.specs if spec.key in ours], self.job.since)
        if not todo:
            self._idle.append(self._end(_Flight(group, ours)))
            return
        task = self._task.remote(todo, self.job, self._mail, todo[0].key)
        self._flying[task] = _Flight(group, ours, len(todo))

    def poll(self, seconds: float) -> list[Ended]:
        ended, self._idle = self._idle, []
        done: list[Any] = []
        if self._flying:
            done, _ = self._ray.wait(list(self._flying), timeout=0 if ended else seconds)
        elif not ended:
            time.sleep(seconds)
        self._read_mail()
        return ended + [self._land(task) for task in done]

    def doing(self) -> list[str]:
        return [f"{flight.group.title} {flight.at}".strip() for flight in self._flying.values()]

    def stop(self) -> None:
        for task in self._flying:
            self._ray.cancel(task, force=True)
        self._read_mail()
        self._flying.clear()
        self._claims.close()
        self._mail.shutdown()

    def _land(self, task: Any) -> Ended:
        died = ""
        try:
            self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            died = type(error).__name__
        self._read_mail()
        return self._end(self._flying.pop(task), died)

    def _end(self, flight: _Flight, died: str = "") -> Ended:
        self._claims.free(flight.ours)
        busy = tuple(spec for spec in flight.group.specs if spec.key not in flight.ours)
        return Ended(flight.group, busy, 0 if died else flight.trained, died)

    def _read_mail(self) -> None:
        flights = {spec.key: flight for flight in self._flying.values() for spec in flight.group.specs}
        for key, kind, content in self._mail.get_nowait_batch(self._mail.size()):
            if kind == "at" and key in flights:
                flights[key].at = content
            elif kind == "record":
                with suppress(AlreadyRecorded):
                    self.store.append(RunRecord.from_line(content), self.job.since)


def _train(specs: Any, job: Job, mail: Any, key: str) -> None:
    """In a task, on whatever machine of the cluster."""
    job.train(
        specs,
        lambda record: mail.put((key, "record", record.to_line())),
        lambda progress: mail.put((key, "at", in_words(progress))),
    )
