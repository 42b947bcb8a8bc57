"""A small model of a graph that nobody trained yet: learned once, kept in the cache as a run folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from walksum._files import whole_folder
from walksum.data.cache import cache_root
from walksum.data.problem import Problem
from walksum.workflow.fit import Job, OnEpoch, Result, fit_model, material_of, predict, score
from walksum.workflow.run import FORMAT, Run, read_run, write_run


def quick_job(design: str, learned: bool, coupling: str | None) -> Job:
    """Good enough to ask questions of, in seconds."""
    return Job(
        design=design, learned=learned, coupling=coupling, hidden=32, layers=2, lr=1e-2, patience=25, max_epochs=150
    )


def quick_run(job: Job, problem: Problem, on_epoch: OnEpoch, on_start: Callable[[], None]) -> Run:
    """The cached run of this job on exactly this data, or a new one."""
    folder = cache_root() / "explore" / f"{problem.name}-{_fingerprint(job, problem)}"
    known = _known(folder)
    if known is not None:
        return known
    on_start()
    result = _train(job, problem, on_epoch)
    try:
        with whole_folder(folder) as scratch:
            write_run([result], scratch)
    except OSError:
        if _known(folder) is None:  # else another explorer was faster: its run is as good
            raise
    return read_run(folder)


def _known(folder: Path) -> Run | None:
    if not folder.exists():
        return None
    try:
        run = read_run(folder)
        run.model()
        return run
    except ValueError:
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _train(job: Job, problem: Problem, on_epoch: OnEpoch) -> Result:
    material = material_of(job, problem)
    model, outcome = fit_model(job, material, on_epoch)
    if outcome.interrupted:
        raise KeyboardInterrupt
    output = predict(model, material.x, problem, material.encoding)
    scores = {job.title: score(output, problem, material.split)}
    return Result(job, material, model, outcome, output, scores, None, None, None, list(material.notes))


def _fingerprint(job: Job, problem: Problem) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, asdict(job)]).encode())
    for tensor in (problem.features, problem.edge_index, problem.edge_weight, problem.y):
        if isinstance(tensor, Tensor):
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
