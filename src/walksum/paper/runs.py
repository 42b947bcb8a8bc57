"""The runs of one cell of a table: its data, its models, its training, and the record of each run."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walksum.data.datasets import load
from walksum.data.splits import make_split
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.paper.rows import HEADED, row_of
from walksum.paper.sparse_input import use_sparse_input
from walksum.paper.sweep.record import RunRecord, Solves, made_by
from walksum.paper.sweep.spec import RunSpec
from walksum.training.data import Data
from walksum.training.history import Outcome, StepSolves
from walksum.training.models import model_by_name
from walksum.training.recipe import Recipe
from walksum.training.seeds import Factory, Failure, Finished, Progress, SeedTrainer

CURVE = 40  # rows of a thinned curve
EVERY = 0.25  # seconds between two reports of progress


def train_runs(
    specs: Sequence[RunSpec],
    *,
    device: str | torch.device = "cpu",
    root: str | os.PathLike[str] | None = None,
    batched: bool | None = None,
    on_record: Callable[[RunRecord], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Train the runs of one cell.

    Args:
        specs: runs that differ in their seed alone.
        device: where to train.
        root: folder of the raw data, as in :func:`walksum.data.load`.
        batched: train them as one batch, or one after another; None: as a batch where that works and pays.
        on_record: called with the record of each run as soon as it is finished.
        on_progress: called a few times per second at most.

    Ctrl-C goes on to the caller; unfinished runs leave no record.
    """
    _check(specs)
    if specs:
        data = cell_data(specs, device, root)
        factory = model_factory(specs[0], data)
        train_cell(specs, data, factory, batched=batched, on_record=on_record, on_progress=on_progress)


