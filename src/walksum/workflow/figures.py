"""Draw the figures of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from walksum import plot
from walksum.analysis.convergence import steps_by_epoch
from walksum.analysis.correlation import ordered
from walksum.analysis.hops import Hops
from walksum.analysis.part import ball, restrict, typical_node
from walksum.analysis.spectrum import SPECTRUM_LIMIT, response, spectrum
from walksum.data.problem import Problem
from walksum.nn import GLT
from walksum.portfolio.fit import Portfolio
from walksum.precision import Precision
from walksum.training import Epoch
from walksum.training.models import model_by_name
from walksum.workflow.fit import OnEpoch, fit_model
from walksum.workflow.job import Job
from walksum.workflow.metrics import in_own_units
from walksum.workflow.prepare import prepare_data
from walksum.workflow.run import Run
from walksum.workflow.trained_run import TrainedRun, open_trained_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARED = ("gcn", "gat", "appnp")
SMALL = 25  # nodes that can be looked at one by one
MOST_KINDS = 6  # of members in a figure of their weights
MEDIUM = 800  # nodes of a part, where the whole graph is too large for N^3


@dataclass(frozen=True)
class NamedFigure:
    """A figure that can be drawn in any theme: ``draw("dark")``."""

    name: str
    make: Callable[..., Figure]  # called with theme=

    def draw(self, theme: str) -> Figure:
        return self.make(theme=theme)


@dataclass(frozen=True)
class Listener:
    """Callbacks: what is being done, what is left out and why, and how trainings go."""

    doing: Callable[[str], None] = lambda text: None
    note: Callable[[str], None] = lambda text: None
    on_epoch: OnEpoch | None = None

    def named(self, name: str) -> OnEpoch | None:
        """``on_epoch`` with another name in place of the model's."""
        if self.on_epoch is None:
            return None
        tell = self.on_epoch
        return lambda _, epoch, best, recipe: tell(name, epoch, best, recipe)


def of_run(
    run: Run,
    problem: Problem,
    compare: Sequence[str] = COMPARED,
    layer: int = 1,
    listener: Listener | None = None,
) -> Iterator[NamedFigure]:
    """The figures of a run, one after another.

    Args:
        run: a folder read back by :func:`walksum.workflow.run.open_run`.
        problem: the graph it was trained on.
        compare: models trained on the same nodes for the figure of influence by hop.
        layer: whose J is drawn, from 1 on.
        listener: its callbacks receive what is being done and what is left out.
    """
    for name in compare:
        model_by_name(name)
    listener = listener or Listener()
    prepared = prepare_data(run.job, problem) if problem.labelled.numel() else None
    trained = open_trained_run(run, problem, run.job.title, prepared)
    layers, many = len(trained.operators), isinstance(trained.model, Portfolio)
    if layers and not 1 <= layer <= layers:
        raise ValueError(f"layer={layer}; the model has {'operators' if many else 'layers'} 1 to {layers}")
    if many:
        yield from of_portfolio(trained, layer - 1, listener)
        return
    history = [Epoch.from_json(each) for each in run.metrics["history"]]
    history = in_own_units(history, run.metrics.get("higher_is_better", True))
    best, score = run.metrics["best_epoch"]["number"], run.metrics["score"]
    yield NamedFigure("learning", partial(plot.learning, history, best, score))
    if isinstance(trained.model, GLT):
        yield from of_precision(trained, layer - 1, listener)
        yield from solving(trained, layer - 1, history, listener)
    else:
        listener.note(
            f"model {run.job.model} has no J to draw: graphical model, correlation, spectral response, convergence and "
            "walk sums are left out"
        )
    yield influence_by_hop(trained, compare, listener)


def of_portfolio(trained: TrainedRun, layer: int, listener: Listener) -> Iterator[NamedFigure]:
    """Figures of a portfolio: its members, and one of its operators; it has no epochs and no single Jacobian."""
    assert trained.metrics is not None
    weights = member_weights(trained.metrics["portfolio"]["members"])
    yield NamedFigure("members", partial(plot.member_weights, weights))
    if not trained.operators:
        listener.note("no member that carries weight reads the graph: there is no operator to draw")
        return
    listener.note(f"J is that of the operator {trained.operators[layer].name!r}; layer= chooses another")
    yield from of_precision(trained, layer, listener)
    part, centre = small_part(trained.precisions[layer])
    yield NamedFigure("walk-sums", partial(plot.walk_sums, part, centre))


