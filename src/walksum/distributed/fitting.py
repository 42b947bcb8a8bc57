"""fit: the training loop of :mod:`walksum.training` on a graph that lies in several processes.

Weights are replicated; losses and scores are those of all processes together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import MessagePassing

from walksum._checks import check_count
from walksum.distributed.checkpoint import Checkpoints
from walksum.distributed.exchange import Sum
from walksum.distributed.part import GraphPart
from walksum.nn import GLTConv, Propagate
from walksum.training import Epoch, Outcome, Recipe
from walksum.training.data import TASKS, Data, Subset
from walksum.training.loop import Batch


@dataclass(frozen=True)
class PartData(Data):
    """Features and targets of the owned nodes, with the split in their local numbers."""

    edges: GraphPart

    def subset(self, part: str, seeds: Sequence[int]) -> Subset:
        nodes = [getattr(self.split(seed), part) for seed in seeds]
        own = PartSubset.of(nodes, self.y, TASKS[self.task])
        return replace(own, exchange=self.edges.exchange).shared()  # type: ignore[call-arg, attr-defined]


@dataclass(frozen=True)
class PartSubset(Subset):
    """This process's nodes of a part of the split.

    Args:
        exchange: with the other processes.
        most, total: the largest number of such nodes in any process, and the number in all.
    """

    exchange: Any = None
    most: int = 0
    total: float = 0.0

    def shared(self) -> PartSubset:
        """A copy with the counts over all processes."""
        most = int(self.exchange.max(torch.tensor([float(self.nodes.size(1))], device=self.y.device)))
        return replace(self, most=most, total=float(self.exchange.sum(self.weight.sum())))

    @property
    def empty(self) -> bool:
        return self.most == 0

    def losses(self, outputs: Tensor) -> Tensor:
        """The mean over the nodes of all processes, the same number in each.

        Its gradient is that of as many equal losses as there are processes, of which DistributedDataParallel takes the
        mean.
        """
        each = self.task.losses(self._of_nodes(outputs), self.y)
        own = (each * self.weight).sum(1) / self.total
        return Sum.apply(own, self.exchange)

    def scores(self, outputs: Tensor) -> Tensor:
        """Of the outputs of all processes, since not every score is a mean."""
        own = self._of_nodes(outputs)
        return self.task.score(*map(self._gather, (own, self.y, self.weight)))

    def _gather(self, values: Tensor) -> Tensor:
        """``[S, n, ...]`` of all processes one after another, padded to equal lengths with nodes of weight 0."""
        if self.exchange.alone:
            return values
        padded = values.new_zeros(values.size(0), self.most, *values.shape[2:])
        padded[:, : values.size(1)] = values
        everyone = [torch.empty_like(padded) for _ in self.exchange.send_counts]
        dist.all_gather(everyone, padded, group=self.exchange.group)
        return torch.cat(everyone, 1)


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
