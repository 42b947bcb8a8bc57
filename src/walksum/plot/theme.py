"""Light and dark, colours that colour-blind readers can tell apart, and writing a figure to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.colors import Colormap, FuncNorm, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from walksum._checks import check_choice
from walksum._files import write_file

FORMATS = ("svg", "png", "pdf")

# Okabe and Ito's colours, which colour-blind readers can tell apart; the only place where they are spelled out
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, YELLOW = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"),
)
GREY = "#999999"
# for the classes in a drawing: these and four similar ones; further classes repeat them
CLASS_COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, "#b8a900", "#7f7f7f", "#8c564b", "#6a51a3")


@dataclass(frozen=True)
class Theme:
    """Colours of a figure. Positive is red and negative blue throughout; categories are Okabe and Ito's."""

    background: str
    ink: str
    faint: str
    quiet: str  # lesser text
    edge: str  # edges and grids of the explorer
    neutral: str  # a node without influence
    positive: str
    negative: str
    categories: tuple[str, ...]
    diverging: Colormap = field(repr=False)
    sequential: Colormap = field(repr=False)

    def line(self, k: int) -> dict[str, Any]:
        """Colour and dashes of the k-th line: two lines of one colour still differ."""
        return {"color": self.categories[k % len(self.categories)], "ls": ("-", "--", "-.", ":")[k % 4]}


def _map(name: str, *colours: str) -> Colormap:
    return LinearSegmentedColormap.from_list(f"walksum {name}", colours, N=512)


THEMES = {
    "light": Theme(
        background="#ffffff",
        ink="#222222",
        faint="#9a9a9a",
        quiet="#5c6773",
        edge="#d5dae0",
        neutral="#d0d6dd",
        positive="#b2182b",
        negative="#2166ac",
        categories=(BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, "#000000"),
        diverging=_map("light", "#053061", "#2166ac", "#92c5de", "#ffffff", "#f4a582", "#b2182b", "#67001f"),
        sequential=_map("confidence", "#fff7e0", "#f0c75e", "#c08a1e", "#6b4a10"),
    ),
    "dark": Theme(
        background="#14171c",
        ink="#e6e6e6",
        faint="#7b8088",
        quiet="#9aa4b0",
        edge="#3a424d",
        neutral="#39414c",
        positive="#ff7b62",
        negative="#5fb0f5",
        categories=(SKY, ORANGE, "#2fc79b", "#e79ac4", YELLOW, "#ff8a4d", "#ffffff"),
        diverging=_map("dark", "#c9e6ff", "#5fb0f5", "#23527c", "#14171c", "#7c3225", "#ff7b62", "#ffd9cf"),
        sequential=_map("dark confidence", "#3a2f17", "#8a6716", "#e0b13c", "#fff0c2"),
    ),
}


@contextmanager
def themed(theme: str) -> Iterator[Theme]:
    """matplotlib's settings for one figure, put back afterwards."""
    check_choice("theme", theme, tuple(THEMES))
    look = THEMES[theme]
    with matplotlib.rc_context(_settings(look)):
        yield look


def _settings(look: Theme) -> Any:
    return {
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), look.background),
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), look.ink),
        "axes.edgecolor": look.faint,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.prop_cycle": cycler(color=look.categories),
        "axes.grid": False,
        "grid.color": look.faint,
        "grid.alpha": 0.25,
        "grid.linewidth": 0.6,
        "font.size": 9,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
        "legend.frameon": False,
        "lines.linewidth": 1.4,
        "figure.dpi": 130,
        "savefig.dpi": "figure",
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
    }


def scale_of_signs(limit: float, scale: str = "root") -> Normalize:
    """Colours of signed values from -limit to limit: by the root of their magnitude, or by the magnitude itself."""
    check_choice("scale", scale, ("root", "linear"))
    if not limit > 0:
        raise ValueError(f"limit={limit!r}; expected the positive value at which colours end")
    if scale == "linear":
        return Normalize(-limit, limit)
    return FuncNorm((_signed_root, _signed_square), -limit, limit)


def _signed_root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _signed_square(x: Any) -> Any:
    return np.sign(x) * np.square(x)


def make_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def make_panels(count: int, wide: int, width: float, height: float, more: float, **shared: Any) -> tuple[Figure, Any]:
    """A figure with ``count`` panels, at most ``wide`` in a row, each so wide and high, and ``more`` height in all."""
    columns = min(wide, count)
    rows = -(-count // columns)
    figure = make_figure(width * columns, height * rows + more)
    panels = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, panels[:count]


def finish(figure: Figure, look: Theme) -> Figure:
    """Ticks are made when a figure is drawn, by the settings of then: tell them their colours now."""
    for axes in figure.findobj(lambda artist: hasattr(artist, "tick_params")):
        axes.tick_params(which="both", color=look.faint, labelcolor=look.ink)  # type: ignore[attr-defined]
    return figure


def save(figure: Figure, path: str | os.PathLike[str], dpi: float | None = None) -> Path:
    """Write ``figure`` to ``path``, whose ending (.svg, .png, .pdf) is the format; whole or not at all."""
    path = Path(path)
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise ValueError(f"path={str(path)!r} ends in {path.suffix!r}; expected one of {', '.join(FORMATS)}")
    write_file(path, lambda scratch: write(figure, scratch, kind, dpi))
    return path


def write(figure: Figure, file: Any, kind: str, dpi: float | None = None) -> None:
    """The figure as bytes of one of FORMATS, the same for the same figure."""
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    with matplotlib.rc_context({"svg.hashsalt": "walksum", "svg.fonttype": "path", "pdf.fonttype": 42}):
        figure.savefig(file, format=kind, metadata=undated, dpi="figure" if dpi is None else dpi)
