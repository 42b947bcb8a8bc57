"""Run folders: written as a whole or not at all, read back for predictions."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from walksum._files import finite_or_none
from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.training.metrics import over_seeds
from walksum.workflow.fit import Job, Result, baseline_config
from walksum.workflow.models import GLT_NAME, load_any, save_any
from walksum.workflow.search import Found

FORMAT = "walksum.run/1"
CONFIG, METRICS, PREDICTIONS, MODEL = "config.json", "metrics.json", "predictions.csv", "model"


def free_folder(out: Path | None, name: str) -> Path:
    """``out``, or the first of runs/NAME, runs/NAME-2, ... that is free; nothing is overwritten."""
    if out is not None:
        if out.exists():
            raise ValueError(f"--out {out} already exists; name a new folder, nothing is overwritten")
        return out
    folder, number = Path("runs", name), 1
    while folder.exists():
        number += 1
        folder = Path("runs", f"{name}-{number}")
    return folder


def write_run(results: list[Result], scratch: Path, found: Found | None = None) -> dict[str, Any]:
    """Everything of a run but its pictures; returns the metrics."""
    result = chosen(results)
    problem, job = result.problem, result.job
    shape = {}
    if job.model != GLT_NAME:
        shape = baseline_config(job, result.material.x.size(1), problem.outputs, problem.num_nodes)
    save_any(result.model, scratch / MODEL, shape)
    config = {
        "format": FORMAT,
        "name": problem.name,
        "task": problem.task,
        "target": problem.target,
        "classes": problem.classes,
        "columns": problem.columns,
        "job": dataclasses.asdict(job),
        "encoding": result.material.encoding.to_json(),
    }
    metrics = finite_or_none(metrics_of(results, found))
    (scratch / CONFIG).write_text(json.dumps(config, indent=2))
    (scratch / METRICS).write_text(json.dumps(metrics, indent=2))
    write_predictions(scratch / PREDICTIONS, problem, result.output, result.variance)
    return metrics


def chosen(results: list[Result]) -> Result:
    """Of several seeds, the one whose model is kept: best on its validation nodes."""
    return max(results, key=lambda result: result.outcome.best.val_score)


def metrics_of(results: list[Result], found: Found | None = None) -> dict[str, Any]:
    result = chosen(results)
    solve = result.solve
    return {
        "task": result.problem.task,
        "score": "R^2" if result.problem.regression else "accuracy",
        "test": {name: _over_results(results, name) for name in result.scores},
        "model": result.job.title,
        "seeds": [each.job.seed for each in results],
        "kept_seed": result.job.seed,
        "data": result.problem.summary(),
        "split": dict(zip(("train", "val", "test"), result.material.split.counts, strict=True)),
        "best_epoch": dataclasses.asdict(result.outcome.best),
        "epochs": len(result.outcome.history),
        "seconds": sum(each.outcome.seconds for each in results),
        "interrupted": any(each.interrupted for each in results),
        "solver": None
        if solve is None
        else {
            "name": solve.solver,
            "steps": solve.steps,
            "residual": solve.residual,
            "status": solve.status.name,
        },
        "confidence": result.variance_by,
        "search": None if found is None else _search_record(found),
        "notes": [*result.problem.notes, *result.notes],
        "history": [dataclasses.asdict(epoch) for epoch in result.outcome.history],
    }


def _over_results(results: list[Result], name: str) -> dict[str, Any]:
    """One seed: its score and interval. Several: mean and spread."""
    scores = [each.scores[name] for each in results if name in each.scores]
    mean, spread = over_seeds([each.value for each in scores])
    record: dict[str, Any] = {"mean": mean, "spread": spread, "values": [each.value for each in scores]}
    if len(scores) == 1:
        record |= {"low": scores[0].low, "high": scores[0].high}
    if scores[0].error is not None:
        record["mean_absolute_error"] = sum(each.error or 0.0 for each in scores) / len(scores)
    return record


def _search_record(found: Found) -> dict[str, Any]:
    varied = ("design", "learned", "coupling", "hidden", "dropout", "lr")
    trials = [
        {**{name: getattr(trial.job, name) for name in varied}, "val_score": trial.val_score, "seconds": trial.seconds}
        for trial in found.trials
    ]
    return {"by": found.by, "trials": trials}


def write_predictions(path: Path, problem: Problem, output: Tensor, variance: Tensor | None) -> None:
    """One row a node: id, prediction, probability of each class, confidence (the marginal precision)."""
    sure = [] if variance is None else ["confidence"]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        if problem.regression:
            table.writerow(["id", "prediction", *sure])
        else:
            table.writerow(["id", "prediction", *(f"probability_{name}" for name in problem.classes), *sure])
        confidence = None if variance is None else (1 / variance).tolist()
        for node, (name, row) in enumerate(zip(problem.ids, output.tolist(), strict=True)):
            last = [] if confidence is None else [f"{confidence[node]:.6g}"]
            if problem.regression:
                table.writerow([name, f"{row:.7g}", *last])
            else:
                best = problem.classes[row.index(max(row))]
                table.writerow([name, best, *(f"{value:.6f}" for value in row), *last])


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder, read back."""

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, Any]

    @property
    def encoding(self) -> Encoding:
        return Encoding(**self.config["encoding"])

    @property
    def job(self) -> Job:
        return Job(**self.config["job"])

    def model(self) -> nn.Module:
        return load_any(self.folder / MODEL)


def read_run(folder: Path) -> Run:
    """The run in a folder that ``walksum train`` wrote."""
    found = []
    for name in (CONFIG, METRICS):
        file = folder / name
        if not file.is_file():
            raise ValueError(f"{folder} is not a run of 'walksum train': it holds no {name}")
        try:
            found.append(json.loads(file.read_text()))
        except ValueError as error:
            raise ValueError(f"{file} is damaged: {error}") from error
    if found[0].get("format") != FORMAT:
        raise ValueError(f"{folder} is not a run of this version ({FORMAT}); train again")
    return Run(folder, *found)
