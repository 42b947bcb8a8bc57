"""Read and check every edge container of PyG, and make its edges canonical: undirected, loop-free, each once."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import numpy as np
import torch
from torch import Tensor

from walksum._torch import unwrapped

if TYPE_CHECKING:
    from walksum.graph.graph import Graph

LARGEST = isqrt(2**63 - 1)  # nodes: an edge is told by the number i N + j
PIECE = 2**22  # entries that are turned into keys at once
INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


class SparseMatrix(Protocol):
    """What ``torch_sparse.SparseTensor`` offers."""

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]: ...

    def sparse_sizes(self) -> tuple[int, int]: ...


class NetworkxGraph(Protocol):
    """What a networkx graph offers."""

    @property
    def adj(self) -> Any: ...


#: an integer tensor ``[2, M]``, a PyG ``EdgeIndex``, a torch sparse matrix, a ``SparseTensor``, one or more Graphs, a
#: networkx or libpysal graph, or the path of a ``.gal`` or ``.gwt`` file
EdgeInput: TypeAlias = Union[Tensor, "Graph", SparseMatrix, NetworkxGraph, str, PathLike[str], list["Graph"]]


def read_pairs(edge_index: EdgeInput, num_nodes: int | None) -> tuple[Tensor, int, Tensor | None]:
    """Pairs of nodes ``[2, M]`` as they were given, the number of nodes, and the values of a sparse matrix."""
    pairs, size, values = _unpack(edge_index)
    return pairs, _count_nodes(pairs, size, num_nodes), values


def _unpack(edge_index: EdgeInput) -> tuple[Tensor, int | None, Tensor | None]:
    if isinstance(edge_index, Tensor) and edge_index.layout != torch.strided:
        return _unpack_sparse(edge_index)
    if hasattr(edge_index, "coo") and hasattr(edge_index, "sparse_sizes"):  # torch_sparse.SparseTensor
        row, col, values = edge_index.coo()
        sizes = edge_index.sparse_sizes()
        _check_square(sizes)
        return torch.stack([row, col]), sizes[0], _weights(values)
    if not isinstance(edge_index, Tensor):
        raise ValueError(
            f"edge_index is a {type(edge_index).__name__}; expected an integer tensor [2, M], a PyG EdgeIndex, "
            "a torch sparse matrix, a SparseTensor, a walksum.Graph, a networkx or libpysal graph, or the path of "
            "a .gal or .gwt file; of an array or a list make torch.as_tensor(edge_index)"
        )
    return check_pairs(edge_index), _edge_index_size(edge_index), None


def _unpack_sparse(matrix: Tensor) -> tuple[Tensor, int, Tensor | None]:
    _check_square(matrix.shape)
    _check_indices(matrix.detach())
    coo = matrix.to_sparse_coo()
    if coo.dtype in INTEGERS:
        coo = coo.double()  # before sums, which overflow in a byte
    coo = coo.coalesce()  # in this format duplicate entries are summed
    values = coo.values()
    if values.dim() != 1:
        raise ValueError(f"the sparse matrix holds values of shape {tuple(values.shape)}; expected one scalar per edge")
    return coo.indices(), matrix.size(0), _weights(values)


def _check_indices(matrix: Tensor) -> None:
    """Whether the indices lie inside of the matrix: torch reads and writes memory by them without a check."""
    if matrix.layout == torch.sparse_coo:
        found = matrix._indices()
    else:
        by_row = matrix.layout in (torch.sparse_csr, torch.sparse_bsr)
        ends = matrix.crow_indices() if by_row else matrix.ccol_indices()
        found = matrix.col_indices() if by_row else matrix.row_indices()
        if int(ends[0]) != 0 or int(ends[-1]) != found.numel() or bool((ends.diff() < 0).any()):
            name = "crow_indices" if by_row else "ccol_indices"
            raise ValueError(
                f"edge_index is a damaged sparse matrix: its {name} do not ascend from 0 to {found.numel()}, the "
                "number of its entries; make it anew, for example by torch.sparse_coo_tensor"
            )
    _count_nodes(found, matrix.size(0), None)


def _weights(values: Tensor | None) -> Tensor | None:
    """The values of a matrix as weights, whole numbers too; None where all of them are one."""
    if values is not None and values.is_complex():
        raise ValueError(f"edge_index holds values of dtype {values.dtype}; a weight is a real number, use abs()")
    if values is None or (not values.requires_grad and bool((values == 1).all())):
        return None
    return values if values.is_floating_point() else values.double()


def one_weight(values: Tensor | None, edge_weight: Tensor | None) -> Tensor | None:
    """The values of the matrix or the weights given beside it, never both."""
    if values is not None and edge_weight is not None:
        raise ValueError("edge_weight was given beside a matrix that has values; give the weights once")
    return values if edge_weight is None else edge_weight


def _edge_index_size(edge_index: Tensor) -> int | None:
    sparse_size = getattr(edge_index, "sparse_size", None)  # PyG's EdgeIndex
    if sparse_size is None:
        return None
    rows, cols = sparse_size()
    if rows is not None and cols is not None:
        _check_square((rows, cols))
    return rows if rows is not None else cols


def _check_square(sizes: Any) -> None:
    if len(sizes) != 2 or sizes[0] != sizes[1]:
        raise ValueError(f"the adjacency matrix has shape {tuple(sizes)}; a graph needs a square one")


def check_pairs(edge_index: Tensor) -> Tensor:
    pairs = edge_index if type(edge_index) is Tensor else edge_index.as_subclass(Tensor)  # no compiler follows that
    if pairs.dim() != 2 or pairs.size(0) != 2:
        square = pairs.dim() > 1 and pairs.size(-1) == pairs.size(-2)
        remedy = "a dense matrix use edge_index.to_sparse()" if square else "a list of pairs use edge_index.t()"
        raise ValueError(f"edge_index has shape {tuple(pairs.shape)}; expected [2, M]. For {remedy}")
    if pairs.dtype not in INTEGERS:
        raise ValueError(f"edge_index has dtype {pairs.dtype}; indices must be integers, use edge_index.long()")
    return pairs.long()


def check_num_nodes(num_nodes: Any) -> None:
    if isinstance(num_nodes, bool | str | None) or not num_nodes >= 0 or num_nodes % 1:
        raise ValueError(f"num_nodes={num_nodes!r}; expected a non-negative whole number")
    if num_nodes > LARGEST:
        raise ValueError(f"num_nodes={num_nodes!r}; a graph has at most {LARGEST} nodes: number those there are from 0")


def _count_nodes(pairs: Tensor, size: int | None, num_nodes: int | None) -> int:
    if num_nodes is not None:
        check_num_nodes(num_nodes)
    low, high = (0, -1) if not pairs.numel() else map(int, torch.aminmax(pairs))
    if low < 0:
        raise ValueError(f"edge_index contains the negative index {low}; nodes are numbered from 0")
    count = num_nodes if num_nodes is not None else size
    if count is None:
        count = high + 1
    if high >= count:
        raise ValueError(
            f"edge_index contains node {high}, but num_nodes={count}; pass num_nodes={high + 1} or larger "
            "(to a layer or model: one row of x for each node)"
        )
    check_num_nodes(count)  # of ids in the place of numbers
    return int(count)


def check_weight(weight: Tensor, count: int, device: torch.device) -> None:
    """One floating-point number for each of ``count`` edges, on their device."""
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"edge_weight has type {kind}; expected a floating-point tensor, use edge_weight.float()")
    if weight.shape != (count,):
        hint = "; edge features are edge_attr=... of a GLTConv or GLT with edge_dim=..." if weight.dim() > 1 else ""
        raise ValueError(f"edge_weight has shape {tuple(weight.shape)} for {count} edges; expected [{count}]{hint}")
    if weight.device != device:
        raise ValueError(f"edge_weight is on {weight.device} but edge_index on {device}; move one of them")


def check_finite(weight: Tensor) -> None:
    values = unwrapped(weight)  # under vmap, of the whole batch
    if values is None or bool(torch.isfinite(values).all()):
        return
    bad = (~torch.isfinite(values)).nonzero()[0].tolist()
    raise ValueError(f"edge_weight{bad} is {float(values[tuple(bad)])}; weights must be finite")


@dataclass(frozen=True)
class Entries:
    """Which of the E edges each of the M given entries belongs to."""

    keep: Tensor  # [M], bool: entries that are no loops
    edge: Tensor  # [K], the edge of each entry that is kept
    count: Tensor  # [E], the number of entries of each edge, float64

    def mean(self, weight: Tensor) -> Tensor:
        """The mean weight of the entries of each edge, ``[M] -> [E]``.

        In float64, where the sum of float32 weights cannot overflow; of float64 weights the halves, quarters, ... are
        summed, which is exact and cannot overflow either.
        """
        check_finite(weight)
        share = torch.exp2(-torch.ceil(torch.log2(self.count)))
        kept = weight.double().index_select(0, self.keep.nonzero().view(-1)) * share[self.edge]
        total = torch.zeros_like(self.count).index_add(0, self.edge, kept)
        return (total / (self.count * share)).to(weight.dtype)


def coalesce(pairs: Tensor, num_nodes: int, weighted: bool) -> tuple[Tensor, Entries | None]:
    """The edges ``[2, E]`` with ``i < j``, sorted, and where weights ask for them the entries of each."""
    if not weighted and pairs.is_cpu:
        return _ends_of_keys(_distinct_keys(pairs, num_nodes), num_nodes), None
    low, high = torch.minimum(*pairs), torch.maximum(*pairs)  # amin over rows of two takes ten times as long
    keep = low != high
    keys = low[keep] * num_nodes + high[keep]
    if weighted:  # which entry belongs to which edge takes twice the memory
        key, edge = torch.unique(keys, return_inverse=True)
        entries = Entries(keep, edge, torch.bincount(edge, minlength=key.numel()).double())
    else:
        key, entries = torch.unique(keys), None
    return _from_keys(key, num_nodes), entries


def _distinct_keys(pairs: Tensor, num_nodes: int) -> np.ndarray:
    """``i N + j`` of every edge, ascending; beside the pairs, one array of their length is all that is held."""
    ends, loop = pairs.numpy(), num_nodes**2  # a loop's key is the largest
    # short keys are sorted in half the time
    keys = np.empty(ends.shape[1], np.uint32 if loop < 2**32 else np.int64)
    for start in range(0, keys.size, PIECE):
        a, b = ends[:, start : start + PIECE]
        key = np.minimum(a, b)
        key *= num_nodes
        key += np.maximum(a, b)
        key[a == b] = loop
        keys[start : start + PIECE] = key
    keys.sort()  # in place, where torch.sort would also make the order
    first = np.empty(keys.size, np.bool_)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    distinct = keys[first]
    return distinct[:-1] if distinct.size and distinct[-1] == loop else distinct


def _from_keys(keys: Tensor, num_nodes: int) -> Tensor:
    edges, count = keys.new_empty(2, keys.numel()), max(num_nodes, 1)
    torch.div(keys, count, rounding_mode="floor", out=edges[0])
    torch.remainder(keys, count, out=edges[1])
    return edges


def _ends_of_keys(keys: np.ndarray, num_nodes: int) -> Tensor:
    edges = np.empty((2, keys.size), np.int64)
    low = keys // keys.dtype.type(max(num_nodes, 1))
    edges[0], edges[1] = low, keys - low * keys.dtype.type(num_nodes)
    return torch.from_numpy(edges)
