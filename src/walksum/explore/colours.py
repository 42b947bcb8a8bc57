"""How the page's drawings use the theme; assets/style.css holds the same colours for the page itself."""

from __future__ import annotations

from typing import Any

from walksum.plot.theme import THEMES, Theme


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
