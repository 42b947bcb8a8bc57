"""The panels of the model as a whole: its influence beside that of one linear operator; its members and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from dash import html

from walksum.data.numerals import written
from walksum.explore.answer import Answer, Session
from walksum.explore.answer_panel import bar, node_button, percent, table_with_bars, truth_word, without_bound
from walksum.explore.view import AS_TRAINED, View
from walksum.explore.whole_model import WholeInfluence
from walksum.plot.theme import Theme
from walksum.workflow.metrics import ranked
from walksum.workflow.page_findings import importance_title, score_name, shown
from walksum.workflow.trained_run import UNKNOWN, TrainedRun

LISTED = 15
MOST_HOPS = 8
MOST_COLUMNS = 12


def whole_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    if answer is None:
        return [html.P("Choose a node: the derivative of its prediction is taken.", className="empty")]
    trained, found = session.trained, session.whole.influence(answer.node)
    operator = trained.operators[view.layer - 1].name if view.design == AS_TRAINED else view.design
    tables = [
        _sources(session, answer, found),
        _by_hop(answer, found, operator),
        _columns(session, answer.node),
    ]
    return [
        html.P(_explained(session, answer.node), className="explains"),
        *_covered(trained, found),
        html.Div(tables, className="side-by-side"),
    ]


def _explained(session: Session, node: int) -> str:
    trained = session.trained
    what = "prediction" if trained.problem.regression else f"log-odds of {trained.predicted(node)!r}"
    return (
        f"How the {what} of node {trained.name(node)} moves with the features of every node, through the whole model: "
        "its derivative, by one backward pass. The share is of its absolute values; 'adds' says, to first order, how "
        f"much the {what} would fall if that node had mean features."
    )


def _covered(trained: TrainedRun, found: WholeInfluence) -> list[Any]:
    """A note on the members of a blend that have no derivative."""
    if not found.left_out:
        return []
    names = ", ".join(f"{name} ({percent(weight)})" for name, weight in found.left_out)
    words = (
        f"These are the derivatives of members with {percent(found.covered)} of the weight{without_bound(trained)}. "
        f"Not among them are trees, which move in jumps, and kriging: {names}. What if asks these too."
    )
    return [html.P(words, id="whole-covered", className="warning")]


def _columns(session: Session, node: int) -> html.Table | None:
    """What boosting and other trees make of the columns they read."""
    found = [each for each in session.whole.columns(node)[:MOST_COLUMNS] if each.effect != 0]
    if not found:
        return None
    regression, most = session.trained.problem.regression, abs(found[0].effect)
    rows = [
        html.Tr(
            [
                html.Th(each.name, scope="row"),
                html.Td(f"{each.value:.4g}"),
                html.Td(written(each.effect, 3, "+") if regression else f"{100 * each.effect:+.1f} points"),
                bar(abs(each.effect) / most, "negative" if each.effect < 0 else "positive"),
            ],
            **{"data-row": each.name},
        )
        for each in found
    ]
    heads = ("column, as trees read it", "standardised", "adds")
    caption = "What trees make of each column, against its mean"
    return table_with_bars("whole-columns", heads, rows, caption, "plain-bars")


def _sources(session: Session, answer: Answer, found: WholeInfluence) -> html.Div:
    trained = session.trained
    order = np.argsort(-found.size, kind="stable")[:LISTED]
    order = order[found.size[order] > 0]
    if not order.size:
        return html.Div(html.P("Its prediction does not depend on any feature.", className="empty"))
    most, rows = float(found.share[order[0]]), []
    for node in order.tolist():
        hops = int(answer.influence.hops[node])
        cells = [
            html.Td(node_button(trained, node, "itself" if node == answer.node else None)),
            html.Td("unknown" if trained.label(node) == UNKNOWN else trained.label(node), className="word"),
            html.Td(str(hops) if hops >= 0 else "none"),
            html.Td(percent(float(found.share[node]))),
            html.Td(written(found.adds[node], 3, "+")),
            html.Td(percent(float(answer.influence.share[node]))),
            bar(float(found.share[node]) / most),
        ]
        rows.append(html.Tr(cells, **{"data-source": trained.name(node)}))
    names = ["node", truth_word(trained), "hops", "share", "adds", "operator's share"]
    table = table_with_bars("whole-sources", names, rows, "Strongest sources of the whole model")
    return html.Div(table, className="scroll")


def _by_hop(answer: Answer, found: WholeInfluence, operator: str) -> html.Table:
    """Where it comes from, of the whole model and of the chosen operator."""
    far = np.where(answer.influence.hops < 0, MOST_HOPS, np.minimum(answer.influence.hops, MOST_HOPS))
    both = [np.bincount(far, weights=share, minlength=MOST_HOPS + 1) for share in (found.share, answer.influence.share)]
    most = max(float(part.max()) for part in both) or 1.0

    def bars_of(k: int) -> html.Td:
        whole, layer = (float(part[k]) / most for part in both)
        return bar(whole, "after", (layer, "before"))

    names = ["itself", *(f"{k} hop{'s' * (k > 1)}" for k in range(1, MOST_HOPS)), "further"]
    rows = [
        html.Tr(
            [html.Th(name, scope="row"), *(html.Td(percent(float(part[k]))) for part in both), bars_of(k)],
            **{"data-hops": name},
        )
        for k, name in enumerate(names)
        if both[0][k] > 0 or both[1][k] > 0
    ]
    return table_with_bars("whole-hops", ("distance", "whole model", operator), rows, "By distance", "plain-bars")


MOST_ROWS = 12


def model_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    metrics = session.trained.metrics
    if metrics is None:
        return [html.P("This model was not read from a run, so its scores are not known.", className="empty")]
    means = {name: metrics["test"][name]["mean"] for name in ranked(metrics)}
    scores = [(name, mean, shown(metrics, mean)) for name, mean in means.items()]
    better = "" if metrics.get("higher_is_better", True) else ", less is better"
    tables = [_bar_table(f"Test {score_name(metrics)}{better}", "scores", scores)]
    if metrics.get("importance"):
        worth = []
        for each in metrics["importance"]:
            spread = "" if each["standard_error"] is None else f" ± {shown(metrics, each['standard_error'])}"
            worth.append((str(each["column"]), each["importance"], shown(metrics, each["importance"]) + spread))
        tables.append(_bar_table(importance_title(metrics), "importance", worth))
    if metrics.get("portfolio"):
        members = [each for each in metrics["portfolio"]["members"] if each["weight"] > 0]
        weights = [(each["member"], each["weight"], f"{100 * each['weight']:.0f} %") for each in members]
        tables.append(_bar_table("Weight of each member", "members", weights))
    words = "How the model does on nodes it never learned from, beside simpler methods, and what it is made of."
    return [html.P(words, className="explains"), html.Div(tables, className="side-by-side")]


def _bar_table(title: str, key: str, rows: list[tuple[str, float, str]]) -> html.Table:
    rows = rows[:MOST_ROWS]
    most = max([value for _, value, _ in rows if value > 0], default=1.0)  # an R² may be below 0: no bar
    body = [
        html.Tr([html.Th(name, scope="row"), html.Td(words), bar(value / most)], **{"data-row": name})
        for name, value, words in rows
    ]
    return html.Table([html.Caption(title), html.Tbody(body)], id=f"model-{key}", className="plain-bars")
