"""The scalars of conjugate gradients, one set for every head and column, which never leave the device.

``control`` is one float32 tensor ``[fields, H, F]``; a solve reads it back in a single copy. A column is in one
state; programs look at the states of their columns first and return at once when nothing is left to do, so that
steps launched ahead cost nothing after convergence and the host need not look in between.
"""

from __future__ import annotations

import triton
import triton.language as tl

from walksum.backends import cuda

# fields of control
STATE = tl.constexpr(0)
RHO = tl.constexpr(1)  # r . z
ALPHA = tl.constexpr(2)  # step length
BETA = tl.constexpr(3)  # weight of the old direction
ERROR = tl.constexpr(4)  # true backward error when it was last measured
BEST = tl.constexpr(5)  # the smallest one before
SCALE = tl.constexpr(6)  # columns of h are divided by it
SIZE = tl.constexpr(7)  # max |h| after that: 1, or 0 for a zero column
STEPS = tl.constexpr(8)
CLOSED = tl.constexpr(9)  # nothing more will happen to this column
NORM = tl.constexpr(10)  # |J|_inf and the smallest diagonal entry, here to be read back with the rest
LOWEST = tl.constexpr(11)
FIELDS = 12

# states
ACTIVE = tl.constexpr(cuda.ACTIVE)
CLAIMED = tl.constexpr(cuda.CLAIMED)
VERIFIED = tl.constexpr(cuda.VERIFIED)
STALLED = tl.constexpr(cuda.STALLED)
EXHAUSTED = tl.constexpr(cuda.EXHAUSTED)
INDEFINITE = tl.constexpr(cuda.INDEFINITE)

# what a kernel does beside its product; from RESIDUAL on, products are subtracted from h
PLAIN = tl.constexpr(0)
CURVATURE = tl.constexpr(1)  # p . J p
RESIDUAL = tl.constexpr(2)  # max |h - J mu| and max |mu|, nothing stored
VERIFY = tl.constexpr(3)  # the same, and CG goes on from the true residual where it must
UPDATE = tl.constexpr(4)
SIZES = tl.constexpr(5)  # max |h|: a solve begins
START = tl.constexpr(6)  # the first r . z


@triton.jit
def field(control, which: tl.constexpr, F):
    """Pointer to one field of this program's head."""
    return control + (which * tl.num_programs(2) + tl.program_id(2)) * F


@triton.jit
def has_work(control, cols, F, MODE: tl.constexpr):
    """Whether this block of columns has work of this kind."""
    run = tl.program_id(0) >= 0
    if MODE == CURVATURE or MODE == UPDATE or MODE == VERIFY:  # noqa: SIM109
        state = tl.load(field(control, STATE, F) + cols, mask=cols < F, other=2)
        run = tl.max((state == ACTIVE).to(tl.int32), 0) > 0
        if MODE == VERIFY:
            closed = tl.load(field(control, CLOSED, F) + cols, mask=cols < F, other=1)
            run = (run == 0) & (tl.min(closed, 0) == 0)
    return run


@triton.jit
def magnitude(x):
    """|x|, with NaN as infinity: a maximum drops NaN, and an error must never vanish that way."""
    return tl.where(x == x, tl.abs(x), float("inf"))


@triton.jit
def is_last_program(counter, total):
    """True in the program that comes last; it may read what all others have stored."""
    slot = counter + tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    tl.debug_barrier()  # every thread's stores come before the release below
    last = tl.atomic_add(slot, 1, sem="acq_rel") == total - 1
    if last:
        tl.store(slot, 0)
    return last


@triton.jit
def store_partial(partial, k: tl.constexpr, at, value, cols, F, count):
    """File one number per column under program ``at``: partial is ``[3, H, count, F]``."""
    row = (k * tl.num_programs(2) + tl.program_id(2)) * count + at
    tl.store(partial + row.to(tl.int64) * F + cols, value, mask=cols < F)


