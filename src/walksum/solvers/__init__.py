"""Solvers of J mu = h, one algorithm per file."""

from __future__ import annotations

from walksum._checks import check_choice
from walksum.precision import Precision
from walksum.solvers.auto import Choice, choose
from walksum.solvers.base import Prepared, Solution, SolveError, Solver, SolveWarning, Status
from walksum.solvers.cg.solver import CG
from walksum.solvers.chebyshev import Chebyshev
from walksum.solvers.dense import Dense
from walksum.solvers.direct import Direct
from walksum.solvers.gabp.solver import GaBP
from walksum.solvers.hybrid import Hybrid
from walksum.solvers.inverse import Inverse
from walksum.solvers.multigrid import Multigrid
from walksum.solvers.unrolled import Unrolled

SOLVERS: dict[str, type[Solver]] = {
    "gabp": GaBP,
    "cg": CG,
    "dense": Dense,
    "inverse": Inverse,
    "direct": Direct,
    "hybrid": Hybrid,
    "chebyshev": Chebyshev,
    "multigrid": Multigrid,
    "unrolled": Unrolled,
}


def resolve_name(solver: Solver | str) -> Solver | str:
    """The argument itself if it is a solver object or a known name."""
    if not isinstance(solver, Solver):
        check_choice("solver", solver, ("auto", *SOLVERS), "or a solver object")
    return solver


def resolve(solver: Solver | str, J: Precision, columns: int) -> Solver:
    """A solver object from an object or a name; "auto" chooses for so many columns per head."""
    if solver == "auto":
        return choose(J, columns).solver
    solver = resolve_name(solver)
    return solver if isinstance(solver, Solver) else SOLVERS[solver]()


__all__ = ["Solver", "Prepared", "Solution", "Status", "SolveError", "SolveWarning"]
__all__ += ["GaBP", "CG", "Dense", "Inverse", "Direct", "Hybrid", "Chebyshev", "Multigrid", "Unrolled"]
__all__ += ["SOLVERS", "Choice", "choose", "resolve", "resolve_name"]
