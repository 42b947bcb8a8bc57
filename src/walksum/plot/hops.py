"""Influence by hop: how far different models look for a node's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from walksum.insight.hops import Hops
from walksum.plot.theme import Theme, finish, make_figure, themed

SMALLEST = 1e-6  # shares below are not drawn


def hops(models: Hops | Mapping[str, Hops], *, theme: str = "light") -> Figure:
    """Shares of a node's output by the distance they come from: stacked, and on a logarithmic scale.

    Args:
        models: what :func:`walksum.insight.hops.hop_shares` measured, by the model's name; one ``most`` for all.
        theme: "light" or "dark".
    """
    many = models if isinstance(models, Mapping) else {"": models}
    with themed(theme) as look:
        figure = make_figure(9.6, 1.9 + 0.32 * max(4, len(many)))
        stacked, curve = figure.subplots(1, 2, width_ratios=[1.15, 1])
        _stack(figure, stacked, many, look)
        _curves(curve, many, look)
        return finish(figure, look)


def _stack(figure: Figure, axes: Any, many: Mapping[str, Hops], look: Theme) -> None:
    names = list(many)
    shares = np.stack([each.mean.numpy() for each in many.values()])
    count, left = shares.shape[1], np.zeros(len(names))
    colours = look.sequential(np.linspace(0.05, 1, count))
    for k in range(count):
        axes.barh(names, shares[:, k], left=left, color=colours[k], label=hop_name(k, count), height=0.72)
        left += shares[:, k]
    axes.set(xlim=(0, 1), xlabel="share of a node's output", title="where it comes from, by hops")
    axes.invert_yaxis()
    for row, each in enumerate(many.values()):
        axes.text(1.015, row, f"{each.reach:.1f}", va="center", ha="left", fontsize=8, transform=axes.transData)
    axes.text(1.015, -0.75, "mean\nhops", va="bottom", ha="left", fontsize=7, color=look.faint)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=6, fontsize=7, handlelength=1, columnspacing=1)


def _curves(axes: Any, many: Mapping[str, Hops], look: Theme) -> None:
    for (name, each), marker in zip(many.items(), "osD^vPX*<>hp", strict=False):
        mean = each.mean.numpy()
        seen = mean >= SMALLEST
        axes.plot(np.arange(len(mean))[seen], mean[seen], marker=marker, ms=4, label=name)
    count = len(mean)
    axes.set(yscale="log", xlabel="hops", title="share by hop")
    axes.set_xticks(range(count), [hop_name(k, count) for k in range(count)])
    axes.grid(True)
    if len(many) > 1:
        axes.legend(fontsize=7.5)


def hop_name(k: int, count: int) -> str:
    return f"{k}+" if k == count - 1 else str(k)
