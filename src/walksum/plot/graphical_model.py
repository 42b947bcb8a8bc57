"""Figure 1 of the paper: a graph read as a Gaussian graphical model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from walksum._checks import check_choice
from walksum.analysis.inverse import marginal_variance
from walksum.analysis.part import ball, restrict, typical_node
from walksum.graph import Graph
from walksum.plot.layout import edge_lines, positions
from walksum.plot.overview import shortened
from walksum.plot.theme import Theme, finish, make_figure, themed
from walksum.precision import Precision

MOST = 120  # nodes that can be distinguished
FANOUT = 5  # neighbours followed of a node: a hub would fill the picture
SHADES = {"variance": "marginal precision $1 / (J^{-1})_{ii}$", "precision": "self-precision $J_{ii}$"}


def graphical_model(
    designs: Precision | Mapping[str, Precision],
    node: int | None = None,
    *,
    most: int = MOST,
    shade: str = "variance",
    confidence: Tensor | None = None,
    beside_graph: bool = False,
    labels: Sequence[str] | None = None,
    theme: str = "light",
) -> Figure:
    """Nodes shaded by confidence, edges coloured by the sign of their coupling and as wide as it is strong.

    Args:
        designs: a J, or several on one graph by name: one panel each. Heads are averaged.
        node: the middle of the part that is drawn of a graph with more than ``most`` nodes; by default one of
            average degree.
        most: nodes drawn at most.
        shade: "variance", the confidence 1 / (J^-1)_ii a node has within the whole graph; or "precision", its J_ii.
        confidence: ``[N]``, where "variance" was computed before, as 1 / (J^-1)_ii of one design.
        beside_graph: draw the plain graph to the left, as the paper does.
        labels: one text per node of the graph, written next to it where fewer than 40 are drawn.
        theme: "light" or "dark".
    """
    check_choice("shade", shade, tuple(SHADES))
    many = designs if isinstance(designs, Mapping) else {"Gaussian graphical model": designs}
    graph = next(iter(many.values())).graph.to("cpu")
    centre = typical_node(graph) if node is None else node
    nodes = torch.arange(graph.num_nodes) if graph.num_nodes <= most else ball(graph, centre, most, FANOUT)
    models = {name: _Model.of(J, nodes, shade, confidence) for name, J in many.items()}
    part = next(iter(models.values())).part
    with themed(theme) as look:
        count = len(models) + beside_graph
        figure = make_figure({1: 6.4, 2: 10.0}.get(count, 4.2 * count), 5.2)
        panels = figure.subplots(1, count, squeeze=False)[0]
        spots = positions(part.graph)
        if beside_graph:
            _plain(panels[0], part, spots, look)
        strongest = max(float(each.strength.abs().max()) if each.strength.numel() else 0.0 for each in models.values())
        for axes, (name, each) in zip(panels[beside_graph:], models.items(), strict=True):
            shown = _draw(axes, name, each, spots, strongest, look)
            style: Any = {"location": "bottom", "fraction": 0.04, "pad": 0.02, "shrink": 0.8}
            bar: Any = figure.colorbar(shown, ax=axes, label=SHADES[shade], **style)
            bar.outline.set_visible(False)
            _names(axes, spots, nodes, labels, look)
        _legend(figure, strongest, part, _about(graph, nodes, str(centre) if labels is None else labels[centre]), look)
        return finish(figure, look)


@dataclass(frozen=True)
class _Model:
    """What one panel shows of a J."""

    part: Precision
    strength: Tensor  # [E] of the part: positive where J_ij pulls together
    confidence: Tensor  # [n]

    @classmethod
    def of(cls, J: Precision, nodes: Tensor, shade: str, confidence: Tensor | None) -> _Model:
        J = J.detach().to("cpu")
        if not bool(torch.isfinite(J.diag).all() & torch.isfinite(J.off).all()):
            raise ValueError(f"{J} holds NaN or infinity; there is no Gaussian with this precision")
        if confidence is None:
            confidence = 1 / marginal_variance(J)[0] if shade == "variance" else J.diag.mean(0)
        part = restrict(J, nodes)
        return cls(part, -part.normalised().off.double().mean(0), confidence[nodes].double())


def _about(graph: Graph, nodes: Tensor, centre: str) -> str | None:
    shown, total = nodes.numel(), graph.num_nodes
    if shown == total:
        return None
    return f"{shown} of {total} nodes, near node {shortened(centre)}; of each at most {FANOUT} neighbours are followed"


def _plain(axes: Any, part: Precision, spots: np.ndarray, look: Theme) -> None:
    axes.add_collection(LineCollection(edge_lines(part.graph, spots), colors=look.faint, linewidths=0.8))
    axes.scatter(*spots.T, s=_size(part), color=look.background, edgecolors=look.ink, linewidths=0.7, zorder=2)
    _frame(axes, "graph")


def _draw(axes: Any, name: str, model: _Model, spots: np.ndarray, strongest: float, look: Theme) -> Any:
    strength, confidence, part = model.strength, model.confidence, model.part
    colours = [look.positive if value > 0 else look.negative for value in strength.tolist()]
    widths = _width(strength.abs().numpy() / max(strongest, 1e-30), part)
    axes.add_collection(LineCollection(edge_lines(part.graph, spots), colors=colours, linewidths=widths, alpha=0.85))
    # equal confidences (rounding aside) get the middle of the scale, not its ends
    low, high = float(confidence.min()), float(confidence.max())
    if high - low < 1e-5 * abs(high):
        low, high = low - 0.5 * abs(low), high + 0.5 * abs(high)
    shown = axes.scatter(
        *spots.T,
        s=_size(part),
        c=confidence.numpy(),
        cmap=look.sequential,
        vmin=low,
        vmax=high,
        edgecolors=look.ink,
        linewidths=0.5,
        zorder=2,
    )
    _frame(axes, name)
    return shown


def _width(share: Any, part: Precision) -> Any:
    """Of an edge that has this share of the strongest coupling; thinner where there are many."""
    return 0.3 + (3.2 if part.graph.num_edges <= 120 else 1.7) * share


def _size(part: Precision) -> float:
    return float(np.clip(4500 / max(1, part.num_nodes), 18, 260))


def _frame(axes: Any, title: str) -> None:
    axes.set(title=title, aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1))
    axes.set_axis_off()


def _names(axes: Any, spots: np.ndarray, nodes: Tensor, labels: Sequence[str] | None, look: Theme) -> None:
    if labels is None or nodes.numel() >= 40:
        return
    for spot, node in zip(spots, nodes.tolist(), strict=True):
        place: Any = {"xytext": (5, 5), "textcoords": "offset points"}
        axes.annotate(shortened(labels[node]), spot, **place, fontsize=7, color=look.ink)


def _legend(figure: Figure, strongest: float, part: Precision, about: str | None, look: Theme) -> None:
    marks = [
        Line2D([], [], color=look.positive, lw=2.5, label="pulls together, $J_{ij} < 0$"),
        Line2D([], [], color=look.negative, lw=2.5, label="pushes apart, $J_{ij} > 0$"),
        Line2D([], [], color=look.ink, lw=_width(1.0, part), label=f"coupling {strongest:.2g}, the strongest"),
        Line2D([], [], color=look.ink, lw=_width(0.25, part), label=f"a quarter of it, {strongest / 4:.2g}"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, fontsize=8, title=about, title_fontsize=8)
