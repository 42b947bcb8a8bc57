"""partition: which process owns which node, by METIS or by Fennel's streaming partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from walksum._checks import check_choice, check_count
from walksum.backends.cpu.compile import jit
from walksum.graph import Graph

METHODS = ("metis", "stream")
SLACK = 1.05  # the largest part may have this many times the mean number of nodes
PASSES = 3  # of the streaming partition; a fourth changes little


@dataclass(frozen=True, eq=False)
class Partition:
    """The owner of every node.

    Args:
        assignment: int64 ``[N]``, numbers from 0 to ``parts - 1``; every part owns at least one node.
        parts: how many parts there are.
    """

    assignment: Tensor
    parts: int

    def __post_init__(self) -> None:
        check_count("parts", self.parts)
        a = self.assignment
        if not isinstance(a, Tensor) or a.dtype != torch.int64 or a.dim() != 1:
            kind = f"{a.dtype} {list(a.shape)}" if isinstance(a, Tensor) else type(a).__name__
            raise ValueError(f"assignment is {kind}; expected one part per node, int64 [N]")
        if self.parts > a.numel():
            raise ValueError(f"parts={self.parts} for {a.numel()} nodes; use at most one process per node")
        if int(a.min()) < 0 or int(a.max()) >= self.parts:
            raise ValueError(
                f"assignment holds {int(a.min())} to {int(a.max())}; expected parts from 0 to {self.parts - 1}"
            )
        empty = (torch.bincount(a, minlength=self.parts) == 0).nonzero().view(-1).tolist()
        if empty:
            raise ValueError(f"assignment leaves parts {empty} of {self.parts} without a node; use fewer parts")

    def check(self, graph: Graph) -> None:
        """Raise a ValueError unless it belongs to a graph of this size."""
        if self.assignment.numel() != graph.num_nodes:
            raise ValueError(f"partition has {self.assignment.numel()} nodes but {graph}; partition this graph anew")

    @cached_property
    def sizes(self) -> list[int]:
        """Nodes of each part."""
        return torch.bincount(self.assignment, minlength=self.parts).tolist()

    def cut(self, graph: Graph) -> int:
        """The number of edges between parts."""
        self.check(graph)
        i, j = self.assignment.to(graph.device)[graph.edges]
        return int((i != j).sum())

    def sent_rows(self, graph: Graph) -> Tensor:
        """``[parts, parts]``: rows that the first sends to the second in one exchange, nodes next to each other part.

        Counted from the edges alone, without any of the code that exchanges.
        """
        self.check(graph)
        owner = self.assignment.cpu()
        i, j = graph.edges.cpu()
        nodes, ends = torch.cat([i, j]), torch.cat([j, i])
        pairs = torch.unique((nodes * self.parts + owner[ends])[owner[nodes] != owner[ends]])
        table = torch.zeros(self.parts, self.parts, dtype=torch.int64)
        return table.index_put_((owner[pairs // self.parts], pairs % self.parts), torch.tensor(1), accumulate=True)

    def exchange_bytes(self, graph: Graph, columns: int, dtype: torch.dtype = torch.float32) -> list[int]:
        """What each process sends in one exchange of so many columns."""
        return (self.sent_rows(graph).sum(1) * columns * torch.empty(0, dtype=dtype).element_size()).tolist()


def partition(graph: Graph, parts: int, method: str = "metis", seed: int = 0) -> Partition:
    """Partition the nodes into parts of about equal size with few edges between them.

    Args:
        graph: what to partition.
        parts: number of processes.
        method: "metis" (multilevel k-way by METIS, ``pip install pymetis``) or "stream" (Fennel: nodes join the part
            where most of their neighbours are, less a price for its size; three passes in breadth-first order,
            O(E) time, O(N) memory beside the neighbour lists).
        seed: of METIS; the stream has no chance in it.

    Example:
        >>> import torch, walksum as ws
        >>> from walksum.distributed import partition
        >>> ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
        >>> graph = ws.Graph.from_edge_index(ring)
        >>> halves = partition(graph, 2, method="stream")
        >>> halves.sizes, halves.cut(graph)
        ([6, 6], 2)
    """
    check_choice("method", method, METHODS)
    parts = check_count("parts", parts)
    if parts > graph.num_nodes:
        raise ValueError(f"parts={parts} for {graph}; use at most one process per node")
    if parts == 1:
        return Partition(torch.zeros(graph.num_nodes, dtype=torch.int64), 1)
    make = {"metis": _metis, "stream": _stream}[method]
    return Partition(_without_empty(torch.from_numpy(make(graph, parts, seed)), parts), parts)


def _metis(graph: Graph, parts: int, seed: int) -> np.ndarray:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError("method='metis' needs pymetis: pip install pymetis; or use method='stream'") from error
    csr = graph.to("cpu").csr
    adjacency = pymetis.CSRAdjacency(csr.indptr.numpy(), csr.indices.numpy())
    options = pymetis.Options(seed=seed, contig=False)
    return np.asarray(pymetis.part_graph(parts, adjacency=adjacency, options=options)[1], dtype=np.int64)


def _stream(graph: Graph, parts: int, seed: int) -> np.ndarray:
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    csr = graph.to("cpu").csr
    order = reverse_cuthill_mckee(graph.to("cpu").to_scipy(), symmetric_mode=True)  # breadth first from the rim
    limit = int(np.ceil(SLACK * graph.num_nodes / parts))
    return fennel(csr.indptr.numpy(), csr.indices.numpy(), order.astype(np.int64), parts, limit, PASSES)


def _without_empty(assignment: Tensor, parts: int) -> Tensor:
    """METIS may leave a part of a tiny graph empty: it then gets a node of the largest part."""
    for part in range(parts):
        if not bool((assignment == part).any()):
            largest = int(torch.bincount(assignment, minlength=parts).argmax())
            assignment[(assignment == largest).nonzero()[-1]] = part
    return assignment


@jit
def fennel(indptr, indices, order, parts, limit, passes):
    """The part of every node by Fennel (Tsourakakis et al. 2014), int64 ``[N]``; no part exceeds ``limit`` nodes.

    A node joins the part with the most of its neighbours less ``1.5 a sqrt(size)``, a = sqrt(parts) E / N^1.5: the
    derivative of the cost a size^1.5 of a part.
    """
    n = indptr.size - 1
    price = 1.5 * np.sqrt(parts) * (indices.size / 2) / max(n, 1) ** 1.5
    found, sizes = np.full(n, -1, np.int64), np.zeros(parts, np.int64)
    near = np.zeros(parts, np.int64)
    for _ in range(passes):
        for node in order:
            if found[node] >= 0:
                sizes[found[node]] -= 1
            for e in range(indptr[node], indptr[node + 1]):
                if found[indices[e]] >= 0:
                    near[found[indices[e]]] += 1
            best, best_score = -1, -np.inf
            for part in range(parts):
                score = near[part] - price * np.sqrt(sizes[part])
                if sizes[part] < limit and score > best_score:
                    best, best_score = part, score
            found[node] = best
            sizes[best] += 1
            near[:] = 0
    return found
