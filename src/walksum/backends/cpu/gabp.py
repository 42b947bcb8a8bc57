r"""Fused GaBP: slot e of row i holds the message of neighbour k to i; ``reverse[e]`` is the slot of i's message to k.

One pass over the nodes reads each message once and writes each once:
:math:`\beta_i = h_i + \sum_e \eta_e`, then :math:`\eta'_{rev(e)} = c_e (\beta_i - \eta_e)` with the gain
:math:`c_e = -J_{ik} / (\alpha_i - \pi_e)`. Damping reads the old outgoing message too.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.simd import at, fma, lanes_for, largest, load, prefetch, splat, store
from walksum.backends.cpu.tiling import AHEAD, aligned, rows, view
from walksum.graph import Graph

SETTLED = 1e-14  # relative change of pi that counts as rounding


class PrecisionMessages:
    """pi, alpha and the gains of one head; they depend on J alone."""

    def __init__(self, graph: Graph, diag: Tensor, off: Tensor):
        self.rows = rows(graph)
        self.diag, self.J = view(diag), view(off)[self.rows.edge]
        self.pi, self.gain = np.zeros_like(self.J), np.zeros_like(self.J)
        self.alpha, self.converged = self.diag.copy(), False

    def step(self, damping: float) -> float:
        """One synchronous update; the largest undamped change. The gains are those from before it."""
        G, old = self.rows, self.pi
        self.pi = np.empty_like(old)
        weight = self.pi.dtype.type(damping)
        return _pi_step(G.indptr, G.reverse, self.J, self.diag, old, self.pi, self.gain, weight)

    def converge(self, max_steps: int) -> bool:
        """Iterate to convergence, in float64; False if a cavity or marginal precision is not positive.

        That happens exactly if some computation tree of J is not positive definite: J is not walk-summable.
        """
        exact = np.zeros(self.J.size)
        valid, self.converged = _pi_converge(self.rows.indptr, self.rows.reverse, self.J, self.diag, exact, max_steps)
        _gains(self.rows.indptr, self.J, self.diag, exact, self.alpha, self.gain)
        return valid and bool((self.alpha > 0).all())

    def marginal(self) -> np.ndarray:
        """alpha_i = J_ii + the sum of the messages to i."""
        _gains(self.rows.indptr, self.J, self.diag, self.pi, self.alpha, np.empty_like(self.gain))
        return self.alpha


class InformationMessages:
    """eta of one block of columns, twice: the messages read and the messages written."""

    def __init__(self, pi: PrecisionMessages, h: np.ndarray):
        self.pi, self.columns, self.lanes = pi, h.shape[1], lanes_for(h.shape[1])
        wide = self.lanes.itemsize * 8
        self.h = aligned(h.shape[0], wide, dtype=h.dtype)
        self.h[:, : self.columns] = h
        self.eta, self.spare = (aligned(pi.J.size, wide, dtype=h.dtype) for _ in range(2))
        self.sizes = np.zeros((3, wide))

    def step(self, damping: float, count: int = 1) -> tuple[float, float, float]:
        """``count`` updates; of the last one the largest undamped change, change over two steps, and belief."""
        G = self.pi.rows
        args = (G.indptr, G.reverse, self.pi.gain, self.h, self.eta, self.spare, float(damping), count, self.sizes)
        _eta_steps(self.lanes, *args)
        if count % 2:
            self.eta, self.spare = self.spare, self.eta
        change, two_steps, belief = self.sizes.max(1)
        return float(change), float(two_steps), float(belief)

    def mean(self, alpha: np.ndarray) -> np.ndarray:
        """mu = beta / alpha."""
        mu = np.empty_like(self.h)
        _mean(self.lanes, self.pi.rows.indptr, self.h, self.eta, 1 / alpha, mu)
        return mu[:, : self.columns]


@jit
def _pi_step(indptr, reverse, J, diag, old, new, gain, damping):
    most = 0.0
    for i in range(diag.size):
        alpha = diag[i]
        for e in range(indptr[i], indptr[i + 1]):
            alpha += old[e]
        for e in range(indptr[i], indptr[i + 1]):
            gain[e] = -J[e] / (alpha - old[e])
            back = reverse[e]
            change = J[e] * gain[e] - old[back]
            new[back] = old[back] + damping * change
            if not abs(change) <= most and most == most:  # NaN enters and stays
                most = np.float64(abs(change))
    return most


@jit
def _pi_converge(indptr, reverse, J, diag, pi, max_steps):
    """Whether all cavities stayed positive, and whether pi came to rest."""
    for _ in range(max_steps):
        moved = False
        for i in range(diag.size):
            alpha = np.float64(diag[i])
            for e in range(indptr[i], indptr[i + 1]):
                alpha += pi[e]
            for e in range(indptr[i], indptr[i + 1]):
                cavity = alpha - pi[e]
                if not cavity > 0:
                    return False, False
                fresh = -np.float64(J[e]) * J[e] / cavity
                moved = moved or abs(fresh - pi[reverse[e]]) > -SETTLED * fresh
                pi[reverse[e]] = fresh
        if not moved:
            return True, True
    return True, False


@jit
def _gains(indptr, J, diag, pi, alpha, gain):
    for i in range(diag.size):
        total = np.float64(diag[i])
        for e in range(indptr[i], indptr[i + 1]):
            total += pi[e]
        alpha[i] = total
        for e in range(indptr[i], indptr[i + 1]):
            gain[e] = -J[e] / (total - pi[e])


@jit
def _eta_steps(lanes, indptr, reverse, gain, h, eta, spare, damping, count, sizes):
    for _ in range(count - 1):
        if damping == 1:
            _undamped(lanes, indptr, reverse, gain, h, eta, spare)
        else:
            _damped(lanes, indptr, reverse, gain, h, eta, spare, damping)
        eta, spare = spare, eta
    _measured_step(lanes, indptr, reverse, gain, h, eta, spare, damping, sizes)


@jit
def _belief(lanes, indptr, h, eta, i):
    total = load(lanes, h, i)
    for e in range(at(indptr, i), at(indptr, i + 1)):
        total = total + load(lanes, eta, e)
    return total


@jit
def _undamped(lanes, indptr, reverse, gain, h, eta, new):
    for i in range(indptr.size - 1):
        beta = _belief(lanes, indptr, h, eta, i)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < reverse.size:
                prefetch(lanes, new, at(reverse, e + AHEAD))
            store(new, at(reverse, e), at(gain, e) * (beta - load(lanes, eta, e)))


@jit
def _damped(lanes, indptr, reverse, gain, h, eta, new, damping):
    for i in range(indptr.size - 1):
        beta = _belief(lanes, indptr, h, eta, i)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < reverse.size:
                prefetch(lanes, new, at(reverse, e + AHEAD))
                prefetch(lanes, eta, at(reverse, e + AHEAD))
            old = load(lanes, eta, at(reverse, e))
            change = at(gain, e) * (beta - load(lanes, eta, e)) - old
            store(new, at(reverse, e), fma(damping, change, old))


@jit
def _measured_step(lanes, indptr, reverse, gain, h, eta, new, damping, sizes):
    """A damped step that also measures; what it overwrites is the message of two steps ago."""
    zero = h.dtype.type(0)
    one, two, most = splat(lanes, zero), splat(lanes, zero), splat(lanes, zero)
    for i in range(indptr.size - 1):
        beta = _belief(lanes, indptr, h, eta, i)
        most = largest(most, beta)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < reverse.size:
                prefetch(lanes, new, at(reverse, e + AHEAD))
                prefetch(lanes, eta, at(reverse, e + AHEAD))
            old = load(lanes, eta, at(reverse, e))
            change = at(gain, e) * (beta - load(lanes, eta, e)) - old
            one, two = largest(one, change), largest(two, old + change - load(lanes, new, at(reverse, e)))
            store(new, at(reverse, e), fma(damping, change, old))
    store(sizes, 0, one)
    store(sizes, 1, two)
    store(sizes, 2, most)


@jit
def _mean(lanes, indptr, h, eta, inverse, mu):
    for i in range(inverse.size):
        store(mu, i, inverse[i] * _belief(lanes, indptr, h, eta, i))
