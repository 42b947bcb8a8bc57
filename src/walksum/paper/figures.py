"""The paper's figures 1 and 4 to 7, and those it lacks: six designs trained on one graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from walksum import plot
from walksum.analysis.correlation import Correlation, ordered
from walksum.analysis.spectrum import response
from walksum.data.problem import Problem
from walksum.designs import DESIGNS, NAMES
from walksum.nn import GLT
from walksum.precision import Precision
from walksum.solvers import GaBP
from walksum.training.loop import Epoch, train
from walksum.workflow.fit import Job, fit_model, make_model, material_of
from walksum.workflow.subject import COMPARED, Drawing, Listener, Subject, compared_hops, small_part

COUNTED = 60  # epochs solved by the paper's algorithm: the fixed Laplacian takes its 1000 steps in each of them
ILLUSTRATED = 50  # nodes of figure 1
SOLVED = ("fixed Laplacian", "learned Laplacian", "learned pairwise normal")  # the hardest system, and two easy ones


def of_paper(
    problem: Problem,
    seed: int = 0,
    compare: Sequence[str] = COMPARED,
    listener: Listener | None = None,
    max_epochs: int = 2000,
) -> Iterator[Drawing]:
    """Train the paper's six designs on a graph and draw what they do to it.

    Args:
        problem: the graph; the paper's is Wisconsin.
        seed: of the split and the initial weights.
        compare: models trained beside them for influence by hop.
        listener: told what is being done.
        max_epochs: of each training.
    """
    listener = listener or Listener()
    subjects, histories = {}, {}
    for learned in (False, True):
        for design in NAMES[::-1]:
            subject = train_design(
                Job(design=design, learned=learned, seed=seed, max_epochs=max_epochs), problem, listener
            )
            subjects[subject.design] = subject
            histories[subject.design] = count_steps(subject, min(COUNTED, max_epochs), listener)
    J = {name: subject.precision() for name, subject in subjects.items()}
    yield from _correlations(J, listener)
    after = {name: response(each) for name, each in J.items()}
    starts = {name: subject.untrained() for name, subject in subjects.items()}
    before = {name: response(each) for name, each in starts.items() if each is not None}
    yield Drawing("spectral-response", lambda theme: plot.responses(after, before, theme=theme))
    yield _influence_by_hop(subjects, compare, max_epochs, listener)
    listener.doing("solving with every solver")
    curves = {name: subjects[name].curves() for name in SOLVED}
    yield Drawing("convergence", lambda theme: plot.residuals(curves, theme=theme))
    yield Drawing("steps-by-epoch", lambda theme: plot.steps(histories, theme=theme))
    part, centre = small_part(J["fixed Laplacian"])
    yield Drawing("walk-sums", lambda theme: plot.walk_sums(part, centre, theme=theme))


def train_design(job: Job, problem: Problem, listener: Listener) -> Subject:
    """One of the six, trained with exact solves."""
    kind = f"{'learned' if job.learned else 'fixed'} {DESIGNS[job.design].title}"
    listener.doing(f"training {kind}")
    material = material_of(job, problem)
    model, outcome = fit_model(job, material, listener.named(kind))
    if outcome.interrupted:
        raise KeyboardInterrupt
    return Subject(job, problem, model, material.x, material)


def count_steps(like: Subject, epochs: int, listener: Listener) -> list[Epoch]:
    """The first epochs of the same training, solved by the paper's algorithm and stop rule to count its steps."""
    assert like.material is not None
    material, problem, name = like.material, like.problem, like.design
    model, recipe = make_model(like.job, problem, material.encoding), replace(like.job.recipe(), max_epochs=epochs)
    assert isinstance(model, GLT)
    for layer in model.mixers:
        layer.solver, layer.on_nonconverged = GaBP(stop="messages"), "ignore"
    told = listener.named(f"{name}, by the paper's algorithm")
    on_epoch = None if told is None else lambda epoch, best: told(name, epoch, best, recipe)
    outcome = train(model, material.x, problem.graph, material.y, material.split, recipe, on_epoch, problem.task)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome.history


def _correlations(J: dict[str, Precision], listener: Listener) -> Iterator[Drawing]:
    learned = {name: each for name, each in J.items() if name.startswith("learned")}
    pulls_and_pushes = {name: learned[name] for name in ("learned Laplacian", "learned pairwise normal")}
    style: Any = {"most": ILLUSTRATED, "beside_graph": True}
    yield Drawing("figure-1", lambda theme: plot.graphical_model(pulls_and_pushes, theme=theme, **style))
    listener.doing("inverting J of six designs")
    fixed = {name: ordered(each) for name, each in J.items() if name not in learned}
    yield Drawing("figure-4", lambda theme: plot.correlations(fixed, theme=theme))
    for number, (name, each) in zip((5, 6, 7), learned.items(), strict=True):
        yield _one(f"figure-{number}", {name: ordered(each)})
        yield _heads(f"figure-{number}-heads", each)


def _one(name: str, shown: dict[str, Correlation]) -> Drawing:
    return Drawing(name, lambda theme: plot.correlations(shown, theme=theme))


def _heads(name: str, J: Precision) -> Drawing:
    return Drawing(name, lambda theme: plot.heads(J, theme=theme))


def _influence_by_hop(
    subjects: dict[str, Subject], compare: Sequence[str], max_epochs: int, listener: Listener
) -> Drawing:
    listener.doing("measuring influence by hop")
    like = next(iter(subjects.values()))
    found = {name: subject.hops() for name, subject in subjects.items()}
    seed = like.job.seed
    found |= compared_hops(compare, like, lambda name: Job(model=name, seed=seed, max_epochs=max_epochs), listener)
    return Drawing("influence-by-hop", lambda theme: plot.hops(found, theme=theme))
