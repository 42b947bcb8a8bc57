"""The page of a run: one HTML file that needs nothing else, with the figures that take seconds."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jinja2 import Environment, PackageLoader
from torch import Tensor

from walksum import plot
from walksum.analysis.correlation import ordered
from walksum.analysis.hops import sample
from walksum.analysis.inverse import apply_inverse, units
from walksum.nn import GLT
from walksum.plot.overview import Tile, overview, shortened, without_formulas
from walksum.plot.theme import write
from walksum.workflow.figures import Listener, NamedFigure, spectral_response
from walksum.workflow.record import graph_text, ranked
from walksum.workflow.trained_run import TrainedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from walksum.workflow.fit import Result

MOST_ROWS = 40  # of classes, trials and sample predictions
SOURCES = 8  # nodes that explain one
SMALLEST_IMAGE = 4  # pixels per side
MOST_INVERTED = 1000  # nodes up to which all correlations are shown, and the whole spectrum
MEASURED, WORK = 8, 2.4e7  # nodes whose Jacobian is taken, and numbers in the gradients of one output: a second
DPI = 100


def write_page(result: Result, metrics: dict[str, Any], path: Path, settings: dict[str, Any]) -> None:
    """Write ``report.html`` for a run, from its kept model and its metrics."""
    trained = TrainedRun.of_prepared(result.job, result.prepared, result.model)
    explained = explain(result, trained)
    picture = _png(overview_of(result, trained, explained), None)
    path.with_name("picture.png").write_bytes(picture)
    loader = Environment(loader=PackageLoader("walksum.workflow", "."), autoescape=True, trim_blocks=True)
    page = loader.get_template("run.html").render(
        result=result,
        metrics=metrics,
        data=metrics["data"],
        picture=base64.b64encode(picture).decode(),
        scores=[(name, *score_text(metrics, name), seconds_text(metrics, name)) for name in ranked(metrics)],
        verdict=graph_text(metrics) if metrics["graph"] else None,
        figures=list(page_figures(result)),
        explained=explained,
        doubtful=_wrong_predictions(result, trained),
        most=MOST_ROWS,
        job=settings,
    )
    path.write_text(page, encoding="utf-8")


def _png(figure: Figure, dpi: float | None) -> bytes:
    picture = io.BytesIO()
    write(figure, picture, "png", dpi)
    return picture.getvalue()


def score_text(metrics: dict[str, Any], name: str) -> tuple[str, str]:
    """A method's score and its interval (one seed) or spread (several), in words."""
    record, accuracy = metrics["test"][name], metrics["score"] == "accuracy"
    show = (lambda v: f"{100 * v:.1f} %") if accuracy else (lambda v: f"{v:.3f}")
    if "low" in record:
        beside = f"{show(record['low'])} to {show(record['high'])}"
    else:
        beside = f"± {show(record['spread'])} over {len(record['values'])} seeds"
    if "mean_absolute_error" in record:
        beside += f"; mean error {record['mean_absolute_error']:.4g}"
    return show(record["mean"]), beside


def seconds_text(metrics: dict[str, Any], name: str) -> str:
    seconds = metrics.get("method_seconds", {}).get(name)
    return "" if seconds is None else f"{seconds:.1f}"


# ---- one node explained ----


@dataclasses.dataclass(frozen=True)
class Explained:
    """Where the mean of one node comes from: its row of J^-1 of the last layer, heads averaged."""

    node: int
    id: str
    truth: str
    own: float
    sources: list[tuple[int, float]]
    rows: list[tuple[str, str, float, bool]]  # id, true value, entry of J^-1, whether it is a training node


def explain(result: Result, trained: TrainedRun) -> Explained | None:
    node = node_to_explain(result) if isinstance(result.model, GLT) else None
    if node is None:
        return None
    J = trained.precisions[-1]
    try:
        weight = apply_inverse(J, units(J.num_nodes, torch.tensor([node]))).mean(0).squeeze(-1)
    except ValueError:  # a training that diverged has no J^-1
        return None
    own = float(weight[node])
    weight[node] = 0
    sources = [(k, float(weight[k])) for k in weight.abs().argsort(descending=True)[:SOURCES].tolist()]
    rows = [(trained.name(k), trained.label(k), share, trained.is_training(k)) for k, share in sources]
    return Explained(node, trained.name(node), trained.label(node), own, sources, rows)


def node_to_explain(result: Result) -> int | None:
    """The least sure test node that was still right; of numbers, the first test node."""
    test, problem = result.prepared.split.test, result.problem
    if problem.regression:
        return int(test[0])
    top = result.output[test].max(1)
    right = top.indices == problem.y[test]
    return int(test[right][top.values[right].argmin()]) if bool(right.any()) else None


def overview_of(result: Result, trained: TrainedRun, explained: Explained | None) -> Figure:
    test, problem = result.prepared.split.test, result.problem
    return overview(
        result.outcome.history,
        result.outcome.best.number,
        result.plain_scores,
        problem.y[test],
        result.prediction[test],
        problem.classes,
        None if explained is None else (_sentence(trained, explained), list(_tiles(trained, explained))),
        weights=_weights(result),
    )


def _weights(result: Result) -> dict[str, float] | None:
    """Of a portfolio: the weight of each kind of member."""
    if result.portfolio is None:
        return None
    found: dict[str, float] = {}
    for row in result.portfolio["members"]:
        kind = row["member"].split(",")[0]
        if row["weight"] > 0:
            found[kind] = found.get(kind, 0.0) + row["weight"]
    return dict(sorted(found.items(), key=lambda item: -item[1])[:6])


