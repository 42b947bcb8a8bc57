"""Before and after: the chosen node's probabilities as the model has them, and under the imagined changes."""

from __future__ import annotations

from typing import Any

from dash import html
from torch import Tensor

from walksum.explore.answer_panel import percent
from walksum.explore.whatif import Changes, describe
from walksum.workflow.trained_run import TrainedRun

MOST_CLASSES = 6


def before_and_after(trained: TrainedRun, node: int, changes: Changes, before: Tensor, after: Tensor) -> list[Any]:
    said = html.Ul([html.Li(words) for words in describe(trained, changes)], className="changes")
    if trained.problem.regression:
        words = f"Prediction of node {trained.name(node)}: {float(before[node]):.4g} → {float(after[node]):.4g}"
        return [said, html.P(html.Strong(words), id="moved")]
    return [
        said,
        html.P(html.Strong(_moved(trained, node, before, after)), id="moved"),
        _table(trained, node, before, after),
        _rest(trained, node, before, after),
    ]


def _moved(trained: TrainedRun, node: int, before: Tensor, after: Tensor) -> str:
    first, then = int(before[node].argmax()), int(after[node].argmax())
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
                html.Td(
                    [_bar(float(first[k]), "before"), _bar(float(then[k]), "after")],
                    className="bars",
                    **{"aria-hidden": "true"},
                ),
            ],
            **{"data-class": trained.problem.classes[k]},
        )
        for k in shown
    ]
    heads = [html.Th(name, scope="col") for name in ("class", "before", "after")]
    heads.append(html.Th("", **{"aria-hidden": "true"}))
    return html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], id="before-after")


def _bar(share: float, kind: str) -> html.Div:
    return html.Div(className=f"bar {kind}", style={"width": f"{100 * share:.1f}%"})


def _rest(trained: TrainedRun, node: int, before: Tensor, after: Tensor) -> html.P:
    moved = before.argmax(1) != after.argmax(1)
    moved[node] = False
    count = int(moved.sum())
    words = "No other node is predicted otherwise."
    if count:
        words = "One other node moves too." if count == 1 else f"{count:,} other nodes move too."
    return html.P(words, className="quiet")
