"""Pictures of a run: how it learned, how it compares, and why a node got its label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import torch
from matplotlib.figure import Figure
from torch import Tensor

from walksum.nn import GLT
from walksum.solving import solve

if TYPE_CHECKING:
    from walksum.workflow.fit import Result

SHOWN = 8
MOST_CLASSES = 30  # in a confusion matrix
SMALLEST_IMAGE = 4  # pixels a side
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#999999"  # Okabe-Ito: safe for colour-blind readers


def draw(result: Result, target: Any) -> None:
    """Write the picture of a run to ``target``, a path or an open file, as PNG."""
    with matplotlib.rc_context(STYLE):
        explained = isinstance(result.model, GLT) and asked_node(result) is not None
        figure = Figure(figsize=(10, 5.2 if explained else 3.1), layout="constrained", dpi=130)
        top, bottom = figure, None
        if explained:
            top, bottom = figure.subfigures(2, 1, height_ratios=[1.5, 1], squeeze=False).ravel()
        curve, bars, last = top.subplots(1, 3)
        _learning(curve, result)
        _comparison(bars, result)
        if result.problem.regression:
            _against_truth(last, result)
        else:
            _confusion(last, result)
        if bottom is not None:
            _influence(bottom, result)
        figure.savefig(target, format="png")


def influence(result: Result, node: int) -> Tensor:
    """Row ``node`` of J^-1 of the last layer, heads averaged: what every node adds to this one's mean."""
    assert isinstance(result.model, GLT)
    J = result.model.precisions(result.prepared.x, result.problem.graph)[-1]
    unit = torch.zeros(J.heads, J.num_nodes, 1)
    unit[:, node] = 1
    return solve(J, unit).mean(0).squeeze(-1)


def asked_node(result: Result) -> int | None:
    """A node worth explaining: the least sure test node that was still right; of numbers, the first test node."""
    test, problem = result.prepared.split.test, result.problem
    if problem.regression:
        return int(test[0])
    top = result.output[test].max(1)
    right = top.indices == problem.y[test]
    return int(test[right][top.values[right].argmin()]) if bool(right.any()) else None


def loudest(result: Result, node: int) -> tuple[float, list[tuple[int, float]]]:
    """The node's own share of its mean, and the nodes that add most to it."""
    weight = influence(result, node)
    own = float(weight[node])
    weight[node] = 0
    sources = weight.abs().argsort(descending=True)[:SHOWN].tolist()
    return own, [(source, float(weight[source])) for source in sources]


def truth_of(result: Result, node: int) -> str:
    """The target of a node in words; a question mark where it has none."""
    y = result.problem.y[node]
    if result.problem.regression:
        return "?" if bool(y.isnan()) else f"{float(y):.3g}"
    return "?" if int(y) < 0 else result.problem.classes[int(y)]


def _learning(axes: Any, result: Result) -> None:
    history = result.outcome.history
    axes.plot([e.number for e in history], [e.val_score for e in history], color=BLUE)
    axes.axvline(result.outcome.best.number, color=GREY, linewidth=0.8)
    kind = "$R^2$" if result.problem.regression else "accuracy"
    axes.set(title=f"validation {kind}", xlabel="epoch")
    if not result.problem.regression:  # R^2 may be far below 0
        axes.set_ylim(0, 1)


def _comparison(axes: Any, result: Result) -> None:
    names = list(result.scores)
    percent = 1 if result.problem.regression else 100
    values = [percent * result.scores[name].value for name in names]
    bars = axes.bar([name.replace(" ", "\n") for name in names], values, color=[BLUE] + [GREY] * (len(names) - 1))
    axes.bar_label(bars, fmt="%.2f" if percent == 1 else "%.1f")
    axes.tick_params(axis="x", labelsize=7)
    if percent == 100:
        axes.set(title="test accuracy, %", ylim=(0, 105))
    else:
        lowest = min(0, *values)
        axes.set(title="test $R^2$", ylim=(lowest - 0.1 * (1 - lowest), 1.05))


def _confusion(axes: Any, result: Result) -> None:
    test, classes = result.prepared.split.test, min(len(result.problem.classes), MOST_CLASSES)
    truth, guess = result.problem.y[test], result.prediction[test]
    shown = (truth < classes) & (guess < classes)
    pairs = truth[shown] * classes + guess[shown]
    counts = torch.bincount(pairs, minlength=classes**2).view(classes, classes).double()
    axes.imshow((counts / counts.sum(1, keepdim=True).clamp_min(1)).numpy(), cmap="Blues", vmin=0, vmax=1)
    names = [_short(name) for name in result.problem.classes[:classes]]
    axes.set(title="prediction for each true class", xticks=range(classes), yticks=range(classes))
    axes.tick_params(labelsize=min(9, 130 / classes))
    axes.set_xticklabels(names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticklabels(names)


def _against_truth(axes: Any, result: Result) -> None:
    test = result.prepared.split.test
    truth, guess = result.problem.y[test].numpy(), result.output[test].numpy()
    axes.scatter(truth, guess, s=6, color=BLUE, alpha=0.5, linewidths=0)
    both = (min(truth.min(), guess.min()), max(truth.max(), guess.max()))
    axes.plot(both, both, color=GREY, linewidth=0.8)
    axes.set(title="test nodes: predicted over true", xlabel="true", ylabel="predicted")


def _influence(figure: Any, result: Result) -> None:
    """The nodes that speak loudest to one of them."""
    node = asked_node(result)
    assert node is not None
    own, sources = loudest(result, node)
    name, truth = result.problem.ids[node], truth_of(result, node)
    why = (
        f"Why has node {name} {result.problem.target} {truth}"
        if result.problem.regression
        else f"Why is node {name} a {truth}"
    )
    figure.suptitle(
        f"{_plain(why)}? The nodes that add most to its mean, its row of J$^{{-1}}$"
        f" (its own entry: {own:.2f}; framed: training nodes)",
        x=0.01,
        ha="left",
        fontsize=9,
    )
    labelled = set(result.prepared.split.train.tolist())
    for axes, (source, share) in zip(figure.subplots(1, len(sources) + 1), [(node, 0.0), *sources], strict=True):
        _face(axes, result, source, source in labelled)
        title = "asked" if source == node else f"{share:+.3f}"
        axes.set_title(f"{title}\n{_short(truth_of(result, source), 12)}", fontsize=8, loc="center")


def _face(axes: Any, result: Result, node: int, labelled: bool) -> None:
    """The image of a digit, or features folded into a square; of a table or of few features, the node's name."""
    x = result.prepared.x[node]
    side = int(x.numel() ** 0.5)
    if isinstance(result.problem.features, Tensor) and side >= SMALLEST_IMAGE:
        axes.imshow(x[: side * side].view(side, side).numpy(), cmap="Greys")
    else:
        axes.text(0.5, 0.5, _short(str(result.problem.ids[node])), ha="center", va="center", fontsize=8)
        axes.set_box_aspect(1)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=labelled, color=ORANGE, linewidth=2)


def _short(name: str, most: int = 14) -> str:
    """A name that fits: long ones lose their middle, for names of one kind often begin alike."""
    half = most // 2
    return _plain(name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}")


def _plain(text: str) -> str:
    """Text that matplotlib shows as it is: between two dollar signs it would read a formula."""
    return text.replace("$", r"\$")
