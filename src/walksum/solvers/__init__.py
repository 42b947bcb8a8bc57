"""Solvers of J mu = h, one algorithm a file."""

from __future__ import annotations

from walksum.precision import Precision
from walksum.solvers.base import Prepared, Solution, SolveError, Solver, SolveWarning, Status
from walksum.solvers.cg import CG
from walksum.solvers.dense import Dense
from walksum.solvers.direct import Direct
from walksum.solvers.gabp import GaBP
from walksum.solvers.hybrid import Hybrid
from walksum.solvers.unrolled import Unrolled

SOLVERS: dict[str, type[Solver]] = {"gabp": GaBP, "cg": CG, "dense": Dense, "unrolled": Unrolled}
SOLVERS |= {"direct": Direct, "hybrid": Hybrid}


def resolve(solver: Solver | str, J: Precision) -> Solver:
    """A solver object from an object or a name."""
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return Dense() if J.num_nodes <= 256 else CG()
    if solver not in SOLVERS:
        raise ValueError(f"solver={solver!r}; known: 'auto', {', '.join(map(repr, SOLVERS))}, or a solver object")
    return SOLVERS[solver]()


__all__ = ["Solver", "Prepared", "Solution", "Status", "SolveError", "SolveWarning"]
__all__ += ["GaBP", "CG", "Dense", "Unrolled", "Direct", "Hybrid", "SOLVERS", "resolve"]
