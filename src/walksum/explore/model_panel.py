"""The panel about the model as a whole: its members, what its columns are worth, how it compares."""

from __future__ import annotations

from typing import Any

from dash import html

from walksum.explore.answer import Answer, Session
from walksum.explore.answer_panel import bar
from walksum.explore.view import View
from walksum.plot.theme import Theme

MOST_ROWS = 12


def model_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    metrics = session.trained.metrics
    if metrics is None:
        return [html.P("This model was not read from a run, so its scores are not known.", className="empty")]
    score = metrics["score"]
    tests = sorted(metrics["test"].items(), key=lambda item: -item[1]["mean"])
    shown = [_bars(f"Test {score}", "scores", [(name, each["mean"], f"{each['mean']:.3f}") for name, each in tests])]
    if metrics.get("importance"):
        worth = [(str(each["column"]), each["importance"], _drop(each)) for each in metrics["importance"]]
        shown.append(_bars(f"Loss of {score} when a column is shuffled", "importance", worth))
    if metrics.get("portfolio"):
        members = [each for each in metrics["portfolio"]["members"] if each["weight"] > 0]
        weights = [(each["member"], each["weight"], f"{100 * each['weight']:.0f} %") for each in members]
        shown.append(_bars("Weight of each member", "members", weights))
    words = "How the model does on nodes it never learned from, beside simpler methods, and what it is made of."
    return [html.P(words, className="explains"), html.Div(shown, className="side-by-side")]


def _drop(each: dict[str, Any]) -> str:
    spread = each["standard_error"]
    return f"{each['importance']:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def _bars(title: str, key: str, rows: list[tuple[str, float, str]]) -> html.Table:
    rows = rows[:MOST_ROWS]
    most = max((value for _, value, _ in rows), default=1.0) or 1.0
    body = [
        html.Tr([html.Th(name, scope="row"), html.Td(words), bar(value / most)], **{"data-row": name})
        for name, value, words in rows
    ]
    return html.Table([html.Caption(title), html.Tbody(body)], id=f"model-{key}", className="plain-bars")
