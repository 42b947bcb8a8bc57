"""Table 2: how many GaBP iterations a training takes, and what they leave behind.

A GLT is trained with a good solver. At some epochs the very same J and right-hand sides of every layer, h going
forward and dL/dmu going back, are solved again by Algorithm 1 under three stop rules, beside a float64 solve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum.analysis.convergence import RecordedSystem, record_systems
from walksum.data.datasets import load, names
from walksum.data.splits import Split, make_split
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.paper.rows import DATASETS, PAPERS_GABP, ROWS, Row, row_of
from walksum.paper.solve_record import FILE, SolveRecord, append_solves, read_solves
from walksum.paper.sweep.record import versions
from walksum.precision import Precision
from walksum.solvers import Solution, Status, choose
from walksum.solvers.base import backward_error, norm_inf, status_of, worst
from walksum.solvers.gabp.solver import Messages
from walksum.training import Data, Recipe, fit
from walksum.training.history import Epoch

SIX = tuple(name for name, row in ROWS.items() if row.group == "glt")
EPOCHS = (1, 2, 5, 10, 20, 50, 100)
LAYERS = 2
SOLVES_PER_PROBE = 5 * LAYERS  # forward under two rules, backward under three
LONGEST = 5000  # steps the residual rule may take: past the paper's 1000, to see what was missing

Say = Callable[[str], None]


def up_to(last: int) -> tuple[int, ...]:
    """The epochs to measure in a training of so many."""
    return (*(epoch for epoch in EPOCHS if epoch < last), last)


def measure(
    store: Path,
    datasets: tuple[str, ...] = DATASETS,
    models: tuple[str, ...] = SIX,
    epochs: tuple[int, ...] = EPOCHS,
    seed: int = 0,
    device: str = "cpu",
    say: Say = lambda text: None,
) -> int:
    """Fill the store with what it lacks; the number of new records."""
    _check(models, datasets)
    done = _done(store)
    append_solves(store, ())  # a place that cannot be written to is known before anything is trained
    new = 0
    for dataset in datasets:
        data = None
        for model in models:
            missing = [epoch for epoch in epochs if (model, dataset, seed, epoch) not in done]
            if not missing:
                continue

            def keep(epoch: int, records: list[SolveRecord], model: str = model, dataset: str = dataset) -> None:
                nonlocal new
                append_solves(store, records)
                new += len(records)
                say(f"{dataset} {model}: epoch {epoch}, {new} solves measured")

            data = data or load_data(dataset, seed, device)
            probe(row_of(model), dataset, data, missing, seed, keep)
    return new


def _done(store: Path) -> set[tuple]:
    """Probes of which every layer and both directions are there under every rule."""
    held = Counter(record.probe for record in read_solves(store)) if (store / FILE).exists() else Counter()
    return {probe for probe, count in held.items() if count == SOLVES_PER_PROBE}


def _check(models: tuple[str, ...], datasets: tuple[str, ...]) -> None:
    for model in models:
        if row_of(model).baseline is not None:
            raise ValueError(f"model={model!r} solves nothing; choose among {', '.join(SIX)}")
    for dataset in datasets:
        if dataset not in names():
            raise ValueError(f"dataset={dataset!r} is unknown; choose among {', '.join(names())}")


def load_data(dataset: str, seed: int, device: str = "cpu") -> Data:
    """The training nodes alone: nothing is chosen on the others, so the model never runs in evaluation mode."""
    data = load(dataset)
    train = make_split(data, "random", seed, name=dataset).train
    split = Split(train, train[:0], train[:0])
    return Data(data.x, Graph.from_edge_index(data.edge_index, data.num_nodes), data.y, split).to(device)


def probe(
    row: Row,
    dataset: str,
    data: Data,
    epochs: Sequence[int],
    seed: int,
    on_probe: Callable[[int, list[SolveRecord]], None],
) -> None:
    """Train with the paper's recipe and measure the solves of the given epochs."""
    torch.manual_seed(seed)
    model, nodes = _model(row, data), data.split(seed).train.numel()

    def measure_systems(epoch: Epoch, best: Epoch) -> None:
        caught = list(systems)
        systems.clear()
        if epoch.number in epochs:
            about = {"model": row.name, "dataset": dataset, "seed": seed, "epoch": epoch.number, "train_nodes": nodes}
            on_probe(epoch.number, [_measured(about, *one) for one in _under_every_rule(caught)])

    with record_systems(model) as systems:  # a captured step would run no hooks
        recipe = Recipe(lr=row.lr, max_epochs=max(epochs))
        outcome = fit(model, data, recipe, device=data.device, on_epoch=measure_systems, capture=False)
    if outcome.interrupted:
        raise KeyboardInterrupt


