"""Before and after: the chosen node's probabilities as the model has them, and under the imagined changes."""

from __future__ import annotations

from typing import Any

from dash import html
from torch import Tensor

from walksum.explore.answer_panel import percent
from walksum.explore.subject import Subject
from walksum.explore.whatif import Changes, describe

MOST_CLASSES = 6


def before_and_after(subject: Subject, node: int, changes: Changes, after: Tensor) -> list[Any]:
    said = html.Ul([html.Li(words) for words in describe(subject, changes)], className="changes")
    before = subject.output
    if subject.problem.regression:
        words = f"Prediction of node {subject.name(node)}: {float(before[node]):.4g} → {float(after[node]):.4g}"
        return [said, html.P(html.Strong(words), id="moved")]
    return [
        said,
        html.P(html.Strong(_moved(subject, node, after)), id="moved"),
        _table(subject, node, after),
        _rest(subject, node, after),
    ]


def _moved(subject: Subject, node: int, after: Tensor) -> str:
    first, then = int(subject.output[node].argmax()), int(after[node].argmax())
    classes = subject.problem.classes
    if first == then:
        return (
            f"Node {subject.name(node)} stays {classes[first]}: {percent(float(subject.output[node, first]))} → "
            f"{percent(float(after[node, first]))}"
        )
    return f"Node {subject.name(node)} moves from {classes[first]} to {classes[then]}"


def _table(subject: Subject, node: int, after: Tensor) -> html.Table:
    first, then = subject.output[node], after[node]
    shown = (first.maximum(then)).argsort(descending=True)[:MOST_CLASSES].tolist()
    body = [
        html.Tr(
            [
                html.Th(subject.problem.classes[k], scope="row"),
                html.Td(percent(float(first[k])), className="before"),
                html.Td(percent(float(then[k])), className="after"),
                html.Td(
                    [_bar(float(first[k]), "before"), _bar(float(then[k]), "after")],
                    className="bars",
                    **{"aria-hidden": "true"},
                ),
            ],
            **{"data-class": subject.problem.classes[k]},
        )
        for k in shown
    ]
    heads = [html.Th(name, scope="col") for name in ("class", "before", "after")]
    heads.append(html.Th("", **{"aria-hidden": "true"}))
    return html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], id="before-after")


def _bar(share: float, kind: str) -> html.Div:
    return html.Div(className=f"bar {kind}", style={"width": f"{100 * share:.1f}%"})


def _rest(subject: Subject, node: int, after: Tensor) -> html.P:
    moved = subject.output.argmax(1) != after.argmax(1)
    moved[node] = False
    count = int(moved.sum())
    words = (
        "No other node is predicted otherwise." if not count else f"{count:,} other node{'s' * (count > 1)} move too."
    )
    return html.P(words, className="quiet")
