"""Which exact method serves a J, and the factor it makes: elimination on the CPU, dense Cholesky anywhere."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from walksum._checks import check_choice
from walksum._torch import unwrapped
from walksum.backends.cpu.ldl import symbolic as elimination
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.base import Solution, Solver, Status
from walksum.solvers.cg.solver import CG
from walksum.solvers.dense import Dense, PreparedDense
from walksum.solvers.direct import Direct
from walksum.solving import _Preparations

METHODS = ("auto", "elimination", "dense", "estimated")
OPERATIONS = 3e10  # multiply-adds of a factorisation up to which "auto" eliminates: some five seconds
DENSE_ON_CPU, DENSE_ON_GPU = 5000, 16_000  # nodes up to which "auto" takes a dense matrix
NEARLY_DENSE = 0.1  # share of a dense factorisation's work from which LAPACK is quicker than sparse elimination
ROUNDING = 4 * torch.finfo(torch.float64).eps  # of a pivot beside its J_ii, for each root of a node
SOLVERS: dict[str, Solver] = {"elimination": Direct(max_operations=1e15), "dense": Dense(), "estimated": CG()}


class GaussianFactor(Protocol):
    """What a Gaussian needs of a factorisation, all in float64."""

    @property
    def failure(self) -> Status | None: ...
    def logdet(self) -> Tensor: ...  # [H]
    def selected_inverse(self) -> tuple[Tensor, Tensor]: ...  # [H, N], [H, E]
    def half_solve(self, z: Tensor) -> Tensor: ...  # [H, N, F], covariance J^-1


class DenseFactor:
    """``J = L L^T`` as a dense matrix."""

    def __init__(self, prepared: PreparedDense):
        self.prepared, self.L = prepared, prepared.factor

    @property
    def failure(self) -> Status | None:
        if not self.prepared.failed:
            return None
        return Status.not_positive_definite if self.prepared.finite else Status.nonfinite

    def logdet(self) -> Tensor:
        return 2 * self.L.diagonal(dim1=1, dim2=2).log().sum(1)

    def selected_inverse(self) -> tuple[Tensor, Tensor]:
        inverse = torch.cholesky_inverse(self.L)
        i, j = self.prepared.J.graph.edges
        # a copy: a view would keep the whole inverse, and forward mode wants results of the usual strides
        return inverse.diagonal(dim1=1, dim2=2).clone(memory_format=torch.contiguous_format), inverse[:, i, j]

    def half_solve(self, z: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.L.mT, z, upper=True)

    def singular(self, diag: Tensor) -> bool:
        """Whether a pivot is rounding beside its J_ii, which grows with the root of the nodes, as elimination tells."""
        pivots = self.L.diagonal(dim1=1, dim2=2).square()
        return bool((pivots <= ROUNDING * diag.size(1) ** 0.5 * diag).any())


def check_kind(J: Any) -> None:
    if not isinstance(J, Precision):
        raise ValueError(
            f"J is a {type(J).__name__}; expected a walksum.Precision (Precision.from_scipy makes one of a matrix)"
        )


def choose_method(J: Precision, method: str = "auto") -> str:
    """ "elimination", "dense" or "estimated" for this J."""
    check_choice("method", method, METHODS)
    check_kind(J)
    if J.graph.system_across is not None:
        if method in ("elimination", "dense"):
            raise ValueError(f"method={method!r} works in one process; across processes use method='estimated'")
        return "estimated"
    # of no nodes nothing is estimated
    return J.graph.derived(_choose) if method == "auto" or not J.num_nodes else method


def _choose(graph: Graph) -> str:
    nodes = graph.num_nodes
    if graph.device.type != "cpu" and nodes <= DENSE_ON_GPU:
        return "dense"
    found = elimination.symbolic(graph.to("cpu"), OPERATIONS)
    dense_work = NEARLY_DENSE * nodes**3 / 3
    if nodes <= DENSE_ON_CPU and (found is None or (nodes > 32 and found.operations > dense_work)):
        return "dense"
    return "estimated" if found is None else "elimination"


def in_working_precision(J: Precision, method: str) -> Precision:
    """J in float64 for an exact method; J itself where it is so already."""
    return J if method == "estimated" or J.dtype == torch.float64 else J.to(torch.float64)


def working_copy(J: Precision, method: str) -> Precision:
    """J where and in the precision its method wants it; J itself where it is so already."""
    J = in_working_precision(J, method)
    return J.to("cpu") if method == "elimination" and J.device.type != "cpu" else J


def factorise(graph: Graph, diag: Tensor, off: Tensor, memo: dict[Any, Any], method: str) -> GaussianFactor:
    """The factor of these values, shared with every solve by the same solver; a ValueError if there is none."""
    prepared: Any = _Preparations(graph, memo, SOLVERS[method], may_replace=False).get(diag, off, 1)
    factor: GaussianFactor = prepared.supernodal if method == "elimination" else DenseFactor(prepared)
    if factor.failure is not None:
        refuse(factor.failure)
    if isinstance(factor, DenseFactor) and factor.singular(diag):
        refuse(Status.not_positive_definite)
    return factor


def in_range(values: Tensor, like: Tensor) -> Tensor:
    """Values in the dtype and on the device of ``like``; a ValueError where they do not fit into it."""
    found = values.to(device=like.device, dtype=like.dtype)
    plain = unwrapped(found)
    if plain is not None and not bool(torch.isfinite(plain).all()):
        raise ValueError(
            f"a result lies beyond the largest number of {found.dtype}, {torch.finfo(found.dtype).max:.1e}; "
            "use J.to(torch.float64), or scale J up"
        )
    return found


def refuse_indefinite(solution: Solution) -> None:
    """For ``observe=``: an iteration that finds J indefinite says so in the words of a factorisation."""
    if solution.status is Status.not_positive_definite:
        refuse(solution.status)


def refuse(status: Status) -> None:
    """Say that no Gaussian has this J."""
    if status is Status.nonfinite:
        raise ValueError("J contains NaN or infinity; check the parameters of the design that made it")
    raise ValueError(
        "J is not positive definite, so it is no precision matrix of a Gaussian; "
        "enlarge its diagonal or scale the couplings down. An intrinsic field, whose J is semi-definite, can be "
        "conditioned on noisy observations, or constrained by the A whose rows span its null space: "
        "GaussianField(J, validate_args=False).condition(nodes, values, noise) or .constrain(A)"
    )
