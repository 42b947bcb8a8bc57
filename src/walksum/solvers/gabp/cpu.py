"""GaBP on a CPU: one fused pass over the messages per step, blocks of columns on their own."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.gabp import InformationMessages, PrecisionMessages
from walksum.backends.cpu.gabp_sequential import solve
from walksum.backends.cpu.pointers import blank
from walksum.backends.cpu.products import backward_error
from walksum.backends.cpu.simd import lanes_for
from walksum.backends.cpu.tiling import Workspace, fitting, for_blocks, rows, view
from walksum.solvers.base import Outcome, Status, status_of, worst
from walksum.solvers.gabp.solver import BLOW_UP, Damping, PreparedGaBP

IDLE = 2  # looks without progress after which messages are at rest,
PAUSE = 16  # with so many steps between them
PI_SWEEPS = 1000  # sweeps that pi may take in any case: max_steps counts those of eta
LONGEST = 32  # steps at most between two looks at the change of the messages
FROM_BEST = (Status.converged, Status.stalled, Status.max_steps_reached, Status.diverged)


class PreparedFusedGaBP(PreparedGaBP):
    def _start(self) -> list[PrecisionMessages]:
        return [PrecisionMessages(self.J.graph, *values) for values in zip(self.J.diag, self.J.off, strict=True)]

    @cached_property
    def _fixed_point(self) -> tuple[list[PrecisionMessages], bool]:
        """pi of every head, iterated once to its fixed point; False if J is not walk-summable."""
        heads = self._start()
        valid = [pi.converge(max(PI_SWEEPS, self.solver.max_steps)) for pi in heads]
        return heads, all(valid)

    def _precisions(self) -> tuple[Tensor, bool]:
        heads, valid = self._fixed_point
        return torch.from_numpy(np.stack([pi.alpha for pi in heads])), valid and all(pi.converged for pi in heads)

    def _by_residual(self, h: Tensor) -> tuple[Tensor, Status, int]:
        heads, valid = self._fixed_point
        if not valid:
            return torch.full_like(h, torch.nan), Status.diverged, 0
        mu, H = h.new_empty(h.shape), view(h)

        def block(head: int, start: int, stop: int) -> tuple[Status, int]:
            messages = InformationMessages(heads[head], H[head, :, start:stop])
            outcome, steps = self._iterate(messages, head)
            mu.numpy()[head, :, start:stop] = messages.mean(heads[head].alpha)
            return outcome, steps

        width = fitting(4 * self.J.graph.num_edges * h.element_size())  # a step of a column: two sets of messages
        done = for_blocks(block, h.size(0), h.size(2), 50.0 * (h.size(1) + 2 * self.J.graph.num_edges), width)
        return mu, max((status for status, _ in done), key=FROM_BEST.index), max(steps for _, steps in done)

    def _iterate(self, messages: InformationMessages, head: int) -> tuple[Status, int]:
        tol, damping, trigger = self.solver.tol, Damping(self.solver.damping), 30 * self.solver.tol
        steps, count, last, best, idle = 0, 1, math.inf, math.inf, 0
        rest = 64 * float(np.finfo(messages.h.dtype).eps)
        while steps < self.solver.max_steps:
            count = min(count, self.solver.max_steps - steps)
            change, two_steps, belief = messages.step(damping.weight, count)
            steps += count
            if not change < BLOW_UP:
                return Status.diverged, steps
            relative = change / belief if belief > 0 else 0.0
            # changes near rounding that no longer fall: the residual will not fall much further either
            idle = idle + 1 if 0.9 * best < relative < rest else 0
            if relative <= trigger or idle:
                error = self._block_error(messages, head)
                if error <= tol:
                    return Status.converged, steps
                if idle == IDLE or not error < math.inf:  # the mean overflows
                    return Status.stalled, steps
                trigger = relative * max(0.9 * tol / error, 0.01)  # both fall together
            damping.watch(change, two_steps)
            count = PAUSE if idle else _steps_to(trigger, relative, last, count)
            last, best = relative, min(best, relative)
        return Status.max_steps_reached, steps

    def _block_error(self, messages: InformationMessages, head: int) -> float:
        mu = torch.from_numpy(messages.mean(messages.pi.alpha)).unsqueeze(0)
        h = torch.from_numpy(messages.h[:, : messages.columns]).unsqueeze(0)
        J, one = self.J, slice(head, head + 1)
        return worst(backward_error(J.graph, J.diag[one], J.off[one], mu, h, self.J_norm[one]))

    def _by_messages(self, h: Tensor) -> tuple[Tensor, Status, int]:
        messages = JointMessages(self._start(), h)
        outcome, steps = self._messages_rule(messages, self.solver.tol)
        return messages.mean(), outcome, steps


class JointMessages:
    """pi and eta of all heads and columns, updated together: the fused form of :class:`Messages`."""

    def __init__(self, heads: list[PrecisionMessages], h: Tensor):
        self.heads, self.h, H = heads, h, view(h)

        def block(head: int, start: int, stop: int) -> tuple[int, int, int, InformationMessages]:
            return head, start, stop, InformationMessages(heads[head], H[head, :, start:stop])

        self.blocks = for_blocks(block, h.size(0), h.size(2), 0)
        self.by_start = {(head, start): messages for head, start, _, messages in self.blocks}

    def step(self, damping: float) -> tuple[Tensor, Tensor]:
        """One synchronous update; the largest undamped changes of pi and of eta."""
        d_pi = [pi.step(damping) for pi in self.heads]

        def block(head: int, start: int, stop: int) -> float:
            return self.by_start[head, start].step(damping)[0]

        d_eta = for_blocks(block, self.h.size(0), self.h.size(2), self.h.size(1) + 2 * self.heads[0].J.size)
        return torch.from_numpy(np.array(d_pi, float)), torch.from_numpy(np.array(d_eta, float))

    def mean(self) -> Tensor:
        mu = self.h.new_empty(self.h.shape)
        for head, start, stop, messages in self.blocks:
            mu.numpy()[head, :, start:stop] = messages.mean(self.heads[head].marginal())
        return mu


def _steps_to(target: float, now: float, before: float, count: int) -> int:
    """Steps until a change that fell from ``before`` to ``now`` in ``count`` steps reaches ``target``, cautiously."""
    if not 0 < now < before < math.inf or now <= target:
        return 1
    rate = math.log(before / now) / count
    return max(1, min(LONGEST, int(0.9 * math.log(now / target) / rate)))


# outcomes of the kernel
OUTCOMES = (Status.converged, Status.stalled, Status.max_steps_reached, Status.diverged, Status.nonfinite)


class PreparedSequentialGaBP(PreparedFusedGaBP):
    def run(self, h: Tensor) -> Outcome:
        failure = self._failure()
        if failure is not None:
            return Outcome.failed(h, failure)
        heads, G, workspace = self._fixed_point[0], rows(self.J.graph), Workspace()
        order = self.J.graph.derived(_natural_order)
        pattern, mu, H = (G.indptr, G.indices, G.edge, G.reverse), blank(h.contiguous()), view(h)
        off, diag, norm, X = view(self.J.off), view(self.J.diag), view(self.J_norm), mu.numpy()
        knobs = float(self.solver.damping), float(self.solver.tol), int(self.solver.max_steps)
        gains = [(pi.gain, 1 / pi.alpha) for pi in heads]

        def block(head: int, start: int, stop: int) -> tuple[int, int, float]:
            lanes, J = lanes_for(stop - start), (off[head], diag[head], float(norm[head]))
            work = workspace.array(2 * h.size(1) + G.indices.size, lanes.itemsize * 8, dtype=H.dtype)
            return solve(lanes, work, H[head], X[head], start, stop, order, pattern, gains[head], J, *knobs)

        width = fitting(2 * self.J.graph.num_edges * h.element_size())
        done = for_blocks(block, h.size(0), h.size(2), 50.0 * (h.size(1) + 2 * self.J.graph.num_edges), width)
        codes, steps, errors = zip(*done, strict=True)
        return self._outcome(mu, OUTCOMES[max(codes)], max(steps), float(np.max(errors)))

    def _failure(self) -> Status | None:
        if not self.positive:
            return Status.not_positive_definite if self.finite else Status.nonfinite
        return None if self._fixed_point[1] else Status.diverged

    def _outcome(self, mu: Tensor, status: Status, steps: int, residual: float) -> Outcome:
        if status in (Status.nonfinite, Status.diverged):
            value = mu if status is Status.diverged else torch.full_like(mu, torch.nan)
            return Outcome(value, status, steps, residual)
        return Outcome(mu, status_of(residual, self.solver.tol, status), steps, residual)


def _natural_order(graph) -> np.ndarray:
    return np.arange(graph.num_nodes, dtype=rows(graph).indices.dtype)
