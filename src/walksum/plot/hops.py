"""Influence by hop: how far different models look for a node's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from walksum.analysis.hops import Hops
from walksum.plot.theme import Theme, finish, make_figure, themed

SMALLEST = 1e-6  # shares below are not drawn
SMALL: Any = {"fontsize": 7.5, "handlelength": 1.6, "columnspacing": 1.0, "title_fontsize": 7.5}


def hops(models: Hops | Mapping[str, Hops], *, theme: str = "light") -> Figure:
    """Shares of a node's output by the distance they come from: stacked, and on a logarithmic scale.

    Args:
        models: what :func:`walksum.analysis.hops.hop_shares` measured, by the model's name; one ``most`` for all.
        theme: "light" or "dark".
    """
    many = models if isinstance(models, Mapping) else {"": models}
    shares = np.stack([each.mean.numpy() for each in many.values()])
    names = hop_names(shares)
    with themed(theme) as look:
        figure = make_figure(9.6, 1.7 + 0.3 * max(4, len(many)))
        stacked, curve = figure.subplots(1, 2, width_ratios=[1.15, 1])
        _stack(stacked, list(many), shares[:, : len(names)], names, look)
        for row, each in enumerate(many.values()):
            stacked.text(1.02, row, f"{each.reach:.1f}", va="center", fontsize=8)
        stacked.text(1.02, 1.0, "mean hops", va="bottom", fontsize=7.5, transform=stacked.transAxes)
        _curves(curve, list(many), shares[:, : len(names)], names, look)
        return finish(figure, look)


def hop_names(shares: np.ndarray) -> list[str]:
    """0, 1, 2, ... up to the last hop anything comes from; a plus where that holds all that is further."""
    count = shares.shape[1]
    seen = np.flatnonzero((shares >= SMALLEST).any(0))
    last = max(1, int(seen[-1])) if seen.size else 1
    return [f"{k}+" if k == count - 1 else str(k) for k in range(min(last, count - 1) + 1)]


def _stack(axes: Any, models: list[str], shares: np.ndarray, names: list[str], look: Theme) -> None:
    left = np.zeros(len(models))
    colours = look.sequential(np.linspace(0.1, 1, len(names)))
    edges: Any = {"edgecolor": look.background, "linewidth": 0.6, "height": 0.74}
    for k, name in enumerate(names):
        axes.barh(models, shares[:, k], left=left, color=colours[k], label=name, **edges)
        left += shares[:, k]
    axes.set(xlim=(0, 1), xlabel="share of the influence on a node's output", title="where the influence comes from")
    pad = max(0.0, (3 - len(models)) / 2)  # a single bar would fill the panel
    axes.set_ylim(len(models) - 0.5 + pad, -0.5 - pad)  # the first on top
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=12, title="hops", **SMALL)


def _curves(axes: Any, models: list[str], shares: np.ndarray, names: list[str], look: Theme) -> None:
    for k, (model, row) in enumerate(zip(models, shares, strict=True)):
        seen = row >= SMALLEST
        style: Any = {"marker": "osD^vPX*<>hp"[k % 12], "ms": 4, **look.line(k)}
        axes.plot(np.arange(len(row))[seen], row[seen], label=model, **style)
    axes.set(yscale="log", xlabel="hops", title="the same, logarithmic")
    axes.set_xticks(range(len(names)), names)
    axes.grid(True)
    if len(models) > 1:
        axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=3, **SMALL)
