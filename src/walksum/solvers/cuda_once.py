"""Conjugate gradients in one launch, and its verdict: read when someone asks, so that the host need not wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.kernels.gpu_deal import SLOTS, Deal, count_tiles, deal
from walksum.kernels.gpu_launch import Shortcut
from walksum.kernels.gpu_once import PLACES, solve_kernel
from walksum.kernels.gpu_plan import feature_width
from walksum.precision import Precision
from walksum.solvers.cuda_columns import ColumnLaunch, columns_fit
from walksum.solvers.late import capturing
from walksum.solvers.verdict import REPORT, Verdict, current_stream

WIDEST = 8  # columns of a team: 32 bytes, the least that a GPU fetches at a time
MOST_MEMBERS = 16
WARPS = 8
TURNS = 48  # tiles a member may take in a step; beyond, launches over the whole device are quicker


@dataclass(frozen=True)
class Team:
    """Columns a team, members of it, teams for all columns of a head."""

    columns: int
    members: int
    blocks: int


def fits(graph: Graph, heads: int, columns: int) -> bool:
    """Whether one launch is the quickest way to solve this shape."""
    return columns_fit(graph) or team_fits(graph, heads, columns)


def team_fits(graph: Graph, heads: int, columns: int) -> bool:
    team = make_team(graph, heads, columns)
    rounds = -(-heads * team.blocks * team.members // processors(graph.device))
    return rounds * count_tiles(graph) <= TURNS * team.members


def make_team(graph: Graph, heads: int, columns: int) -> Team:
    """As many members as there are processors for all teams at once: they wait for each other."""
    width = feature_width(columns, WIDEST)
    blocks = -(-columns // width)
    room = min(processors(graph.device) // (heads * blocks), MOST_MEMBERS, count_tiles(graph))
    return Team(width, 1 << max(0, room.bit_length() - 1), blocks)


def processors(device: torch.device) -> int:
    """Programs that surely run at once; the interpreter runs one after the other."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


class OneLaunch:
    """Solves of one shape on one graph. Holds nothing of J or h."""

    def __init__(self, graph: Graph, heads: int, columns: int, jacobi: bool, max_steps: int, tol: float, aim: float):
        self.team = team = make_team(graph, heads, columns)
        self.deal: Deal = deal(graph, team.members, SLOTS)
        self.tol = tol
        self.teams = heads * team.blocks
        self.room = room_of_team(self.deal, team)
        places, tiles = self.deal.places, self.deal.tiles
        sizes = (graph.num_nodes, graph.num_edges, columns, places, tiles, self.room)
        self.tables = (self.deal.order, self.deal.index, self.deal.edge, self.deal.hubs, self.deal.bounds)
        together = team.members > 1
        meta: dict[str, Any] = {"C": team.columns, "T": team.members, "SLOTS": SLOTS, "PLACES": PLACES}
        meta["CACHE"] = ".cg" if together else ""  # what other processors wrote is not in the first-level cache
        if together:
            meta["launch_cooperative_grid"] = True  # all members run at once, or the launch is refused
        numbers = (*sizes, int(jacobi), max_steps, tol, aim)
        self.launch = Shortcut(solve_kernel, (team.members, team.blocks, heads), numbers, WARPS, **meta)
        self.counters: dict[int, Tensor] = {}  # of each stream: launches of one stream follow each other

    def start(self, J: Precision, h: Tensor) -> tuple[Tensor, Verdict]:
        """Launch; nothing is waited for."""
        h = h.contiguous()
        heads, _, columns = h.shape
        mu = torch.empty_like(h)
        room = h.new_empty(self.teams * self.room)
        report = h.new_empty(REPORT, heads, columns)
        self.launch(J.diag.contiguous(), J.off.contiguous(), h, mu, report, room, self._counters(h), *self.tables)
        return mu, Verdict(report, self.tol)

    def _counters(self, like: Tensor) -> Tensor:
        """Zeros that every launch leaves as it found them."""
        if capturing(like):
            return like.new_zeros(2 * self.teams, dtype=torch.int32)
        stream = current_stream(like)
        found = self.counters.get(stream)
        if found is None:
            found = self.counters[stream] = like.new_zeros(2 * self.teams, dtype=torch.int32)
        return found


def one_launch(graph: Graph, heads: int, columns: int, *knobs: object) -> OneLaunch | ColumnLaunch | None:
    """For :meth:`Graph.derived`; None where other ways are quicker."""
    if columns_fit(graph):
        return ColumnLaunch(graph, heads, columns, *knobs)  # type: ignore[arg-type]
    return OneLaunch(graph, heads, columns, *knobs) if team_fits(graph, heads, columns) else None  # type: ignore[arg-type]


def room_of_team(dealt: Deal, team: Team) -> int:
    """Numbers a team writes down on its way (see gpu_once.py), rounded up to whole 64 bytes."""
    vectors = dealt.places * (7 * team.columns + 2)
    return -(-(vectors + (dealt.tiles + 1) * SLOTS + 6 * team.columns * team.members) // 16) * 16
