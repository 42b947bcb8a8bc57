"""The contents of a run's page: the verdict, the test nodes with the largest errors, and one node explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from walksum.analysis.inverse import apply_inverse, units
from walksum.data.numerals import written
from walksum.nn import GLT
from walksum.workflow.metrics import graph_text
from walksum.workflow.trained_run import TrainedRun

if TYPE_CHECKING:
    from walksum.workflow.fit import Result

MOST_CLASSES = 20  # in a table of confusions
WORST = 10
SHOWN_COLUMNS = 4
BINS = 10
SOURCES = 8  # nodes that explain one
SIMPLEST = ("mean", "majority class")


def score_name(metrics: dict[str, Any]) -> str:
    return "R²" if metrics["score"] == "R^2" else str(metrics["score"])


def shown(metrics: dict[str, Any], value: float) -> str:
    """Format a score for readers."""
    if metrics.get("metric") in ("rmse", "mae"):  # in the target's units, which may be small or large
        return written(value)
    return f"{100 * value:.1f} %" if metrics["score"] == "accuracy" else f"{value:z.3f}"  # z: never -0.000


def importance_title(metrics: dict[str, Any]) -> str:
    way = "Fall" if metrics.get("higher_is_better", True) else "Rise"  # importance above 0 is always a loss
    return f"{way} of {score_name(metrics)} when a column is shuffled"


def target_name(metrics: dict[str, Any]) -> str:
    """The column that is predicted; "class" for the y of a dataset."""
    data = metrics["data"]
    return "class" if data["target"] == "y" and data["task"] == "classification" else str(data["target"])


def heading(metrics: dict[str, Any], table: bool) -> str:
    """The heading of the page: target, data and model."""
    data, target, model = metrics["data"], target_name(metrics), str(metrics["model"])
    of = f"{'Class' if target == 'class' else target} in the {'table' if table else 'dataset'}"
    by = f"a portfolio of models ({model})" if metrics["portfolio"] else model
    return f"{of} {data['name']} · {data['nodes']:,} nodes, {data['edges']:,} edges · {by}"


def verdict(metrics: dict[str, Any]) -> list[str]:
    """The verdict in sentences: how well the target is predicted, and whether the graph helped."""
    target, parts = target_name(metrics), metrics["parts"]["test"]
    target = "The class" if target == "class" else target
    own, simplest = parts[metrics["model"]], next((parts[name] for name in SIMPLEST if name in parts), None)
    if "mae" in own:
        said = f"{target} is predicted with R² {own['r2']:.3f}: off by {written(own['mae'], 3)} on average"
        said += "" if simplest is None else f", where the mean alone is off by {written(simplest['mae'], 3)}"
    else:
        said = f"{target} is predicted correctly for {100 * own['accuracy']:.1f} % of the test nodes"
        often = "" if simplest is None else f"{100 * simplest['accuracy']:.1f} %"
        said += f"; the most common class alone would be right for {often}" if often else ""
    if metrics["metric"] not in ("r2", "mae", "accuracy"):
        said += f"; {score_name(metrics)} {shown(metrics, metrics['test'][metrics['model']]['mean'])}"
    words = graph_text(metrics).replace("R^2", "R²")
    return [f"{said}.", f"{words[:1].upper()}{words[1:]}."]


@dataclass(frozen=True)
class Confusion:
    """Counts of test nodes ``[true][predicted]``, the names of the classes, and each row's share that was right."""

    names: list[str]
    counts: list[list[int]]
    recall: list[float | None]
    left_out: int  # rare classes without a row


def confusion(result: Result) -> Confusion | None:
    """The confusion matrix of the most frequent classes among the test nodes; None for a regression."""
    problem, test = result.problem, result.prepared.split.test
    if problem.regression:
        return None
    truth, guess = problem.y[test].numpy(), result.prediction[test].numpy()
    often = np.argsort(-np.bincount(truth, minlength=len(problem.classes)), kind="stable")[:MOST_CLASSES]
    kept = sorted(often.tolist())
    counts = [[int(((truth == a) & (guess == b)).sum()) for b in kept] for a in kept]
    totals = [int((truth == a).sum()) for a in kept]
    recall = [counts[k][k] / total if total else None for k, total in enumerate(totals)]
    return Confusion([problem.classes[k] for k in kept], counts, recall, len(problem.classes) - len(kept))


