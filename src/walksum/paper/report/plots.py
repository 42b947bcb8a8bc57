"""Plots of a section: accuracy by homophily, learning curves, solver steps, seconds; in the light theme."""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from walksum.paper.report.sections import Section
from walksum.paper.rows import HOMOPHILY, ROWS, TABLE1
from walksum.paper.sweep.record import Cell
from walksum.plot.theme import BLUE, GREY, THEMES, YELLOW, make_figure, make_panels, themed

COLOURS = (*THEMES["light"].categories, YELLOW)
LINES = ("-", "--", ":", "-.")
INK = "#343230"  # a colour nothing else has: replaced by the page's own where the plot is part of a page
GRID = 60  # points of an averaged curve


def plots_of(section: Section) -> dict[str, tuple[str, Figure]]:
    """Name -> title and figure; what the records cannot show is left out."""
    parts = ("text.color", "axes.titlecolor", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    ink: Any = dict.fromkeys(parts, INK)
    makers: dict[str, tuple[str, Callable[[Section], Figure | None]]] = {
        "homophily": ("Test accuracy by homophily, ours and the paper's", _homophily),
        "curves": ("Learning curves: validation accuracy, mean over runs", _curves),
        "steps": ("Solver steps by epoch: the most over layers, median over runs", _steps),
        "seconds": ("Seconds per run: median, and range over runs", _seconds),
    }
    with themed("light"), matplotlib.rc_context(ink):
        made = {name: (title, make(section)) for name, (title, make) in makers.items()}
        return {name: (title, figure) for name, (title, figure) in made.items() if figure is not None}


def as_svg(figure: Figure, salt: str, inside: bool) -> str:
    """SVG text; ``inside`` a page: no names of other files in it, the page's text colour, no background."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(file, format="svg", transparent=inside, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    if not inside:
        return text
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    return re.sub(INK, "currentColor", text, flags=re.IGNORECASE)


def _homophily(section: Section) -> Figure | None:
    known = [dataset for dataset in section.datasets if dataset in HOMOPHILY]
    models = [m for m in section.models if m in TABLE1 and any(_runs(section, m, d) for d in known)]
    if not models:
        return None
    figure, panels = make_panels(len(models), 4, 3.6, 2.4, 0.5)
    for axes, model in zip(panels, models, strict=True):
        ours = [(HOMOPHILY[d], c.mean, c.std or 0.0) for d in known if (c := _runs(section, model, d))]
        # a little to the right, so that equal points do not hide each other
        paper = [(HOMOPHILY[d] + 0.015, *cell) for d in HOMOPHILY if (cell := TABLE1[model][d]) is not None]
        for label, colour, marker, points in (("paper", GREY, "s", paper), ("ours", BLUE, "o", ours)):
            x, y, error = zip(*sorted(points), strict=True)
            axes.errorbar(x, y, error, color=colour, marker=marker, markersize=4, linewidth=1, capsize=2, label=label)
        axes.set(title=ROWS[model].title, ylim=(20, 100), xlim=(0, 0.9))
    panels[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("homophily", fontsize=9)
    figure.supylabel("test accuracy, %", fontsize=9)
    return figure


def _runs(section: Section, model: str, dataset: str) -> Cell | None:
    cell = section.cells.get((model, dataset))
    return cell if cell is not None and cell.runs else None


def _curves(section: Section) -> Figure | None:
    def line(cell: Cell) -> list[tuple[str, np.ndarray, np.ndarray]]:
        curves = [[(row[0], 100 * row[3]) for row in r.curve] for r in cell.finished.values() if r.curve]
        return [("-", *_averaged(curves, np.mean))] if curves else []

    return _lines_by_dataset(section, line, "validation accuracy, %", log=False)


def _steps(section: Section) -> Figure | None:
    def line(cell: Cell) -> list[tuple[str, np.ndarray, np.ndarray]]:
        found = []
        for column, style in ((1, "-"), (2, "--")):
            steps = [[(row[0], row[column]) for row in r.steps_by_epoch] for r in cell.finished.values()]
            steps = [run for run in steps if run and any(value for _, value in run)]
            if steps:
                found.append((style, *_averaged(steps, np.median)))
        return found

    return _lines_by_dataset(section, line, "steps (dashed: backward)", log=True)


def _averaged(
    runs: Sequence[Sequence[tuple[float, float]]], average: Callable[..., Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Runs of different lengths at common epochs, up to where half of them have ended."""
    last = statistics.median_low([run[-1][0] for run in runs])
    epochs = np.linspace(1, max(last, 1), GRID)
    long_enough = [run for run in runs if run[-1][0] >= last]
    return epochs, average([np.interp(epochs, *np.transpose(run)) for run in long_enough], axis=0)


def _lines_by_dataset(section: Section, line: Callable, label: str, log: bool) -> Figure | None:
    drawn = {d: [(m, line(c)) for m in _shown(section) if (c := _runs(section, m, d))] for d in section.datasets}
    drawn = {d: [(m, lines) for m, lines in rows if lines] for d, rows in drawn.items()}
    drawn = {d: rows for d, rows in drawn.items() if rows}
    if not drawn:
        return None
    figure, panels = make_panels(len(drawn), 3, 3.6, 2.4, 0.5)
    looks = {m: (COLOURS[k % len(COLOURS)], LINES[k // len(COLOURS) % 4]) for k, m in enumerate(_shown(section))}
    named: dict[str, Any] = {}
    for axes, (dataset, rows) in zip(panels, drawn.items(), strict=True):
        for model, lines in rows:
            for style, x, y in lines:
                (handle,) = axes.plot(x, y, color=_visible(looks[model][0]), linestyle=style, linewidth=1.3)
                named.setdefault(ROWS[model].title, handle)
        axes.set(title=dataset, xlabel="epoch")
        if log:
            axes.set_yscale("log")
    panels[0].set_ylabel(label)
    figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _visible(colour: str) -> str:
    return INK if colour == "#000000" else colour  # black would vanish on a dark page


def _shown(section: Section) -> list[str]:
    """The paper's six, or else as many rows as there are colours."""
    six = [model for model in section.models if ROWS[model].group == "glt"]
    return six or section.models[: len(COLOURS)]


def _seconds(section: Section) -> Figure | None:
    points = {
        (m, d): [r.seconds for r in cell.finished.values() if r.seconds > 0]
        for m in section.models
        for d in section.datasets
        if (cell := _runs(section, m, d))
    }
    points = {at: values for at, values in points.items() if values}
    if not points:
        return None
    models = [m for m in section.models if any(m == at[0] for at in points)][::-1]
    figure = make_figure(7.5, 0.3 * len(models) + 1.4)
    axes = figure.subplots()
    for k, dataset in enumerate(section.datasets):
        rows = [(models.index(m), values) for (m, d), values in points.items() if d == dataset]
        if rows:
            _ranges(axes, rows, 0.12 * (k - (len(section.datasets) - 1) / 2), _visible(COLOURS[k % 8]), dataset)
    axes.set(xscale="log", xlabel="seconds", yticks=range(len(models)), yticklabels=[ROWS[m].title for m in models])
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _ranges(axes: Any, rows: Iterable[tuple[int, list[float]]], shift: float, colour: str, label: str) -> None:
    for k, (y, values) in enumerate(rows):
        axes.plot([min(values), max(values)], [y + shift] * 2, color=colour, linewidth=0.8)
        axes.plot(statistics.median(values), y + shift, "o", color=colour, markersize=4, label=None if k else label)
