"""fit: train one model, or one model per seed, on any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import torch
from torch import nn

from walksum.training.data import Data
from walksum.training.devices import choose_device
from walksum.training.history import Epoch, Outcome
from walksum.training.loop import Batch
from walksum.training.recipe import Recipe
from walksum.training.seeds import Factory, Failure, Finished, Progress, SeedTrainer

OnEpoch = Callable[[Epoch, Epoch], None]


@overload
def fit(
    model: nn.Module,
    data: Data,
    recipe: Recipe | None = ...,
    *,
    device: str | torch.device = ...,
    on_epoch: OnEpoch | None = ...,
    capture: bool = ...,
) -> Outcome: ...
@overload
def fit(
    model: Factory,
    data: Data,
    recipe: Recipe | None = ...,
    *,
    seeds: Sequence[int],
    device: str | torch.device = ...,
    on_epoch: OnEpoch | None = ...,
    stack: int | None = ...,
    capture: bool = ...,
) -> list[Outcome]: ...
def fit(
    model: nn.Module | Factory,
    data: Data,
    recipe: Recipe | None = None,
    *,
    seeds: Sequence[int] | None = None,
    device: str | torch.device = "auto",
    on_epoch: OnEpoch | None = None,
    stack: int | None = None,
    capture: bool = True,
) -> Outcome | list[Outcome]:
    """Train on the training nodes; keep the weights of the epoch that is best on the validation nodes.

    A split without validation nodes trains for ``max_epochs`` and keeps the last weights. Ctrl-C ends the training with
    the best weights so far; runs that had not begun are then missing from the list.

    Args:
        model: a module ``model(x, edges) -> outputs``, which is trained in place; or, with ``seeds``, a function that
            makes the model of a seed.
        data: features, edges, targets, splits and the task.
        recipe: learning rate, patience and the like.
        seeds: one run each, trained together as far as that works and pays.
        device: "auto" (a GPU where it is quicker), "cpu", "cuda". The model goes back to where it came from.
        on_epoch: called with the newest and the best epoch after each epoch of each run.
        stack: how many seeds train together; None: what pays.
        capture: whether a step on a GPU may be captured as a CUDA graph.

    Returns:
        The :class:`Outcome` of the run; with ``seeds``, one for each of them.

    Example:
        >>> import torch, walksum as ws
        >>> from walksum.data.splits import Split
        >>> from walksum.training import Data, Recipe, fit
        >>> y = torch.tensor([0, 0, 0, 1, 1, 1])
        >>> ring = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]])
        >>> split = Split(torch.tensor([0, 3]), torch.tensor([1, 4]), torch.tensor([2, 5]))
        >>> data = Data(torch.eye(2)[y], ws.Graph.from_edge_index(ring, 6), y, split)
        >>> recipe = Recipe(lr=0.01, max_epochs=50)
        >>> outcomes = fit(lambda seed: ws.GLT(2, 8, 1, 2, dropout=0.1), data, recipe, seeds=[0, 1])
        >>> [outcome.best.test_score for outcome in outcomes]
        [1.0, 1.0]
    """
    recipe = recipe or Recipe()
    if not isinstance(data, Data):
        kind = type(data).__name__
        raise ValueError(f"data is a {kind}; expected walksum.training.Data(x, edges, y, split), of PyG's data.x, ...")
    data = data.to(choose_device(device, data))
    if isinstance(model, nn.Module):
        if seeds is not None:
            raise ValueError("seeds need a function that makes the model of a seed; model is a single module")
        return _fit_one(model, data, recipe, on_epoch, capture)
    if seeds is None:
        raise ValueError("model is a function that makes the model of a seed; give seeds=[0, 1, ...], too")
    if isinstance(seeds, int):
        raise ValueError(f"seeds={seeds}; expected one number per run: seeds=range({seeds})")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={list(seeds)!r} holds a seed twice; every run needs a seed of its own")
    for seed in seeds:
        data.split(seed)  # what is wrong with it is told before anything is trained
    with torch.random.fork_rng(devices=[data.device] if data.device.type == "cuda" else []):
        outcomes = _fit_seeds(SeedTrainer(model, data, recipe, stack, capture=capture), seeds, on_epoch)
    return sorted(outcomes, key=lambda outcome: list(seeds).index(outcome.seed))


def _fit_one(model: nn.Module, data: Data, recipe: Recipe, on_epoch: OnEpoch | None, capture: bool) -> Outcome:
    home = next((parameter.device for parameter in model.parameters()), data.device)
    batch = Batch([model.to(data.device)], [0], data, recipe, capture=capture)
    outcomes: list[Outcome] = []
    try:
        for ended in batch.epochs():
            outcomes += ended
            _report(batch, on_epoch)
    except KeyboardInterrupt:
        outcomes += batch.interrupt()
        if not outcomes:
            raise
    finally:
        model.to(home)
    return outcomes[0]


def _fit_seeds(trainer: SeedTrainer, seeds: Sequence[int], on_epoch: OnEpoch | None) -> list[Outcome]:
    outcomes: list[Outcome] = []
    progress: Progress | None = None
    try:
        for event in trainer.train(seeds):
            if isinstance(event, Failure):
                raise RuntimeError(f"seed {event.seed}: {event.message}")
            if isinstance(event, Finished):
                outcomes.append(event.outcome)
            else:
                progress = event
                _report(event.batch, on_epoch)
    except KeyboardInterrupt:
        outcomes += [] if progress is None else progress.batch.interrupt()
        if not outcomes:
            raise
    return outcomes


def _report(batch: Batch, on_epoch: OnEpoch | None) -> None:
    """Call ``on_epoch`` with the newest epoch of every run that is in training or has just ended."""
    if on_epoch is None:
        return
    newest = max(len(run.epochs) for run in batch.runs)
    for run in batch.runs:
        if run.best is not None and run.epochs[-1].number == newest:
            on_epoch(run.epochs[-1], run.best)
