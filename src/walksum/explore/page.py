"""The page: controls, drawing, answer, panels. Native elements with labels, so that keyboards and readers work."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
from dash import dcc, html

from walksum.explore.colours import colours, stylesheet
from walksum.explore.drawing import HUES, draws_whole
from walksum.explore.panels import PANELS
from walksum.explore.subject import Subject
from walksum.explore.view import AS_TRAINED, COUPLINGS, DESIGNS, SCALE, SOLVERS, USUAL, refused_solvers
from walksum.explore.whatif import kinds

cyto.load_extra_layouts()  # the build that can also write SVG

FIRST_PANEL = "whatif"
MOST_HUES = 10
WORDS = {AS_TRAINED: "as trained", USUAL: "the paper's"}


def page(subject: Subject) -> html.Div:
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            *[dcc.Store(id=name) for name in ("asked", "view", "scheme", "paint", "shown", "panel", "edge", "changes")],
            dcc.Store(id="kind", data=kinds(subject)[0]),
            dcc.Download(id="download"),
            html.A("Skip to the answer", href="#answer", className="skip"),
            _header(subject),
            html.Div(id="message", role="alert"),
            html.Main(
                [
                    _controls(subject),
                    _drawing(subject),
                    html.Section(id="answer", tabIndex=-1, **{"aria-label": "Answer"}),
                ],
                className="columns",
            ),
            _panels(subject),
            html.Div(id="spoken", className="unseen", role="status", **{"aria-live": "polite"}),
        ],
        className="page",
    )


def _header(subject: Subject) -> html.Header:
    size = f"{subject.num_nodes:,} nodes, {subject.graph.num_edges:,} edges"
    return html.Header(
        [
            html.H1("Why did this node get this label?"),
            html.P([html.Strong(subject.title), f" · {size} · {_model(subject)}"], className="quiet"),
        ]
    )


def _model(subject: Subject) -> str:
    config = subject.model.config
    return f"GLT, {'learned' if config['learned'] else 'fixed'} {config['design']}, {config['num_layers']} layers"


def _controls(subject: Subject) -> html.Section:
    layers = [(str(k + 1), f"{k + 1} of {len(subject.precisions)}") for k in range(len(subject.precisions))]
    return html.Section(
        [
            _field(
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
            html.H2("Precision matrix J"),
            _select("design", "Design", [(name, WORDS.get(name, name)) for name in DESIGNS]),
            html.Div([_select("layer", "Layer", layers), _select("head", "Head", [("1", "1 of 1")])], className="pair"),
            _select("coupling", "Coupling sign", [(name, WORDS.get(name, name)) for name in COUPLINGS]),
            _field(
                "scale",
                ["Scale ", html.Span(id="scale-said")],
                html.Div(id="scale-place", **{"data-low": SCALE[0], "data-high": SCALE[1]}),
            ),
            html.P(id="hint", className="quiet"),
            _select("solver", "Solver", [(name, name) for name in SOLVERS], refused_solvers(subject)),
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


def _field(name: str, words: Any, control: Any) -> html.Div:
    return html.Div([html.Label(words, htmlFor=name), control], className="field")


def options(pairs: list[tuple[str, str]], refused: dict[str, str] | None = None) -> list[html.Option]:
    refused = refused or {}
    return [
        html.Option(words, value=value, disabled=value in refused, title=refused.get(value)) for value, words in pairs
    ]


def _select(name: str, words: str, pairs: list[tuple[str, str]], refused: dict[str, str] | None = None) -> html.Div:
    """A native select; assets/explore.js sends its changes and sets it from the view."""
    return _field(name, words, html.Select(options(pairs, refused), id=name, **{"data-control": name}))


def _drawing(subject: Subject) -> html.Section:
    graph = cyto.Cytoscape(
        id="graph",
        elements=[],
        layout={"name": "preset", "fit": True, "padding": 24},
        stylesheet=stylesheet(colours("light")),
        style={"width": "100%", "height": "100%"},
        minZoom=0.1,
        maxZoom=6,
        autoungrabify=True,
        boxSelectionEnabled=False,
        responsive=True,
    )
    return html.Section(
        [
            html.Div(
                [
                    graph,
                    html.Div(id="no-graph", className="empty"),
                    html.Div(
                        [
                            html.Button(sign, type="button", **{"data-zoom": factor, "aria-label": words})
                            for sign, factor, words in (
                                ("+", "1.4", "Zoom in"),
                                ("-", "0.714", "Zoom out"),
                                ("⤢", "fit", "Show all of the drawing"),
                            )
                        ],
                        className="zoom",
                    ),
                ],
                className="canvas",
                role="group",
                id="canvas",
                **{"aria-label": "Drawing of the graph. The list of strongest sources holds the same as text."},
            ),
            html.Div(id="legend", className="legend"),
            html.P(id="drawing-note", className="quiet"),
        ],
        className="drawing",
        **{"aria-label": "Graph"},
    )


def influence_legend(subject: Subject) -> list[Any]:
    shape = [html.Span("■ training node", className="key")] if subject.training else []
    return [
        html.Span("negative influence"),
        html.Span(className="ramp", **{"aria-hidden": "true"}),
        html.Span("positive influence"),
        html.Span("(logarithmic, three decades)", className="quiet"),
        html.Span([html.I(className="thick", **{"aria-hidden": "true"}), "strongest paths"], className="key"),
        *shape,
    ]


def class_legend(subject: Subject) -> list[Any]:
    if not draws_whole(subject) or subject.problem.regression:
        return []
    names = subject.problem.classes[:MOST_HUES]
    more = [html.Span("and more, colours come round again")] if len(subject.problem.classes) > MOST_HUES else []
    return [
        html.Span("predicted:"),
        *[
            html.Span([html.I(style={"background": HUES[k]}, **{"aria-hidden": "true"}), name], className="key")
            for k, name in enumerate(names)
        ],
        *more,
    ]


def _panels(subject: Subject) -> html.Section:
    tabs = [(FIRST_PANEL, "What if"), *((name, words) for name, (words, _) in PANELS.items())]
    return html.Section(
        [
            html.Div(
                [
                    html.Button(
                        words,
                        id=f"tab-{name}",
                        role="tab",
                        type="button",
                        tabIndex=0 if name == FIRST_PANEL else -1,
                        **{
                            "data-panel": name,
                            "aria-selected": "true" if name == FIRST_PANEL else "false",
                            "aria-controls": "whatif" if name == FIRST_PANEL else "panel-body",
                        },
                    )
                    for name, words in tabs
                ],
                role="tablist",
                className="tabs",
                **{"aria-label": "Panels"},
            ),
            _whatif(subject),
            html.Div(id="panel-body", role="tabpanel", hidden=True),
        ],
        className="panels",
    )


def _whatif(subject: Subject) -> html.Div:
    classes = [(name, f"mean of {name}") for name in kinds(subject)]
    return html.Div(
        [
            html.P(
                "Change something and see the model's prediction of the chosen node move. The changes add up until "
                "they are cleared; nothing is written.",
                className="explains",
            ),
            html.Div(
                [
                    html.Fieldset(
                        [
                            html.Legend("Features of a node"),
                            _field("if-node", "Node", dcc.Input(id="if-node", type="text", autoComplete="off")),
                            _field(
                                "if-class",
                                "become the",
                                html.Select(options(classes), id="if-class", **{"data-store": "kind"}),
                            ),
                            html.Button("Change features", id="if-features", type="button"),
                        ]
                    ),
                    html.Fieldset(
                        [
                            html.Legend("An edge (click one in the drawing)"),
                            _field("if-from", "From node", dcc.Input(id="if-from", type="text", autoComplete="off")),
                            _field("if-to", "to node", dcc.Input(id="if-to", type="text", autoComplete="off")),
                            html.Div(
                                [
                                    html.Button("Drop the edge", id="if-drop", type="button"),
                                    html.Button("Flip its sign", id="if-flip", type="button"),
                                ],
                                className="row",
                            ),
                        ]
                    ),
                    html.Div(
                        [
                            html.Div(id="if-message", role="alert"),
                            html.Div(id="if-result", **{"aria-live": "polite"}),
                            html.Button("Clear all changes", id="if-clear", type="button", hidden=True),
                        ],
                        className="result",
                    ),
                ],
                className="whatif-columns",
            ),
        ],
        id="whatif",
        role="tabpanel",
        **{"aria-labelledby": "tab-whatif"},
    )