@triton.jit
def totals(partial, cols, F, count, begin, end, BLOCK: tl.constexpr, SUM: tl.constexpr, LARGEST: tl.constexpr):
    """Over programs begin to end of count, always in the same order: the sum of the first number, the largest of the
    other two."""
    size = tl.num_programs(2).to(tl.int64) * count * F
    partial += tl.program_id(2).to(tl.int64) * count * F
    dot = tl.zeros_like(cols).to(tl.float32)
    r_max = tl.zeros_like(cols).to(tl.float32)
    mu_max = tl.zeros_like(cols).to(tl.float32)
    for first in range(begin, end, BLOCK):
        row = first + tl.arange(0, BLOCK)
        mask = (row < end)[:, None] & (cols < F)[None, :]
        at = partial + row[:, None] * F + cols[None, :]
        # past the first-level cache: other processors have just written these
        if SUM:
            dot += tl.sum(tl.load(at, mask=mask, other=0.0, cache_modifier=".cg"), 0)
        if LARGEST:
            r_max = tl.maximum(r_max, tl.max(tl.load(at + size, mask=mask, other=0.0, cache_modifier=".cg"), 0))
            mu_max = tl.maximum(mu_max, tl.max(tl.load(at + 2 * size, mask=mask, other=0.0, cache_modifier=".cg"), 0))
    return dot, r_max, mu_max


