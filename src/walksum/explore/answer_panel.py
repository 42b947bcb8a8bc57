"""The answer in words, lists and bars: what the page shows beside the drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from walksum.data.numerals import written
from walksum.explore.answer import Answer
from walksum.portfolio.fit import Portfolio
from walksum.workflow.trained_run import UNKNOWN, TrainedRun

MOST_HOPS = 8  # rows of the table by distance; what comes from further is added up
MOST_LABELS = 6
MOST_CLASSES = 4  # probabilities shown
MOST_COLUMNS = 40
FAINT = 5e-4  # a share below this is written as "< 0.1 %"


def percent(share: float) -> str:
    return "< 0.1 %" if 0 < share < FAINT else f"{100 * share:.1f} %"


def node_button(trained: TrainedRun, node: int, words: str | None = None) -> html.Button:
    """A node one can go to: assets/explore.js sends its id."""
    name, title = trained.name(node), trained.title_of(node)
    more = {"data-node": name, "aria-label": f"Show node {title}", "type": "button"}
    return html.Button(words or name, className="node", title=title, **more)


def bar(share: float, kind: str = "", *more: tuple[float, str]) -> html.Td:
    """A cell with a bar as long as a share of its width; ``more`` bars below it."""
    bars = [
        html.Div(className=f"bar {each}", style={"width": f"{max(0.0, min(1.0, part)) * 100:.1f}%"})
        for part, each in ((share, kind), *more)
    ]
    return html.Td(bars, className="bars", **{"aria-hidden": "true"})


def table_with_bars(
    key: str, heads: Sequence[str], rows: list[html.Tr], caption: str = "", kind: str = ""
) -> html.Table:
    """A table whose rows end in a cell of bars; ``kind`` is its class for the style sheet."""
    titles = [html.Th(name, scope="col") for name in heads] + [html.Th("", **{"aria-hidden": "true"})]
    parts = [html.Caption(caption)] if caption else []
    return html.Table([*parts, html.Thead(html.Tr(titles)), html.Tbody(rows)], id=key, className=kind)


def nothing_yet(trained: TrainedRun) -> list[Any]:
    """The empty state: what to do, and where to start."""
    return [
        html.H2("Choose a node"),
        html.P("Click one in the drawing, search for its id, or begin with one of these:"),
        _suggestions(trained),
    ]


def _suggestions(trained: TrainedRun) -> html.Ul:
    rows = [
        html.Li([node_button(trained, node, trained.title_of(node)), f" {why}"]) for why, node in trained.suggestions
    ]
    return html.Ul(rows, className="suggestions")


def answer_panel(trained: TrainedRun, answer: Answer) -> list[Any]:
    return [
        _head(trained, answer),
        *_columns(trained, answer.node),
        _sources(trained, answer),
        html.Section(
            [
                _bars("By distance", "hops", "distance", _by_hop(answer)),
                _bars("By label", "labels", "label", answer.by_label[:MOST_LABELS]) if answer.by_label else None,
            ],
            className="pair",
        ),
        _paths(trained, answer),
        html.Section([html.H3("Worth a look"), _suggestions(trained)]),
    ]


def truth_word(trained: TrainedRun) -> str:
    """What a reader calls the known target."""
    return "true value" if trained.problem.regression else "label"


def without_bound(trained: TrainedRun) -> str:
    """How many members cannot be asked again, for they know the graph they were trained on alone; empty if all can."""
    bound = len(trained.model.bound) if isinstance(trained.model, Portfolio) else 0
    return f" without {bound} member{'s' * (bound > 1)} that know the graph of the training alone" if bound else ""


def spoken(trained: TrainedRun, answer: Answer) -> str:
    """For a screen reader, when the answer changes."""
    node, sure = answer.node, trained.probability(answer.node)
    others = [each for each in answer.listed.tolist() if each != node]
    words = f"Node {trained.title_of(node)}: {truth_word(trained)} {_said(trained.label(node))}, "
    words += f"predicted {trained.predicted(node)}"
    words += "" if sure is None else f" with probability {percent(sure)}"
    if others:
        first = others[0]
        words += f". Strongest source: node {trained.name(first)}, influence {answer.influence.value[first]:+.3g}"
    return words + "."


def _said(label: str) -> str:
    return "unknown" if label == UNKNOWN else label


def _head(trained: TrainedRun, answer: Answer) -> html.Section:
    node = answer.node
    label, predicted = trained.label(node), trained.predicted(node)
    statement = "" if label == UNKNOWN or trained.problem.regression else "right" if label == predicted else "wrong"
    tags = [html.Span("training node", className="tag")] if trained.is_training(node) else []
    tags += [html.Span(statement, className=f"tag {statement}")] if statement else []
    sure = trained.probability(node)
    facts = [
        (truth_word(trained).capitalize(), _said(label), "label"),
        ("Prediction", predicted, "predicted"),
        *([] if sure is None else [("Probability", percent(sure), "probability")]),
        *_number_facts(trained, node),
        ("Variance", f"{answer.influence.variance:.4g}", "variance"),
    ]
    titles = {
        "Variance": "(J⁻¹)ᵢᵢ: how uncertain the node's mean is under this J before anything is observed",
        "Standard deviation": "of the prediction: 95 % intervals reach 1.96 of it to both sides",
    }
    return html.Section(
        [
            html.H2([f"Node {trained.title_of(node)}", *tags]),
            html.Dl(
                [
                    html.Div([html.Dt(name, title=titles.get(name)), html.Dd(value, id=f"fact-{key}")])
                    for name, value, key in facts
                ],
                className="facts",
            ),
            *_others(trained, node),
            _solved(answer),
        ]
    )


def _number_facts(trained: TrainedRun, node: int) -> list[tuple[str, str, str]]:
    """Of a predicted number: how far it is off, and how far it may be."""
    if not trained.problem.regression:
        return []
    off, deviation = float(trained.error[node]), trained.deviation
    facts = [] if off != off else [("Error", written(off, sign="+"), "error")]
    return facts + ([] if deviation is None else [("Standard deviation", written(deviation[node]), "deviation")])


def _columns(trained: TrainedRun, node: int) -> list[Any]:
    """The node's own columns, and how they compare with those of the others."""
    values = trained.values(node)[:MOST_COLUMNS]
    if not values:
        return []
    body = [
        html.Tr([html.Th(name, scope="row"), html.Td(_value(value)), html.Td(_rank(trained, name, value))])
        for name, value in values
    ]
    heads = html.Tr([html.Th(word, scope="col") for word in ("column", "value", "among all nodes")])
    table = html.Table([html.Thead(heads), html.Tbody(body)], id="columns")
    return [html.Details([html.Summary("Its columns"), html.Div(table, className="scroll")], open=True)]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return "unknown" if value != value else written(value, 6)
    return "unknown" if value is None else str(value)


