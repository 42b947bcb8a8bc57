"""Figures 4 to 7 of the paper: correlations under J^-1 beside the couplings that make them, in Fiedler order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from walksum.analysis.correlation import Correlation, ordered
from walksum.plot.theme import Theme, finish, make_figure, make_panels, scale_of_signs, themed
from walksum.precision import Precision

MOST_HEADS = 16
CORRELATION = "correlation, from $J^{-1}$"


def correlations(
    designs: Precision | Correlation | Mapping[str, Precision | Correlation],
    *,
    limit: float | None = None,
    scale: str = "root",
    theme: str = "light",
) -> Figure:
    """Correlation matrices from J^-1 (unit diagonal), red positive and blue negative, with their couplings.

    One design: the two side by side. Several: one column each, correlations above couplings, as in the paper. All
    panels share one colour scale.

    Args:
        designs: a J, or several by name; or what :func:`walksum.analysis.correlation.ordered` made of one. Nodes are
            in Fiedler order; heads are averaged.
        limit: the correlation at which colours end; by default 1, and on large graphs, where most correlations are
            tiny, the power of ten above 99 % of them.
        scale: "root", colour by the square root of the magnitude, so that weak correlations show beside strong ones;
            or "linear".
        theme: "light" or "dark".
    """
    many = designs if isinstance(designs, Mapping) else {"": designs}
    shown = {name: each if isinstance(each, Correlation) else ordered(each) for name, each in many.items()}
    with themed(theme) as look:
        end = max(fitting_limit(each.matrix) for each in shown.values()) if limit is None else limit
        norm, coupling_norm, count = scale_of_signs(end, scale), scale_of_signs(1.0, scale), len(shown)
        if count == 1:
            figure = make_figure(8.4, 4.2)
            panels = figure.subplots(1, 2, squeeze=False)
        else:
            figure = make_figure(3.1 * count + 0.7, 6.6)
            panels = figure.subplots(2, count, squeeze=False).T
        for (first, second), (name, each) in zip(panels, shown.items(), strict=True):
            image = _matrix(first, each.matrix, look, norm)
            dots = _dots(second, each.coupling, look, coupling_norm)
            first.set_title(f"{name}\n{CORRELATION}" if name else CORRELATION)
            second.set_title("coupling $-J_{ij}\\,/\\,(J_{ii} J_{jj})^{1/2}$")
        if end == 1:
            add_sign_bar(figure, image, list(panels.ravel()), 1.0, scale)
        else:
            add_sign_bar(figure, image, list(panels[:, 0]), end, scale)
            add_sign_bar(figure, dots, list(panels[:, 1]), 1.0, scale)
        figure.supxlabel("nodes in Fiedler order" + _note(next(iter(shown.values()))), fontsize=9)
        return finish(figure, look)


def heads(J: Precision, *, limit: float | None = None, scale: str = "root", theme: str = "light") -> Figure:
    """The correlation matrix of every head, all on one colour scale and in one order; see :func:`correlations`."""
    shown = [ordered(J, head=k) for k in range(min(J.heads, MOST_HEADS))]
    limit = max(fitting_limit(each.matrix) for each in shown) if limit is None else limit
    with themed(theme) as look:
        norm = scale_of_signs(limit, scale)
        figure, panels = make_panels(len(shown), 4, 2.4 + 0.8 / min(4, len(shown)), 2.5, 0.3)
        for k, (axes, each) in enumerate(zip(panels, shown, strict=True)):
            image = _matrix(axes, each.matrix, look, norm)
            axes.set_title(f"head {k + 1}")
        add_sign_bar(figure, image, list(panels), limit, scale, "correlation")
        more = f"; {J.heads - len(shown)} more heads not shown" if J.heads > len(shown) else ""
        figure.supxlabel(f"nodes in Fiedler order{more}" + _note(shown[0]), fontsize=9)
        return finish(figure, look)


def fitting_limit(matrix: Tensor) -> float:
    """The end of the colour scale: 1 up to 400 nodes, beyond the power of ten above 99 % of the entries."""
    if matrix.size(0) <= 400:
        return 1.0
    part = matrix.abs().flatten()[:: max(1, matrix.numel() // 10**6)]
    value = float(part.sort().values[int(0.99 * (part.numel() - 1))])
    return min(1.0, 10.0 ** math.ceil(math.log10(max(value, 1e-6))))


def add_sign_bar(figure: Any, image: Any, axes: list[Any], limit: float, scale: str, label: str = "") -> None:
    """A colour bar for signed values, with ticks where a square root leaves room for them."""
    ticks = (1.0, 0.5, 0.1, 0.01) if scale == "root" else (1.0, 0.5)
    both = sorted({0.0, *(sign * limit * tick for tick in ticks for sign in (-1, 1))})
    beyond = "both" if limit < 1 else "neither"
    style: Any = {"fraction": 0.03, "pad": 0.015, "ticks": both, "format": "{x:.4g}", "extend": beyond}
    bar = figure.colorbar(image, ax=axes, label=label, **style)
    bar.minorticks_off()
    bar.outline.set_visible(False)


def _matrix(axes: Any, matrix: Tensor, look: Theme, norm: Any) -> Any:
    _framed(axes)
    # of more cells than dots on paper the colours are averaged: never thinned out, and weak beside strong still shows
    many: Any = {"interpolation": "antialiased", "interpolation_stage": "rgba"}
    few: Any = {"interpolation": "nearest"}
    style = many if matrix.size(0) > 400 else few
    return axes.imshow(matrix.numpy(), cmap=look.diverging, norm=norm, **style)


def _dots(axes: Any, coupling: Tensor, look: Theme, norm: Any) -> Any:
    """One dot per entry: in an image of hundreds of rows a single pixel would be lost."""
    rows, columns = coupling.nonzero(as_tuple=True)
    values, size = coupling[rows, columns], coupling.size(0)
    dots = axes.scatter(
        columns.numpy(),
        rows.numpy(),
        c=values.numpy(),
        s=max(0.8, min(16.0, 700 / max(1, size))),
        cmap=look.diverging,
        norm=norm,
        linewidths=0,
        rasterized=values.numel() > 5000,
    )
    _framed(axes)
    axes.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), aspect="equal")
    return dots


def _framed(axes: Any) -> None:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(True)


def _note(each: Correlation) -> str:
    return f" ({each.note.removesuffix(' in Fiedler order')})" if each.note else ""
