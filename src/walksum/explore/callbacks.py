"""What happens on the page: actions -> view -> drawing, answer and panels."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, html, no_update

from walksum.explore import export
from walksum.explore.answer import Desk
from walksum.explore.answer_panel import answer_panel, node_button, nothing_yet, spoken
from walksum.explore.colours import colours, stylesheet
from walksum.explore.drawing import draw, draws_whole, paint
from walksum.explore.matrices import Recent
from walksum.explore.page import FIRST_PANEL, class_legend, influence_legend, options
from walksum.explore.panels import panel
from walksum.explore.subject import Subject
from walksum.explore.view import AS_TRAINED, View, changed, from_query, heads, to_query
from walksum.explore.whatif import DROP, FLIP, Changes, WhatIf, from_json
from walksum.explore.whatif_panel import before_and_after

KEPT_PANELS = 12


def connect(app: Dash, desk: Desk) -> None:
    """Every callback of the page."""
    _navigation(app, desk)
    _showing(app, desk)
    _panels(app, desk)
    _what_if(app, desk)
    _saving(app, desk)


def _navigation(app: Dash, desk: Desk) -> None:
    subject = desk.subject

    @app.callback(
        Output("url", "search"),
        Output("view", "data"),
        Output("scale-said", "children"),
        Output("head", "children"),
        Output("layer", "disabled"),
        Output("head", "disabled"),
        Output("coupling", "disabled"),
        Output("hint", "children"),
        Output("message", "children"),
        Output("matches", "children"),
        Input("url", "search"),
        Input("asked", "data"),
        Input("find", "n_clicks"),
        Input("search", "n_submit"),
        State("search", "value"),
        State("view", "data"),
    )
    def navigate(query: str, asked: Any, find: Any, submit: Any, text: str | None, now: Any) -> tuple:
        """One callback for every way to change the view, so that there is one truth: the address."""
        view, messages, matches = _next_view(subject, now, query, asked, text or "", _triggers())
        return (
            to_query(subject, view),
            asdict(view),
            "as trained" if view.design == AS_TRAINED else f"{view.scale:.3f}",
            options([(str(k + 1), f"{k + 1} of {heads(subject, view)}") for k in range(heads(subject, view))]),
            view.design != AS_TRAINED,
            view.design != AS_TRAINED,
            view.design == AS_TRAINED,
            _hint(view),
            [html.P(message) for message in messages],
            matches,
        )


def _triggers() -> set[str]:
    """Every component that asked: Dash may answer two actions that come together in one call."""
    return {each["prop_id"].split(".")[0] for each in ctx.triggered}


def _next_view(
    subject: Subject, now: Any, query: str | None, asked: Any, text: str, by: set[str]
) -> tuple[View, list[str], list[Any]]:
    """The view after what was asked, what to say about it, and nodes to choose from."""
    messages: list[str] = []
    if now is None:
        view, messages = from_query(subject, query)
    else:
        view = View(**now)
        if "url" in by and (query or "") != to_query(subject, view):  # a link, or back and forth in the browser
            view, messages = from_query(subject, query)
    if "asked" in by and asked:
        view, messages = changed(subject, view, {name: value for name, value in asked.items() if name != "stamp"})
    if by & {"find", "search"}:
        return _find(subject, view, text)
    return view, messages, []


def _hint(view: View) -> str:
    if view.design == AS_TRAINED:
        return "The trained model's own J. Choose a design to change sign and scale."
    return "This design on the same graph, not the J of the trained model."


def _find(subject: Subject, view: View, text: str) -> tuple[View, list[str], list[Any]]:
    if not text.strip():
        return view, ["Type the id of a node, or a part of it."], []
    found = subject.search(text)
    if len(found) == 1:
        return replace(view, node=subject.name(found[0])), [], []
    if found:
        return view, [], [html.P("Which one?", className="quiet"), *[node_button(subject, node) for node in found]]
    try:
        subject.node(text)
    except ValueError as error:
        return view, [str(error)], []
    return view, [], []


def _showing(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("answer", "children"),
        Output("graph", "elements"),
        Output("paint", "data"),
        Output("shown", "data"),
        Output("legend", "children"),
        Output("drawing-note", "children"),
        Output("no-graph", "children"),
        Output("spoken", "children"),
        Input("view", "data"),
        State("shown", "data"),
        prevent_initial_call=True,
    )
    def show(now: Any, shown: str | None) -> tuple:
        return shown_view(desk, View(**now), shown)

    @app.callback(Output("graph", "stylesheet"), Input("scheme", "data"), prevent_initial_call=True)
    def dress(scheme: str | None) -> list:
        return stylesheet(colours(scheme))

    for name, output, given in (
        ("scheme", Output("scheme", "data"), Input("url", "pathname")),
        ("sync", Output("controls", "data-synced"), Input("view", "data")),
        ("paint", Output("canvas", "data-painted"), Input("paint", "data")),
        ("attach", Output("canvas", "data-attached"), Input("graph", "elements")),
    ):
        app.clientside_callback(ClientsideFunction("explore", name), output, given)


def shown_view(desk: Desk, view: View, shown: str | None) -> tuple:
    """Answer, elements, paint, what is drawn, legend, note, words for an empty drawing, words for a reader."""
    subject = desk.subject
    try:
        answer = desk.answer(view)
    except ValueError as error:
        return [html.P(str(error), className="warning")], *[no_update] * 6, str(error)
    whole = draws_whole(subject)
    if whole and shown == "whole":
        elements, note, painted = no_update, no_update, paint(subject, answer)
    else:
        drawing = draw(subject, answer)
        elements, note, painted = drawing.elements, drawing.note, no_update
    empty = "" if whole or answer is not None else "Choose a node to draw its surroundings."
    if answer is None:
        return (
            nothing_yet(subject),
            *(elements, painted, "whole" if whole else "", class_legend(subject), note, empty, "No node is chosen."),
        )
    return (
        answer_panel(subject, answer),
        *(elements, painted, "whole" if whole else "around", influence_legend(subject), note, empty),
        spoken(subject, answer),
    )


def _panels(app: Dash, desk: Desk) -> None:
    made = Recent(KEPT_PANELS)

    @app.callback(
        Output("panel-body", "children"),
        Output("panel-body", "hidden"),
        Output("whatif", "hidden"),
        Output("panel-body", "aria-labelledby"),
        Input("panel", "data"),
        Input("view", "data"),
        Input("scheme", "data"),
        prevent_initial_call=True,
    )
    def open_panel(name: str | None, now: Any, scheme: str | None) -> tuple:
        name = name or FIRST_PANEL
        if name == FIRST_PANEL or now is None:
            return no_update, True, False, no_update
        view = View(**now)
        key = (name, view.matrix, view.node, view.solver, scheme)
        return made.get(key, lambda: panel(desk, name, view, scheme)), False, True, f"tab-{name}"


def _what_if(app: Dash, desk: Desk) -> None:
    subject, imagine = desk.subject, WhatIf(desk.subject)

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
        Output("if-result", "children"),
        Output("if-clear", "hidden"),
        Input("if-features", "n_clicks"),
        Input("if-drop", "n_clicks"),
        Input("if-flip", "n_clicks"),
        Input("if-clear", "n_clicks"),
        Input("view", "data"),
        State("if-node", "value"),
        State("kind", "data"),
        State("if-from", "value"),
        State("if-to", "value"),
        State("changes", "data"),
        prevent_initial_call=True,
    )
    def change(
        a: Any, b: Any, c: Any, d: Any, now: Any, node: Any, kind: Any, one: Any, other: Any, known: Any
    ) -> tuple:
        changes, message = from_json(known), ""
        try:
            for by in sorted(_triggers()):
                changes = _changed(subject, changes, by, node or "", kind, one or "", other or "")
            result = _result(subject, imagine, View(**now), changes)
        except ValueError as error:
            message, changes = str(error), from_json(known)
            result = no_update
        return changes.to_json(), message, result, not changes


def _changed(subject: Subject, changes: Changes, by: str, node: str, kind: str, one: str, other: str) -> Changes:
    if by == "if-clear":
        return Changes()
    if by == "if-features":
        return changes.with_features(subject, node, kind)
    if by in ("if-drop", "if-flip"):
        return changes.with_edge(subject, one, other, DROP if by == "if-drop" else FLIP)
    return changes


def _result(subject: Subject, imagine: WhatIf, view: View, changes: Changes) -> list[Any]:
    if not changes:
        return [html.P("Nothing is changed yet.", className="quiet")]
    if view.node is None:
        return [html.P("Choose a node to see its prediction move.", className="quiet")]
    return before_and_after(subject, subject.node(view.node), changes, imagine.output(changes))


def _saving(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("download", "data"),
        Output("message", "children", allow_duplicate=True),
        Input("save-csv", "n_clicks"),
        Input("save-json", "n_clicks"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def save_data(a: Any, b: Any, now: Any) -> tuple:
        answer = desk.answer(View(**now))
        if answer is None:
            return no_update, [html.P("Choose a node first: the data are its sources.")]
        ending, write = ("csv", export.as_csv) if ctx.triggered_id == "save-csv" else ("json", export.as_json)
        name = export.file_name(desk.subject, answer, ending)
        return {"content": write(desk.subject, answer), "filename": name}, []

    @app.callback(
        Output("graph", "generateImage"),
        Output("message", "children", allow_duplicate=True),
        Input("save-png", "n_clicks"),
        Input("save-svg", "n_clicks"),
        State("view", "data"),
        State("scheme", "data"),
        prevent_initial_call=True,
    )
    def save_picture(a: Any, b: Any, now: Any, scheme: str | None) -> tuple:
        view = View(**now)
        if view.node is None and not draws_whole(desk.subject):
            return no_update, [html.P("Choose a node first: there is no drawing yet.")]
        name = "graph" if view.node is None else "influence-" + "".join(c if c.isalnum() else "-" for c in view.node)
        kind = "png" if ctx.triggered_id == "save-png" else "svg"
        look = {"bg": colours(scheme).ground, "full": True, "scale": 2 if kind == "png" else 1}
        return {"type": kind, "action": "download", "filename": name, "options": look}, []
