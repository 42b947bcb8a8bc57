"""The charts of the benchmark page: light SVGs that are the same, byte for byte, for the same records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.records import Record
from benchmarks.targets import matching

STYLE = {"svg.hashsalt": "walksum", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def draw(records: list[Record], bench: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Write what the records have data for; yields file name and description."""
    for name, text, figure in (
        (f"bench-{bench}-ratio.svg", "times faster than the yardstick", ratios(records)),
        (f"bench-{bench}-contestants.svg", "time of every contestant, fixed diagonally dominant", times(records)),
    ):
        if figure is not None:
            with mpl.rc_context(STYLE):
                figure.savefig(folder / name, metadata={"Date": None})
            yield name, text


def _figure(title: str, ylabel: str) -> tuple[Figure, object]:
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot(title=title, ylabel=ylabel, yscale="log")
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    return figure, axes


def ratios(records: list[Record]) -> Figure | None:
    mine = [r for r in matching(records, kind="solve", heads=1, contestant="auto") if "ratio" in r]
    if not mine:
        return None
    graphs, designs = (list(dict.fromkeys(r[k] for r in mine)) for k in ("graph", "design"))
    with mpl.rc_context(STYLE):
        figure, axes = _figure("auto, forward + backward, 64 columns", "times faster than the yardstick")
        width = 0.8 / len(designs)
        for k, design in enumerate(designs):
            here = matching(mine, design=design)
            at = [graphs.index(r["graph"]) + (k - len(designs) / 2 + 0.5) * width for r in here]
            axes.bar(at, [r["ratio"] for r in here], width, label=design)
        axes.axhline(1, color="0.4", linewidth=0.8)
        axes.set_xticks(range(len(graphs)), graphs)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(designs), frameon=False, fontsize=8)
    return figure


def times(records: list[Record]) -> Figure | None:
    mine = [r for r in matching(records, kind="solve", heads=1, design="F-DD") if "seconds" in r]
    if not mine:
        return None
    graphs, names = (list(dict.fromkeys(r[k] for r in mine)) for k in ("graph", "contestant"))
    with mpl.rc_context(STYLE):
        figure, axes = _figure("fixed diagonally dominant, forward + backward, 64 columns", "seconds")
        for k, name in enumerate(names):
            here = matching(mine, contestant=name)
            # five marks on ten colours: no two contestants look alike
            at, mark = [graphs.index(r["graph"]) for r in here], "*" if name == "auto" else "osD^v"[k % 5 - k // 10]
            axes.plot(at, [r["seconds"] for r in here], mark, markersize=9 if name == "auto" else 4, label=name)
        axes.set_xticks(range(len(graphs)), graphs)
        axes.margins(x=0.1)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    return figure
