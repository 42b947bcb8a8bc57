"""Colours of the page's drawings, light and dark; the page's own are in assets/style.css."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Colours:
    """Blue is negative, red is positive: a pair that colour-blind readers tell apart."""

    text: str
    quiet: str
    line: str
    ground: str
    negative: str
    neutral: str
    positive: str
    accent: str
    second: str


SCHEMES = {
    "light": Colours("#1b2430", "#5c6773", "#d5dae0", "#ffffff", "#2166ac", "#d0d6dd", "#b2182b", "#0072b2", "#e69f00"),
    "dark": Colours("#e6e9ed", "#9aa4b0", "#3a424d", "#171b21", "#4f9fe0", "#39414c", "#f0655a", "#56b4e9", "#e69f00"),
}


def colours(scheme: str | None) -> Colours:
    return SCHEMES.get(scheme or "light", SCHEMES["light"])


def diverging(of: Colours) -> list[list[Any]]:
    """A plotly colour scale."""
    return [[0, of.negative], [0.5, of.ground], [1, of.positive]]


def stylesheet(of: Colours) -> list[dict[str, Any]]:
    """How cytoscape draws nodes and edges."""

    def style(selector: str, **properties: Any) -> dict[str, Any]:
        return {"selector": selector, "style": {name.replace("_", "-"): value for name, value in properties.items()}}

    return [
        style("node", width=9, height=9, background_color="data(hue)", border_width=0.4, border_color=of.line),
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
        style("edge", width=0.5, line_color=of.line, opacity=0.5),
        style("edge.around", width=1.5, opacity=0.9),
        style("edge.path", width=3, line_color=of.quiet, opacity=1, z_index=4),
        style(
            "node.named, node.asked",
            label="data(caption)",
            color=of.text,
            font_size=13,
            text_outline_color=of.ground,
            text_outline_width=2,
            text_valign="top",
            text_margin_y=-2,
        ),
        style("node.asked", border_width=3, border_color=of.text, width=30, height=30, font_size=38, z_index=9),
        style("node.around.asked", width=34, height=34, font_size=16),
    ]
