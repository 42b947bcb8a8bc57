"""The door of :class:`walksum.Graph`: every edge container PyG users hold, checked and made canonical."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walksum.lasting import lasting

INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def read_edges(edge_index: Any, num_nodes: int | None, edge_weight: Tensor | None) -> tuple[Tensor, int, Tensor | None]:
    """Edges ``[2, E]`` with ``i < j``, number of nodes, weights: what the Graph constructor takes."""
    with lasting():
        pairs, size, weight = _unpack(edge_index, edge_weight)
        num_nodes = _count_nodes(pairs, size, num_nodes)
        if weight is not None:
            check_weight(weight, pairs)
        edges, keep, member = _canonical(pairs, num_nodes, weight is not None)
    if weight is None:
        return edges, num_nodes, None
    with lasting(weight):
        check_finite(weight)
        total = weight.new_zeros(edges.size(1)).index_add(0, member, weight[keep])
        return edges, num_nodes, total / torch.bincount(member, minlength=edges.size(1))


def _unpack(edge_index: Any, edge_weight: Tensor | None) -> tuple[Tensor, int | None, Tensor | None]:
    if isinstance(edge_index, Tensor) and edge_index.layout != torch.strided:
        return _unpack_sparse(edge_index, edge_weight)
    if hasattr(edge_index, "coo") and hasattr(edge_index, "sparse_sizes"):  # torch_sparse.SparseTensor
        row, col, value = edge_index.coo()
        sizes = edge_index.sparse_sizes()
        _check_square(sizes)
        return torch.stack([row, col]), sizes[0], _one_weight(value, edge_weight)
    if not isinstance(edge_index, Tensor):
        raise ValueError(
            f"edge_index is a {type(edge_index).__name__}; expected an integer tensor [2, M], a PyG EdgeIndex, "
            "a torch sparse matrix, a SparseTensor or a walksum.Graph"
        )
    size = _edge_index_size(edge_index)
    return _check_pairs(edge_index), size, edge_weight


def _unpack_sparse(matrix: Tensor, edge_weight: Tensor | None) -> tuple[Tensor, int, Tensor | None]:
    _check_square(matrix.shape)
    coo = matrix.to_sparse_coo().coalesce()  # in this format duplicate entries are summed
    value = coo.values()
    if value.dim() != 1:
        raise ValueError(f"the sparse matrix holds values of shape {tuple(value.shape)}; expected one scalar an edge")
    unweighted = not value.is_floating_point() or bool((value == 1).all())
    return coo.indices(), matrix.size(0), _one_weight(None if unweighted else value, edge_weight)


def _one_weight(value: Tensor | None, edge_weight: Tensor | None) -> Tensor | None:
    if value is not None and edge_weight is not None:
        raise ValueError("edge_weight was given beside a matrix that has values; give the weights once")
    return value if edge_weight is None else edge_weight


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


def _check_pairs(edge_index: Tensor) -> Tensor:
    pairs = edge_index.as_subclass(Tensor)
    if pairs.dtype not in INTEGERS:
        raise ValueError(f"edge_index has dtype {pairs.dtype}; indices must be integers, use edge_index.long()")
    if pairs.dim() != 2 or pairs.size(0) != 2:
        raise ValueError(
            f"edge_index has shape {tuple(pairs.shape)}; expected [2, M]. For a list of pairs use edge_index.t()"
        )
    return pairs.long()


def check_num_nodes(num_nodes: Any) -> None:
    if isinstance(num_nodes, bool | str | None) or not num_nodes >= 0 or num_nodes % 1:
        raise ValueError(f"num_nodes={num_nodes!r}; expected a non-negative whole number")


def _count_nodes(pairs: Tensor, size: int | None, num_nodes: int | None) -> int:
    if num_nodes is not None:
        check_num_nodes(num_nodes)
    low, high = (int(pairs.min()), int(pairs.max())) if pairs.numel() else (0, -1)
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
    return int(count)


def check_weight(weight: Tensor, pairs: Tensor) -> None:
    """One floating-point number for each of the pairs, on their device."""
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"edge_weight has type {kind}; expected a floating-point tensor, use edge_weight.float()")
    if weight.shape != pairs.shape[1:]:
        raise ValueError(
            f"edge_weight has shape {tuple(weight.shape)} for {pairs.size(1)} edges; expected [{pairs.size(1)}]"
        )
    if weight.device != pairs.device:
        raise ValueError(f"edge_weight is on {weight.device} but edge_index on {pairs.device}; move one of them")


def check_finite(weight: Tensor) -> None:
    if not bool(torch.isfinite(weight).all()):
        bad = int((~torch.isfinite(weight)).nonzero()[0])
        raise ValueError(f"edge_weight[{bad}] is {float(weight[bad])}; weights must be finite")


def _canonical(pairs: Tensor, num_nodes: int, weighted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The edges; which entries are no loops; the edge of each of those, where weights ask for it."""
    low, high = pairs.amin(0) if pairs.numel() else pairs[0], pairs.amax(0) if pairs.numel() else pairs[1]
    keep = low != high
    keys = low[keep] * num_nodes + high[keep]
    # which entry went where takes twice the memory
    key, member = torch.unique(keys, return_inverse=True) if weighted else (torch.unique(keys), keys)
    return torch.stack([key // max(num_nodes, 1), key % max(num_nodes, 1)]), keep, member
