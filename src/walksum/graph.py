"""Graph: undirected, loop-free, every edge once; owner of every structure derived from it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from walksum.convert import check_num_nodes, check_weight, read_edges
from walksum.lasting import differentiated, lasting
from walksum.untraced import untraced

T = TypeVar("T")
_MISSING: Any = object()


@dataclass(frozen=True)
class CSR:
    """Directed edges grouped by row: slot e of row i stands for the neighbour ``indices[e]``.

    ``edge`` maps a slot to the undirected edge it belongs to, ``reverse`` to the slot of the opposite
    direction, ``row`` to the row it lies in. 32-bit where the counts allow: kernels are bandwidth bound.
    """

    indptr: Tensor  # [N + 1], int64
    indices: Tensor  # [2 E]
    edge: Tensor  # [2 E]
    reverse: Tensor  # [2 E]
    row: Tensor  # [2 E]

    def to(self, device: torch.device | str) -> CSR:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})


class Graph:
    """An undirected graph without loops, each edge stored once as ``i < j`` in lexicographic order.

    Build one with :meth:`from_edge_index`. A Graph is immutable; what is computed from it (neighbour
    lists, elimination orders, fixed precision matrices) is kept with it by :meth:`derived`, so that
    layers, epochs, forward and backward share it.

    Args:
        edges: int64 ``[2, E]``, ``i < j``, sorted and without duplicates.
        num_nodes: number of nodes N.
        edge_weight: ``[E]`` or None for an unweighted graph.
    """

    def __init__(self, edges: Tensor, num_nodes: int, edge_weight: Tensor | None = None):
        check_num_nodes(num_nodes)
        _check_canonical(edges, int(num_nodes))
        if edge_weight is not None:
            check_weight(edge_weight, edges)
        self.edges = edges
        self.num_nodes = int(num_nodes)
        self.edge_weight = edge_weight
        self._derived: dict[Hashable, Any] = {}
        self._moved: dict[torch.device, Graph] = {}  # copies on other devices, kept by the one they come from,
        self._home: weakref.ref[Graph] = weakref.ref(self)  # which they know weakly: no cycle keeps both alive
        self._lock = threading.RLock()  # the autograd engine derives from its own threads

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | None = None, edge_weight: Tensor | None = None) -> Graph:
        """Take whatever holds a graph and leave an undirected, loop-free, coalesced one.

        Args:
            edge_index: an integer tensor ``[2, M]``, a PyG ``EdgeIndex``, a torch sparse COO, CSR or CSC
                matrix, a ``torch_sparse.SparseTensor``, or a Graph (returned as it is).
            num_nodes: number of nodes; by default the matrix size, or the largest index plus one.
            edge_weight: one finite weight for each of the M entries. The weight of an undirected edge is
                the mean of its entries: both directions and duplicates.
        """
        if isinstance(edge_index, Graph):
            if num_nodes not in (None, edge_index.num_nodes):
                raise ValueError(
                    f"num_nodes={num_nodes} was given beside {edge_index}; build the Graph with it instead"
                )
            return _checked_against(edge_index, None, edge_weight)
        return cls(*read_edges(edge_index, num_nodes, edge_weight))

    @property
    def num_edges(self) -> int:
        return self.edges.size(1)

    @property
    def device(self) -> torch.device:
        return self.edges.device

    @property
    def csr(self) -> CSR:
        """Neighbour lists: the directed edges sorted by row, then column."""
        return self.derived(_build_csr)

    @property
    def degree(self) -> Tensor:
        """Number of neighbours of each node, int64 ``[N]``."""
        return self.derived(_build_degree)

    def derived(self, build: Callable[..., T], *key: Hashable) -> T:
        """``build(self, *key)``, computed once and kept as long as the graph."""
        slot = (build, *key)
        found = self._derived.get(slot, _MISSING)
        if found is _MISSING:
            with self._lock, lasting():
                if slot not in self._derived:
                    self._derived[slot] = build(self, *key)
                found = self._derived[slot]
        return found

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on ``device``, with what was derived so far; moving twice gives the same object."""
        device = torch.empty(0, device=device).device  # "cuda" -> "cuda:0"
        home = self._home() or self
        if device in (self.device, home.device):
            return self if device == self.device else home
        with home._lock, lasting():
            if device not in home._moved:
                weight = None if self.edge_weight is None else self.edge_weight.to(device)
                moved = Graph(self.edges.to(device), self.num_nodes, weight)
                moved._home = weakref.ref(home)
                home._moved[device] = moved  # before what is derived: a Precision asks for it while moving
                moved._derived.update((k, v.to(device)) for k, v in self._derived.items() if hasattr(v, "to"))
            return home._moved[device]

    def __reduce__(self) -> tuple:
        return Graph, (self.edges, self.num_nodes, self.edge_weight)  # what is derived can be derived again

    def __repr__(self) -> str:
        weighted = "" if self.edge_weight is None else ", weighted"
        where = "" if self.device.type == "cpu" else f", device='{self.device}'"
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{weighted}{where})"


