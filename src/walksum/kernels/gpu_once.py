"""Conjugate gradients in a single launch, for small graphs: launching and waiting would cost more than computing.

A team of programs owns a few columns of one head and solves them from the values of J to the verdict. Columns are
independent, so teams never wait for each other; the members of a team, which share the rows (see gpu_deal.py), meet
twice a step. A line holds what neighbours read of a row: two directions in turn, z and mu, C numbers each.
"""

from __future__ import annotations

import triton
import triton.language as tl

from walksum.kernels.gpu_finish import ACTIVE, CLAIMED, EXHAUSTED, STALLED, VERIFIED, magnitude

INDEFINITE, NONFINITE = tl.constexpr(6), tl.constexpr(7)  # above the states of gpu_finish: the gravest counts
PLACES = 256  # rows that a member updates at a time

Z, MU = tl.constexpr(1), tl.constexpr(3)  # places in a line; the two directions have 0 and 2


@triton.jit
def meet(counter, target, T: tl.constexpr):
    """Wait until all members of the team are here; what each stored before, all may read afterwards."""
    tl.debug_barrier()
    if T > 1:
        seen = tl.atomic_add(counter, 1, sem="acq_rel") + 1
        while seen < target:
            seen = tl.atomic_add(counter, 0, sem="acq_rel")
        tl.debug_barrier()


@triton.jit
def together(room, counter, meeting, total, first, second, C: tl.constexpr, T: tl.constexpr):
    """Meet, and know the sum of ``total`` and the largest of the other two over the team: in one order, so the same
    bits in every member and every run."""
    if T > 1:
        cols = tl.arange(0, C)
        member = tl.arange(0, T)[:, None] * (3 * C) + cols[None, :]
        room += (meeting % 2) * (3 * C * T)  # in turn: a slow member may still be reading the last one
        own = room + tl.program_id(0) * (3 * C) + cols
        tl.store(own, total)
        tl.store(own + C, first)
        tl.store(own + 2 * C, second)
        meet(counter, (meeting + 1) * T, T)
        total = tl.sum(tl.load(room + member, cache_modifier=".cg"), 0)
        first = tl.max(tl.load(room + member + C, cache_modifier=".cg"), 0)
        second = tl.max(tl.load(room + member + 2 * C, cache_modifier=".cg"), 0)
    else:
        tl.debug_barrier()
    return total, first, second


