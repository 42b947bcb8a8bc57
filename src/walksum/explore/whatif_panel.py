"""The what-if panel: its form, what its buttons do, and the chosen node's prediction before and after."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from torch import Tensor

from walksum.data.numerals import written
from walksum.explore.answer import Session
from walksum.explore.answer_panel import bar, percent, table_with_bars, without_bound
from walksum.explore.controls import field, options, triggers
from walksum.explore.view import View, stored_view
from walksum.explore.whatif import ALL, DROP, FLIP, Changes, WhatIf, columns, describe, from_json, kinds
from walksum.nn import GLT
from walksum.portfolio.fit import Portfolio
from walksum.workflow.trained_run import TrainedRun

MOST_COLUMNS = 300  # in a list one can choose from


def whatif_form(trained: TrainedRun) -> html.Div:
    words = (
        "Change something and see the model's prediction of the chosen node move. The changes add up until they are "
        "cleared; nothing is written."
    )
    result = html.Div(
        [
            html.Div(id="if-message", role="alert"),
            html.Div(id="if-result", **{"aria-live": "polite"}),
            _button("Clear all changes", "if-clear", hidden=True),
        ],
        className="result",
    )
    return html.Div(
        [
            html.P(words, className="explains"),
            html.Div([_features_form(trained), _edge_form(trained), result], className="whatif-columns"),
        ],
        id="whatif",
        role="tabpanel",
        **{"aria-labelledby": "tab-whatif"},
    )


def _features_form(trained: TrainedRun) -> html.Fieldset:
    classes = [(name, name if name == ALL else f"class {name}") for name in kinds(trained)]
    named = [(name, name) for name in columns(trained)[:MOST_COLUMNS]]
    return html.Fieldset(
        [
            html.Legend("Other columns of a node"),
            _text("if-node", "Id of the node"),
            field("if-column", "One column", html.Select(options(named), id="if-column", **{"data-store": "column"})),
            _text("if-value", "Its new value"),
            _button("Change the value", "if-set"),
            field(
                "if-class",
                "Or all columns: their mean over",
                html.Select(options(classes), id="if-class", **{"data-store": "kind"}),
            ),
            _button("Change all columns", "if-features"),
        ]
    )


def _edge_form(trained: TrainedRun) -> html.Fieldset:
    flip = _button("Flip its sign", "if-flip", hidden=not isinstance(trained.model, GLT))
    return html.Fieldset(
        [
            html.Legend("An edge (click one in the drawing)"),
            _text("if-from", "Id of one end"),
            _text("if-to", "Id of the other end"),
            html.Div([_button("Leave it out", "if-drop"), flip], className="row"),
        ]
    )


def _text(name: str, words: str) -> html.Div:
    return field(name, words, dcc.Input(id=name, type="text", autoComplete="off"))


def _button(words: str, name: str, **more: Any) -> html.Button:
    return html.Button(words, id=name, type="button", **more)


def connect_whatif(app: Dash, session: Session) -> None:
    trained, imagine = session.trained, WhatIf(session.trained)

    @app.callback(Output("if-node", "value"), Input("view", "data"), prevent_initial_call=True)
    def name_node(now: Any) -> str:
        return now["node"] or ""

    @app.callback(
        Output("if-from", "value"), Output("if-to", "value"), Input("edge", "data"), prevent_initial_call=True
    )
    def name_edge(edge: Any) -> tuple[str, str]:
        return edge["from"], edge["to"]

    @app.callback(
        Output("changes", "data"),
        Output("if-message", "children"),
        Output("if-clear", "hidden"),
        Input("if-features", "n_clicks"),
        Input("if-drop", "n_clicks"),
        Input("if-flip", "n_clicks"),
        Input("if-clear", "n_clicks"),
        Input("if-set", "n_clicks"),
        Input("if-value", "n_submit"),
        State("if-node", "value"),
        State("kind", "data"),
        State("if-from", "value"),
        State("if-to", "value"),
        State("column", "data"),
        State("if-value", "value"),
        State("changes", "data"),
        prevent_initial_call=True,
    )
    def change(
        a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, node: Any, kind: Any, one: Any, other: Any, column: Any,
        value: Any, known: Any,
    ) -> tuple:  # fmt: skip
        """At once: what is asked while the last result is still computed is added to the changes before it."""
        changes, message = from_json(known), ""
        try:
            for by in sorted(triggers()):
                if by in ("if-set", "if-value"):
                    changes = changes.with_value(trained, node or "", str(column), str(value or ""))
                changes = _changed(trained, changes, by, node or "", kind, one or "", other or "")
        except ValueError as error:
            message = str(error)
        return changes.to_json(), message, not changes

    @app.callback(
        Output("if-result", "children"), Input("changes", "data"), Input("view", "data"), prevent_initial_call=True
    )
    def compute(known: Any, now: Any) -> Any:
        if now is None:
            return no_update
        try:
            return _result(trained, imagine, stored_view(now), from_json(known))
        except ValueError as error:
            return [html.P(str(error), className="warning")]


def _changed(trained: TrainedRun, changes: Changes, by: str, node: str, kind: str, one: str, other: str) -> Changes:
    if by == "if-clear":
        return Changes()
    if by == "if-features":
        return changes.with_features(trained, node, kind)
    if by in ("if-drop", "if-flip"):
        return changes.with_edge(trained, one, other, DROP if by == "if-drop" else FLIP)
    return changes


def _result(trained: TrainedRun, imagine: WhatIf, view: View, changes: Changes) -> list[Any]:
    if not changes:
        return [html.P("Nothing is changed yet.", className="quiet")]
    if view.node is None:
        return [html.P("Choose a node to see its prediction move.", className="quiet")]
    node = trained.node(view.node)
    return before_and_after(trained, node, changes, imagine.before(changes), imagine.output(changes))


MOST_CLASSES = 6


def before_and_after(trained: TrainedRun, node: int, changes: Changes, before: Tensor, after: Tensor) -> list[Any]:
    said: Any = html.Ul([html.Li(words) for words in describe(trained, changes)], className="changes")
    if isinstance(trained.model, Portfolio):
        words = f"Before and after{without_bound(trained)}, as if the targets of the changed nodes were unknown."
        said = html.Div([said, html.P(words, className="quiet")])
    if trained.problem.regression:
        words = (
            f"Prediction of node {trained.name(node)}: {written(float(before[node]))} → {written(float(after[node]))}"
        )
        return [said, html.P(html.Strong(words), id="moved")]
    return [
        said,
        html.P(html.Strong(_moved(trained, node, before, after)), id="moved"),
        _table(trained, node, before, after),
        _rest(trained, node, before, after),
    ]


def _moved(trained: TrainedRun, node: int, before: Tensor, after: Tensor) -> str:
    first, then = (int(trained.decided(each[[node]])) for each in (before, after))
    classes = trained.problem.classes
    if first == then:
        return (
            f"Node {trained.name(node)} stays {classes[first]}: {percent(float(before[node, first]))} → "
            f"{percent(float(after[node, first]))}"
        )
    return f"Node {trained.name(node)} moves from {classes[first]} to {classes[then]}"


def _table(trained: TrainedRun, node: int, before: Tensor, after: Tensor) -> html.Table:
    first, then = before[node], after[node]
    shown = (first.maximum(then)).argsort(descending=True)[:MOST_CLASSES].tolist()
    body = [
        html.Tr(
            [
                html.Th(trained.problem.classes[k], scope="row"),
                html.Td(percent(float(first[k])), className="before"),
                html.Td(percent(float(then[k])), className="after"),
                bar(float(first[k]), "before", (float(then[k]), "after")),
            ],
            **{"data-class": trained.problem.classes[k]},
        )
        for k in shown
    ]
    return table_with_bars("before-after", ("class", "before", "after"), body)


def _rest(trained: TrainedRun, node: int, before: Tensor, after: Tensor) -> html.P:
    moved = trained.decided(before) != trained.decided(after)
    moved[node] = False
    count = int(moved.sum())
    words = "No other node is predicted otherwise."
    if count:
        words = "One other node moves too." if count == 1 else f"{count:,} other nodes move too."
    return html.P(words, className="quiet")