def _check_canonical(edges: Tensor, num_nodes: int) -> None:
    """Kernels index memory by these numbers, so wrong ones must not get past the door."""
    if not isinstance(edges, Tensor):
        raise ValueError(f"edges is a {type(edges).__name__}; expected an int64 tensor [2, E]")
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype != torch.int64:
        raise ValueError(f"edges has shape {tuple(edges.shape)} and dtype {edges.dtype}; expected int64 [2, E]")
    if edges.is_meta or edges.size(1) == 0:
        return
    i, j = edges
    key = i * num_nodes + j
    if not bool((i < j).all() & (i >= 0).all() & (j < num_nodes).all() & (key[1:] > key[:-1]).all()):
        raise ValueError("edges must be i < j, sorted and without duplicates; use Graph.from_edge_index")


def index_dtype(largest: int) -> torch.dtype:
    return torch.int32 if largest < 2**31 else torch.int64


def _build_csr(graph: Graph) -> CSR:
    # The edges are sorted by i already, so the upper half of every row stands in order; the lower half is one
    # stable sort of the E numbers j. A sort of all 2 E pairs would take four times the time and memory.
    i, j = graph.edges
    small = index_dtype(max(2 * graph.num_edges, graph.num_nodes))
    edge = torch.arange(graph.num_edges, device=graph.device)
    by_j = torch.sort(j.to(index_dtype(graph.num_nodes)), stable=True).indices
    below, above = (torch.bincount(end, minlength=graph.num_nodes) for end in (j, i))
    indptr = torch.zeros(graph.num_nodes + 1, dtype=torch.int64, device=graph.device)
    torch.cumsum(below + above, 0, out=indptr[1:])
    up = edge + (indptr[:-1] + below - (above.cumsum(0) - above))[i]  # the slot of j in row i
    down = torch.empty_like(up)  # the slot of i in row j
    down[by_j] = edge + (indptr[:-1] - (below.cumsum(0) - below))[j[by_j]]
    return CSR(
        indptr=indptr,
        indices=_fill_slots(up, down, j, i, small),
        edge=_fill_slots(up, down, edge, edge, small),
        reverse=_fill_slots(up, down, down, up, small),
        row=_fill_slots(up, down, i, j, small),
    )


def _fill_slots(up: Tensor, down: Tensor, at_up: Tensor, at_down: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty(2 * up.numel(), dtype=dtype, device=up.device)
    out[up], out[down] = at_up.to(dtype), at_down.to(dtype)
    return out


def _build_degree(graph: Graph) -> Tensor:
    return torch.bincount(graph.edges.flatten(), minlength=graph.num_nodes)


# Models are called with the same edge_index tensor every epoch. Its Graph lives as long as that tensor.
_of_tensor: WeakIdKeyDictionary = WeakIdKeyDictionary()


@untraced
def as_graph(edge_index: Any, num_nodes: int | None = None, edge_weight: Tensor | None = None) -> Graph:
    """``Graph.from_edge_index``, remembered for as long as the given tensor lives unchanged."""
    if isinstance(edge_index, Graph):
        return _checked_against(edge_index, num_nodes, edge_weight)
    if not isinstance(edge_index, Tensor) or (isinstance(edge_weight, Tensor) and differentiated(edge_weight)):
        return Graph.from_edge_index(edge_index, num_nodes, edge_weight)
    stamp = (num_nodes, _stamp(edge_index), None if edge_weight is None else _stamp(edge_weight))
    known = _of_tensor.get(edge_index)
    if known is None or known[0] != stamp:
        # the weight is held, so that its identity in the stamp cannot be taken over by another tensor
        known = (stamp, Graph.from_edge_index(edge_index, num_nodes, edge_weight), edge_weight)
        _of_tensor[edge_index] = known
    return known[1]


def _checked_against(graph: Graph, num_nodes: int | None, edge_weight: Tensor | None) -> Graph:
    if num_nodes is not None and num_nodes != graph.num_nodes:
        raise ValueError(
            f"x has {num_nodes} rows but the graph has {graph.num_nodes} nodes; give one feature row for each node"
        )
    if edge_weight is not None:
        raise ValueError("edge_weight was given beside a Graph; build the Graph with its weights instead")
    return graph


def _stamp(tensor: Tensor) -> tuple[int, int]:
    return id(tensor), -1 if tensor.is_inference() else tensor._version
