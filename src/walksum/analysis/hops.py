"""How far a model looks: how much of a node's output comes from 0, 1, 2, ... hops away, by its Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walksum.graph import Graph

NODES = 32  # measured by default
WORK = 6e7  # numbers in the gradients of one output of all these nodes: seconds


@dataclass(frozen=True)
class Hops:
    """Shares of the Jacobian by distance.

    Attributes:
        shares: ``[n, K + 1]``, one row per node of ``nodes``: the share of its output that comes from k hops away.
            The last column holds everything from K hops on. Rows sum to 1.
        nodes: the nodes measured.
    """

    shares: Tensor
    nodes: Tensor

    @property
    def mean(self) -> Tensor:
        """``[K + 1]``, over the nodes measured."""
        return self.shares.mean(0)

    @property
    def reach(self) -> float:
        """The mean distance influence comes from, in hops; the last column counts as K."""
        return float(self.mean @ torch.arange(self.shares.size(1), dtype=self.shares.dtype))


def jacobian_size(model: nn.Module, x: Tensor, edges: Any, node: int) -> Tensor:
    r""":math:`\sum_{c,f} |\partial y_{vc} / \partial x_{uf}|` of one node v for every node u, ``[N]``.

    The whole graph is used. PyG's ``torch_geometric.utils.total_influence`` cuts a neighbourhood out first, which
    changes the degrees at its border and so what a model that looks further computes.
    """
    given = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        output = model.eval()(given, edges)[node]
        found = torch.zeros(x.size(0), dtype=x.dtype)
        for value in output.reshape(-1):
            found += torch.autograd.grad(value, given, retain_graph=True)[0].abs().sum(1)
    return found


def hop_shares(
    model: nn.Module, x: Tensor, edges: Any, graph: Graph, nodes: Tensor | None = None, most: int = 10
) -> Hops:
    """Shares of the Jacobian by distance for some nodes of a model ``model(x, edges) -> [N, C]``.

    Args:
        model: any model; it is put in evaluation mode.
        x, edges: what the model is called with.
        graph: the graph on which hops are counted.
        nodes: the nodes measured; by default up to 32 drawn from a fixed seed, fewer on graphs so large that their
            gradients would take long.
        most: K, the number of hops that are distinguished.
    """
    nodes = sample(x) if nodes is None else nodes
    hops = graph.hop_distances(nodes, limit=most)
    far = torch.where(hops < 0, most, hops)
    rows = []
    for node, distance in zip(nodes.tolist(), far, strict=True):
        strength = jacobian_size(model, x, edges, node).double()
        if not bool(torch.isfinite(strength).all()):
            raise ValueError(
                f"the gradient of node {node}'s output holds NaN or infinity; the model's training diverged"
            )
        reached = torch.zeros(most + 1, dtype=torch.float64).index_add_(0, distance, strength)
        rows.append(reached / reached.sum().clamp_min(1e-300))
    return Hops(torch.stack(rows), nodes)


def sample(x: Tensor, work: float = WORK) -> Tensor:
    """Draw the nodes to measure, ascending: 2 to 32, fewer where gradients take long."""
    count = min(x.size(0), max(2, min(NODES, int(work / max(1, x.numel())))))
    return torch.randperm(x.size(0), generator=torch.Generator().manual_seed(0))[:count].sort().values
