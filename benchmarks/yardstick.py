"""The paper's Algorithm 1 in torch: as a user of PyG writes it (the yardstick), and as one who tunes it writes it.

Both hold all messages of all columns (2E x heads x F), update all of them in every step, look at the largest change
and stop by the paper's rule; the backward pass is the same algorithm on dL/dmu, with edge gradients by gathering.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
    """``[2, E]``, each edge once -> 2E directed edges. Depends on the graph alone."""
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


class Incidence(NamedTuple):
    """Both directions of every edge, sorted by target, and the matrix ``[N, 2E]`` that adds up each node's messages."""

    source: Tensor
    edge: Tensor
    reverse: Tensor
    into: Tensor  # sparse CSR of ones


def incidence(edges: Tensor, num_nodes: int) -> Incidence:
    """``[2, E]``, each edge once -> 2E directed edges in the order in which they are added up."""
    plain, count = directed(edges), 2 * edges.size(1)
    order = torch.argsort(plain.target, stable=True)
    place = torch.empty_like(order)
    place[order] = slots = torch.arange(count, device=edges.device)
    start = torch.zeros(num_nodes + 1, dtype=torch.int64, device=edges.device)
    torch.cumsum(torch.bincount(plain.target, minlength=num_nodes), 0, out=start[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "sparse CSR is in beta state"
        into = torch.sparse_csr_tensor(start, slots, torch.ones(count, device=edges.device), (num_nodes, count))
    return Incidence(plain.source[order], plain.edge[order], place[plain.reverse[order]], into)


def tuned_gabp(
    graph: Incidence,
    diag: Tensor,
    off: Tensor,
    h: Tensor,
    damping: float = DAMPING,
    tol: float = TOL,
    max_steps: int = MAX_STEPS,
) -> tuple[Tensor, int]:
    """The same steps as :func:`gabp`: sums by one CSR product, messages updated in place."""
    (heads, nodes, columns), slots = h.shape, graph.source.numel()
    into = graph.into if graph.into.dtype == h.dtype else graph.into.to(h.dtype)
    J_diag, J_edge = diag.t().contiguous(), off.t().index_select(0, graph.edge)
    h = h.transpose(0, 1).reshape(nodes, heads * columns)
    pi, eta = torch.zeros_like(J_edge), h.new_zeros(slots, heads * columns)
    for steps in range(1, max_steps + 1):
        alpha = torch.addmm(J_diag, into, pi).index_select(0, graph.source).sub_(pi.index_select(0, graph.reverse))
        d_eta = torch.addmm(h, into, eta).index_select(0, graph.source).sub_(eta.index_select(0, graph.reverse))
        gain = alpha.reciprocal_().mul_(J_edge).neg_()
        d_pi = gain * J_edge - pi
        d_eta.view(slots, heads, columns).mul_(gain.unsqueeze(-1))
        d_eta.sub_(eta)
        pi.add_(d_pi, alpha=damping)
        eta.add_(d_eta, alpha=damping)
        low, high = torch.aminmax(d_eta)
        if bool((torch.stack([d_pi.abs().max(), high, -low]) <= tol).all()):
            break
    precision, information = torch.addmm(J_diag, into, pi), torch.addmm(h, into, eta)
    return (information.view(nodes, heads, columns) / precision.unsqueeze(-1)).transpose(0, 1), steps


Algorithm = Callable[..., tuple[Tensor, int]]  # gabp or tuned_gabp


class Implicit(torch.autograd.Function):
    """``mu = Implicit.apply(diag, off, h, edges, solve, steps)``: the implicit gradient of any ``solve(diag, off, h)``.

    ``solve`` returns mu and the steps it took; ``steps`` is a list to append them to.
    """

    @staticmethod
    def forward(ctx: Any, diag: Tensor, off: Tensor, h: Tensor, edges: Tensor, solve: Algorithm, steps: list) -> Tensor:
        mu, taken = solve(diag, off, h)
        ctx.save_for_backward(diag, off, mu, edges)
        ctx.solve, ctx.steps = solve, steps
        steps.append(taken)
        return mu

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        diag, off, mu, (i, j) = ctx.saved_tensors
        g, taken = ctx.solve(diag, off, grads[0])
        ctx.steps.append(taken)
        d_off = -(g[:, i] * mu[:, j]).sum(-1) - (g[:, j] * mu[:, i]).sum(-1)
        return -(g * mu).sum(-1), d_off, g, None, None, None
