"""The long-range bench: every contestant on every task, one line of JSON per run, resumable; and its tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from walksum._checks import check_choice
from walksum._files import to_json, write_file
from walksum.nn import Propagate
from walksum.paper.longrange.contestants import CAP, MESSAGE_PASSING, MODELS, make_model
from walksum.paper.longrange.tasks import SIZES, TASKS, LongRange, make_task
from walksum.training import Outcome, Recipe, fit
from walksum.training.history import rank

FILE = "records.jsonl"
RATES = (0.03, 0.003)  # learning rates, of which each run takes the better one on the validation nodes
EPOCHS, PATIENCE = 100, 40
TIMED = (1000, 10_000, 30_000, 100_000, 300_000, 1_000_000)  # nodes
TIME = "time"

Key = tuple[str, int, str, int]  # task, size, model, seed


def read_records(folder: Path) -> dict[Key, dict[str, Any]]:
    """What was measured, by task, size, model and seed."""
    path = Path(folder) / FILE
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines if line]
    return {(each["task"], each["size"], each["model"], each["seed"]): each for each in records}


def run_bench(
    folder: Path,
    tasks: Sequence[str] = tuple(TASKS),
    models: Sequence[str] = tuple(MODELS),
    sizes: Sequence[int] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    epochs: int = EPOCHS,
    say: Callable[[str], None] = lambda text: None,
) -> dict[Key, dict[str, Any]]:
    """Measure what the folder does not hold yet; the file is replaced whole after each run.

    Args:
        folder: of ``records.jsonl``.
        tasks, models: names in ``TASKS`` and ``MODELS``.
        sizes: of the tasks; None: those of ``SIZES``.
        seeds: one run each.
        epochs: at most, of each training.
        say: called with a line after each run.
    """
    for name, values, known in (("tasks", tasks, TASKS), ("models", models, MODELS)):
        for value in values:
            check_choice(name, value, tuple(known))
    records = read_records(folder)
    wanted = [*_wanted(tasks, models, sizes, seeds)]
    if TIME not in {key[0] for key in records} and sizes is None:
        wanted.append((TIME, max(TIMED), "Propagate(reach)", 0))
    missing = [key for key in wanted if key not in records]
    for number, key in enumerate(missing, 1):
        record = measure_time() if key[0] == TIME else measure(*key, epochs=epochs)
        records[key] = record
        write_file(Path(folder) / FILE, "".join(to_json(each) + "\n" for each in records.values()))
        say(f"{number} of {len(missing)}: {' '.join(map(str, key))}: {record.get('test', record.get('exponent')):.2f}")
    return records


def _wanted(
    tasks: Sequence[str], models: Sequence[str], sizes: Sequence[int] | None, seeds: Sequence[int]
) -> Iterator[Key]:
    """Seed by seed, so that a bench that is stopped has whole tables of the first ones."""
    for seed in seeds:
        for task in tasks:
            for size in sizes or SIZES[task]:
                yield from ((task, size, model, seed) for model in models)


def measure(task: str, size: int, model: str, seed: int, epochs: int = EPOCHS) -> dict[str, Any]:
    """One record: the better of the learning rates by validation, counted once on the test graphs."""
    problem = make_task(task, size, seed)
    record: dict[str, Any] = {"task": task, "size": size, "model": model, "seed": seed, "hops": problem.hops}
    net = _new(problem, model, seed)
    record["influence"] = None if problem.source is None else influence(net, problem)
    record["parameters"] = sum(each.numel() for each in net.parameters())
    if model in MESSAGE_PASSING and problem.hops > CAP:  # the answer cannot depend on what is asked: it is a guess
        return {**record, "trained": False, "test": problem.chance, "layers": CAP}
    start = time.process_time()
    found = [(rate, _train(problem, model, seed, rate, epochs)) for rate in RATES]
    rate, outcome = max(found, key=lambda each: rank(each[1].best))
    assert outcome.model is not None
    with torch.no_grad():
        right = outcome.model(problem.data.x, problem.data.edges).argmax(1) == problem.data.y
    shares = {"train": problem.data.split(seed).train, "test_nodes": problem.test_nodes}
    return {
        **record, "trained": True, "lr": rate, "test": outcome.best.test_score, "validation": outcome.best.val_score,
        **{name: float(right[nodes].float().mean()) for name, nodes in shares.items()},
        "epoch": outcome.best.number, "epochs": sum(len(each.history) for _, each in found),
        "cpu_seconds": round(time.process_time() - start, 2),
    }  # fmt: skip


def _new(problem: LongRange, model: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return make_model(model, problem.data.x.size(1), int(problem.data.y.max()) + 1, problem.hops)


def _train(problem: LongRange, model: str, seed: int, rate: float, epochs: int) -> Outcome:
    recipe = Recipe(lr=rate, weight_decay=0.0, patience=PATIENCE, max_epochs=epochs)
    outcome = fit(_new(problem, model, seed), problem.data, recipe, device="cpu")
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome


def influence(net: nn.Module, problem: LongRange) -> float:
    """|d output of the node that answers / d features of the node that knows|, before training."""
    assert problem.source is not None
    x = problem.data.x.clone().requires_grad_()
    outputs = net.eval()(x, problem.data.edges)[problem.target]
    rows = [torch.autograd.grad(each, x, retain_graph=True)[0][problem.source] for each in outputs]
    return float(torch.stack(rows).norm())


def measure_time(sizes: Sequence[int] = TIMED) -> dict[str, Any]:
    """CPU seconds of one layer on one path, forward and backward, and the exponent of its growth with the length.

    ``first`` includes what depends on the graph alone (order of elimination, factor), ``later`` does not.
    """
    layers = [Propagate(reach=1000) for _ in sizes]
    paths = [torch.arange(size).unfold(0, 2, 1).T.contiguous() for size in sizes]
    columns = [torch.rand(size, 2, requires_grad=True) for size in sizes]
    took = np.empty((6, len(sizes)))
    for row in took:  # in turns, so that a busy minute of the machine meets every size
        for place, (layer, x, edges) in enumerate(zip(layers, columns, paths, strict=True)):
            start = time.process_time()
            layer(x, edges).sum().backward()
            row[place] = time.process_time() - start
    first, later = took[0].tolist(), took[1:].min(0).tolist()
    exponents = {name: _exponent(sizes, took) for name, took in (("exponent_first", first), ("exponent", later))}
    return {"task": TIME, "size": max(sizes), "model": "Propagate(reach)", "seed": 0, "sizes": list(sizes),
            "first": first, "later": later, **exponents}  # fmt: skip


def _exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log size, from 30,000 nodes on if there are such: below, fixed costs count."""
    large = [k for k, size in enumerate(sizes) if size >= 30_000]
    points = np.log([[sizes[k], seconds[k]] for k in (large if len(large) > 1 else range(len(sizes)))])
    return float(np.polyfit(points[:, 0], points[:, 1], 1)[0])


