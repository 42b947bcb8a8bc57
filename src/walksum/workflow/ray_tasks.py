"""Trials of a search as tasks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from walksum.workflow.fit import fit_model
from walksum.workflow.job import Job
from walksum.workflow.prepare import PreparedData
from walksum.workflow.search import Fitted, Train


def find_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError("engine='ray' needs the package ray: pip install 'walksum[ray]'") from error
    return ray


def connect() -> tuple[Any, bool]:
    """Ray, on the cluster of $RAY_ADDRESS or on this machine alone, and whether it is ours to end."""
    ray = find_ray()
    ours = not ray.is_initialized()
    if ours:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="error", configure_logging=False)
    return ray, ours


@contextmanager
def trainer(prepared: PreparedData, device: str, workers: int) -> Iterator[Train]:
    """Trains jobs at the same time, one task each; a task whose process dies is tried once more."""
    ray, ours = connect()
    # several tasks may share a GPU: most of a step is the host's
    share = 0 if device == "cpu" else min(1, ray.cluster_resources().get("GPU", 0) / workers)
    task = ray.remote(fit_model).options(num_cpus=1, num_gpus=share, max_retries=1)
    data = ray.put(prepared)

    def train(jobs: Iterable[Job]) -> Iterator[Fitted]:
        tasks = [task.remote(job, data) for job in jobs]
        try:
            for each in tasks:
                yield ray.get(each)
        finally:
            for each in tasks:  # what an interrupt left; finished ones do not mind
                ray.cancel(each, force=True)

    try:
        yield train
    finally:
        if ours:  # with all its processes
            ray.shutdown()
