"""Charts of a run's page as SVG text: no colours of their own, so that the page's style makes them light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np
from markupsafe import Markup

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 480, 260, 52, 38, 10, 12
ROW = 40  # of a bar with its name
MOST_POINTS = 1500
GROUPS = 8  # of nodes, by the values of a column
LETTER = 8.5  # width at most, on a phone
SMALL = (260, 150)  # of one of several charts side by side


class Plane:
    """A pair of axes: numbers to places on the drawing, ticks, grid. Without ``ticks`` x has none, and y five."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], size: tuple[int, int] = (WIDTH, HEIGHT), ticks: int = 5
    ):
        self.x, self.y, self.ticks = _wider(*x), _wider(*y), ticks
        self.width, self.height = size
        longest = max(len(f"{value:g}") for value in ticks_of(*self.y, ticks or 5))
        large = size == (WIDTH, HEIGHT)
        self.left = max(LEFT, 23 + LETTER * longest) if large else max(40, 8 + 0.75 * LETTER * longest)
        self.bottom = BOTTOM if large else 34
        self.parts: list[str] = []

    def px(self, value: float) -> float:
        return self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (self.width - self.left - RIGHT)

    def py(self, value: float) -> float:
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return self.height - self.bottom - share * (self.height - self.bottom - TOP)

    def line(self, x: Sequence[float], y: Sequence[float], kind: str) -> None:
        points = " ".join(f"{self.px(a):.1f},{self.py(b):.1f}" for a, b in zip(x, y, strict=True))
        self.parts.append(f'<polyline class="{kind}" points="{points}"/>')

    def dots(self, x: Sequence[float], y: Sequence[float], radius: float = 2.2, kind: str = "dot") -> None:
        for a, b in zip(x, y, strict=True):
            self.parts.append(f'<circle class="{kind}" cx="{self.px(a):.1f}" cy="{self.py(b):.1f}" r="{radius}"/>')

    def svg(self, title: str, xlabel: str = "", ylabel: str = "") -> Markup:
        frame = []
        for value in ticks_of(*self.x, self.ticks) if self.ticks else ():
            place, words = self.px(value), f"{value:g}"
            if place + LETTER / 2 * len(words) <= self.width:  # else its end would be cut off
                frame.append(f'<text x="{place:.1f}" y="{self.height - self.bottom + 14}" class="mid">{words}</text>')
        for value in ticks_of(*self.y, self.ticks or 5):
            place = self.py(value)
            frame.append(f'<line class="grid" x1="{self.left}" x2="{self.width - RIGHT}" y1="{place:.1f}" '
                         f'y2="{place:.1f}"/>')  # fmt: skip
            frame.append(f'<text x="{self.left - 5}" y="{place + 4:.1f}" class="end">{value:g}</text>')
        middle = (self.left + self.width - RIGHT) / 2
        frame.append(f'<text x="{middle:.0f}" y="{self.height - 4}" class="mid">{escape(xlabel)}</text>')
        half = (self.height - self.bottom) / 2
        if ylabel:
            frame.append(f'<text transform="translate(12 {half:.0f}) rotate(-90)" class="mid">{escape(ylabel)}</text>')
        return _svg(self.width, self.height, title, [*frame, *self.parts])


def bars(rows: Sequence[tuple[str, float, float | None, float | None, str, bool]], title: str) -> Markup:
    """Horizontal bars below their names: name, value, low and high of its interval, its text, whether it stands out."""
    text_width = 130
    ends = [value for _, value, low, high, _, _ in rows for value in (value, low or value, high or value, 0.0)]
    low_end, high_end = min(ends), max(ends) or 1.0
    room = WIDTH - text_width

    def place(value: float) -> float:
        return room * (value - low_end) / ((high_end - low_end) or 1.0)

    parts = []
    for k, (name, value, low, high, text, own) in enumerate(rows):
        y, strong = ROW * k + 14, " strong" if own else ""
        left, width = min(place(0), place(value)), max(1.0, abs(place(value) - place(0)))
        size = f'x="{left:.1f}" y="{y + 7}" width="{width:.1f}" height="11" rx="2"'
        parts.append(f'<text x="0" y="{y}" class="start{strong}">{escape(short_name(name))}</text>')
        parts.append(f'<rect class="{"own" if own else "bar"}" {size}/>')
        if low is not None and high is not None:
            ends_at = f'x1="{place(low):.1f}" x2="{place(high):.1f}"'
            parts.append(f'<line class="whisker" {ends_at} y1="{y + 12.5}" y2="{y + 12.5}"/>')
        parts.append(f'<text x="{room + 8}" y="{y + 17}" class="start{strong}">{escape(text)}</text>')
    return _svg(WIDTH, ROW * len(rows), title, parts)


