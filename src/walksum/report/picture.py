"""One picture of a run: how it learned, how it compares, and why a node got its label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.data import Data

from walksum.solve import solve

if TYPE_CHECKING:
    from walksum.job import Result

SHOWN = 8
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"  # Okabe-Ito: safe for colour-blind readers


def draw(result: Result, data: Data, path: Path) -> None:
    """Write the picture of a run to ``path``."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 5.2), layout="constrained", dpi=130)
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.5, 1], squeeze=False).ravel()
        curve, bars, matrix = top.subplots(1, 3)
        _learning(curve, result)
        _comparison(bars, result)
        _confusion(matrix, result, data)
        _influence(bottom, result, data)
        figure.savefig(path)


def influence(result: Result, data: Data, node: int) -> Tensor:
    """Row ``node`` of J^-1 of the last layer, heads averaged: what every node adds to this one's mean."""
    J = result.model.precisions(data.x, result.graph)[-1]
    unit = torch.zeros(J.heads, J.num_nodes, 1)
    unit[:, node] = 1
    return solve(J, unit).mean(0).squeeze(-1)


def _learning(axes: Any, result: Result) -> None:
    history = result.outcome.history
    axes.plot([e.number for e in history], [e.val_accuracy for e in history], color=BLUE)
    axes.axvline(result.outcome.best.number, color=GREY, linewidth=0.8)
    axes.set(title="validation accuracy", xlabel="epoch", ylim=(0, 1))


def _comparison(axes: Any, result: Result) -> None:
    names = list(result.accuracy)
    values = [100 * result.accuracy[name] for name in names]
    bars = axes.bar(names, values, color=[BLUE] + [GREY] * (len(names) - 1))
    axes.bar_label(bars, fmt="%.1f")
    axes.set(title="test accuracy, %", ylim=(max(0, min(values) - 15), 100))


def _confusion(axes: Any, result: Result, data: Data) -> None:
    test = result.split.test
    classes = result.prediction.size(1)
    pairs = data.y[test] * classes + result.prediction[test].argmax(1)
    counts = torch.bincount(pairs, minlength=classes**2).view(classes, classes).double()
    axes.imshow(counts / counts.sum(1, keepdim=True).clamp_min(1), cmap="Blues", vmin=0, vmax=1)
    axes.set(title="prediction for each true class", xticks=range(classes), yticks=range(classes))


def _influence(figure: Any, result: Result, data: Data) -> None:
    """The hardest test node that was still right, and the nodes that speak loudest to it."""
    test = result.split.test
    top = result.prediction[test].max(1)
    right = top.indices == data.y[test]
    node = int(test[right][top.values[right].argmin()])
    weight = influence(result, data, node)
    own = float(weight[node])
    weight[node] = 0
    sources = weight.abs().argsort(descending=True)[:SHOWN].tolist()
    figure.suptitle(
        f"Why is node {node} a {int(data.y[node])}? The nodes that add most to its mean, row {node} of J$^{{-1}}$"
        f" (its own entry: {own:.2f}; framed: training nodes)",
        x=0.01,
        ha="left",
        fontsize=9,
    )
    labelled = set(result.split.train.tolist())
    for axes, source in zip(figure.subplots(1, SHOWN + 1), [node, *sources], strict=True):
        _face(axes, data, source, source in labelled)
        share = "asked" if source == node else f"{float(weight[source]):+.3f}"
        axes.set_title(f"{share}\nclass {int(data.y[source])}", fontsize=8, loc="center")


def _face(axes: Any, data: Data, node: int, labelled: bool) -> None:
    """The image of a digit; for other data its features, folded into a square."""
    x = data.x[node]
    side = int(x.numel() ** 0.5)
    axes.imshow(x[: side * side].view(side, side), cmap="Greys")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=labelled, color=ORANGE, linewidth=2)
