"""The page of a run: one HTML file that needs nothing else, with the figures that take seconds."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from torch import Tensor

from walksum import plot
from walksum.analysis.correlation import ordered
from walksum.analysis.hops import sample
from walksum.analysis.inverse import marginal_variance
from walksum.data.numerals import written
from walksum.nn import GLT
from walksum.plot.overview import Tile, overview, shortened, without_formulas
from walksum.plot.theme import write
from walksum.workflow import page_charts as charts
from walksum.workflow.figures import Listener, NamedFigure, member_weights, spectral_response
from walksum.workflow.metrics import in_own_units, ranked
from walksum.workflow.page_findings import (
    Explained,
    calibration_bins,
    confusion,
    explain,
    heading,
    importance_title,
    most_wrong,
    numeric_columns,
    score_name,
    shown,
    target_name,
    verdict,
)
from walksum.workflow.trained_run import TrainedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from walksum.workflow.fit import Result

MOST_ROWS = 40  # of classes, trials and members
MOST_LETTERS = 110  # of all classes together, up to which their names fit above the columns of a table
SMALLEST_IMAGE = 4  # pixels per side
MOST_INVERTED = 1000  # nodes up to which all correlations are shown, and the whole spectrum
MEASURED, WORK = 8, 2.4e7  # nodes whose Jacobian is taken, and numbers in the gradients of one output: a second
DPI = 100
LARGEST_SVG = 400_000  # bytes; of more points a PNG is smaller
RESIDUAL_COLUMNS = 6


def write_page(result: Result, metrics: dict[str, Any], path: Path, settings: dict[str, Any]) -> None:
    """Write ``report.html`` for a run, from its kept model and its metrics."""
    trained = TrainedRun.of_prepared(result.job, result.prepared, result.model)
    explained = explain(result, trained)
    picture = _png(overview_of(result, trained, explained), None)
    path.with_name("picture.png").write_bytes(picture)
    heads, rows = most_wrong(result, trained, metrics)
    loader = Environment(loader=PackageLoader("walksum.workflow", "."), autoescape=True, trim_blocks=True)
    loader.filters["written"] = written
    page = loader.get_template("run.html").render(
        metrics=metrics,
        data=metrics["data"],
        score=score_name(metrics),
        target=target_name(metrics),
        heading=heading(metrics, table=bool(result.problem.columns)),
        verdict=verdict(metrics),
        scores=[(name, *score_text(metrics, name), seconds_text(metrics, name)) for name in ranked(metrics)],
        comparison=comparison_chart(metrics),
        confusion=confusion(result),
        importance=importance_chart(metrics),
        wrong_heads=heads,
        wrong=rows,
        explained=explained,
        picture=base64.b64encode(picture).decode() if _image(trained, 0) is not None else None,
        figures=list(page_figures(result)),
        most=MOST_ROWS,
        most_letters=MOST_LETTERS,
        job=settings,
        **charts_of_test(result, metrics),
    )
    path.write_text(page, encoding="utf-8")


def charts_of_test(result: Result, metrics: dict[str, Any]) -> dict[str, Any]:
    """What the test nodes show: residuals and intervals of numbers, calibration of classes."""
    test, problem = result.prepared.split.test, result.problem
    if not problem.regression:
        said, right, count = np.array(bins := calibration_bins(result)).T
        return {"calibration": charts.calibration(bins), "ece": np.average(abs(said - right), weights=count)}
    predicted, truth = result.output[test].double().numpy(), problem.y[test].double().numpy()
    error = predicted - truth
    by_column = []
    for name in numeric_columns(result, RESIDUAL_COLUMNS, metrics):
        values = problem.features[name].to_numpy(np.float64)[test.numpy()]
        by_column.append(charts.residuals_by(values, error, name))
    found: dict[str, Any] = {"residuals": charts.residuals(predicted, error, problem.target)}
    found["by_column"] = [chart for chart in by_column if chart is not None]
    if result.low is not None and result.high is not None:
        low, high = (ends[test].double().numpy() for ends in (result.low, result.high))
        found["intervals"] = charts.intervals(predicted, low, high, truth, problem.target)
    return found


def comparison_chart(metrics: dict[str, Any]) -> Markup:
    rows = []
    for name in ranked(metrics):
        record = metrics["test"][name]
        low, high = (record.get(end) for end in ("low", "high"))
        rows.append((name, record["mean"], low, high, shown(metrics, record["mean"]), name == metrics["model"]))
    return charts.bars(rows, f"Test {score_name(metrics)} of every method, with its 95 % interval")


def importance_chart(metrics: dict[str, Any]) -> Markup | None:
    """By how much the score falls when a column is shuffled, where that was measured."""
    found = metrics.get("importance")
    if not found:
        return None
    rows = []
    for each in found[:MOST_ROWS]:
        drop, two = each["importance"], 1.96 * (each["standard_error"] or 0.0)
        text = f"{100 * drop:.1f} points" if metrics["score"] == "accuracy" else shown(metrics, drop)
        rows.append((str(each["column"]), drop, drop - two, drop + two, text, False))
    return charts.bars(rows, importance_title(metrics))


def _png(figure: Figure, dpi: float | None) -> bytes:
    picture = io.BytesIO()
    write(figure, picture, "png", dpi)
    return picture.getvalue()


def score_text(metrics: dict[str, Any], name: str) -> tuple[str, str]:
    """A method's score and its interval (one seed) or spread (several), in words."""
    record = metrics["test"][name]
    if "low" in record:
        beside = f"{shown(metrics, record['low'])} to {shown(metrics, record['high'])}"
    else:
        beside = f"± {shown(metrics, record['spread'])} over {len(record['values'])} seeds"
    return shown(metrics, record["mean"]), beside


