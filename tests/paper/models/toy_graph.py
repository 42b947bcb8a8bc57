"""One small graph for all baselines, and what its dense twins need."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Toy:
    """Undirected, loop-free, two components and an isolated node (the last)."""

    x: Tensor
    edge_index: Tensor
    y: Tensor

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    def dense(self) -> Tensor:
        """A[i, j] = 1 for an edge j -> i, as messages flow."""
        return densify((self.edge_index, torch.ones(self.edge_index.size(1))), self.num_nodes)

    def gcn(self) -> Tensor:
        looped = self.dense() + torch.eye(self.num_nodes)
        scale = looped.sum(1).rsqrt()
        return scale[:, None] * looped * scale


def densify(edges: tuple[Tensor, Tensor], num_nodes: int) -> Tensor:
    (source, target), weight = edges
    out = torch.zeros(num_nodes, num_nodes, dtype=weight.dtype)
    return out.index_put_((target, source), weight, accumulate=True)


def randomise(model: torch.nn.Module) -> torch.nn.Module:
    """Every parameter random, so that no term hides behind a zero bias or an identity start."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model.eval()
