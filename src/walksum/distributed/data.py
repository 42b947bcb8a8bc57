"""PartData: what one process trains on; its losses and scores are those of all processes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from walksum.distributed.exchange import Sum
from walksum.distributed.part import GraphPart
from walksum.training.data import TASKS, Data, Subset


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
    """Our nodes of a part of the split.

    Args:
        exchange: with the other processes.
        most, total: the largest number of such nodes in any process, and the number in all.
    """

    exchange: Any = None
    most: int = 0
    total: float = 0.0

    def shared(self) -> PartSubset:
        """With the numbers of the other processes."""
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
