"""The yardstick: Algorithm 1 as a user of PyG would write it, in index_select and index_add.

All messages of all columns are held (2E x heads x F), every step updates all of them, looks at the largest
change and goes on. The backward pass is the same algorithm on dL/dmu, with edge gradients by gathering.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

DAMPING, TOL, MAX_STEPS = 0.5, 1e-6, 1000  # the paper's


class Directed(NamedTuple):
    """Both directions of every edge, sorted by source as PyG sorts them; ``reverse[e]`` is e's opposite."""

    source: Tensor
    target: Tensor
    edge: Tensor
    reverse: Tensor


def directed(edges: Tensor) -> Directed:
    """``[2, E]``, each edge once -> 2E directed edges. Depends on the graph alone: never timed."""
    count = edges.size(1)
    source, target = torch.cat([edges, edges.flip(0)], 1)
    order = torch.argsort(source * (int(edges.max()) + 1) + target)
    place = torch.empty_like(order)
    place[order] = torch.arange(2 * count, device=edges.device)
    return Directed(source[order], target[order], order % count, place[(order + count) % (2 * count)])


def gabp(
    graph: Directed,
    diag: Tensor,
    off: Tensor,
    h: Tensor,
    damping: float = DAMPING,
    tol: float = TOL,
    max_steps: int = MAX_STEPS,
) -> tuple[Tensor, int]:
    """Algorithm 1: diag ``[H, N]``, off ``[H, E]``, h ``[H, N, F]`` -> mu ``[H, N, F]`` and the steps taken."""
    J_diag, J_edge = diag.t(), off.t().index_select(0, graph.edge)  # [N, H], [2E, H]: heads inside, as in PyG
    h = h.transpose(0, 1).contiguous()  # [N, H, F]
    pi, eta = torch.zeros_like(J_edge), h.new_zeros(*J_edge.shape, h.size(-1))
    for steps in range(1, max_steps + 1):
        alpha = _cavity(J_diag, pi, graph)
        beta = _cavity(h, eta, graph)
        gain = -J_edge / alpha
        d_pi = gain * J_edge - pi
        d_eta = gain.unsqueeze(-1) * beta - eta
        pi = pi + damping * d_pi
        eta = eta + damping * d_eta
        if bool(d_pi.abs().max() <= tol) and bool(d_eta.abs().max() <= tol):
            break
    precision, information = J_diag.index_add(0, graph.target, pi), h.index_add(0, graph.target, eta)
    return (information / precision.unsqueeze(-1)).transpose(0, 1), steps


def _cavity(own: Tensor, message: Tensor, graph: Directed) -> Tensor:
    """For every i -> j: ``own_i`` plus the messages into i, less the one from j."""
    total = own.index_add(0, graph.target, message)
    return total.index_select(0, graph.source) - message.index_select(0, graph.reverse)


class Yardstick(torch.autograd.Function):
    """``mu = Yardstick.apply(diag, off, h, edges, directed(edges), steps)``; ``steps`` is a list to append to."""

    @staticmethod
    def forward(ctx: Any, diag: Tensor, off: Tensor, h: Tensor, edges: Tensor, graph: Directed, steps: list) -> Tensor:
        mu, taken = gabp(graph, diag, off, h)
        ctx.save_for_backward(diag, off, mu, edges)
        ctx.graph, ctx.steps = graph, steps
        steps.append(taken)
        return mu

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        diag, off, mu, (i, j) = ctx.saved_tensors
        g, taken = gabp(ctx.graph, diag, off, grads[0])
        ctx.steps.append(taken)
        d_off = -(g[:, i] * mu[:, j]).sum(-1) - (g[:, j] * mu[:, i]).sum(-1)
        return -(g * mu).sum(-1), d_off, g, None, None, None
