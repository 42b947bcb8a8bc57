"""The controls of the page: native elements with labels, so that keyboards and screen readers work."""

from __future__ import annotations

from typing import Any

from dash import ctx, dcc, html

from walksum.explore.view import (
    AS_TRAINED,
    COUPLINGS,
    SCALE,
    SOLVERS,
    USUAL,
    known_colours,
    known_designs,
    refused_solvers,
)
from walksum.nn import GLT
from walksum.workflow.trained_run import TrainedRun

WORDS = {AS_TRAINED: "as trained", USUAL: "the paper's", "truth": "true value", "deviation": "standard deviation"}


def controls(trained: TrainedRun) -> html.Section:
    layers = [(str(k + 1), operator.name) for k, operator in enumerate(trained.operators)] or [("1", "none")]
    said = "Layer" if isinstance(trained.model, GLT) else "Operator"
    return html.Section(
        [
            field(
                "search",
                "Find a node",
                html.Div(
                    [
                        dcc.Input(id="search", type="text", placeholder="id", autoComplete="off", spellCheck="false"),
                        html.Button("Find", id="find", type="button"),
                    ],
                    className="row",
                ),
            ),
            html.Div(id="matches", **{"aria-live": "polite"}),
            select_box("colour", "Colour by", [(name, WORDS.get(name, name)) for name in known_colours(trained)]),
            html.H2("Precision matrix J"),
            select_box("design", "Design", [(name, WORDS.get(name, name)) for name in known_designs(trained)]),
            select_box("layer", said, layers),
            select_box("head", "Head", [("1", "1 of 1")]),
            select_box("coupling", "Coupling sign", [(name, WORDS.get(name, name)) for name in COUPLINGS]),
            field(
                "scale",
                ["Scale ", html.Span(id="scale-said")],
                html.Div(id="scale-place", **{"data-low": SCALE[0], "data-high": SCALE[1]}),
            ),
            html.P(id="hint", className="quiet"),
            select_box("solver", "Solver", [(name, name) for name in SOLVERS], refused_solvers(trained)),
            html.H2("Save"),
            html.Div(
                [
                    html.Button("PNG picture", id="save-png", type="button"),
                    html.Button("SVG picture", id="save-svg", type="button"),
                    html.Button("CSV data", id="save-csv", type="button"),
                    html.Button("JSON data", id="save-json", type="button"),
                ],
                className="buttons",
            ),
            html.P("The address of this page is a link to this view.", className="quiet"),
        ],
        id="controls",
        **{"aria-label": "Controls"},
    )


def field(name: str, words: Any, control: Any) -> html.Div:
    return html.Div([html.Label(words, htmlFor=name), control], className="field")


def options(pairs: list[tuple[str, str]], refused: dict[str, str] | None = None) -> list[html.Option]:
    refused = refused or {}
    return [
        html.Option(words, value=value, disabled=value in refused, title=refused.get(value)) for value, words in pairs
    ]


def select_box(name: str, words: str, pairs: list[tuple[str, str]], refused: dict[str, str] | None = None) -> html.Div:
    """A native select; assets/explore.js sends its changes and sets it from the view."""
    return field(name, words, html.Select(options(pairs, refused), id=name, **{"data-control": name}))


def triggers() -> set[str]:
    """Every component that asked: Dash may answer two actions that come together in one call."""
    return {each["prop_id"].split(".")[0] for each in ctx.triggered}