def train_cell(
    specs: Sequence[RunSpec],
    data: Data,
    factory: Factory,
    *,
    batched: bool | None = None,
    on_record: Callable[[RunRecord], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """As :func:`train_runs`, on data and with a maker of models that are given."""
    by_seed = {spec.seed: spec for spec in specs}
    stack = {None: None, True: len(specs), False: 1}[batched]
    trainer = SeedTrainer(factory, data, recipe_of(specs[0]), stack, keep_weights=False)
    shown = 0.0
    with torch.random.fork_rng(devices=[data.device] if data.device.type == "cuda" else []):
        for event in trainer.train(list(by_seed)):
            if isinstance(event, Finished):
                on_record(record_of(by_seed[event.outcome.seed], event.outcome, data, event.note))
            elif isinstance(event, Failure):
                on_record(failure_of(by_seed[event.seed], event, data))
            elif on_progress is not None and (time.monotonic() - shown >= EVERY or not event.running):
                shown = time.monotonic()
                on_progress(event)


def _check(specs: Sequence[RunSpec]) -> None:
    if len({spec.cell for spec in specs}) > 1:
        raise ValueError("specs are of several cells; train_runs takes runs that differ in their seed alone")
    if len({spec.seed for spec in specs}) < len(specs):
        raise ValueError("specs hold a seed twice; every run of a cell needs a seed of its own")


def recipe_of(spec: RunSpec) -> Recipe:
    select = "score" if spec.select == "accuracy" else "loss"
    return Recipe(spec.lr, spec.weight_decay, spec.patience, spec.max_epochs, select)


def cell_data(specs: Sequence[RunSpec], device: str | torch.device, root: str | os.PathLike[str] | None) -> Data:
    """The dataset of a cell on a device, with the split of every run.

    A GLT gets the undirected graph without loops, a compared model the published edges, to which it adds the loops it
    wants.
    """
    cell, home = specs[0].cell, None if root is None else os.fspath(root)
    where = torch.empty(0, device=device).device  # "cuda" -> "cuda:0"
    x, y, edge_index = _tensors(cell.dataset, home, where)
    edges = edge_index if row_of(cell.model).baseline else _graph(cell.dataset, home, where)
    data = _dataset(cell.dataset, home)
    splits = {spec.seed: make_split(data, cell.protocol, spec.seed, name=cell.dataset) for spec in specs}
    return Data(x, edges, y, splits)


@lru_cache(maxsize=8)
def _dataset(dataset: str, root: str | None) -> Any:
    return load(dataset, root)


@lru_cache(maxsize=8)
def _tensors(dataset: str, root: str | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    data = _dataset(dataset, root)
    return data.x.to(device), data.y.to(device), data.edge_index.to(device)


@lru_cache(maxsize=8)
def _graph(dataset: str, root: str | None, device: torch.device) -> Graph:
    data = _dataset(dataset, root)
    return Graph.from_edge_index(data.edge_index.to(device), data.num_nodes)


def model_factory(spec: RunSpec, data: Data, change: Callable[[nn.Module], nn.Module] | None = None) -> Factory:
    """Makes the model of a seed, its initial weights the same on every device; ``change`` is applied to it."""

    def make(seed: int) -> nn.Module:
        model = make_model(spec, data.x.size(1), int(data.y.max()) + 1, data.x.size(0))
        model = model if change is None else change(model)
        return use_sparse_input(model.to(data.x), data.x)

    return make


def make_model(spec: RunSpec, in_channels: int, num_classes: int, num_nodes: int) -> nn.Module:
    """The model of a run, weights drawn from torch's generator."""
    row, options = row_of(spec.model), dict(spec.options)
    if row.baseline:
        common = {"hidden_channels": spec.hidden, "dropout": spec.dropout, **_heads(row.baseline, spec.heads)}
        make = model_by_name(row.baseline).make
        return make(in_channels, num_classes, num_nodes=num_nodes, **{**common, **options})
    assert row.design is not None
    settings: dict[str, Any] = {
        "heads": spec.heads,
        "design": row.design,
        "learned": row.learned,
        "coupling": row.coupling,
        "dropout": spec.dropout,
        "solver": spec.solver,
        "on_nonconverged": "ignore",  # the record counts how every solve ended
    }
    return GLT(in_channels, spec.hidden, spec.layers, num_classes, **{**settings, **options})


def _heads(baseline: str, heads: tuple[int, int]) -> dict[str, Any]:
    if baseline == "gat":
        return {"heads": heads[0]}
    return {"heads": heads} if baseline in HEADED else {}


def record_of(spec: RunSpec, outcome: Outcome, data: Data, note: str = "") -> RunRecord:
    """The record of a finished run."""
    epochs, best = outcome.history, outcome.best
    if not math.isfinite(best.val_loss):  # it diverged in its first epoch
        best = type(best)(0, math.nan, math.nan, math.nan, math.nan)
    shown = [epochs[number - 1] for number in _shown(len(epochs), best.number)]
    solved = any(outcome.solves[0]) if outcome.solves else False
    return RunRecord(
        spec=spec,
        outcome="diverged" if outcome.diverged else "ok",
        val_accuracy=best.val_score,
        test_accuracy=best.test_score,
        val_loss=best.val_loss,
        best_epoch=best.number,
        epochs=len(epochs),
        seconds=outcome.seconds,
        batch=len(outcome.seeds),
        seeds=outcome.seeds,
        peak_memory=outcome.peak_memory,
        solves=_summary(outcome.solves),
        curve=tuple((e.number, e.train_loss, e.val_loss, e.val_score, e.test_score) for e in shown),
        steps_by_epoch=tuple((e.number, e.forward_steps or 0, e.backward_steps or 0) for e in shown if solved),
        parameters=outcome.parameters,
        message=note,
        split=data.split(spec.seed).digest(),
        **made_by(data.device),
    )


def failure_of(spec: RunSpec, failure: Failure, data: Data) -> RunRecord:
    """The record of a run that raised."""
    digest = data.split(spec.seed).digest()
    outcome = "oom" if failure.kind == "oom" else "failed"
    return RunRecord(spec, outcome, message=failure.message, split=digest, **made_by(data.device))


def _shown(epochs: int, best: int) -> list[int]:
    """Epochs of a thinned curve, the best and the last among them."""
    stride = max(1, math.ceil(epochs / (CURVE - 2)))
    return sorted({*range(1, epochs + 1, stride), best, epochs} - {0})


def _summary(epochs: list[StepSolves]) -> tuple[Solves, ...]:
    found = []
    for which, direction in enumerate(("forward", "backward")):
        columns = list(zip(*(epoch[which] for epoch in epochs), strict=True))
        for layer, solves in enumerate(columns):
            steps = [solve[0] for solve in solves]
            worst = float(np.max([solve[1] for solve in solves]))  # NaN if any is
            spread = (min(steps), float(np.median(steps)), max(steps))
            found.append(Solves(layer, direction, spread, worst, dict(Counter(solve[2] for solve in solves))))
    return tuple(found)
