"""How the rows of a small graph are dealt to a team of GPU programs that solve together in one launch.

A tile is a fixed number of slots: many short rows or few long ones, so that every tile is the same work and none
needs a mask. Rows are renumbered in the order in which the team holds them: a member's rows lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.graph import Graph

SLOTS = 1024  # of a tile
CLASSES = 6  # rows of up to 2, 4, ..., 64 neighbours; longer ones are hubs and take tiles of their own
BOUNDS = 16  # numbers a member reads of itself


@dataclass(frozen=True)
class Deal:
    """Tables on the device. Places number the rows as the team holds them; -1 fills up what is left of a tile."""

    order: Tensor  # [places]: the node at each place
    index: Tensor  # [(tiles + 1) * SLOTS]: place of the neighbour; of the row itself where there is none
    edge: Tensor  # [tiles * SLOTS]: which edge a slot is
    hubs: Tensor  # [hubs + 1, 2]: first tile and the one after the last of each hub
    bounds: Tensor  # [members, BOUNDS]: tiles of each class, hubs, places (see gpu_once.py)
    places: int
    tiles: int


def deal(graph: Graph, members: int, slots: int = SLOTS) -> Deal:
    """The rows of a graph for a team, made once."""
    return graph.derived(_deal, members, slots)


def count_tiles(graph: Graph) -> int:
    """Tiles of a graph: what a step of a solve costs, nearly."""
    return graph.derived(_count_tiles)


def _count_tiles(graph: Graph) -> int:
    degree = graph.degree.cpu().numpy()
    counts = np.bincount(_class_of(degree), minlength=CLASSES + 1)
    rows = np.array([SLOTS // (2 << c) for c in range(CLASSES)])
    return int((-(-counts[:-1] // rows)).sum() + (-(-degree[_class_of(degree) == CLASSES] // SLOTS)).sum())


def _class_of(degree: np.ndarray) -> np.ndarray:
    return np.searchsorted(2 << np.arange(CLASSES), degree)


@dataclass(frozen=True)
class _Items:
    """What is dealt: blocks of rows of one class, and hubs. ``node`` and ``slot`` are -1 where nothing is."""

    kind: int
    node: np.ndarray  # [items, rows]
    slot: np.ndarray  # [items, tiles * slots]


def _deal(graph: Graph, members: int, slots: int) -> Deal:
    csr = graph.csr
    indptr, indices, edge = (t.cpu().numpy().astype(np.int64) for t in (csr.indptr, csr.indices, csr.edge))
    degree = np.diff(indptr)
    kind = _class_of(degree)
    groups = [_rows_of(c, np.flatnonzero(kind == c), indptr, degree, slots) for c in range(CLASSES)]
    groups += [_hub(int(node), indptr, slots) for node in np.flatnonzero(kind == CLASSES)]
    kinds, owners, rows, tiles = _shares(groups, members, slots)
    by_member = np.lexsort((kinds, owners))
    place, tile = (np.empty_like(rows) for _ in range(2))
    place[by_member] = np.cumsum(rows[by_member]) - rows[by_member]
    tile[by_member] = np.cumsum(tiles[by_member]) - tiles[by_member]
    order, own = _order(groups, place, rows.sum())
    index, edges = _tables(groups, own, tile, order, tiles.sum() * slots, slots, indices, edge)
    hubs = np.stack([tile, tile + tiles], 1)[by_member][kinds[by_member] == CLASSES]
    bounds = _bounds(kinds, owners, rows, tiles, members)

    def put(table: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(table)).to(torch.int32).to(graph.device)

    hubs = np.concatenate([hubs, [[0, 0]]])  # so that no table is empty
    return Deal(put(order), put(index), put(edges), put(hubs), put(bounds), len(order), int(tiles.sum()))


def _order(groups: list[_Items], place: np.ndarray, places: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The node at each place, and the places of each group's items."""
    order, own, first = np.full(places, -1), [], 0
    for group in groups:
        count, height = group.node.shape
        own.append(place[first : first + count, None] + np.arange(height))
        order[own[-1]] = group.node
        first += count
    return order, own


def _tables(
    groups: list[_Items],
    own: list[np.ndarray],
    tile: np.ndarray,
    order: np.ndarray,
    length: int,
    slots: int,
    indices: np.ndarray,
    edge: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Neighbour's place and edge of every slot."""
    place_of = np.empty((order >= 0).sum(), np.int64)
    place_of[order[order >= 0]] = np.flatnonzero(order >= 0)
    index, edges, first = np.zeros(length + slots, np.int64), np.full(length, -1), 0  # read a tile ahead
    for group, places in zip(groups, own, strict=True):
        count, height = group.node.shape
        spots = tile[first : first + count, None] * slots + np.arange(group.slot.shape[1])
        known = group.slot >= 0
        index[spots] = np.repeat(places, group.slot.shape[1] // height, axis=1)
        index[spots[known]] = place_of[indices[group.slot[known]]]
        edges[spots[known]] = edge[group.slot[known]]
        first += count
    return index, edges


def _rows_of(c: int, nodes: np.ndarray, indptr: np.ndarray, degree: np.ndarray, slots: int) -> _Items:
    """Rows of class c in blocks that fill a tile."""
    width = 2 << c
    height = slots // width
    blocks = -(-len(nodes) // height)
    node = np.full(blocks * height, -1)
    node[: len(nodes)] = nodes
    step = np.arange(width)
    slot = np.where(step < degree[node][:, None], indptr[node][:, None] + step, -1)
    slot[node < 0] = -1
    return _Items(c, node.reshape(blocks, height), slot.reshape(blocks, slots))


def _hub(node: int, indptr: np.ndarray, slots: int) -> _Items:
    begin, end = indptr[node], indptr[node + 1]
    slot = np.full(-(-(end - begin) // slots) * slots, -1)
    slot[: end - begin] = np.arange(begin, end)
    return _Items(CLASSES, np.array([[node]]), slot[None])


def _shares(groups: list[_Items], members: int, slots: int) -> tuple[np.ndarray, ...]:
    """Kind, member, rows and tiles of every item; dealt in turn, so that every class is spread."""
    kinds = np.concatenate([np.full(len(g.node), g.kind) for g in groups])
    rows = np.concatenate([np.full(len(g.node), g.node.shape[1]) for g in groups])
    tiles = np.concatenate([np.full(len(g.node), g.slot.shape[1] // slots) for g in groups])
    return kinds, np.arange(len(kinds)) % members, rows, tiles


def _bounds(kinds: np.ndarray, owners: np.ndarray, rows: np.ndarray, tiles: np.ndarray, members: int) -> np.ndarray:
    """Of each member: where its tiles of class 0, 1, ... begin and its hubs' tiles, its hubs, its places."""
    counts = np.zeros((members, CLASSES + 1), np.int64)
    np.add.at(counts, (owners, kinds), tiles)
    starts = np.concatenate([[0], counts.ravel().cumsum()])
    hubs = np.concatenate([[0], np.bincount(owners[kinds == CLASSES], minlength=members).cumsum()])
    places = np.concatenate([[0], np.bincount(owners, rows, minlength=members).astype(np.int64).cumsum()])
    found = np.zeros((members, BOUNDS), np.int64)
    for m in range(members):
        begin = m * (CLASSES + 1)
        found[m, : CLASSES + 2] = starts[begin : begin + CLASSES + 2]
        found[m, CLASSES + 2 : CLASSES + 6] = hubs[m], hubs[m + 1], places[m], places[m + 1]
    return found