def member_weights(members: list[dict[str, Any]]) -> dict[str, float]:
    """The weight of each kind of member, the heaviest first."""
    found: dict[str, float] = {}
    for row in members:
        kind = row["member"].split(",")[0]
        if row["weight"] > 0:
            found[kind] = found.get(kind, 0.0) + row["weight"]
    return dict(sorted(found.items(), key=lambda item: -item[1])[:MOST_KINDS])


def of_precision(trained: TrainedRun, layer: int, listener: Listener) -> Iterator[NamedFigure]:
    """Figures of J and of what J^-1 does."""
    J, ids = trained.precisions[layer], [str(name) for name in trained.problem.ids]
    yield NamedFigure("graphical-model", partial(plot.graphical_model, J, labels=ids))
    listener.doing("inverting J")
    shown = ordered(J)
    if shown.note:
        listener.note(f"correlation: {shown.note}")
    yield NamedFigure("correlation", partial(plot.correlations, shown))
    if J.heads > 1 and J.num_nodes <= SPECTRUM_LIMIT:
        yield NamedFigure("correlation-heads", partial(plot.heads, J))
    yield spectral_response(trained, layer, listener)


def spectral_response(trained: TrainedRun, layer: int, listener: Listener, most: int = SPECTRUM_LIMIT) -> NamedFigure:
    J, before, kind = trained.precisions[layer], trained.untrained(layer), trained.kind(layer)
    if J.num_nodes > most:
        centre = typical_node(J.graph)
        nodes = ball(J.graph, centre, MEDIUM)
        kind += f", {nodes.numel()} of {J.num_nodes} nodes"
        listener.note(f"spectral response: of the {nodes.numel()} nodes around node {trained.name(centre)}")
        J, before = restrict(J, nodes), None if before is None else restrict(before, nodes)
    listener.doing("taking the graph's spectrum apart")
    axes = spectrum(J.graph)
    after = {kind: response(J, axes)}
    earlier = {} if before is None else {kind: response(before, axes)}
    return NamedFigure("spectral-response", partial(plot.responses, after, earlier))


def solving(trained: TrainedRun, layer: int, history: list[Epoch], listener: Listener) -> Iterator[NamedFigure]:
    """Figures of the solves: residuals, steps, and walk sums."""
    listener.doing("solving with every solver")
    curves = trained.curves(layer)
    yield NamedFigure("convergence", partial(plot.residuals, curves))
    counted = steps_by_epoch(history)
    if counted is not None and max(counted[0]) > 0:
        yield NamedFigure("steps-by-epoch", partial(plot.steps, {trained.title: history}))
    elif counted is not None:
        listener.note("steps by epoch: training solved directly, without steps")
    part, centre = small_part(trained.precisions[layer])
    yield NamedFigure("walk-sums", partial(plot.walk_sums, part, centre))


def influence_by_hop(trained: TrainedRun, compare: Sequence[str], listener: Listener) -> NamedFigure:
    listener.doing("measuring influence by hop")
    found = {trained.title: trained.hops()}
    if compare and trained.prepared is None:
        listener.note(
            "influence by hop: without labels there is nothing to train compared models on (those of tables are not "
            "read again)"
        )
    elif compare:
        own = trained.job
        assert own is not None
        found |= compared_hops(
            compare, trained, lambda name: replace(own, model=name, lr=None, patience=None), listener
        )
    return NamedFigure("influence-by-hop", partial(plot.hops, found))


def compared_hops(
    names: Sequence[str], like: TrainedRun, make_job: Callable[[str], Job], listener: Listener
) -> dict[str, Hops]:
    """Influence by hop of other models, trained on the same nodes."""
    found = {}
    for name in names:
        if like.job is not None and name == like.job.model:
            continue
        listener.doing(f"training {name}")
        job = make_job(name)
        prepared = prepare_data(job, like.problem)
        model, outcome = fit_model(job, prepared, listener.on_epoch)
        if outcome.interrupted:
            raise KeyboardInterrupt
        found[name.upper()] = TrainedRun.of_prepared(job, prepared, model).hops()
    return found


def small_part(J: Precision) -> tuple[Precision, int]:
    """A part of the graph small enough to see each node, and its best connected node."""
    if J.num_nodes > SMALL:
        J = restrict(J, ball(J.graph, typical_node(J.graph), SMALL, fanout=3))
    return J, int(J.graph.degree.argmax())
