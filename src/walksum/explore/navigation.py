"""Every way to change the view: the address, the controls, a click, the search."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from dash import Dash, Input, Output, State, ctx, html

from walksum.explore.answer import Desk
from walksum.explore.answer_panel import node_button
from walksum.explore.controls import options
from walksum.explore.subject import Subject
from walksum.explore.view import AS_TRAINED, View, changed, from_query, heads, stored_view, to_query


def connect_navigation(app: Dash, desk: Desk) -> None:
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
        view, messages, matches = _next_view(subject, now, query, asked, text or "", triggers())
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


def triggers() -> set[str]:
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
        view = stored_view(now)
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