def _rank(trained: TrainedRun, name: str, value: Any) -> str:
    table = trained.table if trained.table is not None else trained.problem.features
    if not isinstance(value, float) or value != value:
        return ""
    others = table[name].dropna()
    return "the largest" if value >= others.max() else f"above {min(100 * float((others < value).mean()), 99):.0f} %"


def _others(trained: TrainedRun, node: int) -> list[Any]:
    """The classes it was between."""
    if trained.problem.regression or len(trained.problem.classes) < 2:
        return []
    row = trained.output[node]
    best = row.argsort(descending=True)[:MOST_CLASSES].tolist()
    said = ", ".join(f"{trained.problem.classes[k]}: {percent(float(row[k]))}" for k in best[1:])
    return [html.P(f"Other classes: {said}", className="quiet")]


def _solved(answer: Answer) -> html.P:
    solution = answer.influence.solution
    words = f"{solution.solver}: {solution.steps} steps, residual {solution.residual:.0e}"
    if solution.converged:
        return html.P(words, className="quiet", id="solved")
    return html.P(f"{solution.solver} {solution.status.value} ({words})", className="warning", id="solved")


def _by_hop(answer: Answer) -> list[tuple[str, float]]:
    shares = answer.influence.share_by_hop().tolist()
    rows = [("itself" if k == 0 else f"{k} hop{'s' * (k > 1)}", share) for k, share in enumerate(shares[:MOST_HOPS])]
    rest = sum(shares[MOST_HOPS:])
    return rows + ([("further", rest)] if rest > 0 else [])


