"""fit: the training loop of :mod:`walksum.training`, with a model's weights replicated over the processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import MessagePassing

from walksum._checks import check_count
from walksum.distributed.checkpoint import Checkpoints
from walksum.distributed.data import PartData
from walksum.nn import GLTConv, Propagate
from walksum.training import Epoch, Outcome, Recipe
from walksum.training.loop import Batch

MIXES = (GLTConv, Propagate)
OVER_NODES = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class Replica(DistributedDataParallel):
    """The model of one process, whose gradients are averaged over all; its other methods are the model's own."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def fit(
    model: nn.Module,
    data: PartData,
    recipe: Recipe | None = None,
    *,
    checkpoints: str | os.PathLike[str] | None = None,
    every: int = 10,
    seed: int = 0,
    on_epoch: Callable[[Epoch, Epoch], None] | None = None,
) -> Outcome:
    """Train a model that was written for one process on a graph that lies in several.

    All processes call it together, each with its part. The weights of process 0 are the first ones of all. The result
    is that of :func:`walksum.training.fit` on the whole graph, but for rounding and for the masks of dropout.

    Args:
        model: ``model(x, graph) -> outputs``; what mixes nodes in it must be :class:`walksum.GLTConv` or
            :class:`walksum.Propagate`.
        data: the part of this process.
        recipe: learning rate, patience and the like.
        checkpoints: a folder, on all machines the same one; a training that finds a checkpoint there goes on from it
            to the same result, to the last bit in one process and within rounding in several.
        every: epochs between two checkpoints.
        seed: of dropout, different in every process.
        on_epoch: called with the newest and the best epoch.
    """
    recipe, every = recipe or Recipe(), check_count("every", every)
    check_model(model)
    model = model.to(data.device)
    replica = Replica(model, process_group=data.edges.exchange.group) if data.edges.parts > 1 else model
    torch.manual_seed(seed * 1_000_003 + data.edges.layout.part)
    batch = Batch([replica], [seed], data, recipe, capture=False)
    kept = None
    if checkpoints is not None:
        shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
        kept = Checkpoints(checkpoints, data.edges, {"weights": shapes, "recipe": asdict(recipe), "seed": seed})
        kept.restore(batch)
    outcomes: list[Outcome] = []
    for ended in batch.epochs():
        outcomes += ended
        run = batch.runs[0]
        if on_epoch is not None and run.best is not None:
            on_epoch(run.epochs[-1], run.best)
        if kept is not None and not run.ended and len(run.epochs) % every == 0:
            kept.save(batch)
    return replace(outcomes[0], model=model)


def check_model(model: nn.Module) -> None:
    """Raise a ValueError for layers that would mix the nodes of one process alone."""
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing) and not isinstance(module, MIXES):
            raise ValueError(
                f"layer {name!r} is a {type(module).__name__}, which sees the nodes of one process alone; across "
                "processes use GLTConv, Propagate or models made of them"
            )
        if isinstance(module, OVER_NODES):
            raise ValueError(
                f"layer {name!r} is a {type(module).__name__}, whose means are over the nodes of one process; use "
                "norm='layer' or no norm"
            )
