r"""Conjugate gradients preconditioned by a diagonal incomplete Cholesky (DIC), with Eisenstat's trick.

With L the strictly lower part of J in the order of the sweeps, :math:`d_i = J_{ii} - \sum_{k<i} J_{ik}^2 / d_k` and
:math:`M = (d + L) d^{-1} (d + L^T)`. Since :math:`J = (d + L) + (d + L^T) + (D - 2d)`, the preconditioned product of
a direction w needs no product with J, only one sweep with each triangle:

.. math:: t = (d + L^T)^{-1} w, \qquad s = (d + L)^{-1} (w + (D - 2d) t)

Here t is the direction in mu, w . (t + s) its curvature, and :math:`y = (d + L)^{-1} r` the residual, which changes
by t + s; :math:`\rho = y \cdot d y`. An iteration costs one sparse product and takes no square root of d.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.packing import lost, pack, unpack
from walksum.backends.cpu.pointers import blank
from walksum.backends.cpu.simd import at, fma, lanes_for, largest, load, prefetch, splat, store, width
from walksum.backends.cpu.sweep_order import halves
from walksum.backends.cpu.tiling import AHEAD, Workspace, for_blocks, view
from walksum.graph import Graph

RECHECK = 20  # steps between looks at the true residual, besides each time it is believed small enough
DRIFT = 0.01  # relative difference of the true and the recursive residual's square from which CG starts anew
STRIKES = 2  # failed looks without halving the residual: the floor of this dtype
CONVERGED, MAX_STEPS, STALLED, NOT_POSITIVE, NONFINITE = range(5)


class DIC:
    """The factor d of every head, and the solves with it. ``positive`` is False if J is not walk-summable."""

    def __init__(self, graph: Graph, diag: Tensor, off: Tensor):
        self.pattern = halves(graph)
        P = self.pattern
        self.diag = np.take(view(diag), P.order, 1)
        self.lower, self.upper = (np.take(view(off), edges, 1) for edges in (P.lower_edge, P.upper_edge))
        self.d = np.empty_like(self.diag)
        pairs = zip(self.diag, self.lower, self.d, strict=True)
        self.positive = all(_factor(D, P.lower_ptr, P.lower, low, d) for D, low, d in pairs)

    def solve(self, h: Tensor, J_norm: Tensor, tol: float, max_steps: int) -> tuple[Tensor, int, int, float]:
        """mu, the worst outcome of a block, the most steps and the largest backward error."""
        h = h.contiguous()  # and so is mu: kernels write rows of lanes
        mu = blank(h)
        P, H, X, norm, workspace = self.pattern, view(h), mu.numpy(), view(J_norm), Workspace()

        def block(head: int, start: int, stop: int) -> tuple[int, int, float]:
            lower = (P.lower_ptr, P.lower, self.lower[head])
            upper = (P.upper_ptr, P.upper, self.upper[head])
            J = (*lower, *upper, self.diag[head], self.d[head], float(norm[head]))
            lanes = lanes_for(stop - start)
            work = workspace.array(6, h.size(1), lanes.itemsize * 8, dtype=H.dtype)
            return _solve(lanes, work, H[head], X[head], start, stop, P.order, *J, float(tol), max_steps)

        done = for_blocks(block, h.size(0), h.size(2), 20.0 * (h.size(1) + 2 * P.lower.size))
        codes, steps, errors = zip(*done, strict=True)
        return mu, max(codes), max(steps), float(np.max(errors))


@jit
def _factor(diag, ptr, idx, val, d):
    exact = np.empty(d.size)  # a small pivot is a difference of large numbers
    for i in range(d.size):
        pivot = np.float64(diag[i])
        for e in range(ptr[i], ptr[i + 1]):
            pivot -= np.float64(val[e]) * val[e] / exact[idx[e]]
        exact[i] = pivot
        d[i] = pivot
        if not d[i] > 0:
            return False
    return True


@jit
def _solve(lanes, work, h, out, start, stop, order, lptr, lidx, lval, uptr, uidx, uval, diag, d, norm, tol, max_steps):
    """mu of the columns ``start:stop`` of one head: outcome, steps and the largest backward error.

    lanes: the width of the block, see simd.py. work: ``[6, N, width]``, workspace. h, out: ``[N, F]`` of the head.
    start, stop: the columns. order: the nodes in the order of the sweeps. lptr, lidx, lval: the couplings with nodes
    before, row by row. uptr, uidx, uval: those with nodes after, last row first. diag, d: the diagonals of J and of its
    factor, in the order of the sweeps. norm: ``|J|_inf``. tol, max_steps: when to stop.
    """
    w, (b, x, y, p, t, s) = width(lanes), (work[0], work[1], work[2], work[3], work[4], work[5])
    x[:], p[:] = 0, 0
    inverse, rest = 1 / d, diag - 2 * d
    alpha, beta = np.zeros((1, w), h.dtype), np.zeros((1, w), h.dtype)
    rho, rho_new, curvature, sizes = np.zeros((1, w)), np.zeros((1, w)), np.zeros((1, w)), np.zeros((3, w))
    active, strikes, best, ratio = np.ones(w), np.zeros(w), np.full(w, np.inf), np.ones(w)
    exponent = pack(lanes, h, start, stop, order, b, sizes)
    if not (sizes[0] < np.inf).all():
        return NONFINITE, 0, np.nan
    _restart(lanes, b, y, rho, lptr, lidx, lval, d, inverse)
    for c in range(w):
        active[c] = rho[0, c] > 0
        ratio[c] = sizes[0, c] / np.sqrt(rho[0, c]) if active[c] else 0.0
    outcome, step, last = MAX_STEPS, 0, 0
    while step < max_steps and active.any():
        step += 1
        _descend(lanes, beta, d, inverse, y, p, t, uptr, uidx, uval)
        _ascend(lanes, p, t, s, rest, inverse, curvature, lptr, lidx, lval)
        for c in range(w):
            if curvature[0, c] < 0:
                outcome, max_steps = NOT_POSITIVE, step
            alpha[0, c] = active[c] * rho[0, c] / curvature[0, c] if curvature[0, c] > 0 else 0.0
        _update(lanes, alpha, x, y, t, s, d, rho_new, sizes)
        believed = True
        for c in range(w):
            beta[0, c] = active[c] * rho_new[0, c] / rho[0, c] if rho[0, c] > 0 else 0.0
            rho[0, c] = rho_new[0, c]
            small = np.sqrt(rho[0, c]) * ratio[c] <= tol * (norm * sizes[1, c] + sizes[2, c])
            believed = believed and (active[c] == 0 or small)
        if believed or step - last == RECHECK or step == max_steps:
            last = step
            _residual(lanes, b, x, s, lptr, lidx, lval, uptr, uidx, uval, diag, sizes)
            for c in range(w):
                if active[c] > 0:
                    error = sizes[0, c] / (norm * sizes[1, c] + sizes[2, c])
                    if believed and error > 0.5 * best[c]:
                        strikes[c] += 1
                    best[c] = min(best[c], error)
                    if error <= tol or strikes[c] == STRIKES or not error < np.inf:
                        active[c], beta[0, c] = 0, 0
            if active.any():
                # the true residual replaces the recursive one; where they differ, old directions mislead
                _restart(lanes, s, y, rho, lptr, lidx, lval, d, inverse)
                for c in range(w):
                    if abs(rho[0, c] - rho_new[0, c]) > DRIFT * rho[0, c]:
                        beta[0, c] = 0
                    ratio[c] = sizes[0, c] / np.sqrt(rho[0, c]) if rho[0, c] > 0 else 0.0
    unpack(lanes, x, exponent, start, stop, order, out)
    worst, out_of_range = _worst(sizes, norm), lost(sizes[1], exponent, np.finfo(h.dtype))
    stalled = (strikes == STRIKES).any() or out_of_range > worst
    worst = out_of_range if out_of_range > worst else worst
    if outcome != NOT_POSITIVE:
        outcome = CONVERGED if worst <= tol else STALLED if stalled and not active.any() else MAX_STEPS
    return outcome, step, worst


@jit
def _worst(sizes, norm):
    """The largest backward error of any column; NaN stays."""
    worst = 0.0
    for c in range(sizes.shape[1]):
        error = sizes[0, c] / (norm * sizes[1, c] + sizes[2, c]) if sizes[0, c] != 0 else 0.0
        worst = error if not error <= worst and worst == worst else worst
    return worst


@jit
def _descend(lanes, beta, d, inverse, y, p, t, ptr, idx, val):
    """The new direction p = d y + beta p, and t = (d + L^T)^-1 p."""
    b, n = load(lanes, beta, 0), d.size
    for q in range(n):
        i = n - 1 - q
        total = fma(b, load(lanes, p, i), d[i] * load(lanes, y, i))
        store(p, i, total)
        for e in range(at(ptr, q), at(ptr, q + 1)):
            if e + AHEAD < idx.size:
                prefetch(lanes, t, at(idx, e + AHEAD))
            total = fma(-at(val, e), load(lanes, t, at(idx, e)), total)
        store(t, i, inverse[i] * total)


@jit
def _ascend(lanes, p, t, s, rest, inverse, curvature, ptr, idx, val):
    """s = (d + L)^-1 (p + (D - 2d) t), and the curvature p . (t + s)."""
    dot = splat(lanes, 0.0)
    for i in range(rest.size):
        direction, mine = load(lanes, p, i), load(lanes, t, i)
        total = fma(rest[i], mine, direction)
        for e in range(at(ptr, i), at(ptr, i + 1)):
            if e + AHEAD < idx.size:
                prefetch(lanes, s, at(idx, e + AHEAD))
            total = fma(-at(val, e), load(lanes, s, at(idx, e)), total)
        total = inverse[i] * total
        store(s, i, total)
        dot = fma(direction, mine + total, dot)
    store(curvature, 0, dot)


@jit
def _update(lanes, alpha, x, y, t, s, d, rho, sizes):
    a, dot, most = load(lanes, alpha, 0), splat(lanes, 0.0), splat(lanes, 0.0)
    for i in range(d.size):
        mine = load(lanes, t, i)
        mu = fma(a, mine, load(lanes, x, i))
        residual = load(lanes, y, i) - a * (mine + load(lanes, s, i))
        store(x, i, mu)
        store(y, i, residual)
        dot, most = fma(d[i] * residual, residual, dot), largest(most, mu)
    store(rho, 0, dot)
    store(sizes, 1, most)


@jit
def _restart(lanes, r, y, rho, ptr, idx, val, d, inverse):
    """y = (d + L)^-1 r and its norm."""
    dot = splat(lanes, 0.0)
    for i in range(d.size):
        total = load(lanes, r, i)
        for e in range(at(ptr, i), at(ptr, i + 1)):
            if e + AHEAD < idx.size:
                prefetch(lanes, y, at(idx, e + AHEAD))
            total = fma(-at(val, e), load(lanes, y, at(idx, e)), total)
        total = inverse[i] * total
        store(y, i, total)
        dot = fma(d[i] * total, total, dot)
    store(rho, 0, dot)


@jit
def _residual(lanes, h, x, r, lptr, lidx, lval, uptr, uidx, uval, diag, sizes):
    """r = h - J x summed in float64; the largest of r, x and h of every column."""
    most, size_x, size_h, n = splat(lanes, 0.0), splat(lanes, 0.0), splat(lanes, 0.0), diag.size
    for i in range(n):
        mine, target = load(lanes, x, i), load(lanes, h, i)
        total = fma(-np.float64(diag[i]), mine, splat(lanes, 0.0) + target)
        for e in range(at(lptr, i), at(lptr, i + 1)):
            if e + AHEAD < lidx.size:
                prefetch(lanes, x, at(lidx, e + AHEAD))
            total = fma(-np.float64(at(lval, e)), load(lanes, x, at(lidx, e)), total)
        for e in range(at(uptr, n - i) - 1, at(uptr, n - 1 - i) - 1, -1):  # the way they lie, last to first
            if e >= AHEAD:
                prefetch(lanes, x, at(uidx, e - AHEAD))
            total = fma(-np.float64(at(uval, e)), load(lanes, x, at(uidx, e)), total)
        store(r, i, total)
        most, size_x, size_h = largest(most, total), largest(size_x, mine), largest(size_h, target)
    store(sizes, 0, most)
    store(sizes, 1, size_x)
    store(sizes, 2, size_h)
