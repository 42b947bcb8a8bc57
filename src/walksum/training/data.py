"""What a model learns from: features, edges, targets, splits and the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from walksum._checks import check_choice
from walksum.data.splits import Split
from walksum.graph import Graph


@dataclass(frozen=True)
class Task:
    """What is predicted: the loss to descend and the score (the higher the better) that chooses the epoch.

    Args:
        losses: outputs ``[..., n, C]``, targets ``[..., n]`` -> one loss per node ``[..., n]``.
        score: outputs, targets, weights of the nodes ``[..., n]`` -> one score per run ``[...]``.
    """

    losses: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor, Tensor], Tensor]

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """The mean loss of these nodes."""
        return self.losses(output, y).mean()


def _cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(output.flatten(0, -2), y.flatten(), reduction="none").view(y.shape)


def _squared_error(output: Tensor, y: Tensor) -> Tensor:
    return (output.squeeze(-1) - y).square()


def accuracy(output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """The share of nodes whose largest output stands at their class.

    Sums are divided, not terms: as a sum of n-ths, equal counts would differ in their last bits, and a tie between
    epochs would be broken by them.

    Shapes: output ``[..., n, C]``, y and weight ``[..., n]`` -> ``[...]``.
    """
    weight = torch.ones_like(y, dtype=output.dtype) if weight is None else weight
    return ((output.argmax(-1) == y) * weight).sum(-1) / weight.sum(-1)


def r_squared(output: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """1 - (squared error) / (squared deviation from the mean): 1 is perfect, 0 as good as the mean, or y all the same.

    Shapes: output ``[..., n, 1]``, y and weight ``[..., n]`` -> ``[...]``.
    """
    guess, y = output.squeeze(-1).double(), y.double()
    weight = torch.ones_like(y) if weight is None else weight.double()
    mean = (y * weight).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True)
    spread, error = (((y - each).square() * weight).sum(-1) for each in (mean, guess))
    same = spread <= 1e-30 * (y.square() * weight).sum(-1)  # what rounding leaves of equal numbers
    return torch.where(same, (error <= spread).double(), 1 - error / spread.masked_fill(same, 1.0))


TASKS: dict[str, Task] = {  # another task is one entry here
    "classification": Task(_cross_entropy, accuracy),
    "regression": Task(_squared_error, r_squared),
}


@dataclass(frozen=True)
class Data:
    """One graph with features and targets.

    Args:
        x: features ``[N, F]``.
        edges: what the model takes as its second argument: a :class:`walksum.Graph` or an edge_index ``[2, M]``.
        y: classes (int64) or numbers ``[N]``.
        splits: training, validation and test nodes: one split for all runs, or one per seed.
        task: a name in ``TASKS``.
        metric: outputs ``[n, C]`` and targets ``[n]`` of the validation nodes -> what chooses the epoch, larger is
            better; None: the task's score.
        weight: how much each node counts in the training loss ``[N]``; None: all alike.
    """

    x: Tensor
    edges: Graph | Tensor
    y: Tensor
    splits: Split | Mapping[int, Split]
    task: str = "classification"
    metric: Callable[[np.ndarray, np.ndarray], float] | None = None
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        check_choice("task", self.task, tuple(TASKS))
        y = self.y
        if self.task in ("classification", "regression") and y.dim() != 1:
            raise ValueError(f"y has shape {tuple(y.shape)}; expected one target per node, [N]: use y.squeeze(1)")
        if self.task == "classification" and (y.is_floating_point() or y.dtype == torch.bool):
            raise ValueError(f"y has type {y.dtype}; classes are whole numbers: use y.long(), or task='regression'")

    @property
    def device(self) -> torch.device:
        return self.x.device

    def split(self, seed: int) -> Split:
        try:
            split = self.splits if isinstance(self.splits, Split) else self.splits[seed]
        except LookupError:
            raise ValueError(f"splits has none for seed {seed}; give one Split for all runs, or one per seed") from None
        last = max((int(part.max()) for part in (split.train, split.val, split.test) if part.numel()), default=0)
        if last >= len(self.y):
            raise ValueError(f"the split of seed {seed} holds node {last}, but y has {len(self.y)} nodes")
        return split

    def to(self, device: torch.device | str) -> Data:
        """The same data on a device; splits stay on the CPU."""
        return replace(self, x=self.x.to(device), edges=self.edges.to(device), y=self.y.to(device))

    def subset(self, part: str, seeds: Sequence[int]) -> Subset:
        """The nodes of one part ("train", "val" or "test") of every seed's split."""
        task = TASKS[self.task]
        if self.metric is not None:
            task = replace(task, score=_by_run(self.metric))
        parts = [getattr(self.split(seed), part) for seed in seeds]
        return Subset.of(parts, self.y, task, self.weight if part == "train" else None)


def _by_run(metric: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A metric of one run's nodes as a score of many runs."""

    def score(outputs: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        counted = (weight > 0).cpu().numpy()
        rows = zip(outputs.detach().cpu().double().numpy(), y.cpu().numpy(), counted, strict=True)
        found = [metric(out[known], truth[known]) for out, truth, known in rows]
        return torch.tensor(found, dtype=outputs.dtype, device=outputs.device)

    return score


@dataclass(frozen=True)
class Subset:
    """The same part of every run's split, padded to one length: ``nodes``, ``y`` and ``weight [S, n]``.

    The weight is 0 for padding, and 1 or the given one for nodes that count.
    """

    task: Task
    nodes: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(cls, parts: Sequence[Tensor], y: Tensor, task: Task, given: Tensor | None = None) -> Subset:
        indices = [part.long() for part in parts]
        weights = [torch.ones(part.numel()) if given is None else given[part].cpu().float() for part in parts]
        nodes, weight = (pad_sequence(rows, batch_first=True).to(y.device) for rows in (indices, weights))
        return cls(task, nodes, y[nodes], weight)

    @property
    def empty(self) -> bool:
        return self.nodes.numel() == 0

    def select(self, runs: Tensor) -> Subset:
        """The same nodes of these runs alone."""
        return replace(self, nodes=self.nodes[runs], y=self.y[runs], weight=self.weight[runs])

    def losses(self, outputs: Tensor) -> Tensor:
        """The mean loss of each run ``[S]``, from outputs ``[S, N, C]``."""
        each = self.task.losses(self._of_nodes(outputs), self.y)
        return (each * self.weight).sum(1) / self.weight.sum(1)

    def scores(self, outputs: Tensor) -> Tensor:
        """The score of each run ``[S]``."""
        return self.task.score(self._of_nodes(outputs), self.y, self.weight)

    def _of_nodes(self, outputs: Tensor) -> Tensor:
        return outputs.gather(1, self.nodes.unsqueeze(-1).expand(-1, -1, outputs.size(-1)))