def calibration_bins(result: Result) -> list[tuple[float, float, int]]:
    """Bin test nodes by the probability of their predicted class: its mean, the share that was right, the count."""
    test = result.prepared.split.test
    said = _probability(result)[test].double().numpy()
    right = (result.prediction[test] == result.problem.y[test]).double().numpy()
    order = np.argsort(said, kind="stable")
    groups = [part for part in np.array_split(order, min(BINS, max(1, len(order) // 10))) if len(part)]
    return [(float(said[part].mean()), float(right[part].mean()), len(part)) for part in groups]


def _probability(result: Result) -> torch.Tensor:
    """The probability of each node's predicted class ``[N]``, not the largest where classes are weighted."""
    return result.output.gather(1, result.prediction[:, None])[:, 0]


def numeric_columns(result: Result, most: int, metrics: dict[str, Any]) -> list[str]:
    """Columns of numbers, the most important first where that is known."""
    frame = result.problem.features
    if not isinstance(frame, pd.DataFrame):
        return []
    used = [name for name in result.prepared.encoding.numeric if name in frame]
    rank = {each["column"]: k for k, each in enumerate(metrics.get("importance") or [])}
    return sorted(used, key=lambda name: rank.get(name, len(rank)))[:most]


def most_wrong(result: Result, trained: TrainedRun, metrics: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of the test nodes with the largest errors."""
    test, problem = result.prepared.split.test, result.problem
    if problem.regression:
        off = (result.output[test] - problem.y[test]).abs()
        nodes = test[off.argsort(descending=True)][:WORST].tolist()
        beside = ["interval"] if result.low is not None else []
    else:
        wrong = test[result.prediction[test] != problem.y[test]]
        nodes = wrong[_probability(result)[wrong].argsort(descending=True)][:WORST].tolist()
        beside = ["probability"]
    columns = numeric_columns(result, SHOWN_COLUMNS, metrics)
    rows = []
    for node in nodes:
        cells = [trained.title_of(node), trained.label(node), _guess(result, node), *_beside(result, node)]
        rows.append(cells + [_cell(problem.features[name].iloc[node]) for name in columns])
    return ["node", "true", "predicted", *beside, *columns], rows


def _guess(result: Result, node: int) -> str:
    value = result.prediction[node]
    return written(float(value)) if result.problem.regression else result.problem.classes[int(value)]


def _beside(result: Result, node: int) -> list[str]:
    if not result.problem.regression:
        return [f"{100 * float(_probability(result)[node]):.0f} %"]
    if result.low is None or result.high is None:
        return []
    return [f"{written(float(result.low[node]))} to {written(float(result.high[node]))}"]


def _cell(value: Any) -> str:
    return "" if value != value else written(value, 5) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Explained:
    """Where the mean of one node comes from: its row of J^-1 of the last layer, heads averaged."""

    node: int
    id: str
    truth: str
    predicted: str
    own: float
    sources: list[tuple[int, float]]
    rows: list[tuple[str, str, float, bool]]  # id, true value, entry of J^-1, whether it is a training node


def explain(result: Result, trained: TrainedRun) -> Explained | None:
    node = node_to_explain(result) if isinstance(result.model, GLT) else None
    if node is None:
        return None
    J = trained.precisions[-1]
    try:
        weight = apply_inverse(J, units(J.num_nodes, torch.tensor([node]))).mean(0).squeeze(-1)
    except ValueError:  # a training that diverged has no J^-1
        return None
    own = float(weight[node])
    weight[node] = 0
    sources = [(k, float(weight[k])) for k in weight.abs().argsort(descending=True)[:SOURCES].tolist()]
    rows = [(trained.title_of(k), trained.label(k), share, trained.is_training(k)) for k, share in sources]
    predicted = trained.predicted(node)
    return Explained(node, trained.title_of(node), trained.label(node), predicted, own, sources, rows)


def node_to_explain(result: Result) -> int | None:
    """The least sure test node that was still right; of numbers, the first test node."""
    test, problem = result.prepared.split.test, result.problem
    if problem.regression:
        return int(test[0])
    right = test[result.prediction[test] == problem.y[test]]
    return int(right[_probability(result)[right].argmin()]) if right.numel() else None
