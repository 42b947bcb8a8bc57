"""Samples of N(0, J^-1): by the factor, or by perturbing and solving where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from walksum._torch import outside_transforms
from walksum.field.factors import SOLVERS, choose_method, factorise, in_range, working_copy
from walksum.field.report import Observer, Reporter
from walksum.field.system import System, system_of
from walksum.graph import Graph
from walksum.ops import OverHeads, edge_dot, spmm, zeros_if_none
from walksum.precision import Precision
from walksum.solvers.cg.solver import CG
from walksum.solving import differentiated, solve


def sample(
    J: Precision,
    sample_shape: Sequence[int] = (),
    method: str = "auto",
    seed: int | None = None,
    observe: Observer | None = None,
) -> Tensor:
    r"""Samples of the zero-mean Gaussian with precision J, ``[*sample_shape, H, N]``, differentiable in J.

    The exact methods solve with one half of the factor. Beyond them ("estimated") a sample is :math:`J^{-1} B \xi` with
    :math:`B B^\top = J` and a solve by conjugate gradients: exact up to the tolerance of the solve, for every
    walk-summable J, on every device.

    The gradient is the pathwise derivative :math:`dx = -\tfrac12 J^{-1} dJ\, x` (as for Gamma and Dirichlet in
    torch, it moves samples so that their distribution follows J): expectations have unbiased gradients.

    Args:
        J: positive definite.
        sample_shape: leading shape.
        method: "auto", "elimination", "dense" or "estimated".
        seed: None takes torch's global generator.
        observe: called with the :class:`walksum.field.Report`.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.sample(J, (1000,), seed=0).var(0)  # about the diagonal of the inverse: 0.75, 1, 0.75
        tensor([[0.7850, 1.0244, 0.7183]])
    """
    report, way = Reporter("sample", observe), choose_method(J, method)
    count = int(torch.Size(sample_shape).numel())
    x = centred_columns(J, count, way, seed)
    report(way)
    return x.permute(2, 0, 1).reshape(*sample_shape, J.heads, x.size(1))


def centred_columns(J: Precision, columns: int, way: str, seed: int | None = None) -> Tensor:
    """Samples as columns ``[H, N, columns]``, in the dtype and on the device of J."""
    work = working_copy(J, way)
    if J.graph.system_across is not None:
        system = system_of(work)
        x = _perturbed(system, system.normals(columns, seed, J.device))
        return in_range(_follow_across(work, x, way), J.diag)
    rows = J.num_nodes + (J.graph.num_edges if way == "estimated" else 0)
    shape, generator = (J.heads, rows, columns), None if seed is None else torch.Generator(J.device).manual_seed(seed)
    draw = partial(torch.randn, shape, generator=generator, dtype=J.dtype, device=J.device)
    z = draw() if seed is None else outside_transforms(draw)  # a seed asks for the same numbers, also under vmap
    z = z.to(device=work.device, dtype=work.dtype)
    if J.num_nodes:
        z = _Draw.apply(work.diag.detach(), work.off.detach(), z, work.graph, work.prepared, way)
    return in_range(follow(work, z, way), J.diag)


class _Draw(OverHeads):
    """Samples made of noise, without derivatives; a Function, so that transforms of torch.func reach its numbers."""

    @staticmethod
    def forward(diag: Tensor, off: Tensor, z: Tensor, graph: Graph, memo: dict, way: str) -> Tensor:
        if way == "estimated":
            return _perturbed(system_of(Precision.trusted(graph, diag, off)), z)
        return factorise(graph, diag, off, memo, way).half_solve(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return (None,) * 6

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None


def follow(J: Precision, x: Tensor, way: str) -> Tensor:
    r"""x itself, with the derivative :math:`-\frac12 J^{-1} dJ x` by which a sample follows J.

    A velocity v(x) = A x moves N(0, S) as J changes if A S + S A^T = dS = -S dJ S; A = -S dJ / 2 does.
    """
    return _Follow.apply(J.diag, J.off, x, J.graph, J.prepared, way) if differentiated(J, x) else x


class _Follow(OverHeads):
    # The output is what moves, so that derivatives of this rule see it move too: second derivatives of expectations are
    # unbiased as the first are.
    @staticmethod
    def forward(diag: Tensor, off: Tensor, x: Tensor, graph: Graph, memo: dict, way: str) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        diag, off, _, *ctx.rest = inputs
        ctx.save_for_backward(diag, off, output)
        ctx.save_for_forward(diag, off, output)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        diag, off, x = ctx.saved_tensors
        d_diag, d_off, d_x = (zeros_if_none(t, like) for t, like in zip(tangents, (diag, off, x), strict=False))
        return d_x - _solved(diag, off, spmm(ctx.rest[0], d_diag, d_off, x), *ctx.rest) / 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        diag, off, x = ctx.saved_tensors
        g = -0.5 * _solved(diag, off, grads[0], *ctx.rest)
        return torch.linalg.vecdot(g, x), edge_dot(ctx.rest[0], g, x), grads[0], None, None, None


def _solved(diag: Tensor, off: Tensor, h: Tensor, graph: Graph, memo: dict, way: str) -> Tensor:
    J = Precision.trusted(graph, diag, off)
    J.prepared = memo
    return solve(J, h, SOLVERS[way], on_nonconverged="raise")


def _follow_across(J: Precision, x: Tensor, way: str) -> Tensor:
    """The first derivative alone, where processes hold the neighbours of their nodes too."""
    if not differentiated(J, x):
        return x
    with torch.no_grad():
        h = system_of(J).product(x)
    moving = solve(J, h, SOLVERS[way], on_nonconverged="raise")  # is x, and has the derivative -J^-1 dJ x
    return x + (moving - moving.detach()) / 2


def _perturbed(system: System, noise: Tensor) -> Tensor:
    """``J^-1 B xi`` with ``B B^T = J``."""
    root = dominant_root(system)
    if root is None:
        raise ValueError(
            "J is not walk-summable, so it has no sparse square root on its edges; "
            "use method='elimination' or 'dense' to sample from it"
        )
    return system.solve(system.own(root(noise)), SOLVERS["estimated"])


class DominantRoot:
    r"""B with :math:`B B^\top = J`, from a scaling v for which every row of V J V is dominant.

    An edge has the column :math:`\sqrt{|J_{ij}| v_i v_j}\,(e_i / v_i \pm e_j / v_j)`, a node the rest of its diagonal.
    """

    def __init__(self, J: Precision, scale: Tensor):
        self.ends, self.scale = J.graph.edges, scale
        i, j = self.ends
        off = J.off * scale[:, i] * scale[:, j]
        self.edge, self.sign = off.abs().sqrt(), off.sign()
        slack = J.diag * scale.square()
        self.slack = slack.index_add(1, i, -off.abs()).index_add(1, j, -off.abs())

    def __call__(self, noise: Tensor) -> Tensor:
        """``B xi`` for xi ``[H, N + E, F]``."""
        (i, j), nodes = self.ends, self.scale.size(1)
        u = self.slack.sqrt().unsqueeze(2) * noise[:, :nodes]
        at_edges = self.edge.unsqueeze(2) * noise[:, nodes:]
        u = u.index_add(1, i, at_edges).index_add(1, j, self.sign.unsqueeze(2) * at_edges)
        return u / self.scale.unsqueeze(2)


def dominant_root(system: System) -> DominantRoot | None:
    """The root of a walk-summable J; None if there is none."""
    J = system.J
    root = DominantRoot(J, torch.ones_like(J.diag))
    if system.every(system.own(root.slack) >= 0):
        return root
    # (D - |A|) v = diag has a positive solution if and only if J is walk-summable, and v makes the rows dominant
    comparison, diag = system.with_values(J.diag, -J.off.abs()), system.own(J.diag).unsqueeze(2)
    v = system.fill(comparison.solve(diag, CG(max_steps=2000), on_nonconverged="ignore")).squeeze(2)
    if not system.every(torch.isfinite(v) & (v > 0)):
        return None
    root = DominantRoot(J, v)
    return root if system.every(system.own(root.slack) >= 0) else None