def seconds_text(metrics: dict[str, Any], name: str) -> str:
    seconds = metrics.get("method_seconds", {}).get(name)
    return "" if seconds is None else f"{seconds:.1f}"


def overview_of(result: Result, trained: TrainedRun, explained: Explained | None) -> Figure:
    test, problem, metric = result.prepared.split.test, result.problem, result.prepared.scorer.metric
    return overview(
        in_own_units(result.outcome.history, metric.sign > 0),
        result.outcome.best.number,
        result.plain_scores,
        problem.y[test],
        result.prediction[test],
        problem.classes,
        None if explained is None else (_sentence(trained, explained), list(_tiles(trained, explained))),
        score=metric.title,
        weights=None if result.portfolio is None else member_weights(result.portfolio["members"]),
    )


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


# ---- figures ----

Make = Callable[[Listener], tuple[NamedFigure, str]]


def page_figures(result: Result) -> Iterator[tuple[str, list[str], str]]:
    """Title, a light and a dark picture as data addresses, and what they show; without pictures, why there are none."""
    if result.interrupted:  # who ends a training waits for its page; ``walksum figures`` draws a folder's model
        return
    trained = TrainedRun.of_prepared(result.job, result.prepared, result.model)
    for title, make in _wanted(trained, result):
        notes: list[str] = []
        try:
            figure, text = make(Listener(note=notes.append))
            pictures = [_address(figure.draw(theme)) for theme in ("light", "dark")]
        except (ValueError, RuntimeError) as error:  # a training that diverged is still worth its page
            yield title, [], f"could not be drawn: {error}"
            continue
        yield title, pictures, " ".join([text, *(f"{n}." for n in notes)])


def _address(figure: Figure) -> str:
    """The figure as a data address: vectors, or pixels where these are smaller."""
    vectors = io.BytesIO()
    write(figure, vectors, "svg")
    kind, content = "svg+xml", vectors.getvalue()
    if len(content) > LARGEST_SVG:
        kind, content = "png", _png(figure, DPI)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _wanted(trained: TrainedRun, result: Result) -> Iterator[tuple[str, Make]]:
    if result.portfolio is not None:  # it has neither epochs nor a J
        return
    yield "How it learned", lambda listener: _learning(result)
    if isinstance(trained.model, GLT):
        yield "The graph as a Gaussian graphical model", lambda listener: _graph(trained)
        yield "Which nodes move together", lambda listener: _correlation(trained, listener)
        yield "What it lets pass", lambda listener: _response(trained)
    yield "How far it looks", lambda listener: _hops(trained)


def _learning(result: Result) -> tuple[NamedFigure, str]:
    best, metric = result.outcome.best.number, result.prepared.scorer.metric
    history = in_own_units(result.outcome.history, metric.sign > 0)
    figure = NamedFigure("learning", partial(plot.learning, history, best, metric.title))
    return figure, "Losses and the validation score, by which the kept weights were chosen."


def _graph(trained: TrainedRun) -> tuple[NamedFigure, str]:
    J, ids = trained.precisions[-1], [str(name) for name in trained.problem.ids]
    sure = 1 / marginal_variance(J)[0]
    text = (
        "The last layer: nodes shaded by their confidence, edges coloured by whether they pull their ends together or "
        "push them apart, and as wide as they are strong."
    )
    return NamedFigure("graph", partial(plot.graphical_model, J, confidence=sure, labels=ids)), text


def _correlation(trained: TrainedRun, listener: Listener) -> tuple[NamedFigure, str]:
    J = trained.precisions[0]
    shown = ordered(J, most=MOST_INVERTED)
    if shown.note:
        listener.note(shown.note[:1].upper() + shown.note[1:])
    heads = f", the mean over {J.heads} heads" if J.heads > 1 else ""
    text = f"Correlations of the first layer's Gaussian before anything is observed{heads}, beside the couplings."
    return NamedFigure("correlation", partial(plot.correlations, shown)), text


def _response(trained: TrainedRun) -> tuple[NamedFigure, str]:
    figure = spectral_response(trained, 0, Listener(), MOST_INVERTED)
    return figure, "The gain of the first layer's mixing for signals from smooth to alternating over the edges."


def _hops(trained: TrainedRun) -> tuple[NamedFigure, str]:
    nodes = sample(trained.x, WORK)[:MEASURED]
    found = {trained.title: trained.hops(nodes)}
    text = f"The share of a node's output that comes from so many hops away, by the Jacobian at {nodes.numel()} nodes."
    return NamedFigure("influence-by-hop", partial(plot.hops, found)), text
