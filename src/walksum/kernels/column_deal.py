"""How the rows of a small graph lie for columns.cu: long rows first, then slices of 32 rows of like length.

Places number the rows as the kernel holds them. Slices are dealt to warps to and fro, longest first, so that every
warp has about as much to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.graph import Graph

SLICE = 32  # rows: a warp
LONG = 16  # neighbours; rows with more have a warp to themselves, whose lanes share them


@dataclass(frozen=True)
class ColumnDeal:
    """Tables on the device of the graph; -1 where there is nothing."""

    order: Tensor  # [places] int32: the node at each place
    index: Tensor  # [slots] uint16 (as int16): place of the neighbour; 0 where there is none
    edge: Tensor  # [slots] int32: which edge a slot is
    long_start: Tensor  # [num_long + 1] int32: slots of long rows, which are the first places
    slice_start: Tensor  # [places / 32 + 1] int32: slots of the slices
    places: int
    num_long: int
    num_slots: int


def column_deal(graph: Graph, warps: int) -> ColumnDeal:
    """The tables for blocks of so many warps, made once."""
    return graph.derived(_column_deal, warps)


def _column_deal(graph: Graph, warps: int) -> ColumnDeal:
    csr = graph.csr
    indptr, indices, edges = (t.cpu().numpy().astype(np.int64) for t in (csr.indptr, csr.indices, csr.edge))
    degree = np.diff(indptr)
    order, num_long = _order(degree, warps)
    place_of = np.empty(graph.num_nodes, np.int64)
    place_of[order[order >= 0]] = np.flatnonzero(order >= 0)
    long_slots = [np.arange(indptr[node], indptr[node + 1]) for node in order[:num_long]]
    slices = [_slice(nodes, indptr, degree) for nodes in _short(order, num_long).reshape(-1, SLICE)]
    slot = np.concatenate([*long_slots, *slices, np.empty(0, np.int64)])
    lengths = np.array([0, *map(len, long_slots), *map(len, slices)])
    starts = lengths.cumsum()
    known = slot >= 0
    index, edge = np.zeros(len(slot), np.int64), np.full(len(slot), -1)
    index[known], edge[known] = place_of[indices[slot[known]]], edges[slot[known]]

    def put(table: np.ndarray, kind: type = np.int32) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(table.astype(kind))).to(graph.device)

    return ColumnDeal(
        put(order),
        put(index, np.uint16).view(torch.int16) if index.size else put(np.zeros(1), np.int16),
        put(edge if edge.size else np.full(1, -1)),
        put(starts[: num_long + 1]),
        put(starts[num_long:]),
        len(order),
        num_long,
        len(slot),
    )


def _order(degree: np.ndarray, warps: int) -> tuple[np.ndarray, int]:
    """The node at each place, and the number of long rows."""
    longest_first = np.argsort(-degree, kind="stable")
    num_long = int((degree > LONG).sum())
    places = -(-len(degree) // SLICE) * SLICE
    order = np.full(places, -1)
    order[: len(degree)] = longest_first
    slices = order.reshape(-1, SLICE)
    whole = -(-num_long // SLICE)  # long rows keep their places, which number them
    turns = [slices[at : at + warps] for at in range(whole, len(slices), warps)]
    dealt = [turn[::-1] if k % 2 and len(turn) == warps else turn for k, turn in enumerate(turns)]
    return np.concatenate([slices[:whole], *dealt]).ravel(), num_long


def _short(order: np.ndarray, num_long: int) -> np.ndarray:
    return np.where(np.arange(len(order)) < num_long, -1, order)


def _slice(nodes: np.ndarray, indptr: np.ndarray, degree: np.ndarray) -> np.ndarray:
    """Slots of 32 rows side by side: the first neighbour of each, then the second, ..."""
    length = np.where(nodes >= 0, degree[nodes], 0)
    step = np.arange(length.max(initial=0))[:, None]
    return np.where(step < length, indptr[nodes] + step, -1).ravel()
