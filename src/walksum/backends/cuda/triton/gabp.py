"""Gaussian belief propagation on the GPU: each message is read once and written once.

Slot e of row i holds what neighbour k sent to i; what i sends to k goes to the slot ``reverse[e]`` of row k. A
program sums the incoming messages of its rows and sends the answers while it still holds them in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from walksum.backends.cuda.triton.scalars import magnitude
from walksum.backends.cuda.triton.spmm import sum_of_pieces


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
    run = tl.program_id(0) >= 0
    if WATCH:
        run = tl.load(done) == 0
    if run:
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
    run = tl.program_id(0) >= 0
    if WATCH:
        run = tl.load(done) == 0
    if run:
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
    run = tl.program_id(0) >= 0
    if WATCH:
        run = tl.load(done) == 0
    if run:
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
    run = tl.program_id(0) >= 0
    if WATCH:
        run = tl.load(done) == 0
    if run:
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
    run = tl.program_id(0) >= 0
    if WATCH:
        run = tl.load(done) == 0
    if run:
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