def _bars(title: str, key: str, first: str, rows: list[tuple[str, float]]) -> html.Table:
    most = max((share for _, share in rows), default=1.0) or 1.0
    body = [html.Tr([html.Th(name, scope="row"), bar(share / most), html.Td(percent(share))]) for name, share in rows]
    heads = html.Tr([html.Th(first), html.Th("", **{"aria-hidden": "true"}), html.Th("share")], className="unseen")
    return html.Table(
        [html.Caption(title), html.Thead(heads), html.Tbody(body)], id=f"by-{key}", className="bars-table"
    )


def _sources(trained: TrainedRun, answer: Answer) -> html.Section:
    found = answer.influence
    most = max(float(found.share[answer.listed].max(initial=0.0)), 1e-300)
    body = []
    for node in answer.listed.tolist():
        value, hops = float(found.value[node]), int(found.hops[node])
        words = "itself" if node == answer.node else None
        body.append(
            html.Tr(
                [
                    html.Td(node_button(trained, node, words)),
                    html.Td(_said(trained.label(node)), className="word"),
                    html.Td(str(hops) if hops >= 0 else "none"),
                    html.Td(f"{value:+.4g}", className="negative" if value < 0 else "positive"),
                    html.Td(percent(float(found.share[node]))),
                    *([] if answer.adds is None else [html.Td(added(trained, float(answer.adds[node])))]),
                    bar(float(found.share[node]) / most, "negative" if value < 0 else "positive"),
                ],
                **{"data-source": trained.name(node)},
            )
        )
    names = ["node", "value" if trained.problem.regression else "label", "hops", "influence", "share"]
    names += [] if answer.adds is None else ["its target adds" if trained.problem.regression else "its label's weight"]
    table = table_with_bars("sources", names, body, "Strongest sources")
    note = f"The {len(body)} strongest of {trained.num_nodes:,} nodes; the saved data hold all."
    if len(body) == 1:
        note = "No other node reaches it." if answer.adds is None else "No other node with a known target reaches it."
    return html.Section(
        [html.Div(table, className="scroll"), html.P(note, className="quiet"), *_total(trained, answer)]
    )


def added(trained: TrainedRun, value: float) -> str:
    """What one known target adds: a number in the target's units, or a weight among the labels."""
    return "" if value == 0 else written(value, sign="+") if trained.problem.regression else percent(value)


def _total(trained: TrainedRun, answer: Answer) -> list[Any]:
    if answer.adds is None or not trained.problem.regression:
        return []
    total = written(float(answer.adds.sum()), sign="+")
    words = f"Through this operator the known targets of other nodes say {total} here."
    return [html.P(words, id="adds-total")]


def _paths(trained: TrainedRun, answer: Answer) -> html.Section:
    if not answer.paths:
        return html.Section([html.H3("Strongest paths"), html.P("No edge leads to this node.", className="quiet")])
    items = []
    for path in answer.paths:
        steps: list[Any] = []
        for node in path.nodes:
            steps += [html.Span("→", className="arrow", **{"aria-label": "to"})] if steps else []
            steps.append(node_button(trained, node))
        total = float(answer.influence.value[path.source])
        part = path.weight / total if total else 0.0
        steps.append(
            html.Span(
                f"{path.weight:+.3g}", className="weight", title=f"{100 * part:.0f} % of what its source adds in all"
            )
        )
        items.append(html.Li(steps))
    return html.Section(
        [
            html.H3("Strongest paths"),
            html.Ol(items, id="paths", className="paths"),
            html.P("What this one walk adds; all walks together make the influence.", className="quiet"),
        ]
    )
