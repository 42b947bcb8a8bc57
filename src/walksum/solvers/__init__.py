"""Solvers of J mu = h, one algorithm a file."""

from __future__ import annotations

from walksum.precision import Precision
from walksum.solvers.base import Prepared, Solution, SolveError, Solver, SolveWarning, Status
from walksum.solvers.cg import CG
from walksum.solvers.chebyshev import Chebyshev
from walksum.solvers.dense import Dense
from walksum.solvers.direct import Direct
from walksum.solvers.gabp import GaBP
from walksum.solvers.hybrid import Hybrid
from walksum.solvers.multigrid import Multigrid
from walksum.solvers.unrolled import Unrolled

SOLVERS: dict[str, type[Solver]] = {
    "gabp": GaBP,
    "cg": CG,
    "dense": Dense,
    "direct": Direct,
    "hybrid": Hybrid,
    "chebyshev": Chebyshev,
    "multigrid": Multigrid,
    "unrolled": Unrolled,
}


def resolve_name(solver: Solver | str) -> Solver | str:
    """The argument itself if it is a solver object or a known name."""
    if not isinstance(solver, Solver) and solver != "auto" and solver not in SOLVERS:
        raise ValueError(f"solver={solver!r}; known: 'auto', {', '.join(map(repr, SOLVERS))}, or a solver object")
    return solver


def resolve(solver: Solver | str, J: Precision) -> Solver:
    """A solver object from an object or a name."""
    solver = resolve_name(solver)
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return Dense() if J.num_nodes <= 256 else CG()
    return SOLVERS[solver]()


__all__ = ["Solver", "Prepared", "Solution", "Status", "SolveError", "SolveWarning"]
__all__ += ["GaBP", "CG", "Dense", "Direct", "Hybrid", "Chebyshev", "Multigrid", "Unrolled"]
__all__ += ["SOLVERS", "resolve", "resolve_name"]
