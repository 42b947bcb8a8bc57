"""The walk sum: longer and longer walks, added up, arrive at J^-1 h."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from walksum.analysis.inverse import apply_inverse
from walksum.analysis.inverse import walk_sums as sums
from walksum.plot.correlation import add_sign_bar
from walksum.plot.layout import edge_lines, positions
from walksum.plot.theme import Theme, finish, make_figure, scale_of_signs, themed
from walksum.precision import Precision

SHOWN = (0, 1, 2, 5)
MOST_NODES = 150


def walk_sums(J: Precision, node: int = 0, most: int = 60, *, theme: str = "light") -> Figure:
    """What one unit of evidence at ``node`` becomes: sums over walks of up to 0, 1, 2, ... steps, and J^-1 h.

    Args:
        J: the precision matrix of a small graph, one head (of several, the first).
        node: where h is 1; elsewhere it is 0.
        most: the longest walks.
        theme: "light" or "dark".
    """
    if J.num_nodes > MOST_NODES:
        raise ValueError(
            f"{J} has more than {MOST_NODES} nodes; draw a part: restrict(J, ball(J.graph, node, 25)) of "
            "walksum.analysis.part"
        )
    if not 0 <= node < J.num_nodes:
        raise ValueError(f"node={node}; expected a node of {J.graph}, 0 to {J.num_nodes - 1}")
    J = Precision(J.graph, J.diag[:1].detach().double(), J.off[:1].detach().double())
    h = torch.zeros(1, J.num_nodes, 1, dtype=torch.float64)
    h[0, node] = 1
    found, exact = sums(J, h, most)[:, 0, :, 0], apply_inverse(J, h[0])[0, :, 0]
    errors = ((found - exact).norm(dim=1) / exact.norm()).numpy()
    with themed(theme) as look:
        figure = make_figure(10.4, 4.9)
        top, bottom = figure.subfigures(2, 1, height_ratios=[1.15, 0.8], squeeze=False).ravel()
        panels, spots = top.subplots(1, len(SHOWN) + 1), positions(J.graph)
        limit = _round_up(float(exact.abs().max()))
        norm = scale_of_signs(limit)
        for axes, k in zip(panels, SHOWN, strict=False):
            _values(axes, J, spots, found[min(k, most)].numpy(), norm, look)
            axes.set_title(f"walks of 0 to {k} steps" if k else "no walk: $h_i / J_{ii}$", fontsize=9, loc="center")
        shown = _values(panels[-1], J, spots, exact.numpy(), norm, look)
        panels[-1].set_title("all walks: $J^{-1} h$", fontsize=9, loc="center")
        for axes in panels:
            axes.scatter(*spots[node], s=150, facecolors="none", edgecolors=look.ink, linewidths=1.4, zorder=3)
        add_sign_bar(top, shown, list(panels), limit, "root", "value (circled: $h$ = 1)")
        _errors(bottom.subplots(1, 1), errors, J, look)
        return finish(figure, look)


def _values(axes: Any, J: Precision, spots: np.ndarray, values: np.ndarray, norm: Any, look: Theme) -> Any:
    axes.add_collection(LineCollection(edge_lines(J.graph, spots), colors=look.faint, linewidths=0.7))
    axes.set(aspect="equal", xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
    axes.set_axis_off()
    style: Any = {"cmap": look.diverging, "norm": norm, "edgecolors": look.ink, "linewidths": 0.5}
    return axes.scatter(*spots.T, s=44, c=values, zorder=2, **style)


def _errors(axes: Any, errors: np.ndarray, J: Precision, look: Theme) -> None:
    lower, upper = J.walk_summability()
    count = np.arange(len(errors))
    axes.plot(count, np.maximum(errors, 1e-17), "o-", ms=3, color=look.categories[0], label="error of the sum")
    axes.plot(
        count,
        errors[0] * lower**count,
        "--",
        color=look.faint,
        label=f"rate $\\rho^k$ with $\\rho(|R|)$ = {upper:.3f}, of the nodes drawn",
    )
    axes.set(yscale="log", xlabel="longest walk, k steps", ylabel="error relative to $J^{-1} h$")
    axes.set_ylim(max(1e-17, errors[-1] / 5), 2)
    axes.grid(True)
    axes.legend()


def _round_up(value: float) -> float:
    """To two digits: the end of a colour scale is written beside it."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digit - 1e-9) * digit
