"""Convergence: true residuals by iteration of every solver, and steps by epoch of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from walksum.analysis.convergence import Curve, steps_by_epoch
from walksum.plot.theme import Theme, finish, make_figure, themed

FLOOR = 1e-17  # a residual of 0 is drawn here
MARKS = "dot: converged; cross: ended without; diamond: direct"


def residuals(systems: Sequence[Curve] | Mapping[str, Sequence[Curve]], *, theme: str = "light") -> Figure:
    """The normwise backward error after each iteration, forward and backward; a diamond is a direct solve.

    Args:
        systems: curves of :func:`walksum.analysis.convergence.residual_curves`, or several sets by name.
        theme: "light" or "dark".
    """
    many = systems if isinstance(systems, Mapping) else {"": systems}
    directions = [d for d in ("forward", "backward") if any(c.direction == d for cs in many.values() for c in cs)]
    names = list(dict.fromkeys(curve.name for curves in many.values() for curve in curves))
    with themed(theme) as look:
        across = [(name, way) for name in many for way in directions] if len(many) == 1 else []
        rows, columns = (1, len(directions)) if across else (len(directions), len(many))
        figure = make_figure(max(5.0, 3.3 * columns), 2.7 * rows + 0.8)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for row, way in enumerate(directions):
            for column, (name, curves) in enumerate(many.items()):
                axes = panels[0][row] if across else panels[row][column]
                _residual_panel(axes, [c for c in curves if c.direction == way], names, look)
                axes.set_title(f"{name}, {way}" if name else f"{way} pass")
        figure.supxlabel(f"iterations ({MARKS})", fontsize=9)
        figure.supylabel("normwise backward error", fontsize=9)
        handles = [Line2D([], [], **look.line(k)) for k in range(len(names))]
        figure.legend(handles, names, loc="outside upper center", ncols=4, fontsize=8)
        return finish(figure, look)


def _residual_panel(axes: Any, curves: Sequence[Curve], names: list[str], look: Theme) -> None:
    for curve in curves:
        k = names.index(curve.name)
        heights = np.maximum(curve.residuals, FLOOR)
        axes.plot(curve.steps, heights, **look.line(k))
        mark = "D" if curve.steps[-1] == 0 else "o" if curve.converged else "x"
        axes.plot(curve.steps[-1:], heights[-1:], mark, ms=4.5, color=look.line(k)["color"])
    lowest = min([1e-6, *(max(FLOOR, min(curve.residuals)) for curve in curves)])
    axes.set_yscale("log")
    axes.set_ylim(min(axes.get_ylim()[0], lowest / 5), 3)
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(-0.15, 1.6 * max([10, *(curve.steps[-1] for curve in curves)]))
    axes.grid(True)


def steps(trainings: Mapping[str, Sequence[Any]], *, theme: str = "light") -> Figure:
    """Solver steps of every epoch, forward and backward, the largest over layers.

    Args:
        trainings: histories by name, as :func:`walksum.training.fit` returns them (``outcome.history``).
        theme: "light" or "dark".
    """
    counted = {name: steps_by_epoch(history) for name, history in trainings.items()}
    missing = [name for name, each in counted.items() if each is None]
    if missing:
        raise ValueError(f"trainings[{missing[0]!r}] holds no solver steps; train a GLT to record them")
    with themed(theme) as look:
        figure = make_figure(8.6, 3.3)
        panels = figure.subplots(1, 2, sharey=True)
        for way, (axes, title) in enumerate(zip(panels, ("forward pass", "backward pass"), strict=True)):
            for k, (name, each) in enumerate(counted.items()):
                assert each is not None
                axes.plot(range(1, len(each[way]) + 1), each[way], **look.line(k), label=name)
            axes.set(title=title, xlabel="epoch")
            axes.grid(True)
        top = max((max(each[0] + each[1]) for each in counted.values() if each), default=0)
        panels[0].set_ylabel("steps, the most of any layer")
        if top > 100:
            panels[0].set_yscale("log")
        else:
            panels[0].set_ylim(0, max(1, 1.08 * top))
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
        return finish(figure, look)
