"""How the rows of a graph are shared out to GPU programs: short rows in groups, long rows (hubs) in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from walksum.graph import Graph

HUB = 256  # a row with more neighbours is cut into pieces: one program would hold up the whole grid
MANY = 65536  # programs that leave a partial sum each; fewer would take too many rows in turn and end unevenly
FEW = 4  # the last program adds up the partial sums itself, which saves a launch, if it takes so many turns at most


@dataclass(frozen=True)
class Tile:
    """Shape of the block that a program holds: edges x rows x features, and the warps that share it."""

    edges: int
    rows: int
    features: int
    warps: int


@lru_cache
def spmm_tile(num_features: int) -> Tile:
    """One row and one warp per program: rows differ in length, and warps that share a tile wait for each other.

    Narrow rows leave most of a warp idle and programs too short to start one for each, so there a warp takes four.
    """
    width = feature_width(num_features)
    if width <= 16:
        return Tile(edges=16, rows=4, features=width, warps=1)
    return Tile(edges=max(8, min(32, 1024 // width)), rows=1, features=width, warps=1)


def sum_block(tile: Tile) -> int:
    """Partial sums that a program adds at a time: sixteen numbers per thread."""
    return max(1, min(1024, 16 * 32 * tile.warps // tile.features))


def feature_width(num_features: int, widest: int = 128) -> int:
    return min(1 << max(num_features - 1, 0).bit_length(), widest)


@dataclass(frozen=True)
class RowPlan:
    """Rows by length. ``order`` lists the short ones, group after group, each in the order of the graph.

    ``groups`` holds (first, last, longest) of ``order``: rows of a group have at most ``longest`` neighbours.
    Hub k is row ``hubs[k]`` and owns the pieces ``piece_start[k]`` to ``piece_start[k + 1]``; piece c covers
    the slots ``piece_begin[c]`` to ``piece_end[c]``.
    """

    order: Tensor
    groups: tuple[tuple[int, int, int], ...]
    hubs: Tensor
    piece_start: Tensor
    piece_begin: Tensor
    piece_end: Tensor
    piece_hub: Tensor

    @property
    def num_hubs(self) -> int:
        return self.hubs.numel()

    @property
    def num_pieces(self) -> int:
        return self.piece_begin.numel()


def row_plan(graph: Graph, hub: int = HUB, bounds: tuple[int, ...] = ()) -> RowPlan:
    """The plan of a graph, made once. ``bounds`` are the group borders below ``hub``; none: one group."""
    return graph.derived(_build_plan, hub, bounds)


def _build_plan(graph: Graph, hub: int, bounds: tuple[int, ...]) -> RowPlan:
    degree, indptr = graph.degree, graph.csr.indptr
    borders = torch.tensor([*bounds, hub], device=graph.device)
    group = torch.bucketize(degree, borders)  # degree <= borders[group]; hubs beyond the last
    counts = torch.bincount(group, minlength=len(bounds) + 2).tolist()
    order = torch.argsort(group, stable=True)[: graph.num_nodes - counts[-1]].to(torch.int32)
    hubs = (degree > hub).nonzero().flatten()
    pieces = (degree[hubs] + hub - 1) // hub
    piece_start = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    piece_hub = torch.repeat_interleave(torch.arange(hubs.numel(), device=graph.device), pieces)
    part = torch.arange(piece_hub.numel(), device=graph.device) - piece_start[piece_hub]
    begin = indptr[hubs][piece_hub] + part * hub
    end = torch.minimum(begin + hub, indptr[hubs + 1][piece_hub])
    return RowPlan(order, _ranges(counts[:-1], (*bounds, hub)), hubs, piece_start, begin, end, piece_hub)


def _ranges(counts: list[int], longest: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    ranges, first = [], 0
    for count, bound in zip(counts, longest, strict=True):
        if count:
            ranges.append((first, first + count, bound))
        first += count
    return tuple(ranges)
