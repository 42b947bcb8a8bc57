"""A small model for a graph without a run: trained once, kept in the cache as a run folder."""

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
from walksum.workflow.fit import OnEpoch, Result, fit_model, predict
from walksum.workflow.job import Job
from walksum.workflow.prepare import prepare_data
from walksum.workflow.run import FORMAT, Run, open_run, run_of


def small_job(design: str, learned: bool, coupling: str | None) -> Job:
    """Settings of a small model that trains in seconds."""
    return Job(
        design=design, learned=learned, coupling=coupling, hidden=32, layers=2, lr=1e-2, patience=25, max_epochs=150
    )


def small_run(job: Job, problem: Problem, on_epoch: OnEpoch, on_start: Callable[[], None]) -> Run:
    """The cached run of this job on exactly this data, or a new one."""
    folder = cache_root() / "explore" / f"{problem.name}-{_fingerprint(job, problem)}"
    known = _known(folder)
    if known is not None:
        return known
    on_start()
    result = _train(job, problem, on_epoch)
    try:
        with whole_folder(folder) as scratch:
            run_of([result]).write(scratch, page=False)
    except OSError:
        if _known(folder) is None:  # else another explorer was faster: its run is as good
            raise
    return open_run(folder)


def _known(folder: Path) -> Run | None:
    if not folder.exists():
        return None
    try:
        run = open_run(folder)
        _ = run.model  # damaged weights are found here
        return run
    except ValueError:
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _train(job: Job, problem: Problem, on_epoch: OnEpoch) -> Result:
    prepared = prepare_data(job, problem)
    model, outcome = fit_model(job, prepared, on_epoch)
    if outcome.interrupted:
        raise KeyboardInterrupt
    output = predict(model, prepared.x, problem, prepared.encoding)
    test = prepared.split.test
    scores = {job.title: prepared.scorer.score(output[test], problem.y[test])}
    return Result(job, prepared, model, outcome, output, scores, None, list(prepared.notes))


def _fingerprint(job: Job, problem: Problem) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, asdict(job)]).encode())
    for tensor in (problem.features, problem.edge_index, problem.edge_weight, problem.y):
        if isinstance(tensor, Tensor):
            digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
