"""The charts of the benchmark page: light SVGs that are the same, byte for byte, for the same records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.records import Record
from benchmarks.targets import matching
from walksum.plot.theme import finish, make_figure, save, themed


def draw(records: list[Record], bench: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Write what the records have data for; yields file name and description."""
    for name, text, figure in (
        (f"bench-{bench}-ratio.svg", "times faster than the yardstick", ratios(records)),
        (f"bench-{bench}-contestants.svg", "time of every contestant, fixed diagonally dominant", times(records)),
    ):
        if figure is not None:
            save(figure, folder / name)
            yield name, text


def _axes(figure: Figure, title: str, ylabel: str) -> Any:
    axes = figure.add_subplot(title=title, ylabel=ylabel, yscale="log")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    return axes


def ratios(records: list[Record]) -> Figure | None:
    mine = [r for r in matching(records, kind="solve", heads=1, contestant="auto") if "ratio" in r]
    if not mine:
        return None
    graphs, designs = (list(dict.fromkeys(r[k] for r in mine)) for k in ("graph", "design"))
    with themed("light") as look:
        figure = make_figure(8, 3.2)
        axes = _axes(figure, "auto, forward + backward, 64 columns, known graph", "times faster than the yardstick")
        width = 0.8 / len(designs)
        for k, design in enumerate(designs):
            here = matching(mine, design=design)
            at = [graphs.index(r["graph"]) + (k - len(designs) / 2 + 0.5) * width for r in here]
            axes.bar(at, [r["ratio"] for r in here], width, label=design)
        axes.axhline(1, color=look.faint, linewidth=0.8)
        axes.set_xticks(range(len(graphs)), graphs)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(designs), fontsize=8)
        return finish(figure, look)


def times(records: list[Record]) -> Figure | None:
    mine = [r for r in matching(records, kind="solve", heads=1, design="F-DD") if "seconds" in r]
    if not mine:
        return None
    graphs, names = (list(dict.fromkeys(r[k] for r in mine)) for k in ("graph", "contestant"))
    with themed("light") as look:
        figure = make_figure(8, 3.2)
        axes = _axes(figure, "fixed diagonally dominant, forward + backward, 64 columns, known graph", "seconds")
        colours = len(look.categories)
        for k, name in enumerate(names):
            here = matching(mine, contestant=name)
            # another mark each time the colours come round: no two contestants look alike
            mark, size = ("*", 9) if name == "auto" else ("osD^v"[(k + k // colours) % 5], 4)
            at = [graphs.index(r["graph"]) for r in here]
            axes.plot(at, [r["seconds"] for r in here], mark, markersize=size, label=name)
        axes.set_xticks(range(len(graphs)), graphs)
        axes.margins(x=0.1)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        return finish(figure, look)