def residuals(predicted: np.ndarray, error: np.ndarray, target: str) -> Markup:
    """Prediction minus truth over the prediction."""
    kept = np.random.default_rng(0).permutation(len(predicted))[:MOST_POINTS]
    plane = Plane((predicted.min(), predicted.max()), (error.min(), error.max()))
    plane.dots(predicted[kept].tolist(), error[kept].tolist())
    plane.line(plane.x, (0, 0), "zero")
    return plane.svg("Error of each test node over its prediction", f"predicted {target}", "predicted minus true")


def residuals_by(values: np.ndarray, error: np.ndarray, name: str) -> Markup | None:
    """Mean error and twice its standard error of nodes in equal groups by one column; None for few values."""
    known = np.isfinite(values)
    edges = np.unique(np.quantile(values[known], np.linspace(0, 1, GROUPS + 1))) if known.any() else np.zeros(0)
    if len(edges) < 4:
        return None
    group = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, len(edges) - 2)
    found = []
    for k in range(len(edges) - 1):
        mine = error[known][group == k]
        if len(mine) > 1:
            at = values[known][group == k].mean()
            found.append((float(at), float(mine.mean()), 2 * float(mine.std(ddof=1)) / math.sqrt(len(mine))))
    if len(found) < 3:
        return None
    reach = max(abs(mean) + two for _, mean, two in found)
    plane = Plane((found[0][0], found[-1][0]), (-reach, reach), SMALL, ticks=3)
    plane.line(plane.x, (0, 0), "zero")
    for at, mean, two in found:
        plane.line((at, at), (mean - two, mean + two), "whisker")
    plane.dots([at for at, _, _ in found], [mean for _, mean, _ in found], 3.2)
    return plane.svg(f"Mean error by {name}", short_name(name, 28))


def calibration(bins: Sequence[tuple[float, float, int]]) -> Markup:
    """Share that was right over the probability that was said; dots as large as their group."""
    plane = Plane((0, 1), (0, 1))
    plane.line((0, 1), (0, 1), "zero")
    most = max(count for _, _, count in bins)
    for said, right, count in bins:
        plane.dots([said], [right], 3 + 5 * math.sqrt(count / most))
    return plane.svg("How often it was right, by how sure it was", "probability it gave", "share that was right")


def intervals(predicted: np.ndarray, low: np.ndarray, high: np.ndarray, truth: np.ndarray, target: str) -> Markup:
    """Intervals of some test nodes in the order of their predictions, with the truth as dots."""
    kept = np.sort(np.random.default_rng(0).permutation(len(predicted))[:60])
    kept = kept[np.argsort(predicted[kept])]
    ends = np.concatenate([low[kept], high[kept], truth[kept]])
    plane = Plane((0, len(kept) - 1), (ends.min(), ends.max()), ticks=0)
    for k, node in enumerate(kept.tolist()):
        plane.line((k, k), (low[node], high[node]), "whisker")
    inside = (low <= truth) & (truth <= high)
    for within, kind in ((True, "dot"), (False, "out")):
        chosen = [k for k, node in enumerate(kept.tolist()) if bool(inside[node]) == within]
        plane.dots(chosen, truth[kept[chosen]].tolist(), 2.6, kind)
    title = f"95 % intervals of {len(kept)} test nodes, by their prediction; dots: the truth"
    return plane.svg(title, "test nodes, by prediction", target)


def ticks_of(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two ends, at least two."""
    raw = (high - low) / max(1, count)
    size = 10 ** math.floor(math.log10(raw))
    step = next(k * size for k in (1, 2, 5, 10) if k * size >= 0.7 * raw)
    found = [round(k * step, 12) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return found if len(found) > 1 else ticks_of(low, high, 2 * count)


def _wider(low: float, high: float) -> tuple[float, float]:
    low, high = float(low), float(high)
    pad = 0.04 * (high - low) or 0.5
    return low - pad, high + pad


def short_name(name: str, most: int = 44) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> Markup:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
    return Markup(head + "".join(parts) + "</svg>")