def _sentence(trained: TrainedRun, explained: Explained) -> str:
    target = f"{trained.problem.target} " if trained.problem.regression else ""
    which = without_formulas(f"Node {explained.id} ({target}{explained.truth})")
    return (
        f"{which}: the nodes with the largest entries in its row of the last layer's J$^{{-1}}$"
        f" (its own entry: {explained.own:.2f}; framed: training nodes)"
    )


def _tiles(trained: TrainedRun, explained: Explained) -> Iterator[Tile]:
    for node, share in [(explained.node, None), *explained.sources]:
        first = "this node" if share is None else f"{share:+.3f}"
        title = f"{first}\n{shortened(trained.label(node), 12)}"
        yield Tile(title, trained.name(node), _image(trained, node), trained.is_training(node))


def _image(trained: TrainedRun, node: int) -> Tensor | None:
    """The image of a digit, or features folded into a square; None of a table or of few features."""
    x = trained.x[node]
    side = int(x.numel() ** 0.5)
    if not isinstance(trained.problem.features, Tensor) or side < SMALLEST_IMAGE:
        return None
    return x[: side * side].view(side, side)


def _wrong_predictions(result: Result, trained: TrainedRun) -> list[tuple[str, str, str, str]]:
    """Test nodes the model was sure of and wrong about: where to look for label errors."""
    test, problem = result.prepared.split.test, result.problem
    if problem.regression:
        off = (result.output[test] - problem.y[test]).abs()
        order = test[off.argsort(descending=True)][:10].tolist()
        return [(problem.ids[k], trained.label(k), f"{float(result.output[k]):.4g}", "") for k in order]
    wrong = test[result.prediction[test] != problem.y[test]]
    order = wrong[result.output[wrong].max(1).values.argsort(descending=True)][:10].tolist()
    return [
        (problem.ids[k], trained.label(k), problem.classes[guess], f"{float(result.output[k, guess]):.2f}")
        for k, guess in zip(order, result.prediction[order].tolist(), strict=True)
    ]


# ---- figures ----

Make = Callable[[Listener], tuple[NamedFigure, str]]


def page_figures(result: Result) -> Iterator[tuple[str, str | None, str]]:
    """Title, PNG in base64 and what it shows. A figure that cannot be drawn has no picture and says why."""
    trained = TrainedRun.of_prepared(result.job, result.prepared, result.model)
    for title, make in _wanted(trained, result):
        notes: list[str] = []
        try:
            figure, text = make(Listener(note=notes.append))
            picture = _png(figure.draw("light"), DPI)
        except (ValueError, RuntimeError) as error:  # a training that diverged is still worth its page
            yield title, None, f"could not be drawn: {error}"
            continue
        yield title, base64.b64encode(picture).decode(), " ".join([text, *(f"{n}." for n in notes)])


def _wanted(trained: TrainedRun, result: Result) -> Iterator[tuple[str, Make]]:
    if result.portfolio is not None:  # it has neither epochs nor a J
        return
    yield "How it learned", lambda listener: _learning(result)
    if isinstance(trained.model, GLT):
        yield "The graph as a Gaussian graphical model", lambda listener: _graph(trained, result)
        yield "Which nodes move together", lambda listener: _correlation(trained, listener)
        yield "What it lets pass", lambda listener: _response(trained)
    yield "How far it looks", lambda listener: _hops(trained)


def _learning(result: Result) -> tuple[NamedFigure, str]:
    outcome, score = result.outcome, "R²" if result.problem.regression else "accuracy"
    figure = NamedFigure(
        "learning", lambda theme: plot.learning(outcome.history, outcome.best.number, score, theme=theme)
    )
    return figure, "Losses and the validation score, by which the kept weights were chosen."


def _graph(trained: TrainedRun, result: Result) -> tuple[NamedFigure, str]:
    J, ids = trained.precisions[-1], [str(name) for name in trained.problem.ids]
    sure = None if result.variance is None else 1 / result.variance  # of the last layer; seconds on large graphs
    text = (
        "The last layer: nodes shaded by their confidence, edges coloured by whether they pull their ends together or "
        "push them apart, and as wide as they are strong."
    )
    return NamedFigure("graph", lambda theme: plot.graphical_model(J, confidence=sure, labels=ids, theme=theme)), text


def _correlation(trained: TrainedRun, listener: Listener) -> tuple[NamedFigure, str]:
    J = trained.precisions[0]
    shown = ordered(J, most=MOST_INVERTED)
    if shown.note:
        listener.note(shown.note[:1].upper() + shown.note[1:])
    heads = f", the mean over {J.heads} heads" if J.heads > 1 else ""
    text = f"Correlations of the first layer's Gaussian before anything is observed{heads}, beside the couplings."
    return NamedFigure("correlation", lambda theme: plot.correlations(shown, theme=theme)), text


def _response(trained: TrainedRun) -> tuple[NamedFigure, str]:
    figure = spectral_response(trained, 0, Listener(), MOST_INVERTED)
    return figure, "The gain of the first layer's mixing for signals from smooth to alternating over the edges."


def _hops(trained: TrainedRun) -> tuple[NamedFigure, str]:
    nodes = sample(trained.x, WORK)[:MEASURED]
    found = {trained.title: trained.hops(nodes)}
    text = f"The share of a node's output that comes from so many hops away, by the Jacobian at {nodes.numel()} nodes."
    return NamedFigure("influence-by-hop", lambda theme: plot.hops(found, theme=theme)), text
