"""A solver of one's own: damped Jacobi steps, differentiable and checked like every other solver.

    python examples/new_solver.py

A solver is a frozen record of its settings; ``prepare(J)`` does what depends on J alone. The backward pass is another
solve by the same solver, so nothing has to be said about gradients.
"""

from dataclasses import dataclass

import torch

import walksum as ws
from walksum.solvers.base import Outcome, Prepared, Status, backward_error, norm_inf, worst


@dataclass(frozen=True)
class Jacobi(ws.Solver):
    """mu <- mu + w D^-1 (h - J mu)."""

    damping: float = 0.8
    tol: float = 1e-7
    max_steps: int = 2000

    def prepare(self, J):
        return PreparedJacobi(J, self)


class PreparedJacobi(Prepared):
    keeps_values = False

    def run(self, h):
        J, solver = self.J, self.solver
        inverse = solver.damping / J.diag.unsqueeze(-1)
        mu, size = torch.zeros_like(h), norm_inf(J)
        for step in range(1, solver.max_steps + 1):
            mu = mu + inverse * (h - J @ mu)
            residual = worst(backward_error(J, mu, h, size))
            if residual <= solver.tol:
                return Outcome(mu, Status.converged, step, residual)
        return Outcome(mu, Status.max_steps_reached, solver.max_steps, residual)


torch.manual_seed(0)
graph = ws.Graph.from_edge_index(torch.randint(200, (2, 600)), 200)
x = torch.randn(200, 8, requires_grad=True)
J = ws.FixedLaplacian(0.9)(graph, x)
reports = []
mine, exact = ws.solve(J, x, Jacobi(), observe=reports.append), ws.solve(J, x)
print(f"difference from the exact solution: {(mine - exact).abs().max().item():.1e}, {reports[0].steps} steps")
(mine.sum()).backward()
print("backward:", reports[1])

layer = ws.GLTConv(8, 4, solver=Jacobi())
layer(x, graph).sum().backward()
print("in a layer:", layer.last_solve)
