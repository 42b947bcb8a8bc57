"""The class Graph."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from walksum._torch import is_functorch_wrapped, needs_grad, outside_transforms
from walksum.graph.csr import CSR, build_csr
from walksum.graph.edges import EdgeInput, check_num_nodes, check_weight, coalesce, one_weight, read_pairs
from walksum.graph.files import read_arrays, write_arrays

if TYPE_CHECKING:
    import scipy.sparse as sp

T = TypeVar("T")
_MISSING: Any = object()
KEPT = 16  # matrices of one kind that a graph keeps: more than a bank of scales asks for in every epoch
CHECKED = 2**25  # edges that are checked at once


class Graph:
    """An undirected graph without loops, each edge stored once as ``i < j`` in lexicographic order.

    Build one with :meth:`from_edge_index`. A Graph is immutable; what is computed from it (neighbour
    lists, elimination orders, fixed precision matrices) is kept with it by :meth:`derived`, so that
    layers, epochs, forward and backward share it.

    Args:
        edges: int64 ``[2, E]``, ``i < j``, sorted and without duplicates.
        num_nodes: number of nodes N.
        edge_weight: ``[E]`` or None for an unweighted graph.

    Example:
        >>> import torch, walksum as ws
        >>> graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 1, 3], [1, 0, 2, 4]]))
        >>> graph
        Graph(num_nodes=5, num_edges=3)
        >>> graph.components()
        tensor([0, 0, 0, 1, 1])
        >>> graph.hop_distances([0])
        tensor([[ 0,  1,  2, -1, -1]])
    """

    edges: Tensor
    num_nodes: int
    edge_weight: Tensor | None
    #: how a graph whose nodes lie in several processes solves J mu = h; None where this process has all of them
    solve_across: Callable[..., Tensor] | None = None
    #: and what estimators then need of J
    system_across: Callable[..., Any] | None = None

    def __init__(self, edges: Tensor, num_nodes: int, edge_weight: Tensor | None = None):
        check_num_nodes(num_nodes)
        _check_canonical(edges, int(num_nodes))
        structure = None
        if edge_weight is not None:
            check_weight(edge_weight, edges.size(1), edges.device)
            structure = object.__new__(Graph)
            structure._set(edges, int(num_nodes), None)
        self._set(edges, int(num_nodes), edge_weight, structure)

    @classmethod
    def trusted(cls, edges: Tensor, num_nodes: int) -> Graph:
        """Make a graph of edges from :func:`walksum.graph.edges.coalesce`, without checking them again."""
        graph = object.__new__(cls)
        graph._set(edges, num_nodes, None)
        return graph

    def _set(self, edges: Tensor, num_nodes: int, edge_weight: Tensor | None, structure: Graph | None = None) -> None:
        self.edges, self.num_nodes, self.edge_weight = edges, num_nodes, edge_weight
        self._structure = structure
        self._derived: dict[tuple[Any, ...], Any] = {}
        # copies on other devices belong to the graph they come from, which they know by a weak reference: no cycle
        self._moved: dict[torch.device, Graph] = {}
        self._home: weakref.ref[Graph] = weakref.ref(self)
        self._lock = threading.RLock()  # the autograd engine derives from its own threads

    @classmethod
    def from_edge_index(
        cls, edge_index: EdgeInput, num_nodes: int | None = None, edge_weight: Tensor | None = None
    ) -> Graph:
        """Make an undirected, loop-free, coalesced graph of any edge container.

        Args:
            edge_index: an integer tensor ``[2, M]``, a PyG ``EdgeIndex``, a torch sparse COO, CSR or CSC
                matrix, a ``torch_sparse.SparseTensor``, a Graph (returned as it is), or what has names for its nodes:
                a networkx graph, a libpysal ``Graph`` or ``W``, the path of a ``.gal`` or ``.gwt`` file. Those are
                numbered in their own order; :func:`walksum.spatial_graph` gives the names too.
            num_nodes: number of nodes; by default the matrix size, or the largest index plus one.
            edge_weight: one finite weight for each of the M entries. The weight of an undirected edge is
                the mean of its entries: both directions and duplicates.
        """
        if isinstance(edge_index, Graph):
            if num_nodes not in (None, edge_index.num_nodes):
                raise ValueError(
                    f"num_nodes={num_nodes} was given beside {edge_index}; build the Graph with it instead"
                )
            return edge_index.checked(None, edge_weight)
        if not isinstance(edge_index, Tensor):
            from walksum.graph.spatial import is_named, spatial_graph

            if is_named(edge_index):
                return cls.from_edge_index(spatial_graph(edge_index).graph, num_nodes, edge_weight)
        pairs, num_nodes, values = outside_transforms(read_pairs, edge_index, num_nodes)
        weight = one_weight(values, edge_weight)
        if weight is not None:
            check_weight(weight, pairs.size(1), pairs.device)
        edges, entries = outside_transforms(coalesce, pairs, num_nodes, weight is not None)
        graph = cls.trusted(edges, num_nodes)
        if weight is None or entries is None:
            return graph
        mean = entries.mean(weight) if needs_grad(weight) else outside_transforms(entries.mean, weight)
        return graph.with_weight(mean)

    @classmethod
    def disjoint_union(cls, graphs: Sequence[Graph]) -> Graph:
        """The graphs side by side, their nodes numbered one graph after the other, as a PyG batch numbers them."""
        if not len(graphs) or not all(isinstance(graph, Graph) for graph in graphs):
            kinds = ", ".join(sorted({type(graph).__name__ for graph in graphs})) or "nothing"
            raise ValueError(
                f"graphs holds {kinds}; expected one or more walksum.Graph objects (of lists of numbers make a tensor: "
                "torch.tensor(edge_index))"
            )
        if len({graph.edge_weight is None for graph in graphs}) > 1:
            raise ValueError("graphs holds weighted and unweighted graphs; give all of them weights or none")
        first = np.cumsum([0, *(graph.num_nodes for graph in graphs)]).tolist()
        edges = torch.cat([graph.edges + start for graph, start in zip(graphs, first, strict=False)], 1)
        weights = [graph.edge_weight for graph in graphs if graph.edge_weight is not None]
        return cls(edges, first[-1], torch.cat(weights) if weights else None)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write edges and weights into a new folder; :meth:`load` reads it."""
        write_arrays(folder, self.num_nodes, self.edges, self.edge_weight)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Graph:
        """The graph that :meth:`save` wrote, its arrays mapped from the files instead of read into memory."""
        edges, num_nodes, weight = read_arrays(folder)
        return cls(edges, num_nodes, weight)

    @property
    def num_edges(self) -> int:
        return self.edges.size(1)

    @property
    def device(self) -> torch.device:
        return self.edges.device

    @property
    def structure(self) -> Graph:
        """The graph without its weights, shared by all graphs that :meth:`with_weight` made of it.

        What depends on the edges alone is derived from it, once for all weights.
        """
        return self if self._structure is None else self._structure

    def with_weight(self, edge_weight: Tensor) -> Graph:
        """The same graph with one weight per edge, ``[E]``, in the order of :attr:`edges`."""
        check_weight(edge_weight, self.num_edges, self.device)
        graph = object.__new__(Graph)
        graph._set(self.edges, self.num_nodes, edge_weight, self.structure)
        return graph

    def fill(self, values: Tensor) -> Tensor:
        """``values [..., N, F]`` with correct rows for all nodes; a part of a larger graph fetches some of them."""
        return values

    def weights(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The weight of each edge ``[E]``; ones without weights."""
        if self.edge_weight is None:
            return torch.ones(self.num_edges, dtype=dtype, device=self.device)
        return self.edge_weight.to(dtype)

    def largest_weight(self) -> Tensor:
        """The largest magnitude of a weight; of a part, that of the whole graph."""
        assert self.edge_weight is not None
        return self.edge_weight.detach().abs().max()

    @property
    def csr(self) -> CSR:
        """Neighbour lists: the directed edges sorted by row, then column."""
        return self.structure.derived(_csr)

    @property
    def degree(self) -> Tensor:
        """Number of neighbours of each node, int64 ``[N]``."""
        return self.structure.derived(_degree)

    def to_scipy(self, values: Tensor | None = None) -> sp.csr_matrix:
        """The symmetric matrix ``[N, N]`` with one value per edge: the weights by default, ones without weights."""
        import scipy.sparse as sp

        csr = self.csr
        values = self.edge_weight if values is None else values
        values = (
            torch.ones(self.num_edges, dtype=torch.float64, device="cpu") if values is None else values.detach().cpu()
        )
        indices, indptr = csr.indices.cpu().numpy(), csr.indptr.cpu().numpy()
        return sp.csr_matrix((values[csr.edge.cpu().long()].numpy(), indices, indptr), shape=(self.num_nodes,) * 2)

    def components(self) -> Tensor:
        """The connected component of each node, int64 ``[N]``: numbers from 0, in the order of their first nodes."""
        return self.structure.derived(_components)

    def hop_distances(self, nodes: Sequence[int] | Tensor, limit: int | None = None) -> Tensor:
        """The number of edges from each of ``nodes`` to every node, int64 ``[n, N]``.

        -1 stands where there is no path, or none of at most ``limit`` edges.
        """
        from scipy.sparse.csgraph import dijkstra

        chosen = torch.as_tensor(nodes, dtype=torch.int64, device="cpu").view(-1)
        if chosen.numel() == 0:
            return chosen.new_empty(0, self.num_nodes)
        if not bool(((chosen >= 0) & (chosen < self.num_nodes)).all()):
            raise ValueError(f"nodes={chosen.tolist()}; expected nodes of {self}, 0 to {self.num_nodes - 1}")
        pattern = self.structure.derived(_pattern)
        far = float("inf") if limit is None else limit
        found = torch.from_numpy(dijkstra(pattern, indices=chosen.numpy(), unweighted=True, limit=far))
        return torch.where(found.isfinite(), found, -1).long()

    def derived(self, build: Callable[..., T], *key: Hashable, few: bool = False) -> T:
        """``build(self, *key)``, computed once and kept as long as the graph; ``few``: the latest KEPT of this build.

        A J is kept with its factor, so one for every scale ever asked would fill the memory.
        """
        slot = (build, *key)
        found = self._derived.get(slot, _MISSING)
        if found is _MISSING:
            with self._lock:
                if slot not in self._derived:
                    self._derived[slot] = outside_transforms(build, self, *key)
                    for old in [known for known in self._derived if known[0] is build][:-KEPT] if few else ():
                        del self._derived[old]
                found = self._derived[slot]
        return found

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Graph:
        """The same graph on ``device``, with what was derived so far; moving twice gives the same object.

        ``non_blocking`` is what PyG's ``data.to(device)`` passes on; a Graph is always moved at once.
        """
        device = torch.empty(0, device=device).device  # "cuda" -> "cuda:0"
        home = self._home() or self
        if device in (self.device, home.device):
            return self if device == self.device else home
        if needs_grad(self.edge_weight):  # what is made of such weights is not kept
            assert self.edge_weight is not None
            return self.structure.to(device).with_weight(self.edge_weight.to(device))
        with home._lock:
            if device not in home._moved:
                outside_transforms(self._move, home, device)
            return home._moved[device]

    def _move(self, home: Graph, device: torch.device) -> None:
        moved = object.__new__(Graph)
        if self.edge_weight is None:
            moved._set(self.edges.to(device), self.num_nodes, None)
        else:
            structure = self.structure.to(device)
            moved._set(structure.edges, self.num_nodes, self.edge_weight.to(device), structure)
        moved._home = weakref.ref(home)
        home._moved[device] = moved  # before what is derived: a Precision asks for it while moving
        moved._derived.update((k, v.to(device)) for k, v in self._derived.items() if hasattr(v, "to"))

    def checked(self, num_nodes: int | None, edge_weight: Tensor | None) -> Graph:
        """The graph itself, after a check that the other arguments of a layer fit it."""
        if num_nodes is not None and num_nodes != self.num_nodes:
            raise ValueError(
                f"x has {num_nodes} rows but the graph has {self.num_nodes} nodes; give one feature row for each node"
            )
        if edge_weight is not None:
            raise ValueError("edge_weight was given beside a Graph; use graph.with_weight(edge_weight) instead")
        return self

    def __reduce__(self) -> tuple:
        return Graph, (self.edges, self.num_nodes, self.edge_weight)  # what is derived can be derived again

    def __repr__(self) -> str:
        weighted = "" if self.edge_weight is None else ", weighted"
        where = "" if self.device.type == "cpu" else f", device='{self.device}'"
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{weighted}{where})"


def _check_canonical(edges: Tensor, num_nodes: int) -> None:
    """Check the edges: kernels index memory by them."""
    if not isinstance(edges, Tensor):
        raise ValueError(f"edges is a {type(edges).__name__}; expected an int64 tensor [2, E]")
    if edges.dim() != 2 or edges.size(0) != 2 or edges.dtype != torch.int64:
        raise ValueError(f"edges has shape {tuple(edges.shape)} and dtype {edges.dtype}; expected int64 [2, E]")
    if edges.is_meta or edges.size(1) == 0:
        return
    # numpy's operations on a few hundred edges take a tenth of torch's
    pairs: Any = edges.numpy() if edges.is_cpu and not is_functorch_wrapped(edges) else edges
    for start in range(0, edges.size(1), CHECKED):  # in pieces, which overlap by one: what is compared takes memory
        i, j = pairs[:, start : start + CHECKED + 1]
        key = i * num_nodes + j
        if not bool((i < j).all() & (i >= 0).all() & (j < num_nodes).all() & (key[1:] > key[:-1]).all()):
            raise ValueError("edges must be i < j, sorted and without duplicates; use Graph.from_edge_index")


def _csr(graph: Graph) -> CSR:
    return build_csr(graph.edges, graph.num_nodes)


def _degree(graph: Graph) -> Tensor:
    return torch.bincount(graph.edges.flatten(), minlength=graph.num_nodes)


def _pattern(graph: Graph) -> sp.csr_matrix:
    return graph.to_scipy()


def _components(graph: Graph) -> Tensor:
    from scipy.sparse.csgraph import connected_components

    return torch.from_numpy(connected_components(graph.derived(_pattern), directed=False)[1]).long()
