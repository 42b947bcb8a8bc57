"""The page: controls, drawing, answer, panels."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
from dash import dcc, html

from walksum.data.numerals import written
from walksum.explore.colours import node_colours, stylesheet, theme_of
from walksum.explore.controls import WORDS, controls
from walksum.explore.drawing import draws_whole
from walksum.explore.panels import PANELS
from walksum.explore.view import INFLUENCE, PREDICTION
from walksum.explore.whatif import columns, kinds
from walksum.explore.whatif_panel import whatif_form
from walksum.nn import GLT
from walksum.plot.theme import CLASS_COLOURS
from walksum.portfolio.fit import Portfolio
from walksum.workflow.trained_run import TrainedRun

cyto.load_extra_layouts()  # the build that can also write SVG

FIRST_PANEL = "whatif"
STORES = ("asked", "view", "scheme", "recolour", "shown", "panel", "edge", "changes")


def page(trained: TrainedRun) -> html.Div:
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            *[dcc.Store(id=name) for name in STORES],
            dcc.Store(id="kind", data=kinds(trained)[0]),
            dcc.Store(id="column", data=columns(trained)[0]),
            dcc.Download(id="download"),
            html.A("Skip to the answer", href="#answer", className="skip"),
            _header(trained),
            html.Div(id="message", role="alert"),
            html.Main(
                [
                    controls(trained),
                    _drawing(),
                    html.Section(id="answer", tabIndex=-1, **{"aria-label": "Answer"}),
                ],
                className="columns",
            ),
            _panels(trained),
            html.Div(id="spoken", className="unseen", role="status", **{"aria-live": "polite"}),
        ],
        className="page",
    )


def _header(trained: TrainedRun) -> html.Header:
    size = f"{trained.num_nodes:,} nodes, {trained.graph.num_edges:,} edges"
    return html.Header(
        [
            html.H1(f"Why did this node get this {'value' if trained.problem.regression else 'label'}?"),
            html.P([html.Strong(trained.title), f" · {size} · {_model(trained)}{_seed(trained)}"], className="quiet"),
        ]
    )


def _model(trained: TrainedRun) -> str:
    if isinstance(trained.model, GLT):
        config: Any = trained.model.config
        return f"GLT, {'learned' if config['learned'] else 'fixed'} {config['design']}, {config['num_layers']} layers"
    if isinstance(trained.model, Portfolio):
        # which also counts members of the run's own graph alone
        kept = trained.metrics and trained.metrics["portfolio"]
        return f"a blend of {kept['count'] if kept else len(trained.model.members)} members"
    return "the model" if trained.job is None else trained.job.title


def _seed(trained: TrainedRun) -> str:
    """Of several seeds, whose model is shown."""
    metrics = trained.metrics or {}
    seeds = metrics.get("seeds", ())
    return f", seed {metrics['kept_seed']}: of {len(seeds)} the best on validation nodes" if len(seeds) > 1 else ""


def _drawing() -> html.Section:
    graph = cyto.Cytoscape(
        id="graph",
        elements=[],
        layout={"name": "preset", "fit": True, "padding": 24},
        stylesheet=stylesheet(theme_of("light")),
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


def legend(trained: TrainedRun, colour: str, chosen: bool) -> list[Any]:
    """What the colours of the drawing mean."""
    if not chosen and not draws_whole(trained):
        return []
    shape = [html.Span("■ training node", className="key")] if trained.training else []
    if chosen and colour == INFLUENCE:
        return [*_influence_legend(), *shape]
    colour = PREDICTION if colour == INFLUENCE else colour
    shown, words = node_colours(trained, colour), f"{WORDS.get(colour, colour)}:"
    if shown.classes:
        return [html.Span("predicted:" if colour == PREDICTION else words), *_class_keys(trained), *shape]
    if not shown.ramp:
        return [html.Span(f"{words} not known"), *shape]
    ramp = {"background": f"linear-gradient(90deg, {', '.join(shown.ramp)})"}
    low, high = (written(end) for end in shown.ends)
    ends = [html.Span(low), html.Span(className="ramp", style=ramp, **{"aria-hidden": "true"}), html.Span(high)]
    return [html.Span(words), *ends, *shape]


def _influence_legend() -> list[Any]:
    return [
        html.Span("negative influence"),
        html.Span(className="ramp", **{"aria-hidden": "true"}),
        html.Span("positive influence"),
        html.Span("(logarithmic, three decades)", className="quiet"),
        html.Span([html.I(className="thick", **{"aria-hidden": "true"}), "strongest paths"], className="key"),
    ]


def _class_keys(trained: TrainedRun) -> list[Any]:
    names = trained.problem.classes[: len(CLASS_COLOURS)]
    repeated = len(trained.problem.classes) > len(CLASS_COLOURS)
    more = [html.Span("further classes have the same colours again")] if repeated else []
    return [
        *[
            html.Span(
                [html.I(style={"background": CLASS_COLOURS[k]}, **{"aria-hidden": "true"}), name], className="key"
            )
            for k, name in enumerate(names)
        ],
        *more,
    ]


def _panels(trained: TrainedRun) -> html.Section:
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
            whatif_form(trained),
            html.Div(id="panel-body", role="tabpanel", hidden=True),
        ],
        className="panels",
    )
