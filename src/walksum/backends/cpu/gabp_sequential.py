r"""GaBP with messages that are read as soon as they are written: a node after the other, forward and backward in turn.

One buffer instead of two, and the news of a sweep reaches every later node in the same sweep, which takes about half
the steps. Slots as in :mod:`walksum.backends.cpu.gabp`; the whole solve of a block of columns is one call.
"""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.gabp import _belief, _mean
from walksum.backends.cpu.packing import column_sizes, lost, pack, unpack
from walksum.backends.cpu.products import _backward_error
from walksum.backends.cpu.simd import at, fma, largest, load, prefetch, splat, store, width
from walksum.backends.cpu.tiling import AHEAD

CONVERGED, STALLED, MAX_STEPS, DIVERGED, NONFINITE = range(5)
NEAR = 30  # times tol: a relative change of the messages from which on the residual may be small enough
REST = 64  # machine epsilons: a relative change that may be rounding
PAUSE = 100  # steps at most between two looks near rounding
LONGEST = 32  # steps at most between two looks at the change of the messages
BLOW_UP = 1e30


@jit
def solve(lanes, work, h, out, start, stop, order, pattern, messages, J, damping, tol, max_steps):
    """mu of the columns ``start:stop`` of one head: outcome, steps and the largest backward error.

    ``pattern`` is indptr, indices, edge and reverse; ``messages`` the gains and 1 / alpha; ``J`` off, diag and norm.
    """
    (indptr, indices, edge, reverse), (gain, inverse), (off, diag, norm) = pattern, messages, J
    n, w, eps = diag.size, width(lanes), np.finfo(h.dtype).eps
    b, mu, eta = work[:n], work[n : 2 * n], work[2 * n :]
    sizes, errors = np.zeros((3, w)), np.zeros((1, w))
    exponent = pack(lanes, h, start, stop, order, b, sizes)
    if not (sizes[0] < np.inf).all():
        return NONFINITE, 0, np.nan
    eta[:] = 0
    steps, count, outcome, error, lowest = 0, 1, MAX_STEPS, np.inf, np.inf
    trigger, last, rate = NEAR * tol, np.inf, 1.0
    while steps < max_steps and outcome == MAX_STEPS:
        count = min(count, max_steps - steps)
        for k in range(steps, steps + count - 1):
            _sweep(lanes, k % 2 == 0, indptr, reverse, gain, b, eta, damping)
        steps += count
        _measured_step(lanes, steps % 2 == 1, indptr, reverse, gain, b, eta, damping, sizes)
        change, belief = sizes[0].max(), sizes[2].max()
        if not change < BLOW_UP:
            outcome = DIVERGED
            break
        relative = change / belief if belief > 0 else 0.0
        resting = REST * eps > relative > 0.5 * last
        if relative < last < np.inf and not resting:
            rate = np.log(last / max(relative, 0.1 * eps)) / count  # more than that is rounding's luck
        if relative <= trigger or resting or steps == max_steps:
            _mean(lanes, indptr, b, eta, inverse, mu)
            _backward_error(lanes, mu, b, indptr, indices, edge, off, diag, norm, errors)
            error = errors.max()
            if error <= tol:
                outcome = CONVERGED
            elif relative < eps * rate or (error > 0.7 * lowest and resting):  # nothing left to come; a quarter was due
                outcome = STALLED
            lowest = min(lowest, error)
            trigger = relative * max(0.9 * tol / error, 0.01) if error > 0 else 0.0  # both fall together
        count = _pause(resting, max(trigger, eps), relative, rate) if steps > 1 else 2  # two points make a rate
        last = relative
    unpack(lanes, mu, exponent, start, stop, order, out)
    column_sizes(lanes, mu, sizes)
    out_of_range = lost(sizes[0], exponent, np.finfo(h.dtype))
    if out_of_range > error:
        error, outcome = out_of_range, STALLED if out_of_range > tol and outcome == CONVERGED else outcome
    return outcome, steps, error


@jit
def _pause(resting, trigger, relative, rate):
    """Steps until the change reaches the trigger, cautiously; at rest, until it should have fallen to a quarter."""
    if resting:
        return max(1, min(PAUSE, int(1.4 / rate)))
    if relative <= trigger or not rate > 0:
        return 1
    return max(1, min(LONGEST, int(0.9 * np.log(relative / max(trigger, 1e-300)) / rate)))


@jit
def _sweep(lanes, up, indptr, reverse, gain, h, eta, damping):
    n = indptr.size - 1
    for k in range(n):
        i = k if up else n - 1 - k
        beta = _belief(lanes, indptr, h, eta, i)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < reverse.size:
                prefetch(lanes, eta, at(reverse, e + AHEAD))
            new = at(gain, e) * (beta - load(lanes, eta, e))
            if damping != 1:
                old = load(lanes, eta, at(reverse, e))
                new = fma(damping, new - old, old)
            store(eta, at(reverse, e), new)


@jit
def _measured_step(lanes, up, indptr, reverse, gain, h, eta, damping, sizes):
    """The same, measuring the largest undamped change and belief."""
    n, zero = indptr.size - 1, h.dtype.type(0)
    one, most = splat(lanes, zero), splat(lanes, zero)
    for k in range(n):
        i = k if up else n - 1 - k
        beta = _belief(lanes, indptr, h, eta, i)
        most = largest(most, beta)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < reverse.size:
                prefetch(lanes, eta, at(reverse, e + AHEAD))
            old = load(lanes, eta, at(reverse, e))
            change = at(gain, e) * (beta - load(lanes, eta, e)) - old
            one = largest(one, change)
            store(eta, at(reverse, e), fma(damping, change, old))
    store(sizes, 0, one)
    store(sizes, 2, most)
