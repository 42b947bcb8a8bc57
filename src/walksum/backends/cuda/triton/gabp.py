"""Gaussian belief propagation on the GPU: each message is read once and written once.

Slot e of row i holds what neighbour k sent to i; what i sends to k goes to the slot ``reverse[e]`` of row k. A
program sums the incoming messages of its rows and sends the answers while it still holds them in registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from torch import Tensor

from walksum.backends.cuda.triton.edges import SLOTS, row_sums
from walksum.backends.cuda.triton.launch import launch
from walksum.backends.cuda.triton.plan import RowPlan, Tile, feature_width, row_plan
from walksum.backends.cuda.triton.scalars import magnitude
from walksum.backends.cuda.triton.spmm import sum_of_pieces
from walksum.graph import Graph

GROUPS = (16, 32, 64, 128, 256, 512)  # row lengths that share a tile shape
HELD = 1024  # the longest row whose messages fit into the registers of one program
NUMBERS = 64  # of them a thread holds
FEWEST, MOST = 1024, 32768  # numbers that a program holds: short rows share one, columns of long rows have several
ONE_LAUNCH = 5e7  # numbers in all messages; below, launches cost more than a second reading


@triton.jit
def goes_on(done, WATCH: tl.constexpr):
    """Whether the stop rule is not met yet, where it is watched."""
    run = tl.program_id(0) >= 0
    if WATCH:
        run = tl.load(done) == 0
    return run


@triton.jit
def read(eta, slot, here, cols, F):
    mask = here[:, :, None] & (cols < F)[None, None, :]
    return tl.load(eta + slot[:, :, None] * F + cols[None, None, :], mask=mask, other=0.0)


@triton.jit
def address(slot, here, reverse, gain):
    """Where the answers go, and their gains. Asked for before the sum of a tile, at which all warps wait."""
    return tl.load(reverse + slot, mask=here, other=0), tl.load(gain + slot, mask=here, other=0.0)


@triton.jit
def send(
    back, weight, here, belief, tile, eta, new_eta, cols, F, damping, DAMPED: tl.constexpr, MEASURE: tl.constexpr,
):  # fmt: skip
    """Answer a tile of incoming messages; returns the largest change of an outgoing one, ``[WIDTH]``."""
    mask = here[:, :, None] & (cols < F)[None, None, :]
    to = back.to(tl.int64)[:, :, None] * F + cols[None, None, :]
    message = weight[:, :, None] * (belief[None, :, :] - tile)
    change = tl.zeros([cols.shape[0]], tl.float32)
    if DAMPED or MEASURE:
        old = tl.load(eta + to, mask=mask, other=0.0)
        if MEASURE:
            change = tl.max(tl.max(tl.where(mask, magnitude(message - old), 0.0), 0), 0)
        if DAMPED:
            message = old + damping * (message - old)
    tl.store(new_eta + to, message, mask=mask)
    return change


@triton.jit(do_not_specialize=["first_row", "num_rows", "num_nodes", "num_slots", "first_change"])
def messages_kernel(
    indptr, reverse, gain, h, alpha, eta, new_eta, mu, change, done, order,
    first_row, num_rows, num_nodes, num_slots, F, first_change, damping,
    EDGES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, ONE_TILE: tl.constexpr, ORDERED: tl.constexpr,
    SEND: tl.constexpr, MEAN: tl.constexpr, DAMPED: tl.constexpr, MEASURE: tl.constexpr, WATCH: tl.constexpr,
):  # fmt: skip
    """One step of ROWS rows. ONE_TILE: no row has more than EDGES neighbours."""
    head = tl.program_id(2).to(tl.int64)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if goes_on(done, WATCH):
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        here = rows < num_rows
        if ORDERED:
            rows = tl.load(order + first_row + rows, mask=here, other=0)
        begin = tl.load(indptr + rows, mask=here, other=0)
        end = tl.load(indptr + rows + 1, mask=here, other=0)
        gain += head * num_slots
        eta += head * num_slots * F
        new_eta += head * num_slots * F
        mask = here[:, None] & (cols < F)[None, :]
        at = (head * num_nodes + rows)[:, None] * F + cols[None, :]
        belief = tl.load(h + at, mask=mask, other=0.0)
        largest = tl.zeros([WIDTH], tl.float32)
        if ONE_TILE:
            slot = begin[None, :] + tl.arange(0, EDGES)[:, None]
            inside = slot < end[None, :]
            back, weight = address(slot, inside & SEND, reverse, gain)
            tile = read(eta, slot, inside, cols, F)
            belief += tl.sum(tile, 0)
            if SEND:
                largest = send(back, weight, inside, belief, tile, eta, new_eta, cols, F, damping, DAMPED, MEASURE)
        else:
            longest = tl.max(end - begin, 0)
            for first in range(0, longest, EDGES):
                slot = begin[None, :] + first + tl.arange(0, EDGES)[:, None]
                belief += tl.sum(read(eta, slot, slot < end[None, :], cols, F), 0)
            if SEND:
                for first in range(0, longest, EDGES):
                    slot = begin[None, :] + first + tl.arange(0, EDGES)[:, None]
                    inside = slot < end[None, :]
                    back, weight = address(slot, inside, reverse, gain)
                    tile = read(eta, slot, inside, cols, F)
                    largest = tl.maximum(
                        largest,
                        send(back, weight, inside, belief, tile, eta, new_eta, cols, F, damping, DAMPED, MEASURE),
                    )
        if MEAN:
            precision = tl.load(alpha + head * num_nodes + rows, mask=here, other=1.0)
            tl.store(mu + at, belief / precision[:, None], mask=mask)
        if MEASURE:
            tl.store(change + first_change + _program(), tl.max(largest, 0))


@triton.jit
def _program():
    """This program's number in the whole grid."""
    plane = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    return plane * tl.num_programs(0) + tl.program_id(0)


