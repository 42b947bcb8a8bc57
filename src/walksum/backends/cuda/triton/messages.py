"""One step of belief propagation on the GPU, one kernel per range of row lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walksum.backends.cuda.triton import gabp
from walksum.backends.cuda.triton.edges import SLOTS, row_sums
from walksum.backends.cuda.triton.launch import launch
from walksum.backends.cuda.triton.plan import RowPlan, Tile, feature_width, row_plan
from walksum.graph import Graph

GROUPS = (16, 32, 64, 128, 256, 512)  # row lengths that share a tile shape
HELD = 1024  # the longest row whose messages fit into the registers of one program
NUMBERS = 64  # of them a thread holds
FEWEST, MOST = 1024, 32768  # numbers that a program holds: short rows share one, columns of long rows have several
ONE_LAUNCH = 5e7  # numbers in all messages; below, launches cost more than a second reading


@dataclass(frozen=True)
class Stepper:
    """The launches of one step for messages ``[H, 2 E, F]``."""

    graph: Graph
    heads: int
    columns: int
    plan: RowPlan | None = field(init=False)  # rows by length; None: all of them in one launch

    def __post_init__(self) -> None:
        split = 2 * self.graph.num_edges * self.heads * self.columns > ONE_LAUNCH
        object.__setattr__(self, "plan", row_plan(self.graph, HELD, GROUPS) if split else None)

    @property
    def width(self) -> int:
        return feature_width(self.columns, 64)

    def tile(self, edges: int) -> Tile:
        width = min(self.width, max(8, MOST // edges))
        rows = max(1, FEWEST // (edges * width))
        return Tile(edges, rows, width, max(1, min(16, edges * rows * width // (32 * NUMBERS))))

    def grid(self, tile: Tile, num_rows: int) -> tuple[int, int, int]:
        return -(-num_rows // tile.rows), -(-self.columns // tile.features), self.heads

    def step(
        self,
        gain: Tensor,
        h: Tensor,
        eta: Tensor,
        new_eta: Tensor,
        damping: float = 1.0,
        alpha: Tensor | None = None,
        mu: Tensor | None = None,
        change: Tensor | None = None,
        done: Tensor | None = None,
        send: bool = True,
    ) -> None:
        """eta -> new_eta. With ``mu``, also the means of the *incoming* messages; with ``change`` (as long as
        :attr:`num_changes`), the largest undamped change; with ``done``, nothing once done[0] is set."""
        flags = {
            "MEAN": mu is not None,
            "DAMPED": damping != 1,
            "MEASURE": change is not None,
            "WATCH": done is not None,
        }
        alpha, mu, change, done = (h if t is None else t for t in (alpha, mu, change, done))
        csr, num_nodes, num_slots = self.graph.csr, self.graph.num_nodes, 2 * self.graph.num_edges
        first_change = 0
        if self.plan is not None and self.plan.num_hubs:
            self._hubs(self.plan, gain, h, eta, new_eta, damping, alpha, mu, change, done, send, flags)
            first_change = self.plan.num_pieces * -(-self.columns // self.width) * self.heads
        order = csr.indices if self.plan is None else self.plan.order
        for first, last, longest in self._groups():
            tile = self.tile(longest)
            grid = self.grid(tile, last - first)
            launch(
                gabp.messages_kernel, grid, h, csr.indptr, csr.reverse, gain, h, alpha, eta, new_eta, mu, change,
                done, order, first, last - first, num_nodes, num_slots, self.columns, first_change, damping,
                warps=tile.warps, EDGES=tile.edges, ROWS=tile.rows, WIDTH=tile.features, ONE_TILE=self.plan is not None,
                ORDERED=self.plan is not None, SEND=send, **flags,
            )  # fmt: skip
            first_change += math.prod(grid)

    def _groups(self) -> tuple[tuple[int, int, int], ...]:
        return ((0, self.graph.num_nodes, 32),) if self.plan is None else self.plan.groups

    @property
    def num_changes(self) -> int:
        rows = sum(math.prod(self.grid(self.tile(longest), last - first)) for first, last, longest in self._groups())
        pieces = 0 if self.plan is None else self.plan.num_pieces * -(-self.columns // self.width) * self.heads
        return rows + pieces

    def _hubs(
        self, plan: RowPlan, gain: Tensor, h: Tensor, eta: Tensor, new_eta: Tensor, damping: float,
        alpha: Tensor, mu: Tensor, change: Tensor, done: Tensor, send: bool, flags: dict[str, bool],
    ) -> None:  # fmt: skip
        blocks, num_slots, F = -(-self.columns // self.width), 2 * self.graph.num_edges, self.columns
        pieces = h.new_empty(self.heads, plan.num_pieces, F)
        beliefs = h.new_empty(self.heads, plan.num_hubs, F)
        grid = (plan.num_pieces, blocks, self.heads)
        shape = {"WIDTH": self.width, "WATCH": flags["WATCH"]}
        launch(
            gabp.piece_sums_kernel, grid, h, eta, pieces, plan.piece_begin, plan.piece_end, done, num_slots,
            plan.num_pieces, F, warps=4, EDGES=8, ROWS=8, **shape,
        )  # fmt: skip
        launch(
            gabp.hub_beliefs_kernel, (plan.num_hubs, blocks, self.heads), h, plan.hubs, plan.piece_start, pieces,
            h, alpha, beliefs, mu, done, self.graph.num_nodes, plan.num_pieces, plan.num_hubs, F,
            warps=1, BLOCK=16, MEAN=flags["MEAN"], **shape,
        )  # fmt: skip
        if send:
            launch(
                gabp.piece_send_kernel, grid, h, self.graph.csr.reverse, gain, eta, new_eta, beliefs,
                plan.piece_hub, plan.piece_begin, plan.piece_end, change, done, num_slots, plan.num_hubs, F, 0,
                damping, warps=4, EDGES=8, ROWS=8, DAMPED=flags["DAMPED"], MEASURE=flags["MEASURE"], **shape,
            )  # fmt: skip


@dataclass
class Precisions:
    """The messages pi of J, which do not depend on h, and what follows from them."""

    graph: Graph
    diag: Tensor  # [H, N]
    coupling: Tensor  # [H, 2 E]
    pi: Tensor = field(init=False)
    new_pi: Tensor = field(init=False)
    alpha: Tensor = field(init=False)  # J_ii + sum of pi
    gain: Tensor = field(init=False)  # -J / (alpha - pi)
    change: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.pi, self.new_pi, self.gain = (torch.zeros_like(self.coupling) for _ in range(3))
        self.alpha = self.diag.clone()
        self.change = self.diag.new_zeros(max(1, -(-self.coupling.size(1) // SLOTS) * self.diag.size(0)))

    def step(self, damping: float, done: Tensor | None = None) -> None:
        """alpha and gain of the present pi, then pi's next values."""
        csr, (heads, num_slots) = self.graph.csr, self.coupling.shape
        row_sums(self.graph, self.diag, self.pi, out=self.alpha)
        grid = (-(-num_slots // SLOTS), 1, heads)
        launch(
            gabp.precisions_kernel, grid, self.diag, csr.indices, csr.row, csr.reverse, self.coupling, self.alpha,
            self.pi, self.new_pi, self.gain, self.change, self.alpha if done is None else done, self.graph.num_nodes,
            num_slots, damping, BLOCK=SLOTS, WATCH=done is not None,
        )  # fmt: skip
        self.pi, self.new_pi = self.new_pi, self.pi


def messages_rule(change_pi: Tensor, change_eta: Tensor, done: Tensor, tol: float, blow_up: float) -> None:
    """Apply the stop rule on messages to ``done = [state, steps]``."""
    launch(
        gabp.messages_rule_kernel, (1, 1, 1), done, change_pi, change_eta, done, change_pi.numel(), change_eta.numel(),
        tol, blow_up, warps=8, BLOCK=2048,
    )  # fmt: skip
