"""How the page's drawings use the theme; assets/style.css holds the same colours for the page itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex

from walksum.explore.view import ERROR, INFLUENCE, PREDICTION, TRUTH
from walksum.plot.theme import CLASS_COLOURS, GREY, THEMES, Theme
from walksum.workflow.trained_run import TrainedRun

LOW_TO_HIGH = ("#00224e", "#3b496c", "#7c7b78", "#bcae6c", "#fee838")  # matplotlib's cividis
BELOW_TO_ABOVE = ("#2166ac", "#8fb4d6", "#d0d6dd", "#e39a90", "#b2182b")
SPREAD = (0.02, 0.98)  # quantiles between which colours run: one outlier should not pale all others


def theme_of(scheme: str | None) -> Theme:
    """Of the reader's system, "light" or "dark"; light where the browser did not say."""
    return THEMES.get(scheme or "light", THEMES["light"])


def diverging(of: Theme) -> list[list[Any]]:
    """A plotly colour scale."""
    return [[0, of.negative], [0.5, of.background], [1, of.positive]]


def stylesheet(of: Theme) -> list[dict[str, Any]]:
    """How cytoscape draws nodes and edges."""

    def style(selector: str, **properties: Any) -> dict[str, Any]:
        return {"selector": selector, "style": {name.replace("_", "-"): value for name, value in properties.items()}}

    return [
        style("node", width=9, height=9, background_color="data(hue)", border_width=0.4, border_color=of.edge),
        style("node.around", width=20, height=20, border_width=1),
        style("node.training", shape="rectangle"),
        style("node.toned", background_color=of.neutral),
        style(
            "node.toned[tone > 0]",
            background_color=f"mapData(tone, 0, 1, {of.neutral}, {of.positive})",
            width="mapData(tone, 0, 1, 8, 15)",
            height="mapData(tone, 0, 1, 8, 15)",
            z_index=5,
        ),
        style(
            "node.toned[tone < 0]",
            background_color=f"mapData(tone, -1, 0, {of.negative}, {of.neutral})",
            width="mapData(tone, -1, 0, 15, 8)",
            height="mapData(tone, -1, 0, 15, 8)",
            z_index=5,
        ),
        style("node.around.toned[tone > 0]", width="mapData(tone, 0, 1, 14, 30)", height="mapData(tone, 0, 1, 14, 30)"),
        style(
            "node.around.toned[tone < 0]", width="mapData(tone, -1, 0, 30, 14)", height="mapData(tone, -1, 0, 30, 14)"
        ),
        style("edge", width=0.5, line_color=of.edge, opacity=0.5),
        style("edge.around", width=1.5, opacity=0.9),
        style("edge.path", width=3, line_color=of.quiet, opacity=1, z_index=4),
        style(
            "node.named, node.chosen",
            label="data(caption)",
            color=of.ink,
            font_size=13,
            text_outline_color=of.background,
            text_outline_width=2,
            text_valign="top",
            text_margin_y=-2,
        ),
        style("node.chosen", border_width=3, border_color=of.ink, width=30, height=30, font_size=38, z_index=9),
        style("node.around.chosen", width=34, height=34, font_size=16),
    ]


@dataclass(frozen=True)
class NodeColours:
    """One colour per node; ``ends`` are the numbers at both ends of ``ramp``, or ``classes`` tell what is shown."""

    hues: list[str]
    ramp: tuple[str, ...] = ()
    ends: tuple[float, float] = (0.0, 1.0)
    classes: bool = False


def node_colours(trained: TrainedRun, colour: str) -> NodeColours:
    """By prediction, truth, error or standard deviation; before a node is chosen influence is prediction."""
    colour = PREDICTION if colour == INFLUENCE else colour
    if not trained.problem.regression and colour in (PREDICTION, TRUTH):
        codes = trained.prediction if colour == PREDICTION else trained.problem.y.numpy()
        hues = [GREY if code < 0 else CLASS_COLOURS[int(code) % len(CLASS_COLOURS)] for code in codes]
        return NodeColours(hues, classes=True)
    truth = trained.problem.y.double().numpy()
    values = {PREDICTION: trained.prediction, TRUTH: truth, ERROR: trained.error}.get(colour, trained.deviation)
    assert values is not None
    known = np.isfinite(values)
    if not known.any():
        return NodeColours([GREY] * len(values))
    low, high = (float(each) for each in np.quantile(values[known], SPREAD))
    ramp = LOW_TO_HIGH
    if colour == ERROR and trained.problem.regression:
        ramp, high = BELOW_TO_ABOVE, max(-low, high)
        low = -high
    elif colour == ERROR:
        low, high = 0.0, 1.0
    place = np.clip((np.nan_to_num(values) - low) / ((high - low) or 1.0), 0, 1)
    shades = LinearSegmentedColormap.from_list("ramp", ramp)(place)
    hues = [to_hex(shade) if k else GREY for shade, k in zip(shades, known.tolist(), strict=True)]
    return NodeColours(hues, ramp, (low, high))
