"""The Graph of an edge_index tensor, kept for as long as that tensor lives and holds the same edges."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from walksum._torch import needs_grad, no_compile, outside_transforms, unwrapped
from walksum.graph.edges import EdgeInput, Entries, check_weight, coalesce, one_weight, read_pairs
from walksum.graph.graph import Graph

# Models are called with the same edge_index tensor every epoch.
_of_tensor: WeakIdKeyDictionary = WeakIdKeyDictionary()
_unions: WeakValueDictionary[tuple[int, ...], Graph] = WeakValueDictionary()


@no_compile
def as_graph(edge_index: EdgeInput, num_nodes: int | None = None, edge_weight: Tensor | None = None) -> Graph:
    """``Graph.from_edge_index``, kept for as long as the given tensor lives unchanged.

    A change of the tensor is always noticed on a CPU, where its content is compared with a copy: in-place changes,
    those through ``.data`` or numpy, and those of tensors made in inference mode. On a GPU a comparison would make the
    host wait, so the version of the tensor decides: a change through ``.data`` is not noticed there. Tensors made in
    inference mode have no version; they are compared there too, except while a CUDA graph is captured.

    What depends on the edges alone is shared by all weights, learned ones too.
    """
    if torch.jit.is_tracing():
        raise ValueError("torch.jit.trace records no graph and no solve; use torch.compile or torch.export")
    if isinstance(edge_index, Graph):
        return edge_index.checked(num_nodes, edge_weight)
    if isinstance(edge_index, list):  # what a PyG batch makes of Graphs
        return _union_of(edge_index).checked(num_nodes, edge_weight)
    tensor = unwrapped(edge_index) if isinstance(edge_index, Tensor) else None
    if tensor is None or needs_grad(tensor):  # not a tensor, or a sparse matrix of learned values
        return Graph.from_edge_index(edge_index, num_nodes, edge_weight)
    known = _of_tensor.get(tensor)
    if known is None or not outside_transforms(known.fits, tensor, num_nodes):
        known = outside_transforms(_Known, tensor, num_nodes, edge_weight is not None)
        _of_tensor[tensor] = known
    return known.graph(tensor, edge_weight)


def _union_of(graphs: list[Graph]) -> Graph:
    """One union for all layers that are given the same graphs, as long as one of its users lives."""
    key = tuple(map(id, graphs))
    union = _unions.get(key)
    if union is None:
        union = outside_transforms(Graph.disjoint_union, graphs)
        union.parts = graphs  # type: ignore[attr-defined]  # whose addresses are the key
        _unions[key] = union
    return union


class Snapshot:
    """What a tensor held, to notice that it was changed."""

    def __init__(self, tensor: Tensor):
        self.by_version = tensor.is_cuda and not tensor.is_inference()
        parts = _dense_parts(tensor)
        self.versions = [part._version for part in parts] if self.by_version else []
        self.copies = [] if self.by_version else [part.clone() for part in parts]

    def fits(self, tensor: Tensor) -> bool:
        parts = _dense_parts(tensor)
        if self.by_version:
            return self.versions == [part._version for part in parts]
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return True
        return len(parts) == len(self.copies) and all(map(_equal, self.copies, parts))


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype is b.dtype and a.device == b.device and torch.equal(a, b)


def _dense_parts(tensor: Tensor) -> list[Tensor]:
    if tensor.layout == torch.strided:
        return [tensor.as_subclass(Tensor)]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


class _Known:
    """The graph of one edge_index, and with the latest weights that are not learned."""

    def __init__(self, edge_index: Tensor, num_nodes: int | None, weighted: bool):
        self.asked, self.size, self.snapshot = num_nodes, _declared_size(edge_index), Snapshot(edge_index)
        pairs, count, self.values = read_pairs(edge_index, num_nodes)
        self.num_entries = pairs.size(1)
        edges, self.entries = coalesce(pairs, count, weighted or self.values is not None)
        self.unweighted = Graph.trusted(edges, count)
        self.weighted: tuple[Tensor, Snapshot, Graph] | None = None

    def fits(self, edge_index: Tensor, num_nodes: int | None) -> bool:
        same_size = num_nodes == self.asked and self.size == _declared_size(edge_index)
        return same_size and self.snapshot.fits(edge_index)

    def graph(self, edge_index: Tensor, edge_weight: Tensor | None) -> Graph:
        weight = one_weight(self.values, edge_weight)
        if weight is None:
            return self.unweighted
        check_weight(weight, self.num_entries, edge_index.device)
        if self.entries is None:  # the first call with weights
            self.entries = outside_transforms(self._read_entries, edge_index)
        if needs_grad(weight):  # what is made of learned weights belongs to this call
            return self._attach(weight)
        if self.weighted is None or not outside_transforms(self._same_weight, weight):
            self.weighted = outside_transforms(lambda: (weight, Snapshot(weight), self._attach(weight)))
        return self.weighted[2]

    def _read_entries(self, edge_index: Tensor) -> Entries | None:
        pairs, count, _ = read_pairs(edge_index, self.asked)
        return coalesce(pairs, count, True)[1]

    def _same_weight(self, weight: Tensor) -> bool:
        assert self.weighted is not None
        kept, snapshot, _ = self.weighted  # a version counts for the very same tensor alone, so that one is held
        return (kept is weight or not snapshot.by_version) and snapshot.fits(weight)

    def _attach(self, weight: Tensor) -> Graph:
        assert self.entries is not None
        return self.unweighted.with_weight(self.entries.mean(weight))


def _declared_size(edge_index: Tensor) -> object:
    """The size that a PyG EdgeIndex or a sparse matrix states beside its entries."""
    sparse_size = getattr(edge_index, "sparse_size", None)
    return edge_index.shape if sparse_size is None else sparse_size()
