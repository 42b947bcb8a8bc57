"""A sparse square root of a walk-summable J: one column for each edge and each node."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.field.system import System
from walksum.precision import Precision
from walksum.solvers.cg.solver import CG


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
