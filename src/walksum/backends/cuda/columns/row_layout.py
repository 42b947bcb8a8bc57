"""How the rows of a small graph lie for columns.cu: longest first, their neighbours in chunks of four.

Rows are taken in turn to the blocks of threads that share a column. Places number them as the kernel holds them: those
of the first block, then those of the second. Level k holds the k-th chunk of every row of a block that has one: first
those of four (or three, and nothing), then those of two, then those of one. A slot is one neighbour. A block's slots
are its levels but the first, the tails of rows with more than LEVELS chunks, and last its first level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.backends import has_numba
from walksum.graph import Graph

WARP, CHUNK = 32, 4  # the latter as in columns.cu
LEVELS = 16  # neighbours beyond LEVELS * CHUNK are the tail of a row
LONGEST = 64  # neighbours of the longest row of a warp whose neighbours are put into an order of banks; 0 for none


@dataclass(frozen=True)
class RowLayout:
    """Tables on the device of the graph; -1 where there is nothing."""

    order: Tensor  # [places] int32: the node at each place
    index: Tensor  # [slots] uint16 (as int16): place of the neighbour; 0 where there is none
    edge: Tensor  # [slots] int32: which edge a slot is
    ends: Tensor  # [2, E] int32: the nodes of each edge
    tail_start: Tensor  # [cluster, tails + 1] int32: slots of the tails, which belong to the first places of a block
    levels: Tensor  # [cluster, LEVELS + 2, 4] int32: see Block.table
    cluster: int
    places: int
    tails: int  # of the block that has most
    num_slots: int
    rest: int  # slots of a block but those of its first level; of the block that has most
    most: int  # slots of a block, likewise


@dataclass(frozen=True)
class Block:
    """What one block of threads owns; slots count from its first."""

    slots: np.ndarray  # of the graph's CSR
    tail_start: np.ndarray
    levels: np.ndarray  # [LEVELS, 4] first slot; rows with a chunk of three or four, of two at least, of any length
    rest: int

    def table(self, start: int) -> np.ndarray:
        """Its levels, one that is empty, and of its slots: the first; how many are not of the first level, and all."""
        return np.concatenate([self.levels, [[0, 0, 0, 0], [start, self.rest, len(self.slots), 0]]])


def layout_rows(graph: Graph, cluster: int = 1, levels: int = LEVELS) -> RowLayout:
    """The tables of a graph for so many blocks per column, made once."""
    return graph.derived(_layout_rows, cluster, levels)


def places_of(num_nodes: int, cluster: int) -> int:
    """Every block has as many, in whole warps."""
    return cluster * WARP * -(-num_nodes // (cluster * WARP))


def _layout_rows(graph: Graph, cluster: int, levels: int) -> RowLayout:
    csr = graph.csr
    indptr, indices, edges = (t.cpu().numpy().astype(np.int64) for t in (csr.indptr, csr.indices, csr.edge))
    places = places_of(len(indptr) - 1, cluster)
    order, place_of = _places(np.argsort(-np.diff(indptr), kind="stable"), places, cluster)
    if LONGEST and has_numba():
        from walksum.backends.cpu.bank_order import bank_order  # imports numba

        slots = bank_order(order, indptr, place_of[indices] % WARP, LONGEST)
        indices, edges = indices[slots], edges[slots]
    blocks = [_block(own[own >= 0], indptr, levels) for own in order.reshape(cluster, -1)]
    slot = np.concatenate([block.slots for block in blocks])
    known = slot >= 0
    index, edge = np.zeros(len(slot), np.int64), np.full(len(slot), -1)
    index[known], edge[known] = place_of[indices[slot[known]]], edges[slot[known]]
    starts = np.cumsum([0, *(len(block.slots) for block in blocks)])
    table = np.stack([block.table(start) for block, start in zip(blocks, starts, strict=False)])
    tails = max(len(block.tail_start) for block in blocks) - 1
    tail_start = np.stack([np.pad(b.tail_start, (0, tails + 1 - len(b.tail_start)), "edge") for b in blocks])

    def put(table: np.ndarray, kind: type = np.int32) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(table.astype(kind))).to(graph.device)

    ends = graph.edges.to(torch.int32).contiguous()
    tables = (put(order), put(index, np.uint16).view(torch.int16), put(edge), ends, put(tail_start), put(table))
    longest = max(block.rest for block in blocks), max(len(block.slots) for block in blocks)
    return RowLayout(*tables, cluster, places, tails, len(slot), *longest)


def _places(nodes: np.ndarray, places: int, cluster: int) -> tuple[np.ndarray, np.ndarray]:
    """The node at each place, -1 where there is none, and the place of each node: taken in turn."""
    padded = np.concatenate([nodes, np.full(places - len(nodes), -1)])
    order = padded.reshape(-1, cluster).T.reshape(-1)
    place_of = np.empty(len(nodes), np.int64)
    place_of[order[order >= 0]] = np.flatnonzero(order >= 0)
    return order, place_of


def _block(nodes: np.ndarray, indptr: np.ndarray, levels: int) -> Block:
    """The slots of rows that stand longest first."""
    first, degree = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
    chunks, rows = zip(*(_level(first + CHUNK * k, degree - CHUNK * k) for k in range(levels)), strict=True)
    longest = CHUNK * levels
    hubs = int((degree > longest).sum())
    tails = [np.arange(a + longest, a + n) for a, n in zip(first[:hubs], degree[:hubs], strict=True)]
    sizes = [len(chunk) for chunk in chunks[1:]]
    tail_start = sum(sizes) + np.cumsum([0, *map(len, tails)])
    rest = _filled(np.concatenate([*chunks[1:], *tails]))
    starts = [len(rest), *np.cumsum([0, *sizes])[:-1]]
    return Block(np.concatenate([rest, chunks[0]]), tail_start, np.column_stack([starts, rows]), len(rest))


def _level(first: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Slots of the chunks of one level, and how many rows have one of three or four, of two at least, of any length."""
    if not left.size or left[0] <= 0:
        return np.empty(0, np.int64), (0, 0, 0)
    fours, twos, ones = (int((left >= length).sum()) for length in (3, 2, 1))
    step = np.arange(CHUNK)
    four = np.where(step < left[:fours, None], first[:fours, None] + step, -1)
    two = first[fours:twos, None] + step[:2]
    return _filled(np.concatenate([four.ravel(), two.ravel(), first[twos:ones]])), (fours, twos, ones)


def _filled(slots: np.ndarray) -> np.ndarray:
    """To begin the next where four numbers can be read at once."""
    return np.concatenate([slots, np.full(-len(slots) % CHUNK, -1)]).astype(np.int64)
