"""A field on a subspace: linear constraints A x = e that hold in every sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from scipy.linalg import qr
from torch import Tensor
from torch.distributions import Distribution, constraints

from walksum._torch import outside_transforms, unwrapped
from walksum.field.conditioning import in_double
from walksum.field.factors import refuse
from walksum.field.observations import LOG_2PI, as_tensor, check_nodes, check_observations, is_finite
from walksum.precision import Precision
from walksum.solvers.base import Status

if TYPE_CHECKING:
    from walksum.field.distribution import GaussianField


SINGULAR = 1e-13  # of a pivot, of which one means that nothing was taken from a variance


class ConstrainedField(Distribution):
    r"""The Gaussian given :math:`A x = e` exactly, by kriging; made by :meth:`GaussianField.constrain`.

    .. math::
        x = z - B (A z - e), \qquad z \sim \mathcal{N}(\mu, J^{-1}), \quad B = J^{-1} A^\top (A J^{-1} A^\top)^{-1}

    An intrinsic J has no inverse, and one that is nearly singular along A would cancel all digits. So a larger diagonal
    at as many nodes as A has rows makes J definite first, and what that takes from the covariance is put back.
    """

    arg_constraints = {}  # noqa: RUF012
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, field: GaussianField, A: Any, e: Any):
        # With U the columns sqrt(w) e_i of the grounded nodes, K = J + U U^T, B = K^-1 A^T (A K^-1 A^T)^-1 and
        # C = K^-1 - B A K^-1, Woodbury's identity within the subspace says: the covariance is C + F F^T, F = C U L^-T
        # with L L^T = I - U^T C U, its pseudo-determinant that of C over |L|^2, and the mean moves by B + F L^-1 U^T B.
        self._field, self._like, self.prior = field, field._like, in_double(field)
        self.A, self.e = _check_constraints(self.prior, A, e)
        rows = self.prior._take(self.A)  # [k, n] of the nodes without an exact observation
        nodes = outside_transforms(_pivots, unwrapped(rows.detach()))
        K, U, root = _grounded(self.prior.J, nodes)
        self.z = in_double(self.prior._made(K, self.prior.loc, self.prior._part))
        self.z._check_definite()
        self.cross = self._solved(rows.unsqueeze(1))  # K^-1 A^T, [H, N, k]
        self.S = self.A @ self.cross
        self.B = torch.linalg.solve(self.S, self.cross.mT).mT
        CU = self._solved(U)
        CU = CU - self.B @ (self.A @ CU)
        at, root = self.prior.free[nodes], root.unsqueeze(2)
        units = torch.eye(len(rows), dtype=root.dtype, device=root.device)
        L, failed = torch.linalg.cholesky_ex(units - root * CU[:, at])
        pivots = L.diagonal(dim1=1, dim2=2)
        singular = unwrapped(failed.any() | (pivots.square() < SINGULAR).any())
        if singular is not None and bool(singular.any()):
            refuse(Status.not_positive_definite)
        self.F = torch.linalg.solve_triangular(L, CU.mT, upper=False).mT
        self.shift = self.B + self.F @ torch.linalg.solve_triangular(L, root * self.B[:, at], upper=False)
        self._size = torch.logdet(rows @ rows.T)
        volume = torch.logdet(self.S) - self._size + 2 * pivots.log().sum(1)
        self.rank = rows.size(1) - len(rows)
        self._log_normaliser = 0.5 * (self.z._logdet() + volume - self.rank * LOG_2PI)
        loc = self.prior.loc
        self._mean = loc - (self.shift @ (loc @ self.A.T - self.e).unsqueeze(-1)).squeeze(-1)
        self.loc = self._mean.to(self._like)
        super().__init__(self.loc.shape[:-1], field.event_shape, validate_args=False)

    def _solved(self, rows: Tensor) -> Tensor:
        """``K^-1`` times rows ``[k, H, n]`` of free nodes, as columns ``[H, N, k]`` of all."""
        return self.prior._put(self.z._solve(rows)).movedim(0, -1)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def covariance(self, nodes: Any) -> Tensor:
        """Columns of the covariance matrix, ``[H, N, n]``: of every node with each of ``nodes``; differentiable."""
        nodes = check_nodes(nodes, self.event_shape[0], self._like.device)
        units = torch.nn.functional.one_hot(nodes, self.event_shape[0]).to(self._mean)
        columns = self._solved(self.prior._take(units).unsqueeze(1))
        columns = columns - self.B @ (self.A @ columns) + self.F @ self.F[:, nodes].mT
        return columns.to(self._like)

    @property
    def variance(self) -> Tensor:
        """The marginal variances, ``[..., H, N]``."""
        less = (self.B * (2 * self.cross - self.B @ self.S)).sum(-1) - self.F.square().sum(-1)
        return (self.z.variance - less).clamp_min(0).expand(self.loc.shape).to(self._like)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        z = self.z.expand(self.batch_shape) if self.z.batch_shape != self.batch_shape else self.z
        x = z.rsample(sample_shape) - z.loc
        put_back = torch.randn(*x.shape[:-1], self.F.size(-1), dtype=x.dtype, device=x.device)
        x = x + (self.F @ put_back.unsqueeze(-1) - self.B @ (x @ self.A.T).unsqueeze(-1)).squeeze(-1)
        return (self._mean + x).to(self._like)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density on the subspace, with respect to its own volume; minus infinity off it."""
        tol, x = torch.finfo(value.dtype).eps ** 0.5, value.to(self._mean)
        # what A x would be without the constraint is rounded too: a node that is held at zero is not zero in a sample
        size = x.abs() @ self.A.abs().T + self.e.abs() + self.S.diagonal(dim1=1, dim2=2).sqrt()
        off = ((x @ self.A.T - self.e).abs() > tol * size).any(-1)
        return torch.where(off, -torch.inf, self._log_density(x)).to(self._like)

    def _log_density(self, x: Tensor) -> Tensor:
        return self._log_normaliser - 0.5 * self.prior._quadratic(self.prior._take(x - self._mean))

    def entropy(self) -> Tensor:
        return (0.5 * self.rank - self._log_normaliser).expand(self.batch_shape).to(self._like)

    def condition(self, nodes: Any, values: Any, noise: Any = None) -> ConstrainedField:
        """The field given observations as well, as :meth:`GaussianField.condition`."""
        return ConstrainedField(self._field.condition(nodes, values, noise), self.A, self.e)

    def log_evidence(self, nodes: Any, values: Any, noise: Any = None) -> Tensor:
        """The log-density of observations given the constraints, ``[..., H]``; J may be intrinsic.

        Args as for :meth:`GaussianField.condition`; differentiable like :meth:`GaussianField.log_evidence`.
        """
        seen = check_observations(nodes, values, noise, self.event_shape[0], self.batch_shape, self.prior._like)
        given = ConstrainedField(self.prior.condition(nodes, values, noise), self.A, self.e)
        x = given._mean  # p(y) = p(x) p(y | x) / p(x | y) for every x; exact observations leave a smaller subspace
        found = self._log_density(x) - given._log_normaliser + 0.5 * (self._size - given._size)
        if seen.noise is not None:
            misfit = (seen.values - x[..., seen.nodes]).square() / seen.noise + seen.noise.log() + LOG_2PI
            found = found - 0.5 * misfit.sum(-1)
        return found.to(self._like)