@triton.jit(do_not_specialize=["num_slots", "num_pieces"])
def piece_sums_kernel(
    eta, pieces, piece_begin, piece_end, done, num_slots, num_pieces, F,
    EDGES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, WATCH: tl.constexpr,
):  # fmt: skip
    """Sum of the messages in one piece of a hub."""
    head, piece = tl.program_id(2).to(tl.int64), tl.program_id(0)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if goes_on(done, WATCH):
        begin, end = tl.load(piece_begin + piece), tl.load(piece_end + piece)
        eta += head * num_slots * F
        acc = tl.zeros([ROWS, WIDTH], tl.float32)
        for first in range(begin, end, EDGES * ROWS):
            slot = first + tl.arange(0, EDGES)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
            acc += tl.sum(read(eta, slot, slot < end, cols, F), 0)
        tl.store(pieces + (head * num_pieces + piece) * F + cols, tl.sum(acc, 0), mask=cols < F)


@triton.jit(do_not_specialize=["num_nodes", "num_pieces", "num_hubs"])
def hub_beliefs_kernel(
    hubs, piece_start, pieces, h, alpha, beliefs, mu, done, num_nodes, num_pieces, num_hubs, F,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, MEAN: tl.constexpr, WATCH: tl.constexpr,
):  # fmt: skip
    head, hub = tl.program_id(2).to(tl.int64), tl.program_id(0)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if goes_on(done, WATCH):
        node = head * num_nodes + tl.load(hubs + hub)
        total = sum_of_pieces(pieces + head * num_pieces * F, piece_start, hub, cols, F, BLOCK)
        total += tl.load(h + node * F + cols, mask=cols < F, other=0.0)
        tl.store(beliefs + (head * num_hubs + hub) * F + cols, total, mask=cols < F)
        if MEAN:
            tl.store(mu + node * F + cols, total / tl.load(alpha + node), mask=cols < F)


@triton.jit(do_not_specialize=["num_slots", "num_hubs", "first_change"])
def piece_send_kernel(
    reverse, gain, eta, new_eta, beliefs, piece_hub, piece_begin, piece_end, change, done,
    num_slots, num_hubs, F, first_change, damping,
    EDGES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    DAMPED: tl.constexpr, MEASURE: tl.constexpr, WATCH: tl.constexpr,
):  # fmt: skip
    """Answer the messages in one piece of a hub."""
    head, piece = tl.program_id(2).to(tl.int64), tl.program_id(0)
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if goes_on(done, WATCH):
        begin, end = tl.load(piece_begin + piece), tl.load(piece_end + piece)
        hub = tl.load(piece_hub + piece)
        belief = tl.load(beliefs + (head * num_hubs + hub) * F + cols, mask=cols < F, other=0.0)
        belief = tl.broadcast_to(belief[None, :], [ROWS, WIDTH])
        gain += head * num_slots
        eta += head * num_slots * F
        new_eta += head * num_slots * F
        largest = tl.zeros([WIDTH], tl.float32)
        for first in range(begin, end, EDGES * ROWS):
            slot = first + tl.arange(0, EDGES)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
            inside = slot < end
            back, weight = address(slot, inside, reverse, gain)
            tile = read(eta, slot, inside, cols, F)
            largest = tl.maximum(
                largest, send(back, weight, inside, belief, tile, eta, new_eta, cols, F, damping, DAMPED, MEASURE)
            )
        if MEASURE:
            tl.store(change + first_change + _program(), tl.max(largest, 0))