@triton.jit
def finish(control, partial, J_norm, cols, F, count, tol, max_steps, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """Turn the partial results of all programs into the next scalars of these columns."""
    if MODE == CURVATURE:
        finish_curvature(control, partial, cols, F, count, BLOCK)
    elif MODE == UPDATE:
        finish_update(control, partial, J_norm, cols, F, count, tol, max_steps, BLOCK)
    elif MODE == SIZES:
        finish_sizes(control, partial, cols, F, count, BLOCK)
    elif MODE == START:
        rho, _, _ = totals(partial, cols, F, count, 0, count, BLOCK, True, False)
        tl.store(field(control, RHO, F) + cols, rho, mask=cols < F)
    else:
        finish_residual(control, partial, J_norm, cols, F, count, tol, BLOCK, MODE)


@triton.jit
def finish_sizes(control, partial, cols, F, count, BLOCK: tl.constexpr):
    live = cols < F
    _, largest, nothing = totals(partial, cols, F, count, 0, count, BLOCK, False, True)
    tl.store(field(control, SCALE, F) + cols, tl.where(largest > 0, largest, 1.0), mask=live)
    tl.store(field(control, SIZE, F) + cols, tl.where(largest > 0, 1.0, 0.0), mask=live)
    tl.store(field(control, STATE, F) + cols, nothing, mask=live)  # ACTIVE
    tl.store(field(control, BETA, F) + cols, nothing, mask=live)
    tl.store(field(control, ERROR, F) + cols, nothing, mask=live)
    tl.store(field(control, BEST, F) + cols, nothing + float("inf"), mask=live)
    tl.store(field(control, STEPS, F) + cols, nothing, mask=live)
    tl.store(field(control, CLOSED, F) + cols, nothing, mask=live)


@triton.jit
def finish_curvature(control, partial, cols, F, count, BLOCK: tl.constexpr):
    live = cols < F
    curvature, _, _ = totals(partial, cols, F, count, 0, count, BLOCK, True, False)
    rho = tl.load(field(control, RHO, F) + cols, mask=live, other=0.0)
    state = tl.load(field(control, STATE, F) + cols, mask=live, other=2)
    active = state == ACTIVE
    positive = curvature > 0  # False for NaN
    alpha = tl.where(active & positive, rho / tl.where(positive, curvature, 1.0), 0.0)
    refuted = active & (positive == 0) & (rho != 0)
    tl.store(field(control, ALPHA, F) + cols, alpha, mask=live)
    tl.store(field(control, STATE, F) + cols, tl.where(refuted, INDEFINITE, state), mask=live)


@triton.jit
def finish_update(control, partial, J_norm, cols, F, count, tol, max_steps, BLOCK: tl.constexpr):
    live = cols < F
    rho_new, r_max, mu_max = totals(partial, cols, F, count, 0, count, BLOCK, True, True)
    rho = tl.load(field(control, RHO, F) + cols, mask=live, other=0.0)
    state = tl.load(field(control, STATE, F) + cols, mask=live, other=2)
    size = tl.load(field(control, SIZE, F) + cols, mask=live, other=0.0)
    steps = tl.load(field(control, STEPS, F) + cols, mask=live, other=0.0)
    active = state == ACTIVE
    steps += tl.where(active, 1.0, 0.0)
    # a little below tol: the recursion is a shade too optimistic, and a refused claim costs a product
    near = r_max <= 0.8 * tol * (tl.load(J_norm + tl.program_id(2)) * mu_max + size)
    state = tl.where(active & (near | (r_max == 0)), CLAIMED, state)
    state = tl.where((state == ACTIVE) & (steps >= max_steps), EXHAUSTED, state)
    beta = tl.where((state == ACTIVE) & (rho > 0), rho_new / tl.where(rho > 0, rho, 1.0), 0.0)
    tl.store(field(control, RHO, F) + cols, rho_new, mask=live)
    tl.store(field(control, BETA, F) + cols, beta, mask=live)
    tl.store(field(control, STATE, F) + cols, state, mask=live)
    tl.store(field(control, STEPS, F) + cols, steps, mask=live)


@triton.jit
def finish_residual(control, partial, J_norm, cols, F, count, tol, BLOCK: tl.constexpr, MODE: tl.constexpr):
    live = cols < F
    rho, r_max, mu_max = totals(partial, cols, F, count, 0, count, BLOCK, MODE == VERIFY, True)
    size = tl.load(field(control, SIZE, F) + cols, mask=live, other=0.0)
    norm, top = tl.load(J_norm + tl.program_id(2)), tl.maximum(mu_max, size)
    scale, top = norm * mu_max + size, tl.where(top == 0, 1.0, top)
    # a sum that overflows would make a quotient of 0 of any residual
    apart = r_max / top / (norm * (mu_max / top) + size / top)
    quotient = tl.where(scale < float("inf"), r_max / tl.where(scale == 0, 1.0, scale), apart)
    error = tl.where(r_max == 0, 0.0, quotient)
    tl.store(field(control, ERROR, F) + cols, error, mask=live)
    if MODE == VERIFY:
        judge_claims(control, rho, error, cols, F, tol)


@triton.jit
def judge_claims(control, rho, error, cols, F, tol):
    live = cols < F
    state = tl.load(field(control, STATE, F) + cols, mask=live, other=2)
    best = tl.load(field(control, BEST, F) + cols, mask=live, other=0.0)
    refused = tl.where(error > 0.9 * best, STALLED, ACTIVE)
    state = tl.where(state == CLAIMED, refused.to(tl.float32), state)
    state = tl.where((error <= tol) & (state != INDEFINITE), VERIFIED, state)
    go_on = tl.max(((state == ACTIVE) & live).to(tl.int32), 0)
    tl.store(field(control, RHO, F) + cols, rho, mask=live)
    tl.store(field(control, BETA, F) + cols, tl.zeros_like(rho), mask=live)  # CG begins anew
    tl.store(field(control, BEST, F) + cols, tl.minimum(best, error), mask=live)
    tl.store(field(control, STATE, F) + cols, state, mask=live)
    tl.store(field(control, CLOSED, F) + cols, tl.zeros_like(state) + (1 - go_on), mask=live)


@triton.jit(do_not_specialize=["count", "share", "max_steps"])
def finish_kernel(
    control, partial, sums, counter, J_norm, F, count, share, tol, max_steps,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, MODE: tl.constexpr,
):  # fmt: skip
    """Each program adds up its share of the partial results; the last one finishes what they found."""
    cols = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if has_work(control, cols, F, MODE):
        part, parts = tl.program_id(0), tl.num_programs(0)
        begin = part * share
        end = tl.minimum(begin + share, count)
        dot, r_max, mu_max = totals(
            partial, cols, F, count, begin, end, BLOCK, MODE != RESIDUAL and MODE != SIZES,
            MODE != CURVATURE and MODE != START,
        )  # fmt: skip
        store_partial(sums, 0, part, dot, cols, F, parts)
        store_partial(sums, 1, part, r_max, cols, F, parts)
        store_partial(sums, 2, part, mu_max, cols, F, parts)
        if is_last_program(counter, parts):
            finish(control, sums, J_norm, cols, F, parts, tol, max_steps, BLOCK, MODE)
