"""OwnedRows: the product of our rows of J with a vector whose other rows lie in other processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum import backends
from walksum.distributed.part import GraphPart
from walksum.graph import Graph
from walksum.precision import Precision


@dataclass(frozen=True)
class EdgeSplit:
    """The edges of a part, apart: those inside it, and those that leave it.

    Attributes:
        inside: the graph of the owned nodes; ``inside_edge`` are its edges among those of the part.
        border: the owned nodes next to other parts, ``[b]``.
        leaving: the graph of those nodes, then the halo, and the edges between them; ``leaving_edge`` likewise.
    """

    inside: Graph
    inside_edge: Tensor
    border: Tensor
    leaving: Graph
    leaving_edge: Tensor


def split_edges(part: GraphPart) -> EdgeSplit:
    i, j = part.edges
    n = part.num_owned
    inside, leaving = (j < n).nonzero().view(-1), (j >= n).nonzero().view(-1)
    border, place = torch.unique(i[leaving], return_inverse=True)
    edges = torch.stack([place, j[leaving] - n + border.numel()])
    across = Graph(edges, border.numel() + part.num_nodes - n)
    return EdgeSplit(Graph(part.edges[:, inside], n), inside, border, across, leaving)


class OwnedRows:
    """``(J x)`` of the owned nodes, for ``x [H, n, F]`` of the owned nodes.

    The rows of the halo travel while the edges inside the part are worked on.

    Args:
        J: on a :class:`GraphPart`; its values for the halo are not read.
    """

    def __init__(self, J: Precision):
        part = J.graph
        assert isinstance(part, GraphPart)
        self.part, self.split = part, part.derived(split_edges)
        self.diag = J.diag.detach()[:, : part.num_owned].contiguous()
        self.inside = J.off.detach().index_select(1, self.split.inside_edge)
        self.leaving = J.off.detach().index_select(1, self.split.leaving_edge)
        self.nothing = self.diag.new_zeros(J.heads, self.split.leaving.num_nodes)

    def __call__(self, x: Tensor) -> Tensor:
        split = self.split
        pending = self.part.exchange.start(x)
        y = backends.backend(x).spmm(split.inside, self.diag, self.inside, x)
        received = pending.wait()
        if split.border.numel():
            around = torch.cat([x.new_zeros(x.size(0), split.border.numel(), x.size(2)), received], 1)
            more = backends.backend(x).spmm(split.leaving, self.nothing, self.leaving, around)
            y.index_add_(1, split.border, more[:, : split.border.numel()])
        return y

    def norm_inf(self) -> Tensor:
        """The largest row sum of ``|J|`` over all processes, ``[H]``."""
        total = self.diag.abs().unsqueeze(-1)
        kernel, ones = backends.backend(total), torch.ones_like(total)
        total = kernel.spmm(self.split.inside, self.diag.abs(), self.inside.abs(), ones)
        if self.split.border.numel():
            ones = torch.ones_like(self.nothing).unsqueeze(-1)
            more = kernel.spmm(self.split.leaving, self.nothing, self.leaving.abs(), ones)
            total.index_add_(1, self.split.border, more[:, : self.split.border.numel()])
        return self.part.exchange.max(total.amax((1, 2)))
