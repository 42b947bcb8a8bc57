"""All that metrics.json holds, from the results of one or more seeds; and what it says, in words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from walksum.data.numerals import written
from walksum.training import Epoch
from walksum.training.scoring import over_seeds
from walksum.workflow.fit import LEVEL, Result
from walksum.workflow.search import SearchResult


def chosen(results: list[Result]) -> Result:
    """The result whose model is kept: the seed that is best on its validation nodes."""
    return max(results, key=lambda result: result.outcome.best.val_score)


def metrics_of(results: list[Result], search: SearchResult | None = None) -> dict[str, Any]:
    """The contents of metrics.json."""
    result = chosen(results)
    scorer, problem = result.prepared.scorer, result.problem
    return {
        "task": problem.task,
        "metric": scorer.metric.name,
        "score": scorer.metric.title,
        "higher_is_better": scorer.metric.sign > 0,
        "test": {name: _over_results(results, name) for name in result.scores},
        "parts": result.parts,
        "graph": result.graph,
        "calibration": result.calibration,
        "importance": None if result.importance is None else result.importance["columns"],
        "importance_by": None if result.importance is None else result.importance["how"],
        "rare_class": None if scorer.rare is None else problem.classes[scorer.rare],
        "transform": scorer.encoding.target_transform,
        "class_weight": dict(zip(problem.classes, scorer.encoding.class_weight, strict=False)) or None,
        "model": result.job.title,
        "device": result.outcome.device,
        "captured": result.outcome.captured,  # whether the training step ran as one CUDA graph
        "seeds": [each.job.seed for each in results],
        "kept_seed": result.job.seed,
        "data": problem.summary(),
        "split": dict(zip(("train", "val", "test"), result.prepared.split.counts, strict=True)),
        "method_seconds": result.seconds,
        "portfolio": result.portfolio,
        "intervals": _intervals(result),
        "best_epoch": dataclasses.asdict(result.outcome.best),
        "epochs": len(result.outcome.history),
        "seconds": sum(each.outcome.seconds for each in results),
        "interrupted": any(each.interrupted for each in results),
        "solver": _solver_record(result),
        "search": None if search is None else search.record(),
        "notes": [*problem.notes, *result.notes],
        "history": [dataclasses.asdict(epoch) for epoch in result.outcome.history],
    }


def _intervals(result: Result) -> dict[str, Any] | None:
    """How many test nodes they cover, half of their usual width, and whether wide ones stand at large errors."""
    from scipy.stats import spearmanr

    if result.low is None or result.high is None:
        return None
    test = result.prepared.split.test
    width = (result.high - result.low)[test].double().numpy() / 2
    off = (result.output - result.problem.y)[test].abs().double().numpy()
    tracks = float(spearmanr(width, off)[0]) if np.ptp(width) > 1e-9 * width.max() else None
    return {
        "level": LEVEL,
        "coverage": result.coverage,
        "margin": float(np.median(width)),
        "reach": result.interval_reach,
        "by": result.interval_by,
        "spearman_with_error": tracks,
    }


def _solver_record(result: Result) -> dict[str, Any] | None:
    solve = result.solve
    if solve is None:
        return None
    return {"name": solve.solver, "steps": solve.steps, "residual": solve.residual, "status": solve.status.name}


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


def in_own_units(history: list[Epoch], higher_is_better: bool) -> list[Epoch]:
    """Epochs with their validation score as it is written: of an error they hold its negative, to choose by."""
    sign = 1 if higher_is_better else -1
    return [dataclasses.replace(each, val_score=sign * each.val_score) for each in history]


def ranked(metrics: dict[str, Any]) -> list[str]:
    """The names of the methods, the best first."""
    sign = 1 if metrics.get("higher_is_better", True) else -1
    return sorted(metrics["test"], key=lambda name: -sign * metrics["test"][name]["mean"])


def graph_text(metrics: dict[str, Any]) -> str:
    """A sentence on whether the graph helped, and whether another row did better."""
    graph = metrics.get("graph")
    if graph is None and metrics.get("data", {}).get("edges") == 0:
        return "there are no edges: every node was predicted by its own columns"
    if graph is None:
        return "whether the graph helped is not known: no method without edges was trained; raise the budget"
    if graph["low"] is None:
        return f"whether the graph helped is not known: {metrics['score']} has no interval on these test nodes"
    against = graph["against"]  # "auto without edges", or a method that is named otherwise
    against = against if against.endswith("without edges") else f"{against}, the best without edges"
    text = f"the graph {graph['verdict']}: {_difference(metrics, graph, against)}"
    if graph["better"] is None:
        return text
    other = graph["better"]
    if other["low"] is None:
        return f"{text}. {other['method']} scored higher"
    word = "did better" if other["high"] < 0 else "scored higher, though not clearly"
    turned = {"gain": -other["gain"], "low": -other["high"], "high": -other["low"]}
    return f"{text}. {other['method']} {word}: {_difference(metrics, turned, str(metrics['model']))}"


def _difference(metrics: dict[str, Any], record: dict[str, Any], other: str) -> str:
    """By how much one method is better than ``other``, above 0 always meaning better."""
    percent, units = metrics["score"] == "accuracy", metrics.get("metric") in ("rmse", "mae")
    show = (
        (lambda v: f"{100 * v:+.1f}")
        if percent
        else (lambda v: written(v, 3, "+"))
        if units
        else (lambda v: f"{v:+.3f}")
    )
    gain, low, high = (show(record[name]) for name in ("gain", "low", "high"))
    unit = "points" if percent else f"of {metrics['score']}"
    less = "" if metrics.get("higher_is_better", True) else f" (above 0: less {metrics['score']})"
    return f"{gain} {unit} over {other}, 95 % interval {low} to {high}{less}"
