"""The paper's figures 1 and 4 to 7, and those it lacks: six designs trained on one graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from walksum import plot
from walksum.analysis.correlation import ordered
from walksum.analysis.spectrum import response
from walksum.data.problem import Problem
from walksum.designs import DESIGNS, NAMES
from walksum.nn import GLT
from walksum.paper.rows import PAPERS_GABP
from walksum.precision import Precision
from walksum.training import Data, Epoch, fit
from walksum.workflow.figures import COMPARED, Listener, NamedFigure, compared_hops, small_part
from walksum.workflow.fit import fit_model, make_model
from walksum.workflow.job import Job
from walksum.workflow.prepare import prepare_data
from walksum.workflow.trained_run import TrainedRun

COUNTED = 60  # epochs solved by the paper's algorithm: the fixed Laplacian takes its 1000 steps in each of them
ILLUSTRATED = 50  # nodes of figure 1
SOLVED = ("fixed Laplacian", "learned Laplacian", "learned pairwise normal")  # the hardest system, and two easy ones


def of_paper(
    problem: Problem,
    seed: int = 0,
    compare: Sequence[str] = COMPARED,
    listener: Listener | None = None,
    max_epochs: int = 2000,
) -> Iterator[NamedFigure]:
    """Train the paper's six designs on a graph and draw what they do to it.

    Args:
        problem: the graph; the paper's is Wisconsin.
        seed: of the split and the initial weights.
        compare: models trained beside them for influence by hop.
        listener: its callbacks receive what is being done.
        max_epochs: of each training.
    """
    listener = listener or Listener()
    runs, histories = {}, {}
    for learned in (False, True):
        for design in NAMES[::-1]:
            trained = train_design(
                Job(design=design, learned=learned, seed=seed, max_epochs=max_epochs), problem, listener
            )
            runs[trained.design] = trained
            histories[trained.design] = count_steps(trained, min(COUNTED, max_epochs), listener)
    J = {name: trained.precisions[0] for name, trained in runs.items()}
    yield from _correlations(J, listener)
    after = {name: response(each) for name, each in J.items()}
    starts = {name: trained.untrained() for name, trained in runs.items()}
    before = {name: response(each) for name, each in starts.items() if each is not None}
    yield NamedFigure("spectral-response", partial(plot.responses, after, before))
    yield _influence_by_hop(runs, compare, max_epochs, listener)
    listener.doing("solving with every solver")
    curves = {name: runs[name].curves() for name in SOLVED}
    yield NamedFigure("convergence", partial(plot.residuals, curves))
    yield NamedFigure("steps-by-epoch", partial(plot.steps, histories))
    part, centre = small_part(J["fixed Laplacian"])
    yield NamedFigure("walk-sums", partial(plot.walk_sums, part, centre))


def train_design(job: Job, problem: Problem, listener: Listener) -> TrainedRun:
    """One of the six, trained with exact solves."""
    kind = f"{'learned' if job.learned else 'fixed'} {DESIGNS[job.design].title}"
    listener.doing(f"training {kind}")
    prepared = prepare_data(job, problem)
    model, outcome = fit_model(job, prepared, listener.named(kind))
    if outcome.interrupted:
        raise KeyboardInterrupt
    return TrainedRun.of_prepared(job, prepared, model)


def count_steps(like: TrainedRun, epochs: int, listener: Listener) -> list[Epoch]:
    """The first epochs of the same training, solved by the paper's algorithm and stop rule to count its steps."""
    assert like.prepared is not None
    assert like.job is not None
    prepared, problem, name = like.prepared, like.problem, like.design
    model, recipe = make_model(like.job, problem, prepared.encoding), replace(like.job.recipe(), max_epochs=epochs)
    assert isinstance(model, GLT)
    for layer in model.mixers:
        layer.solver, layer.on_nonconverged = PAPERS_GABP, "ignore"
    show = listener.named(f"{name}, by the paper's algorithm")
    on_epoch = None if show is None else lambda epoch, best: show(name, epoch, best, recipe)
    data = Data(prepared.x, problem.graph, prepared.y, prepared.split, problem.task)
    outcome = fit(model, data, recipe, on_epoch=on_epoch)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.history


def _correlations(J: dict[str, Precision], listener: Listener) -> Iterator[NamedFigure]:
    learned = {name: each for name, each in J.items() if name.startswith("learned")}
    pulls_and_pushes = {name: learned[name] for name in ("learned Laplacian", "learned pairwise normal")}
    style: Any = {"most": ILLUSTRATED, "beside_graph": True}
    yield NamedFigure("figure-1", partial(plot.graphical_model, pulls_and_pushes, **style))
    listener.doing("inverting J of six designs")
    fixed = {name: ordered(each) for name, each in J.items() if name not in learned}
    yield NamedFigure("figure-4", partial(plot.correlations, fixed))
    for number, (name, each) in zip((5, 6, 7), learned.items(), strict=True):
        yield NamedFigure(f"figure-{number}", partial(plot.correlations, {name: ordered(each)}))
        yield NamedFigure(f"figure-{number}-heads", partial(plot.heads, each))


def _influence_by_hop(
    runs: dict[str, TrainedRun], compare: Sequence[str], max_epochs: int, listener: Listener
) -> NamedFigure:
    listener.doing("measuring influence by hop")
    like = next(iter(runs.values()))
    found = {name: trained.hops() for name, trained in runs.items()}
    assert like.job is not None
    seed = like.job.seed
    found |= compared_hops(compare, like, lambda name: Job(model=name, seed=seed, max_epochs=max_epochs), listener)
    return NamedFigure("influence-by-hop", partial(plot.hops, found))
