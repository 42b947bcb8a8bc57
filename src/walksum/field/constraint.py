"""A field on a subspace: linear constraints A x = e that hold in every sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from scipy.linalg import qr
from torch import Tensor
from torch.distributions import Distribution, constraints

from walksum.field.conditioning import to_columns
from walksum.field.observations import LOG_2PI
from walksum.precision import Precision

if TYPE_CHECKING:
    from walksum.field.distribution import GaussianField


class ConstrainedField(Distribution):
    r"""The Gaussian given :math:`A x = e` exactly, by kriging; made by :meth:`GaussianField.constrain`.

    .. math::
        x = z - B (A z - e), \qquad z \sim \mathcal{N}(\mu, J^{-1}), \quad B = J^{-1} A^\top (A J^{-1} A^\top)^{-1}

    Of an intrinsic J, whose null space the rows of A span, J is made definite by a larger diagonal at k nodes. That
    changes z along the null space alone, which :math:`B = A^\top (A A^\top)^{-1}` takes out again.
    """

    arg_constraints = {}  # noqa: RUF012
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, field: GaussianField, A: Any, e: Any):
        self.A, self.e = _check_constraints(field, A, e)
        rows = field._take(self.A)  # [k, n] of the nodes without an exact observation
        gram, count = rows @ rows.T, len(rows)
        intrinsic = _spans_null_space(field, rows)
        nodes = torch.as_tensor(qr(rows.cpu().numpy(), mode="r", pivoting=True)[1][:count], device=rows.device).long()
        self.prior = field
        self.z = field._made(_grounded(field.J, nodes), field.loc, field._part) if intrinsic else field
        self.z._check_definite()
        self.cross = field._put(self.z._solve(rows.unsqueeze(1))).movedim(0, -1)  # J^-1 A^T, [H, N, k]
        self.S = self.A @ self.cross
        self.B = torch.linalg.solve(self.S, self.cross.mT).mT
        volume = torch.logdet(self.S) - torch.logdet(gram)
        if intrinsic:  # the product of the eigenvalues of J that are not zero, by the determinant lemma
            self.B = field._put(torch.linalg.solve(gram, rows)).T
            added = field.J.diag[:, nodes].log().sum(1).to(rows) + 2 * torch.linalg.slogdet(rows[:, nodes])[1]
            volume = torch.logdet(gram) - added
        self.rank = rows.size(1) - count
        self._log_normaliser = 0.5 * (self.z._logdet() + volume - self.rank * LOG_2PI)
        self.loc = self._constrained(field.loc)
        super().__init__(self.loc.shape[:-1], field.event_shape, validate_args=False)

    def _constrained(self, x: Tensor) -> Tensor:
        return x - (self.B @ (x @ self.A.T - self.e).unsqueeze(-1)).squeeze(-1)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The marginal variances, ``[..., H, N]``."""
        less = (self.B * (2 * self.cross - self.B @ self.S)).sum(-1)
        return (self.z.variance - less).clamp_min(0).expand(self.loc.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        z = self.z.expand(self.batch_shape) if self.z.batch_shape != self.batch_shape else self.z
        return self._constrained(z.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density on the subspace, with respect to its own volume; minus infinity off it."""
        size = value.abs() @ self.A.abs().T + self.e.abs()
        off = ((value @ self.A.T - self.e).abs() > torch.finfo(value.dtype).eps ** 0.5 * size).any(-1)
        result = self._log_normaliser - 0.5 * self.prior._quadratic(self.prior._take(value - self.loc))
        return torch.where(off, -torch.inf, result)

    def entropy(self) -> Tensor:
        return (0.5 * self.rank - self._log_normaliser).expand(self.batch_shape)


def _check_constraints(field: GaussianField, A: Any, e: Any) -> tuple[Tensor, Tensor]:
    nodes, like = field.event_shape[0], field._like
    A = torch.as_tensor(A.toarray() if hasattr(A, "toarray") else A, dtype=like.dtype, device=like.device)
    A = A.unsqueeze(0) if A.dim() == 1 else A
    if A.dim() != 2 or A.size(1) != nodes or not bool(A.isfinite().all()):
        raise ValueError(f"A has shape {tuple(A.shape)}; expected finite numbers [k, {nodes}], one row per constraint")
    if len(A) == 0 or int(torch.linalg.matrix_rank(field._take(A))) < len(A):
        raise ValueError(
            f"A has {len(A)} rows, linearly dependent among the {len(field.free)} nodes without an exact observation; "
            "leave out those that follow from the others"
        )
    e = torch.as_tensor(e, dtype=like.dtype, device=like.device)
    e = e.expand(len(A)) if e.dim() == 0 else e
    try:
        torch.broadcast_shapes(e.shape[:-1], field.batch_shape)
    except RuntimeError:
        raise ValueError(f"e has shape {tuple(e.shape)}; the field has heads {tuple(field.batch_shape)}") from None
    if e.size(-1) != len(A) or not bool(e.isfinite().all()):
        raise ValueError(f"e has shape {tuple(e.shape)}; expected a finite number for each of the {len(A)} rows of A")
    return A, e


def _spans_null_space(field: GaussianField, rows: Tensor) -> bool:
    """Whether J A^T is zero up to rounding."""
    J, eps = field.J.detach(), torch.finfo(field._like.dtype).eps
    size = Precision(J.graph, J.diag.abs(), J.off.abs()) @ to_columns(J, rows.unsqueeze(1).abs())
    return bool(((J @ to_columns(J, rows.unsqueeze(1))).abs() <= 64 * eps * size).all())


def _grounded(J: Precision, nodes: Tensor) -> Precision:
    return Precision(J.graph, J.diag.index_add(1, nodes, J.diag[:, nodes]), J.off)
