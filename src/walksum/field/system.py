"""System: what estimators need of J. Its subclass in walksum.distributed does the same across processes."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.field.factors import refuse_indefinite
from walksum.precision import Precision
from walksum.solvers.base import Solver
from walksum.solving import solve


class System:
    """J without gradients, products with it, sums over its nodes and edges, and random numbers for them.

    Attributes:
        J: the values that a product reads.
        num_nodes: of the whole graph.
    """

    def __init__(self, J: Precision):
        self.J, self.num_nodes = J.detach(), J.num_nodes

    def with_values(self, diag: Tensor, off: Tensor) -> System:
        """Another matrix on the same nodes."""
        return type(self)(Precision(self.J.graph, diag, off))

    def own(self, values: Tensor) -> Tensor:
        """``[H, N, ...]`` of the nodes that this process answers for."""
        return values

    def fill(self, values: Tensor) -> Tensor:
        """The other way, ``[H, n, F]``: with rows for the nodes around them."""
        return values

    def product(self, x: Tensor) -> Tensor:
        """``J x`` for ``x [H, n, F]`` of our nodes."""
        return self.J @ x

    def scaled(self) -> tuple[System, Tensor]:
        """``S J S`` with a diagonal about 1, and the diagonal of S ``[H, n]``: powers of two, which round nothing."""
        J, S = balanced(self.J)
        return self.with_values(J.diag, J.off), self.own(S)

    def solve(self, h: Tensor, solver: Solver, on_nonconverged: str = "raise") -> Tensor:
        # scaled: an iteration ends by the largest numbers of a column, beside which those of other nodes may be small
        observe = refuse_indefinite if on_nonconverged == "raise" else None
        system, S = self.scaled()
        S = S.unsqueeze(2)
        return S * solve(system.J, S * h, solver, observe, on_nonconverged)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes of what each has summed over its nodes."""
        return values

    def edge_share(self, values: Tensor) -> Tensor:
        """Values of edges ``[H, E]``, of which the sum over all processes counts every edge once."""
        return values

    def every(self, holds: Tensor) -> bool:
        """Whether it holds everywhere, the same answer in every process."""
        return bool(holds.all())

    def signs(self, probes: int, seed: int) -> Tensor:
        """Random signs ``[H, n, P]``, drawn on the CPU and so the same on every device."""
        generator = torch.Generator().manual_seed(seed)
        shape = (self.J.heads, self.num_nodes, probes)
        bits = torch.randint(2, shape, generator=generator, dtype=torch.int8, device="cpu")
        return (2 * bits - 1).to(device=self.J.device, dtype=self.J.dtype)

    def normals(self, columns: int, seed: int | None, device: torch.device | str) -> Tensor:
        """Standard normal numbers of all nodes, then all edges, ``[H, N + E, F]``; None: by torch's generator."""
        J, generator = self.J, None if seed is None else torch.Generator(device).manual_seed(seed)
        shape = (J.heads, self.num_nodes + J.graph.num_edges, columns)
        return torch.randn(shape, generator=generator, dtype=J.dtype, device=device).to(J.device)


def balanced(J: Precision) -> tuple[Precision, Tensor]:
    """``S J S`` with a diagonal about 1, and the diagonal of S ``[H, N]``: powers of two, which round nothing."""
    i, j = J.graph.edges
    diag = J.diag.detach()
    S = torch.exp2(-torch.round(torch.log2(torch.where(diag > 0, diag, 1.0)) / 2))
    return Precision(J.graph, J.diag * S * S, J.off * S[:, i] * S[:, j]), S


def system_of(J: Precision) -> System:
    """The system of J, in one process or across several."""
    return System(J) if J.graph.system_across is None else J.graph.system_across(J)
