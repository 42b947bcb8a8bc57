"""Figures 2 and 3 of the paper: the layer, and how J is made from a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from walksum._checks import check_choice
from walksum.analysis.inverse import apply_inverse, units
from walksum.designs import DESIGNS, NAMES, make_design
from walksum.graph import Graph
from walksum.plot.layout import edge_lines, positions
from walksum.plot.theme import Theme, finish, make_figure, scale_of_signs, themed
from walksum.precision import Precision

MOST_NODES = 12  # whose values can be written into the picture

# name: (x, y, width, text); arrows go from name to name
BOXES = {
    "x": (0.0, 1.0, 0.9, "x"),
    "norm": (1.3, 1.0, 1.1, "LayerNorm"),
    "J": (3.1, 1.7, 1.9, "design: graph, x → J\none per head"),
    "h": (3.1, 0.3, 1.9, "h = LeakyReLU(x W)\none per head"),
    "solve": (5.3, 1.0, 1.5, "solve\nJ μ = h"),
    "mix": (7.3, 1.0, 1.7, "LayerNorm,\nLeakyReLU, Linear"),
    "add": (8.9, 1.0, 0.4, "+"),
    "ffn": (10.4, 1.0, 1.7, "LayerNorm,\ntwo Linear"),
    "add2": (12.0, 1.0, 0.4, "+"),
}
ARROWS = ("x norm", "norm J", "norm h", "J solve", "h solve", "solve mix", "mix add", "add ffn", "ffn add2")
HEIGHT = 0.72


def layer(*, theme: str = "light") -> Figure:
    """One block of the model: J and h from the nodes' features, one solve, two residual connections."""
    with themed(theme) as look:
        figure = make_figure(11.5, 3.0)
        axes = figure.add_subplot()
        for x, y, width, text in BOXES.values():
            strong = text.startswith("solve")
            edge = look.categories[1] if strong else look.faint
            box: Any = {"boxstyle": "round,pad=0.0,rounding_size=0.12", "facecolor": look.background, "edgecolor": edge}
            _box(axes, x, y, width, box, 1.8 if strong else 1.0)
            axes.text(x, y, text, ha="center", va="center", fontsize=8)
        for arrow in ARROWS:
            start, end = arrow.split()
            _arrow(axes, start, end, look)
        _skip(axes, BOXES["x"][0], BOXES["add"][0], 2.5, look)
        _skip(axes, BOXES["add"][0] + 0.12, BOXES["add2"][0], 1.9, look)
        axes.annotate("", (13.0, 1.0), (12.2, 1.0), arrowprops={"arrowstyle": "->", "color": look.ink})
        axes.set(xlim=(-0.7, 13.1), ylim=(-0.25, 3.0))
        axes.set_axis_off()
        return finish(figure, look)


def _box(axes: Any, x: float, y: float, width: float, box: dict[str, Any], line: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - HEIGHT / 2)
    axes.add_patch(FancyBboxPatch(corner, width, HEIGHT, linewidth=line, zorder=2, **box))


def _arrow(axes: Any, start: str, end: str, look: Theme) -> None:
    (x, y, width, _), (x2, y2, width2, _) = BOXES[start], BOXES[end]
    style: Any = {"arrowstyle": "->", "color": look.ink, "shrinkA": 0, "shrinkB": 1}
    axes.annotate("", (x2 - width2 / 2, y2), (x + width / 2, y), arrowprops=style)


def _skip(axes: Any, x: float, x2: float, high: float, look: Theme) -> None:
    """A residual connection, above the boxes."""
    low = 1.0 + HEIGHT / 2
    axes.plot([x, x, x2], [low, high, high], color=look.ink, lw=0.9)
    axes.annotate("", (x2, low), (x2, high), arrowprops={"arrowstyle": "->", "color": look.ink, "shrinkA": 0})


def how_J_is_made(
    graph: Graph, design: str = "laplacian", features: Tensor | None = None, *, theme: str = "light"
) -> Figure:
    """A small graph, the matrix J that a fixed design makes of it, and J^-1, which joins all nodes of a component.

    Args:
        graph: of at most 12 nodes.
        design: "laplacian", "diagonally-dominant" or "pairwise-normal".
        features: ``[N, D]``, for the pairwise normal design, which compares nodes by them.
        theme: "light" or "dark".
    """
    check_choice("design", design, NAMES)
    if not 0 < graph.num_nodes <= MOST_NODES:
        raise ValueError(f"{graph}; expected 1 to {MOST_NODES} nodes, whose values can be written into the picture")
    if DESIGNS[design].variant(learned=False).reads_input and features is None:
        raise ValueError(f"features=None; the design {design!r} compares nodes by their features: give [N, D]")
    x = None if features is None else features.double()
    made = make_design(design, False, 1, 1, 1)(graph, x, torch.empty(0, dtype=torch.float64))
    J = made.detach().to("cpu").to(torch.float64)
    inverse = apply_inverse(J, units(J.num_nodes))[0]
    with themed(theme) as look:
        figure = make_figure(11.0, 3.9)
        first, second, third = figure.subplots(1, 3)
        _graph(first, J, positions(J.graph), look)
        _matrix(second, J.to_dense()[0], "J: a number per node and per edge", look)
        _matrix(third, inverse, "$J^{-1}$: what every node adds to every other", look)
        return finish(figure, look)


def _graph(axes: Any, J: Precision, spots: np.ndarray, look: Theme) -> None:
    lines, off = edge_lines(J.graph, spots), J.off[0].numpy()
    colours = [look.negative if value > 0 else look.positive for value in off]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=1.6))
    patch = {"boxstyle": "round,pad=0.1", "facecolor": look.background, "edgecolor": "none"}
    for middle, value in zip(lines.mean(1), off, strict=True):
        axes.text(*middle, f"{value:.2g}", fontsize=7, ha="center", va="center", bbox=patch)
    axes.scatter(*spots.T, s=300, color=look.background, edgecolors=look.ink, linewidths=1.0, zorder=2)
    for node, spot in enumerate(spots):
        axes.text(*spot, str(node), ha="center", va="center", fontsize=8, zorder=3)
    axes.set(title="the graph, and $J_{ij}$ on its edges", aspect="equal", xlim=(-1.25, 1.25), ylim=(-1.25, 1.25))
    axes.set_axis_off()


def _matrix(axes: Any, matrix: Tensor, title: str, look: Theme) -> None:
    limit = max(float(matrix.abs().max()), 1e-12)
    axes.imshow(matrix.numpy(), cmap=look.diverging, norm=scale_of_signs(limit))
    size = matrix.size(0)
    for row in range(size):
        for column in range(size):
            value = float(matrix[row, column])
            if value:
                strong = (abs(value) / limit) ** 0.5 > 0.5
                colour = look.background if strong else look.ink
                axes.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize=42 / (size + 2), color=colour)
    axes.set(title=title, xticks=range(size), yticks=range(size))
