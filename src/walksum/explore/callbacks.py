"""What happens on the page: address, controls, clicks and search -> view -> drawing, answer, panels, files."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, html, no_update

from walksum.explore.answer import Session, as_csv, as_json, file_name, letters_and_digits
from walksum.explore.answer_panel import answer_panel, node_button, nothing_yet, spoken
from walksum.explore.colours import stylesheet, theme_of
from walksum.explore.controls import options, triggers
from walksum.explore.drawing import draw, draws_whole, recolour
from walksum.explore.matrices import LRUCache
from walksum.explore.page import FIRST_PANEL, legend
from walksum.explore.panels import panel
from walksum.explore.view import AS_TRAINED, View, changed, from_query, heads, stored_view, to_query
from walksum.explore.whatif_panel import connect_whatif
from walksum.workflow.trained_run import MOST_MATCHES, TrainedRun


def _navigation(app: Dash, session: Session) -> None:
    trained = session.trained

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
        """One callback for every way to change the view, so that the address alone holds the state."""
        view, messages, matches = _next_view(trained, now, query, asked, text or "", triggers())
        return (
            to_query(trained, view),
            asdict(view),
            "as trained" if view.design == AS_TRAINED else f"{view.scale:.3f}",
            options([(str(k + 1), f"{k + 1} of {heads(trained, view)}") for k in range(heads(trained, view))]),
            view.design != AS_TRAINED,
            view.design != AS_TRAINED,
            view.design == AS_TRAINED,
            _hint(trained, view),
            [html.P(message) for message in messages],
            matches,
        )


def _next_view(
    trained: TrainedRun, now: Any, query: str | None, asked: Any, text: str, by: set[str]
) -> tuple[View, list[str], list[Any]]:
    """The view after what was asked, what to say about it, and nodes to choose from."""
    messages: list[str] = []
    if now is None:
        view, messages = from_query(trained, query)
    else:
        view = stored_view(now)
        if "url" in by and (query or "") != to_query(trained, view):  # a link, or the browser's back and forward
            view, messages = from_query(trained, query)
    if "asked" in by and asked:
        view, messages = changed(trained, view, {name: value for name, value in asked.items() if name != "stamp"})
    if by & {"find", "search"}:
        return _find(trained, view, text)
    return view, messages, []


def _hint(trained: TrainedRun, view: View) -> str:
    if view.design == AS_TRAINED:
        operator = trained.operators[view.layer - 1]
        name = operator.name[:1].upper() + operator.name[1:]  # whole: the list may cut it off
        return f"{name}. {operator.about} Choose a design to change sign and scale."
    if not trained.operators:
        return "The model has no J of its own: this design shows what the graph alone connects."
    return "This design on the same graph, not the J of the trained model."


def _find(trained: TrainedRun, view: View, text: str) -> tuple[View, list[str], list[Any]]:
    if not text.strip():
        return view, ["Type the id of a node, or a part of it."], []
    found = trained.search(text)
    if len(found) == 1:
        return replace(view, node=trained.name(found[0])), [], []
    if found:
        which = "Which one?" if len(found) < MOST_MATCHES else f"Which one? The first {MOST_MATCHES} are:"
        nodes = [node_button(trained, node, trained.title_of(node)) for node in found]
        return view, [], [html.P(which, className="quiet"), *nodes]
    try:
        trained.node(text)
    except ValueError as error:
        return view, [str(error)], []
    return view, [], []


KEPT_PANELS = 12


def connect(app: Dash, session: Session) -> None:
    """Every callback of the page."""
    _navigation(app, session)
    _showing(app, session)
    _panels(app, session)
    connect_whatif(app, session)
    _saving(app, session)


def _showing(app: Dash, session: Session) -> None:
    @app.callback(
        Output("answer", "children"),
        Output("graph", "elements"),
        Output("recolour", "data"),
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
        return shown_view(session, stored_view(now), shown)

    @app.callback(Output("graph", "stylesheet"), Input("scheme", "data"), prevent_initial_call=True)
    def restyle(scheme: str | None) -> list:
        return stylesheet(theme_of(scheme))

    for name, output, given in (
        ("scheme", Output("scheme", "data"), Input("url", "pathname")),
        ("sync", Output("controls", "data-synced"), Input("view", "data")),
        ("recolour", Output("canvas", "data-recoloured"), Input("recolour", "data")),
        ("attach", Output("canvas", "data-attached"), Input("graph", "elements")),
        ("arrived", Output("panel-body", "data-arrived"), Input("panel-body", "children")),
    ):
        app.clientside_callback(ClientsideFunction("explore", name), output, given)


def shown_view(session: Session, view: View, shown: str | None) -> tuple:
    """Answer, elements, colours, what is drawn, legend, note, words for an empty drawing, words for a reader."""
    trained = session.trained
    try:
        answer = session.answer(view)
    except ValueError as error:
        return [html.P(str(error), className="warning")], *[no_update] * 6, str(error)
    whole = draws_whole(trained)
    if whole and shown == "whole":
        elements, note, recoloured = no_update, no_update, recolour(trained, answer, view.colour)
    else:
        drawing = draw(trained, answer, view.colour)
        elements, note, recoloured = drawing.elements, drawing.note, no_update
    said = legend(trained, view.colour, answer is not None)
    empty = "" if whole or answer is not None else "Choose a node to draw its surroundings."
    if answer is None:
        return (
            nothing_yet(trained),
            *(elements, recoloured, "whole" if whole else "", said, note, empty, "No node is chosen."),
        )
    return (
        answer_panel(trained, answer),
        *(elements, recoloured, "whole" if whole else "around", said, note, empty),
        spoken(trained, answer),
    )


def _panels(app: Dash, session: Session) -> None:
    made = LRUCache(KEPT_PANELS)

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
        view = stored_view(now)
        key = (name, view.matrix, view.node, view.solver, scheme)
        return made.get(key, lambda: panel(session, name, view, scheme)), False, True, f"tab-{name}"


def _saving(app: Dash, session: Session) -> None:
    @app.callback(
        Output("download", "data"),
        Output("message", "children", allow_duplicate=True),
        Input("save-csv", "n_clicks"),
        Input("save-json", "n_clicks"),
        State("view", "data"),
        prevent_initial_call=True,
    )
    def save_data(a: Any, b: Any, now: Any) -> tuple:
        answer = session.answer(stored_view(now))
        if answer is None:
            return no_update, [html.P("Choose a node first: the data are its sources.")]
        ending, write = ("csv", as_csv) if ctx.triggered_id == "save-csv" else ("json", as_json)
        name = file_name(session.trained, answer, ending)
        return {"content": write(session.trained, answer), "filename": name}, []

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
        view = stored_view(now)
        if view.node is None and not draws_whole(session.trained):
            return no_update, [html.P("Choose a node first: there is no drawing yet.")]
        name = "graph" if view.node is None else f"influence-{letters_and_digits(view.node)}"
        kind = "png" if ctx.triggered_id == "save-png" else "svg"
        look = {"bg": theme_of(scheme).background, "full": True, "scale": 2 if kind == "png" else 1}
        return {"type": kind, "action": "download", "filename": name, "options": look}, []