TITLES = {
    "chain": "Chains: accuracy in % at the far end, by length",
    "ring": "Rings: accuracy in % at the opposite node, by size",
    "tree": "Tree-neighbours-match: accuracy in % on new trees (on training trees), by depth",
}


def cell(records: list[dict[str, Any]]) -> str:
    """Mean over seeds; a dash where nothing was measured, brackets where the model was not trained."""
    if not records:
        return "-"
    mean = f"{100 * np.mean([each['test'] for each in records]):.0f}"
    if not all(each["trained"] for each in records):
        return f"({mean})"
    if records[0]["task"] == "tree":
        return f"{mean} ({100 * np.mean([each['train'] for each in records]):.0f})"
    return mean


def rows_of(records: Mapping[Key, dict[str, Any]], task: str) -> tuple[list[int], list[tuple[str, list[str]]]]:
    """The sizes of a task, and for each model its cells."""
    mine = [each for each in records.values() if each["task"] == task]
    sizes = sorted({each["size"] for each in mine})
    rows = []
    for model in MODELS:
        of_model = [each for each in mine if each["model"] == model]
        if of_model:
            rows.append((model, [cell([each for each in of_model if each["size"] == size]) for size in sizes]))
    return sizes, rows


def timing(records: Mapping[Key, dict[str, Any]]) -> dict[str, Any] | None:
    """The record of how time grows with the length."""
    return next((each for each in records.values() if each["task"] == TIME), None)