def _model(row: Row, data: Data) -> GLT:
    classes = int(data.y.max()) + 1
    kind = {"design": row.design, "learned": row.learned, "coupling": row.coupling}
    return GLT(data.x.size(1), 64, LAYERS, classes, **kind)  # type: ignore[arg-type]


def _under_every_rule(systems: list[RecordedSystem]) -> Iterator[tuple[RecordedSystem, str, Tensor, Solution, bool]]:
    """Every system under every rule; a gradient also multiplied to the size of h."""
    size = {s.layer: float(s.h.abs().max()) for s in systems if s.direction == "forward"}
    for system in systems:
        truth = exact(system.J, system.h)
        yield system, "messages", truth, *by_messages(system.J, system.h)
        yield system, "residual", truth, *by_residual(system.J, system.h)
        if system.direction == "backward":
            factor = size[system.layer] / max(float(system.h.abs().max()), 1e-30)
            yield (
                replace(system, h=system.h * factor),
                "rescaled",
                truth * factor,
                *by_messages(system.J, system.h * factor),
            )


def exact(J: Precision, h: Tensor) -> Tensor:
    """mu in float64, by the solver the library would choose."""
    J, h = J.to(torch.float64), h.double()
    return choose(J, h.size(-1)).solver.prepare(J)(h).check().value


def by_messages(J: Precision, h: Tensor) -> tuple[Solution, bool]:
    """The paper's settings; whether its rule was met within its steps."""
    solution = PAPERS_GABP.prepare(J)(h)
    return solution, solution.status not in (Status.max_steps_reached, Status.diverged, Status.nonfinite)


def by_residual(J: Precision, h: Tensor, longest: int = LONGEST) -> tuple[Solution, bool]:
    """The same iteration from the same start, stopped at the first step whose true residual is at most its ``tol``.

    Unlike GaBP(stop="residual"), which settles the precisions before it counts, this differs from the paper's
    setting in the stop rule alone, and looks after every step.
    """
    messages, J_norm, tol = _messages(J, h), norm_inf(J), PAPERS_GABP.tol
    residual, step = torch.inf, 0
    while step < longest and residual > tol:
        messages.step(PAPERS_GABP.damping)
        step += 1
        residual = worst(backward_error(J, messages.mean(), h, J_norm))
    status = status_of(residual, tol, Status.max_steps_reached)
    return Solution(messages.mean(), status, step, residual, "GaBP"), residual <= tol


def _messages(J: Precision, h: Tensor) -> Any:
    """The messages of Algorithm 1 before its first step: fused on a CPU, else in torch."""
    if backends.find(J.diag, "PrecisionMessages") is None:
        return Messages(J, h)
    from walksum.backends.cpu.gabp import PrecisionMessages
    from walksum.solvers.gabp.cpu import JointMessages

    return JointMessages([PrecisionMessages(J.graph, *head) for head in zip(J.diag, J.off, strict=True)], h)


def _measured(
    about: dict[str, Any], system: RecordedSystem, rule: str, truth: Tensor, solution: Solution, met: bool
) -> SolveRecord:
    gap = (solution.value.double() - truth).square().sum(1)  # [H, F]
    norm = truth.square().sum(1)
    graph = system.J.graph
    return SolveRecord(
        **about,
        layer=system.layer,
        direction=system.direction,
        rule=rule,
        steps=solution.steps,
        met=met,
        status=solution.status.name,
        residual=solution.residual,
        error=float(_ratio(gap.sum(), norm.sum())),
        worst_error=worst(_ratio(gap, norm)),
        size=float(system.h.abs().max()),
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        heads=system.h.size(0),
        columns=system.h.size(2),
        max_steps=LONGEST if rule == "residual" else PAPERS_GABP.max_steps,
        device=str(system.h.device),
        versions=versions(),
    )


def _ratio(gap: Tensor, norm: Tensor) -> Tensor:
    return torch.where(norm > 0, gap / norm, gap).sqrt()