@triton.jit(do_not_specialize=["num_nodes", "num_slots"])
def precisions_kernel(
    indices, row, reverse, coupling, alpha, pi, new_pi, gain, change, done, num_nodes, num_slots, damping,
    BLOCK: tl.constexpr, WATCH: tl.constexpr,
):  # fmt: skip
    """New pi of every slot, the gain -J / (alpha - pi) of every answer, and the largest change of pi."""
    head = tl.program_id(2).to(tl.int64)
    if goes_on(done, WATCH):
        slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        here = slot < num_slots
        alpha += head * num_nodes
        pi += head * num_slots
        J = tl.load(coupling + head * num_slots + slot, mask=here, other=0.0)
        old = tl.load(pi + slot, mask=here, other=0.0)
        out = tl.load(alpha + tl.load(row + slot, mask=here, other=0), mask=here, other=1.0) - old
        tl.store(gain + head * num_slots + slot, -J / out, mask=here)
        sender = tl.load(alpha + tl.load(indices + slot, mask=here, other=0), mask=here, other=1.0)
        sender -= tl.load(pi + tl.load(reverse + slot, mask=here, other=0), mask=here, other=0.0)
        step = -J * J / sender - old
        tl.store(new_pi + head * num_slots + slot, old + damping * step, mask=here)
        tl.store(change + _program(), tl.max(tl.where(here, magnitude(step), 0.0), 0))


@triton.jit(do_not_specialize=["num_pi", "num_eta"])
def messages_rule_kernel(change_pi, change_eta, done, num_pi, num_eta, tol, blow_up, BLOCK: tl.constexpr):
    """The paper's stop rule: done[0] becomes 1 when no message changes by more than tol, 2 when one blows up.

    done[1] counts the steps.
    """
    if tl.load(done) == 0:
        largest_pi = largest_of(change_pi, num_pi, BLOCK)
        largest_eta = largest_of(change_eta, num_eta, BLOCK)
        steps = tl.load(done + 1) + 1
        tl.store(done + 1, steps)
        settled = (largest_pi <= tol) & (largest_eta <= tol)
        lost = (largest_pi + largest_eta < blow_up) == 0
        tl.store(done, tl.where(lost, 2, tl.where(settled, 1, 0)))


@triton.jit
def largest_of(values, count, BLOCK: tl.constexpr):
    largest = tl.zeros([BLOCK], tl.float32)
    for first in range(0, count, BLOCK):
        at = first + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.load(values + at, mask=at < count, other=0.0))
    return tl.max(largest, 0)


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
                messages_kernel, grid, h, csr.indptr, csr.reverse, gain, h, alpha, eta, new_eta, mu, change,
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
            piece_sums_kernel, grid, h, eta, pieces, plan.piece_begin, plan.piece_end, done, num_slots,
            plan.num_pieces, F, warps=4, EDGES=8, ROWS=8, **shape,
        )  # fmt: skip
        launch(
            hub_beliefs_kernel, (plan.num_hubs, blocks, self.heads), h, plan.hubs, plan.piece_start, pieces,
            h, alpha, beliefs, mu, done, self.graph.num_nodes, plan.num_pieces, plan.num_hubs, F,
            warps=1, BLOCK=16, MEAN=flags["MEAN"], **shape,
        )  # fmt: skip
        if send:
            launch(
                piece_send_kernel, grid, h, self.graph.csr.reverse, gain, eta, new_eta, beliefs,
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
            precisions_kernel, grid, self.diag, csr.indices, csr.row, csr.reverse, self.coupling, self.alpha,
            self.pi, self.new_pi, self.gain, self.change, self.alpha if done is None else done, self.graph.num_nodes,
            num_slots, damping, BLOCK=SLOTS, WATCH=done is not None,
        )  # fmt: skip
        self.pi, self.new_pi = self.new_pi, self.pi


def messages_rule(change_pi: Tensor, change_eta: Tensor, done: Tensor, tol: float, blow_up: float) -> None:
    """Apply the stop rule on messages to ``done = [state, steps]``."""
    launch(
        messages_rule_kernel, (1, 1, 1), done, change_pi, change_eta, done, change_pi.numel(), change_eta.numel(),
        tol, blow_up, warps=8, BLOCK=2048,
    )  # fmt: skip