def _pivots(rows: Tensor) -> Tensor:
    """As many nodes as rows, in which the rows are independent."""
    order = qr(rows.cpu().numpy(), mode="r", pivoting=True)[1]
    return torch.as_tensor(order[: len(rows)], dtype=torch.int64, device=rows.device)


def _check_constraints(field: GaussianField, A: Any, e: Any) -> tuple[Tensor, Tensor]:
    nodes, like = field.event_shape[0], field._like
    A = as_tensor("A", A.toarray() if hasattr(A, "toarray") else A, dtype=like.dtype, device=like.device)
    A = A.unsqueeze(0) if A.dim() == 1 else A
    if A.dim() != 2 or A.size(1) != nodes or not is_finite(A):
        raise ValueError(f"A has shape {tuple(A.shape)}; expected finite numbers [k, {nodes}], one row per constraint")
    size = field._take(A).norm(dim=1)
    rows = field._take(A) / torch.where(size > 0, size, 1.0).unsqueeze(1)
    # A J^-1 A^T squares their condition
    if len(A) == 0 or int(torch.linalg.matrix_rank(rows, rtol=torch.finfo(A.dtype).eps ** 0.5)) < len(A):
        raise ValueError(
            f"A has {len(A)} rows, linearly dependent among the {len(field.free)} nodes without an exact observation; "
            "leave out those that follow from the others"
        )
    e = as_tensor("e", e, dtype=like.dtype, device=like.device)
    e = e.expand(len(A)) if e.dim() == 0 else e
    try:
        torch.broadcast_shapes(e.shape[:-1], field.batch_shape)
    except RuntimeError:
        raise ValueError(f"e has shape {tuple(e.shape)}; the field has heads {tuple(field.batch_shape)}") from None
    if e.size(-1) != len(A) or not is_finite(e):
        raise ValueError(f"e has shape {tuple(e.shape)}; expected a finite number for each of the {len(A)} rows of A")
    return A, e


def _grounded(J: Precision, nodes: Tensor) -> tuple[Precision, Tensor, Tensor]:
    """J + U U^T with ``U^T [k, H, n]``, the roots ``[H, k]`` of what stands twice (one where J_ii is zero) at nodes."""
    diag = J.diag[:, nodes].detach()
    added = torch.where(diag > 0, diag, 1.0)
    K = Precision(J.graph, J.diag.index_add(1, nodes, added), J.off)
    units = torch.nn.functional.one_hot(nodes, J.num_nodes).to(diag)
    return K, units.unsqueeze(1) * added.sqrt().T.unsqueeze(2), added.sqrt()
