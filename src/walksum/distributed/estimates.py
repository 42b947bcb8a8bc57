"""What the estimators of :mod:`walksum.field` need of a J whose nodes lie in several processes.

``ws.logdet``, ``ws.marginals`` and ``ws.sample`` of a J on a :class:`GraphPart` use it; all processes call them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from walksum.distributed.exchange import Sum
from walksum.distributed.part import GraphPart
from walksum.distributed.rows import OwnedRows
from walksum.field.system import System
from walksum.precision import Precision

BLOCK = 2**20  # random numbers drawn at once


class SystemAcross(System):
    """Rows of the owned nodes, sums over all processes, and the random numbers that one process would draw.

    Every process draws those of all nodes and edges, in pieces, and keeps its own: results do not depend on the number
    of processes. That takes the time of N columns draws, and no memory.
    """

    def __init__(self, J: Precision):
        part = J.graph
        assert isinstance(part, GraphPart)
        diag = part.fill(J.diag.detach().unsqueeze(2).contiguous()).squeeze(2)  # the halo's, as its owners have it
        self.J, self.num_nodes = Precision.trusted(part, diag, J.off.detach()), part.layout.num_nodes
        self.part = part
        self._rows: OwnedRows | None = None

    def own(self, values: Tensor) -> Tensor:
        return values[:, : self.part.num_owned]

    def fill(self, values: Tensor) -> Tensor:
        return self.part.fill(values)

    def product(self, x: Tensor) -> Tensor:
        if self._rows is None:
            self._rows = OwnedRows(self.J)
        return self._rows(x)

    def total(self, values: Tensor) -> Tensor:
        return Sum.apply(values, self.part.exchange)

    def edge_share(self, values: Tensor) -> Tensor:
        leaves = self.part.edges[1] >= self.part.num_owned
        return torch.where(leaves, 0.5 * values, values)  # both of its processes count it

    def every(self, holds: Tensor) -> bool:
        refuted = (~holds.all()).double().view(1)
        return float(self.part.exchange.max(refuted)) == 0

    def signs(self, probes: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)

        def draw(rows: int) -> Tensor:
            return torch.randint(2, (rows, probes), generator=generator, dtype=torch.int8)

        bits = _kept_rows(draw, self.num_nodes, self.part.layout.owned.cpu(), self.J.heads, probes)
        return (2 * bits - 1).to(device=self.J.device, dtype=self.J.dtype)

    def normals(self, columns: int, seed: int | None, device: torch.device | str) -> Tensor:
        """Of the local nodes, then the local edges; the halo's nodes have zeros, for their owners need them alone."""
        layout, J = self.part.layout, self.J
        if seed is None:  # one of every process; the largest serves all
            seed = int(self.part.exchange.max(torch.randint(2**40, (1,)).double().to(J.device)))
        generator = torch.Generator().manual_seed(seed)

        def draw(rows: int) -> Tensor:
            return torch.randn(rows, columns, generator=generator, dtype=J.dtype)

        wanted = torch.cat([layout.owned, self.num_nodes + layout.edge]).cpu()
        found = _kept_rows(draw, self.num_nodes + layout.num_edges, wanted, J.heads, columns)
        n = self.part.num_owned
        halo = found.new_zeros(J.heads, self.part.num_nodes - n, columns)
        of_edges = found[:, n:].to(J.device) * self._orientation().unsqueeze(2)
        return torch.cat([found[:, :n].to(J.device), halo.to(J.device), of_edges], 1)

    def _orientation(self) -> Tensor:
        """Factors of the edges' numbers: the column e_i + s e_j becomes s e_i + e_j where i > j in the whole."""
        layout, (i, j) = self.part.layout, self.part.edges
        node = torch.cat([layout.owned, layout.halo])
        return torch.where(node[i] > node[j], self.J.off.sign(), 1.0)


def _kept_rows(draw: Callable[[int], Tensor], rows: int, wanted: Tensor, heads: int, columns: int) -> Tensor:
    """Rows ``[H, wanted, C]`` of what ``draw(heads * rows)`` would give, without ever holding all of it.

    torch makes normal numbers in groups of sixteen, so pieces have a multiple of sixteen rows; the last is longer.
    """
    order = torch.argsort(wanted)  # owned nodes and edges are each in order, but may not be together
    wanted = torch.cat([wanted[order] + head * rows for head in range(heads)])
    step = max(16, BLOCK // max(1, columns) // 16 * 16)
    borders = [*range(0, max(heads * rows - step, 0) + 1, step), heads * rows]
    pieces = []
    for low, high in pairwise(borders):
        first, last = torch.searchsorted(wanted, torch.tensor([low, high])).tolist()
        pieces.append(draw(high - low)[wanted[first:last] - low])
    found = torch.cat(pieces).view(heads, -1, columns)
    return torch.empty_like(found).index_copy_(1, order, found)
