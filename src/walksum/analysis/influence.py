"""Influence of every node on one: a row of J^-1, how far it comes and along which paths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra

from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers import Prepared, Solution, Solver, resolve

SHORTEST = 1e-12  # length of a coupling of 1: Dijkstra takes a length of 0 for no edge


@dataclass(frozen=True)
class Influence:
    r"""What every node adds to the mean of one: :math:`\mu_i = \sum_j (J^{-1})_{ij} h_j`.

    Attributes:
        node: i.
        value: the signed influence :math:`(J^{-1})_{ij}`, ``[N]``; at i its marginal variance.
        share: :math:`|(J^{-1})_{ij}| / \sum_k |(J^{-1})_{ik}|`, ``[N]``.
        hops: edges between j and i, ``[N]``; -1 where there is no way.
        solution: how it was found.
    """

    node: int
    value: np.ndarray
    share: np.ndarray
    hops: np.ndarray
    solution: Solution

    @property
    def variance(self) -> float:
        return float(self.value[self.node])

    def ranked(self, count: int | None = None) -> np.ndarray:
        """The nodes by falling magnitude; of equal ones, the lower number first."""
        size = np.abs(self.value)
        if count is None or count >= size.size:
            return np.argsort(-size, kind="stable")
        found = np.argpartition(-size, count - 1)[:count]
        return found[np.lexsort((found, -size[found]))]

    def share_by_hop(self) -> np.ndarray:
        """The share that comes from 0, 1, 2, ... edges away; sums to one."""
        reached = self.hops >= 0
        return np.bincount(self.hops[reached], weights=self.share[reached])


def influence(J: Precision, node: int, solver: Solver | Prepared | str = "auto") -> Influence:
    """Solve ``J mu = e_node`` for a J of one head; ``solver`` may be one that is already prepared for J."""
    check_one_head(J)
    check_node(J.graph, node)
    prepared = solver if isinstance(solver, Prepared) else resolve(solver, J, 1).prepare(J.detach())
    unit = torch.zeros(1, J.num_nodes, 1, dtype=J.dtype, device=J.device)
    unit[0, node] = 1
    solution = prepared(unit)
    value = solution.value.detach().double().cpu().numpy().reshape(-1)
    return Influence(node, value, shares(value), J.graph.hop_distances([node])[0].numpy(), solution)


def shares(value: np.ndarray) -> np.ndarray:
    """Magnitudes over their sum; zeros where all are zero."""
    size = np.abs(value)
    total = size.sum()
    return size / total if total > 0 else size


@dataclass(frozen=True)
class Path:
    """One walk of the walk-sum, without repeated nodes.

    Attributes:
        nodes: from the source to the node that is asked about.
        weight: what this walk alone adds to the influence of its source.
    """

    nodes: tuple[int, ...]
    weight: float

    @property
    def source(self) -> int:
        return self.nodes[0]


class Walks:
    r"""The strongest paths of a J of one head.

    With :math:`R = I - D^{-1/2} J D^{-1/2}` the influence is a sum over walks,
    :math:`(J^{-1})_{ij} = (J_{ii} J_{jj})^{-1/2} \sum_{w: j \to i} \prod_{kl \in w} R_{kl}`. The strongest path has the
    largest product of magnitudes: the shortest one for lengths :math:`-\log |R_{kl}|`.
    """

    def __init__(self, J: Precision):
        check_one_head(J)
        self.diag = J.diag[0].detach().double().cpu().numpy()
        self.R = J.graph.to_scipy(-J.normalised().off[0].double())
        kept = self.R.copy()
        kept.eliminate_zeros()
        kept.data = np.maximum(-np.log(np.abs(kept.data)), SHORTEST)
        self.lengths = kept

    def strongest(self, node: int, sources: Sequence[int]) -> list[Path]:
        """The strongest path from each source to ``node``; sources without one, and itself, are left out."""
        _, after = dijkstra(self.lengths, directed=True, indices=node, return_predecessors=True)
        found = (_follow(after, int(source), node) for source in sources if source != node)
        return [Path(nodes, self._weight(nodes)) for nodes in found if nodes]

    def _weight(self, nodes: tuple[int, ...]) -> float:
        product = np.prod([self.R[k, m] for k, m in itertools.pairwise(nodes)])
        return float(product / np.sqrt(self.diag[nodes[0]] * self.diag[nodes[-1]]))


def longest_only(paths: Sequence[Path]) -> list[Path]:
    """Without those that are the end of another: a -> b -> c says b -> c too."""
    ends = {path.nodes[k:] for path in paths for k in range(1, len(path.nodes))}
    return [path for path in paths if path.nodes not in ends]


def _follow(after: np.ndarray, source: int, node: int) -> tuple[int, ...]:
    nodes = [source]
    while nodes[-1] != node:
        step = int(after[nodes[-1]])
        if step < 0:
            return ()
        nodes.append(step)
    return tuple(nodes)


def check_one_head(J: Precision) -> None:
    if J.heads != 1:
        raise ValueError(f"J has {J.heads} heads; choose one: Precision(J.graph, J.diag[k], J.off[k])")


def check_node(graph: Graph, node: int) -> None:
    if not 0 <= node < graph.num_nodes:
        raise ValueError(f"node={node!r}; expected 0 to {graph.num_nodes - 1}")