@triton.jit
def take_rows(
    order, edge, diag, off, pivot, inverse, values, begin, end, place, jacobi, norm, positive,
    WIDTH: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Copy the values of J for the rows of one class; the largest row sum and whether all diagonals are positive."""
    HEIGHT: tl.constexpr = SLOTS // WIDTH
    for tile in range(begin, end):
        value = take_values(edge, off, values, tile, SLOTS)
        around = tl.sum(tl.reshape(tl.abs(value), [HEIGHT, WIDTH]), 1)
        rows = place + (tile - begin) * HEIGHT + tl.arange(0, HEIGHT)
        norm, positive = take_diagonal(
            order, diag, pivot, inverse, rows, around, jacobi, norm, positive
        )  # fmt: skip
    return place + (end - begin) * HEIGHT, norm, positive


@triton.jit
def take_values(edge, off, values, tile, SLOTS: tl.constexpr):
    slot = tile * SLOTS + tl.arange(0, SLOTS)
    at = tl.load(edge + slot)
    value = tl.load(off + at, mask=at >= 0, other=0.0)
    tl.store(values + slot, value)
    return value


@triton.jit
def take_diagonal(order, diag, pivot, inverse, rows, around, jacobi, norm, positive):
    node = tl.load(order + rows)
    own = tl.load(diag + node, mask=node >= 0, other=1.0)
    tl.store(pivot + rows, own)
    tl.store(inverse + rows, tl.where(jacobi != 0, 1 / own, 1.0))
    largest = tl.max(tl.where(node >= 0, magnitude(tl.abs(own) + around), 0.0), 0)
    return tl.maximum(norm, largest), tl.minimum(positive, tl.min((own > 0).to(tl.float32), 0))


@triton.jit
def fetch(index, values, tile, SLOTS: tl.constexpr):
    """Who the neighbours of a tile's rows are and what J says to them: asked for a tile ahead."""
    slot = tile * SLOTS + tl.arange(0, SLOTS)
    return tl.load(index + slot), tl.load(values + slot)


@triton.jit
def weigh(lines, neighbour, weight, x, old, beta, C: tl.constexpr, CACHE: tl.constexpr):
    """``x + beta old`` of neighbours, times the values of J: ``[SLOTS, C]``."""
    at = neighbour[:, None] * (4 * C) + tl.arange(0, C)[None, :]
    there = tl.load(lines + x + at, cache_modifier=CACHE)
    there += beta[None, :] * tl.load(lines + old + at, cache_modifier=CACHE)
    return there * weight[:, None]


@triton.jit
def own_rows(lines, pivot, rows, x, old, beta, C: tl.constexpr):
    """The new direction of rows, and their diagonal."""
    at = rows[:, None] * (4 * C) + tl.arange(0, C)[None, :]
    own = tl.load(lines + x + at) + beta[None, :] * tl.load(lines + old + at)
    return own, tl.load(pivot + rows)


@triton.jit
def file_rows(lines, q, rows, own, y, new, C: tl.constexpr):
    """Store the direction and the product of rows; their curvature."""
    cols = tl.arange(0, C)[None, :]
    tl.store(lines + new + rows[:, None] * (4 * C) + cols, own)
    tl.store(q + rows[:, None] * C + cols, y)
    return tl.sum(own * y, 0)


@triton.jit
def product_rows(
    lines, q, pivot, values, index, begin, end, place, x, old, new, beta, live, dot, neighbour, weight,
    WIDTH: tl.constexpr, C: tl.constexpr, SLOTS: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """J times the new direction for the rows of one class."""
    HEIGHT: tl.constexpr = SLOTS // WIDTH
    for tile in range(begin, begin + (end - begin) * live):
        rows = place + (tile - begin) * HEIGHT + tl.arange(0, HEIGHT)
        own, diagonal = own_rows(lines, pivot, rows, x, old, beta, C)
        part = weigh(lines, neighbour, weight, x, old, beta, C, CACHE)
        neighbour, weight = fetch(index, values, tile + 1, SLOTS)
        y = diagonal[:, None] * own + tl.sum(tl.reshape(part, [HEIGHT, WIDTH, C]), 1)
        dot += file_rows(lines, q, rows, own, y, new, C)
    return place + (end - begin) * HEIGHT, dot, neighbour, weight


@triton.jit
def product_hubs(
    lines, q, pivot, values, index, hubs, begin, end, place, x, old, new, beta, live, dot, neighbour, weight,
    C: tl.constexpr, SLOTS: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """The same for rows that fill tiles of their own."""
    for hub in range(begin, begin + (end - begin) * live):
        rows = place + hub - begin + tl.arange(0, 1)
        own, diagonal = own_rows(lines, pivot, rows, x, old, beta, C)
        part = tl.zeros([SLOTS, C], tl.float32)
        for tile in range(tl.load(hubs + 2 * hub), tl.load(hubs + 2 * hub + 1)):
            part += weigh(lines, neighbour, weight, x, old, beta, C, CACHE)
            neighbour, weight = fetch(index, values, tile + 1, SLOTS)
        y = diagonal[:, None] * own + tl.sum(part, 0)[None, :]
        dot += file_rows(lines, q, rows, own, y, new, C)
    return dot


@triton.jit
def sizes(order, h, begin, end, F, first, C: tl.constexpr, PLACES: tl.constexpr):
    """The largest entry of every column of h among the rows of this member."""
    cols = first + tl.arange(0, C)
    largest = tl.zeros([PLACES, C], tl.float32)
    for start in range(begin, end, PLACES):
        rows = start + tl.arange(0, PLACES)
        node = tl.load(order + rows, mask=rows < end, other=-1)
        mask = (node >= 0)[:, None] & (cols < F)[None, :]
        largest = tl.maximum(largest, magnitude(tl.load(h + node[:, None] * F + cols[None, :], mask=mask, other=0.0)))
    return tl.max(largest, 0)


@triton.jit
def begin_rows(
    order, h, lines, q, b, begin, end, F, first, scale, C: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """mu = 0, and h in units of its columns' sizes: the squares in dot products of float32 overflow from 1e19 on."""
    cols, lane = first + tl.arange(0, C), tl.arange(0, C)[None, :]
    for start in range(begin, end, PLACES):
        rows = start + tl.arange(0, PLACES)
        here = (rows < end)[:, None]
        node = tl.load(order + rows, mask=rows < end, other=-1)
        mask = (node >= 0)[:, None] & (cols < F)[None, :]
        own = tl.load(h + node[:, None] * F + cols[None, :], mask=mask, other=0.0) / scale[None, :]
        nothing = tl.zeros([PLACES, C], tl.float32)
        at = rows[:, None] * (4 * C) + lane
        tl.store(lines + at, nothing, mask=here)
        tl.store(lines + 2 * C + at, nothing, mask=here)
        tl.store(lines + MU * C + at, nothing, mask=here)
        tl.store(q + rows[:, None] * C + lane, nothing, mask=here)
        tl.store(b + rows[:, None] * C + lane, own, mask=here)


@triton.jit
def update_rows(
    lines, q, source, r, inverse, begin, end, new, alpha, share, C: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """mu += alpha p, r = source - share q, z; and r . z, max |r|, max |mu| of every column."""
    lane = tl.arange(0, C)[None, :]
    rho = tl.zeros([PLACES, C], tl.float32)
    r_max = tl.zeros([PLACES, C], tl.float32)
    mu_max = tl.zeros([PLACES, C], tl.float32)
    for start in range(begin, end, PLACES):
        rows = start + tl.arange(0, PLACES)
        here = (rows < end)[:, None]
        at, flat = rows[:, None] * (4 * C) + lane, rows[:, None] * C + lane
        mu = tl.load(lines + MU * C + at, mask=here, other=0.0)
        mu += alpha[None, :] * tl.load(lines + new + at, mask=here, other=0.0)
        rest = tl.load(source + flat, mask=here, other=0.0)
        rest -= share[None, :] * tl.load(q + flat, mask=here, other=0.0)
        z = rest * tl.load(inverse + rows, mask=rows < end, other=0.0)[:, None]
        tl.store(lines + MU * C + at, mu, mask=here)
        tl.store(lines + Z * C + at, z, mask=here)
        tl.store(r + flat, rest, mask=here)
        rho += rest * z
        r_max = tl.maximum(r_max, magnitude(rest))
        mu_max = tl.maximum(mu_max, magnitude(mu))
    return tl.sum(rho, 0), tl.max(r_max, 0), tl.max(mu_max, 0)


@triton.jit
def deliver(order, lines, out, begin, end, F, first, scale, C: tl.constexpr, PLACES: tl.constexpr):
    """mu in the units of h, at its nodes; NaN where ``scale`` is."""
    cols, lane = first + tl.arange(0, C), tl.arange(0, C)[None, :]
    for start in range(begin, end, PLACES):
        rows = start + tl.arange(0, PLACES)
        node = tl.load(order + rows, mask=rows < end, other=-1)
        mu = tl.load(lines + MU * C + rows[:, None] * (4 * C) + lane, mask=(rows < end)[:, None], other=0.0)
        mask = (node >= 0)[:, None] & (cols < F)[None, :]
        tl.store(out + node[:, None] * F + cols[None, :], mu * scale[None, :], mask=mask)


@triton.jit
def after_step(state, steps, rho, best, error, rho_new, r_max, size, aim, max_steps):
    """What a step makes of the columns that took part in it."""
    active = state == ACTIVE
    steps += tl.where(active, 1.0, 0.0)
    # a little below aim: the recursion is a shade too optimistic, and a refused claim costs a product
    near = r_max <= 0.8 * aim * size
    state = tl.where(active & (near | (r_max == 0)), CLAIMED, state)
    state = tl.where((state == ACTIVE) & (steps >= max_steps), EXHAUSTED, state)
    beta = tl.where((state == ACTIVE) & (rho > 0), rho_new / tl.where(rho > 0, rho, 1.0), 0.0)
    return state, steps, beta, best, error


@triton.jit
def after_look(state, steps, best, error, r_max, size, tol):
    """What the true residual makes of the columns that claim to be done; those it refutes begin anew from it."""
    measured = tl.where(r_max == 0, 0.0, r_max / tl.where(size == 0, 1.0, size))
    refused = tl.where(measured > 0.9 * best, STALLED, ACTIVE)
    state = tl.where(state == CLAIMED, refused, state)
    state = tl.where((measured <= tol) & (state != INDEFINITE) & (state != NONFINITE), VERIFIED, state)
    return state, steps, tl.zeros_like(best), tl.minimum(best, measured), measured


@triton.jit(do_not_specialize=["num_nodes", "num_edges", "F", "places", "tiles", "jacobi", "max_steps"])
def solve_kernel(
    diag, off, h, out, report, room, counters, order, index, edge, hubs, bounds,
    num_nodes, num_edges, F, places, tiles, room_of_team, jacobi, max_steps, tol, aim,
    C: tl.constexpr, T: tl.constexpr, SLOTS: tl.constexpr, PLACES: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    member, block, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    team = head * tl.num_programs(1) + block
    first = block * C
    diag += head.to(tl.int64) * num_nodes
    off += head.to(tl.int64) * num_edges
    h += head.to(tl.int64) * num_nodes * F
    out += head.to(tl.int64) * num_nodes * F
    counter = counters + 2 * team
    lines = room + team.to(tl.int64) * room_of_team
    r = lines + places * (4 * C)
    q = r + places * C
    b = q + places * C
    values = b + places * C
    pivot = values + tiles * SLOTS
    inverse = pivot + places
    partial = inverse + places
    bounds += member * 16
    c0, c1, c2, c3 = tl.load(bounds), tl.load(bounds + 1), tl.load(bounds + 2), tl.load(bounds + 3)
    c4, c5, c6 = tl.load(bounds + 4), tl.load(bounds + 5), tl.load(bounds + 6)
    hub0, hub1, begin, end = tl.load(bounds + 8), tl.load(bounds + 9), tl.load(bounds + 10), tl.load(bounds + 11)

    norm, positive, at = begin * 0.0, begin * 0.0 + 1.0, begin
    at, norm, positive = take_rows(
        order, edge, diag, off, pivot, inverse, values, c0, c1, at, jacobi, norm, positive, 2, SLOTS)  # fmt: skip
    at, norm, positive = take_rows(
        order, edge, diag, off, pivot, inverse, values, c1, c2, at, jacobi, norm, positive, 4, SLOTS)  # fmt: skip
    at, norm, positive = take_rows(
        order, edge, diag, off, pivot, inverse, values, c2, c3, at, jacobi, norm, positive, 8, SLOTS)  # fmt: skip
    at, norm, positive = take_rows(
        order, edge, diag, off, pivot, inverse, values, c3, c4, at, jacobi, norm, positive, 16, SLOTS)  # fmt: skip
    at, norm, positive = take_rows(
        order, edge, diag, off, pivot, inverse, values, c4, c5, at, jacobi, norm, positive, 32, SLOTS)  # fmt: skip
    at, norm, positive = take_rows(
        order, edge, diag, off, pivot, inverse, values, c5, c6, at, jacobi, norm, positive, 64, SLOTS)  # fmt: skip
    for hub in range(hub0, hub1):
        around = begin * 0.0
        for tile in range(tl.load(hubs + 2 * hub), tl.load(hubs + 2 * hub + 1)):
            around += tl.sum(tl.abs(take_values(edge, off, values, tile, SLOTS)), 0)
        rows = at + hub - hub0 + tl.arange(0, 1)
        norm, positive = take_diagonal(order, diag, pivot, inverse, rows, around, jacobi, norm, positive)

    nothing = tl.zeros([C], tl.float32)
    largest = sizes(order, h, begin, end, F, first, C, PLACES)
    _, largest, norm_all = together(partial, counter, 0, nothing, largest, nothing + norm, C, T)
    _, refuted, _ = together(partial, counter, 1, nothing, nothing + (1 - positive), nothing, C, T)
    meeting = begin * 0 + 2
    infinite = float("inf")
    broken = (norm_all == infinite) | (largest == infinite)
    state = tl.where(refuted > 0, INDEFINITE, CLAIMED)  # of nothing but mu = 0: the first look puts them to work
    state = tl.where(broken, NONFINITE, state)
    hopeless = tl.max(tl.where(state == CLAIMED, 0, 1), 0)
    scale = tl.where((largest > 0) & (largest < infinite), largest, 1.0)
    size_of_h = tl.where(largest > 0, 1.0, 0.0)
    begin_rows(order, h, lines, q, b, begin, end, F, first, scale, C, PLACES)
    tl.debug_barrier()

    steps, rho, beta, error = nothing, nothing, nothing, nothing
    best = nothing + infinite
    looking, live, turn, running = begin * 0 + 1, begin * 0, begin * 0, 1 - hopeless
    while running > 0:
        # a step makes the new direction z + beta p of every neighbour on its way; a look takes mu in its place
        x = tl.multiple_of(tl.where(looking > 0, MU * C, Z * C), C)
        old, new = tl.multiple_of(turn * (2 * C), C), tl.multiple_of((1 - turn) * (2 * C), C)
        dot, at = nothing, begin
        neighbour, weight = fetch(index, values, c0, SLOTS)
        at, dot, neighbour, weight = product_rows(
            lines, q, pivot, values, index, c0, c1, at, x, old, new, beta, live, dot, neighbour, weight,
            2, C, SLOTS, CACHE)  # fmt: skip
        at, dot, neighbour, weight = product_rows(
            lines, q, pivot, values, index, c1, c2, at, x, old, new, beta, live, dot, neighbour, weight,
            4, C, SLOTS, CACHE)  # fmt: skip
        at, dot, neighbour, weight = product_rows(
            lines, q, pivot, values, index, c2, c3, at, x, old, new, beta, live, dot, neighbour, weight,
            8, C, SLOTS, CACHE)  # fmt: skip
        at, dot, neighbour, weight = product_rows(
            lines, q, pivot, values, index, c3, c4, at, x, old, new, beta, live, dot, neighbour, weight,
            16, C, SLOTS, CACHE)  # fmt: skip
        at, dot, neighbour, weight = product_rows(
            lines, q, pivot, values, index, c4, c5, at, x, old, new, beta, live, dot, neighbour, weight,
            32, C, SLOTS, CACHE)  # fmt: skip
        at, dot, neighbour, weight = product_rows(
            lines, q, pivot, values, index, c5, c6, at, x, old, new, beta, live, dot, neighbour, weight,
            64, C, SLOTS, CACHE)  # fmt: skip
        dot = product_hubs(
            lines, q, pivot, values, index, hubs, hub0, hub1, at, x, old, new, beta, live, dot, neighbour, weight,
            C, SLOTS, CACHE)  # fmt: skip
        curvature, _, _ = together(partial, counter, meeting, dot, nothing, nothing, C, T)
        active = (state == ACTIVE) & (looking == 0)
        curved = curvature > 0  # False for NaN
        alpha = tl.where(active & curved, rho / tl.where(curved, curvature, 1.0), 0.0)
        state = tl.where(active & (curved == 0) & (rho != 0), INDEFINITE, state)
        share = tl.where(looking > 0, 1.0, alpha)
        source = r + tl.where(looking > 0, 2, 0) * (places * C)  # b lies two vectors behind r
        rho_new, r_max, mu_max = update_rows(
            lines, q, source, r, inverse, begin, end, new, alpha, share, C, PLACES)  # fmt: skip
        rho_new, r_max, mu_max = together(partial, counter, meeting + 1, rho_new, r_max, mu_max, C, T)
        meeting += 2
        size = norm_all * mu_max + size_of_h
        state_s, steps_s, beta_s, best_s, error_s = after_step(
            state, steps, rho, best, error, rho_new, r_max, size, aim, max_steps)  # fmt: skip
        state_l, steps_l, beta_l, best_l, error_l = after_look(state, steps, best, error, r_max, size, tol)
        looked = looking > 0
        state, steps = tl.where(looked, state_l, state_s), tl.where(looked, steps_l, steps_s)
        beta, best = tl.where(looked, beta_l, beta_s), tl.where(looked, best_l, best_s)
        error, rho = tl.where(looked, error_l, error_s), rho_new
        going = tl.max((state == ACTIVE).to(tl.int32), 0)
        running = tl.where(looked, going, 1)
        looking = tl.where(looked, 0, 1 - going)
        live, turn = begin * 0 + 1, 1 - turn

    failed = (state == INDEFINITE) | (state == NONFINITE)
    lost = tl.max(failed.to(tl.int32), 0) > 0  # one column that J fails speaks against all
    deliver(order, lines, out, begin, end, F, first, tl.where(lost, float("nan"), scale), C, PLACES)
    if member == 0:
        cols = first + tl.arange(0, C)
        row = tl.num_programs(2) * F
        report += head * F
        tl.store(report + cols, state.to(tl.float32), mask=cols < F)
        tl.store(report + row + cols, steps, mask=cols < F)
        tl.store(report + 2 * row + cols, tl.where(lost, float("nan"), error), mask=cols < F)
    if T > 1:  # noqa: SIM102
        if tl.atomic_add(counter + 1, 1, sem="acq_rel") == T - 1:  # all others have left their last meeting
            tl.store(counter, 0)
            tl.store(counter + 1, 0)
