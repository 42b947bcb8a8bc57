"""How the rows of a small graph lie for columns.cu: longest first, their neighbours in chunks of four.

Places number the rows as the kernel holds them. Level k holds the k-th chunk of every row that has one. A slot is one
neighbour: those of chunk c are 4 c to 4 c + 3; the tails of rows with more than LEVELS chunks follow behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.graph import Graph

WARP, CHUNK, LEVELS = 32, 4, 16  # the last two as in columns.cu
LONGEST = CHUNK * LEVELS  # neighbours beyond are the tail of a row


@dataclass(frozen=True)
class ColumnDeal:
    """Tables on the device of the graph; -1 where there is nothing."""

    order: Tensor  # [places] int32: the node at each place
    index: Tensor  # [slots] uint16 (as int16): place of the neighbour; 0 where there is none
    edge: Tensor  # [slots] int32: which edge a slot is
    ends: Tensor  # [2, E] int32: the nodes of each edge
    tail_start: Tensor  # [tails + 1] int32: slots of the tails, which belong to the first places
    levels: Tensor  # [2, LEVELS] int32: first chunk of each level, and how many rows have one
    places: int
    tails: int
    num_slots: int


def column_deal(graph: Graph) -> ColumnDeal:
    """The tables of a graph, made once."""
    return graph.derived(_column_deal)


def _column_deal(graph: Graph) -> ColumnDeal:
    csr = graph.csr
    indptr, indices, edges = (t.cpu().numpy().astype(np.int64) for t in (csr.indptr, csr.indices, csr.edge))
    degree = np.diff(indptr)
    nodes = np.argsort(-degree, kind="stable")
    places = -(-len(nodes) // WARP) * WARP
    order = np.concatenate([nodes, np.full(places - len(nodes), -1)])
    rows = [places, *((degree > CHUNK * level).sum() for level in range(1, LEVELS))]
    chunks = [_chunks(order[:count], level, indptr, degree) for level, count in enumerate(rows)]
    tails = [np.arange(indptr[node] + LONGEST, indptr[node + 1]) for node in nodes[: (degree > LONGEST).sum()]]
    slot = np.concatenate([*chunks, *tails])
    slot = np.concatenate([slot, np.full(-len(slot) % CHUNK, -1)])  # heads begin where four numbers can be read at once
    known = slot >= 0
    place_of = np.empty(len(nodes), np.int64)
    place_of[nodes] = np.arange(len(nodes))
    index, edge = np.zeros(len(slot), np.int64), np.full(len(slot), -1)
    index[known], edge[known] = place_of[indices[slot[known]]], edges[slot[known]]
    tail_start = sum(map(len, chunks)) + np.array([0, *map(len, tails)]).cumsum()

    def put(table: np.ndarray, kind: type = np.int32) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(table.astype(kind))).to(graph.device)

    levels = np.stack([np.cumsum([0, *rows[:-1]]), rows])
    ends = graph.edges.to(torch.int32).contiguous()
    tables = (put(order), put(index, np.uint16).view(torch.int16), put(edge), ends, put(tail_start), put(levels))
    return ColumnDeal(*tables, places, len(tails), len(slot))


def _chunks(nodes: np.ndarray, level: int, indptr: np.ndarray, degree: np.ndarray) -> np.ndarray:
    """Slots of the chunks of one level, four a row."""
    step = CHUNK * level + np.arange(CHUNK)
    length = np.where(nodes >= 0, degree[nodes], 0)[:, None]
    return np.where(step < length, indptr[nodes][:, None] + step, -1).ravel()
