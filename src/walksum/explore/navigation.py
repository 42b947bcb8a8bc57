"""Every way to change the view: the address, the controls, a click, the search."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dash import Dash, Input, Output, State, ctx, html

from walksum.explore.answer import Session
from walksum.explore.answer_panel import node_button
from walksum.explore.controls import options
from walksum.explore.view import AS_TRAINED, View, changed, from_query, heads, stored_view, to_query
from walksum.workflow.trained_run import TrainedRun


def connect_navigation(app: Dash, session: Session) -> None:
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
        """One callback for every way to change the view, so that there is one truth: the address."""
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


def triggers() -> set[str]:
    """Every component that asked: Dash may answer two actions that come together in one call."""
    return {each["prop_id"].split(".")[0] for each in ctx.triggered}


def _next_view(
    trained: TrainedRun, now: Any, query: str | None, asked: Any, text: str, by: set[str]
) -> tuple[View, list[str], list[Any]]:
    """The view after what was asked, what to say about it, and nodes to choose from."""
    messages: list[str] = []
    if now is None:
        view, messages = from_query(trained, query)
    else:
        view = stored_view(now)
        if "url" in by and (query or "") != to_query(trained, view):  # a link, or back and forth in the browser
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
        return view, [], [html.P("Which one?", className="quiet"), *[node_button(trained, node) for node in found]]
    try:
        trained.node(text)
    except ValueError as error:
        return view, [str(error)], []
    return view, [], []
