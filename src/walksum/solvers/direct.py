"""Direct: minimum-degree sparse LDL^T. Exact; the fastest where elimination fills in little."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dataclasses import dataclass
from walksum.kernels import elimination, ldl, triangular
from walksum.kernels.parallel import WORTH_A_THREAD, over_columns
from walksum.precision import Precision
from walksum.solvers.base import Prepared, Solver, Status, check_positive, default_tol, judge

OUTCOME = {ldl.INDEFINITE: Status.not_positive_definite, ldl.NONFINITE: Status.nonfinite}


@dataclass(frozen=True)
class Direct(Solver):
    refine: int = 0
    budget: float = 2e10

    def prepare(self, J: Precision) -> Prepared:
        return PreparedDirect(J, self)


class PreparedDirect(Prepared):
    def __init__(self, J: Precision, solver: Direct):
        super().__init__(J, solver.name)
        plan = elimination.symbolic(J.graph, solver.budget)
        self.plan = plan
        self.diag, self.off = J.diag.detach().contiguous().numpy(), J.off.detach().contiguous().numpy()
        H, N = self.diag.shape
        self.factor, self.pivots = np.empty((H, len(plan.rows))), np.empty((H, N))
        dtype=self.diag.dtype
        self.sf, self.si = np.empty((H, plan.fill), dtype), np.empty((H, plan.eliminated), dtype)
        self.norms = np.empty(H)
        groups = 1 if H==1 else -(-H//8)
        self.args=(plan.eliminated, self.diag, self.off, plan.pattern, plan.matrix, self.factor, self.pivots, self.sf, self.si, self.norms)
        self.outcome = ldl.factorise(0, groups, *self.args)

    def run(self, h: Tensor) -> tuple[Tensor, Status, int, float]:
        hn = h.contiguous().numpy()
        mu = np.empty_like(hn)
        p=self.plan
        H,N,F=hn.shape
        err = triangular.solve(0, H*(-(-F//32)), hn, mu, self.sf, self.si, p.sweeps, self.diag, self.off, p.matrix, self.norms)
        return torch.from_numpy(mu), judge(err, default_tol(None, h.dtype), Status.stalled), 0, err
