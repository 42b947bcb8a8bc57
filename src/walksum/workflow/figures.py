"""The figures of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from walksum import plot
from walksum.analysis.convergence import steps_by_epoch
from walksum.analysis.correlation import ordered
from walksum.analysis.part import ball, restrict, typical_node
from walksum.analysis.spectrum import SPECTRUM_LIMIT, response, spectrum
from walksum.data.problem import Problem
from walksum.nn import GLT
from walksum.training import Epoch
from walksum.workflow.fit import prepare_data
from walksum.workflow.models import check_model
from walksum.workflow.run import Run
from walksum.workflow.subject import COMPARED, Drawing, Listener, Subject, compared_hops, small_part

MEDIUM = 800  # nodes of a part, where the whole graph is too large for N^3


def of_run(
    run: Run,
    problem: Problem,
    compare: Sequence[str] = COMPARED,
    layer: int = 1,
    listener: Listener | None = None,
) -> Iterator[Drawing]:
    """The figures of a run, one after another.

    Args:
        run: a folder read back by :func:`walksum.workflow.run.open_run`.
        problem: the graph it was trained on.
        compare: models trained on the same nodes for the figure of influence by hop.
        layer: whose J is drawn, from 1 on.
        listener: told what is being done, and what is left out.
    """
    for name in compare:
        check_model(name)
    listener = listener or Listener()
    model, x = run.model, run.encoding.encode(problem.features)
    layers = len(model.mixers) if isinstance(model, GLT) else 0
    if layers and not 1 <= layer <= layers:
        raise ValueError(f"layer={layer}; the model has layers 1 to {layers}")
    prepared = prepare_data(run.job, problem) if problem.labelled.numel() else None
    subject = Subject(run.job, problem, model, x, prepared)
    history = read_history(run.metrics["history"])
    best, score = run.metrics["best_epoch"]["number"], run.metrics["score"]
    yield Drawing("learning", lambda theme: plot.learning(history, best, score, theme=theme))
    if isinstance(model, GLT):
        yield from of_precision(subject, layer - 1, listener)
        yield from solving(subject, layer - 1, history, listener)
    else:
        listener.note(
            f"model {run.job.model} has no J to draw: graphical model, correlation, spectral response, convergence and "
            "walk sums are left out"
        )
    yield influence_by_hop(subject, compare, listener)


def of_precision(subject: Subject, layer: int, listener: Listener) -> Iterator[Drawing]:
    """What J is, and what J^-1 does."""
    J, ids = subject.precision(layer), [str(name) for name in subject.problem.ids]
    yield Drawing("graphical-model", lambda theme: plot.graphical_model(J, labels=ids, theme=theme))
    listener.doing("inverting J")
    shown = ordered(J)
    if shown.note:
        listener.note(f"correlation: {shown.note}")
    yield Drawing("correlation", lambda theme: plot.correlations(shown, theme=theme))
    if J.heads > 1 and J.num_nodes <= SPECTRUM_LIMIT:
        yield Drawing("correlation-heads", lambda theme: plot.heads(J, theme=theme))
    yield spectral_response(subject, layer, listener)


def spectral_response(subject: Subject, layer: int, listener: Listener, most: int = SPECTRUM_LIMIT) -> Drawing:
    J, before, kind = subject.precision(layer), subject.untrained(layer), subject.design
    if J.num_nodes > most:
        centre = typical_node(J.graph)
        nodes = ball(J.graph, centre, MEDIUM)
        kind += f", {nodes.numel()} of {J.num_nodes} nodes"
        listener.note(f"spectral response: of the {nodes.numel()} nodes around node {centre}")
        J, before = restrict(J, nodes), None if before is None else restrict(before, nodes)
    listener.doing("taking the graph's spectrum apart")
    axes = spectrum(J.graph)
    after = {kind: response(J, axes)}
    earlier = {} if before is None else {kind: response(before, axes)}
    return Drawing("spectral-response", lambda theme: plot.responses(after, earlier, theme=theme))


def solving(subject: Subject, layer: int, history: list[Epoch], listener: Listener) -> Iterator[Drawing]:
    """How mu is found: residuals, steps, and walks."""
    listener.doing("solving with every solver")
    curves = subject.curves(layer)
    yield Drawing("convergence", lambda theme: plot.residuals(curves, theme=theme))
    counted = steps_by_epoch(history)
    if counted is not None and max(counted[0]) > 0:
        yield Drawing("steps-by-epoch", lambda theme: plot.steps({subject.job.title: history}, theme=theme))
    elif counted is not None:
        listener.note("steps by epoch: training solved directly, without steps")
    part, centre = small_part(subject.precision(layer))
    yield Drawing("walk-sums", lambda theme: plot.walk_sums(part, centre, theme=theme))


def influence_by_hop(subject: Subject, compare: Sequence[str], listener: Listener) -> Drawing:
    listener.doing("measuring influence by hop")
    found = {subject.job.title: subject.hops()}
    if compare and subject.prepared is None:
        listener.note(
            "influence by hop: without labels there is nothing to train compared models on (those of tables are not "
            "read again)"
        )
    elif compare:
        own = subject.job
        found |= compared_hops(
            compare, subject, lambda name: replace(own, model=name, lr=None, patience=None), listener
        )
    return Drawing("influence-by-hop", lambda theme: plot.hops(found, theme=theme))


def read_history(history: list[dict[str, Any]]) -> list[Epoch]:
    """Epochs as metrics.json holds them: null was NaN, and older files lack what newer ones measure."""
    known = {each.name for each in fields(Epoch)}
    steps = {"forward_steps", "backward_steps"}
    read = []
    for record in history:
        values: dict[str, Any] = {name: value for name, value in record.items() if name in known}
        values |= {name: math.nan for name, value in values.items() if value is None and name not in steps}
        read.append(Epoch(**values))
    return read
