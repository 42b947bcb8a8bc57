"""GaussianField: the Gaussian with a sparse precision matrix, as a torch distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal, constraints, kl_divergence, register_kl

from walksum._torch import is_functorch_wrapped
from walksum.field import conditioning
from walksum.field.conditioning import to_columns, to_rows
from walksum.field.constraint import ConstrainedField
from walksum.field.estimate import check_values
from walksum.field.factors import (
    SOLVERS,
    check_kind,
    choose_method,
    factorise,
    in_range,
    in_working_precision,
    refuse_indefinite,
    working_copy,
)
from walksum.field.log_determinant import logdet
from walksum.field.observations import LOG_2PI, as_tensor, check_nodes, is_finite
from walksum.field.part import Part, on_shared_pattern
from walksum.field.sampling import centred_columns
from walksum.field.selected import BLOCK
from walksum.field.system import balanced, system_of
from walksum.field.variances import marginals, selected_inverse
from walksum.precision import Precision
from walksum.solving import solve


class GaussianField(Distribution):
    r"""A Gaussian Markov random field: the Gaussian with precision matrix J on a graph.

    .. math::
        p(x) = \mathcal{N}(x \mid \mu, J^{-1}) \propto \exp(-\tfrac12 x^\top J x + h^\top x), \qquad \mu = J^{-1} h

    The batch shape is the heads of J, ``[H]``; the event shape is the nodes, ``[N]``. Where elimination is affordable
    everything is exact, otherwise ``method="auto"`` estimates log-determinants and variances with a warning.

    Args:
        J: positive definite :class:`walksum.Precision`, walk-summable or not.
        h: information vector, ``[N]`` or ``[..., H, N]``; give it or ``loc``, not both.
        loc: the mean, of the same shapes. Without either it is zero.
        method: "auto", "elimination", "dense" or "estimated", see :func:`walksum.logdet`.
        validate_args: also check that J is positive definite, by a factorisation that is kept for later. A J that is
            only semi-definite (an intrinsic field) can be conditioned on noisy observations without this check.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> field = ws.GaussianField(ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0)))
        >>> field.condition([0, 2], [1.0, 3.0]).mean
        tensor([[1., 2., 3.]])
        >>> field.log_evidence([0, 2], [1.0, 3.0], noise=0.1).shape
        torch.Size([1])
    """

    _part: Part | None
    arg_constraints = {"loc": constraints.real_vector}  # noqa: RUF012
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        J: Precision,
        h: Tensor | None = None,
        loc: Tensor | None = None,
        method: str = "auto",
        validate_args: bool = True,
    ):
        check_kind(J)
        if J.graph.system_across is not None:
            raise ValueError(f"J is on {J.graph}; a field has all nodes, across processes use logdet, marginals, ...")
        if h is not None and loc is not None:
            raise ValueError("h and loc were both given; the mean is loc or J^-1 h, give one of them")
        self.method = choose_method(J, method)
        self._asked = method
        self.J = in_working_precision(J, self.method)
        self._like, self._part = J.diag, None
        given = h is not None or loc is not None
        mean = self._vector("loc" if h is None else "h", loc, h) if given else torch.zeros_like(J.diag)
        self.loc = mean if h is None else self._solve(mean)
        batch = torch.broadcast_shapes((J.heads,), self.loc.shape[:-1])
        self.loc = self.loc.expand(*batch, J.num_nodes)
        super().__init__(batch, torch.Size([J.num_nodes]), validate_args=validate_args)
        if self._validate_args:
            self._check_definite()

    # What follows counts in free nodes: those without an exact observation. J is the precision among them.

    def _made(self, J: Precision, loc: Tensor, part: Part | None) -> GaussianField:
        """A field of the same kind; ``part`` names the free nodes, in numbers of the whole graph."""
        new = object.__new__(type(self))
        new._asked, new._like, new._part = self._asked, self._like, part
        new.method = choose_method(J, self._asked)
        new.J = in_working_precision(J, new.method)
        batch = torch.broadcast_shapes((J.heads,), loc.shape[:-1])
        new.loc = loc.expand(*batch, loc.size(-1))
        Distribution.__init__(new, batch, loc.shape[-1:], validate_args=False)
        new._validate_args = self._validate_args
        return new

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> GaussianField:
        batch_shape = torch.Size(batch_shape)
        if self.J.heads > 1 and batch_shape[-1:] != (self.J.heads,):
            raise ValueError(f"batch_shape={tuple(batch_shape)}; a field of {self.J.heads} heads ends in them")
        new = self._made(self.J, self.loc.expand(*batch_shape, -1), self._part)
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _vector(self, name: str, *given: Tensor | None) -> Tensor:
        value = next(t for t in given if t is not None)
        value = as_tensor(name, value, dtype=self._like.dtype, device=self._like.device)
        heads, nodes = self._like.shape
        fits = value.dim() > 0 and value.size(-1) == nodes
        if not fits or (value.dim() > 1 and heads > 1 and value.size(-2) not in (1, heads)):
            raise ValueError(f"{name} has shape {tuple(value.shape)}; expected [{nodes}] or [..., {heads}, {nodes}]")
        if not is_finite(value):
            raise ValueError(f"{name} contains NaN or infinity")
        return value

    def _check_definite(self) -> None:
        if is_functorch_wrapped(self.J.diag) or is_functorch_wrapped(self.J.off):
            return  # a transform of torch.func hides the values; the first use checks them
        check_values(system_of(self.J))
        if self.method != "estimated" and self.J.num_nodes:
            J = working_copy(self.J, self.method)
            factorise(J.graph, J.diag.detach(), J.off.detach(), J.prepared, self.method)

    # -- linear algebra with heads ---------------------------------------------------------------------------------

    def _back(self, columns: Tensor, shape: Sequence[int]) -> Tensor:
        return to_rows(columns.to(self._like), shape)

    def _whole_batch(self, x: Tensor) -> Tensor:
        """Broadcast leading dimensions to end in the heads of J."""
        return x.expand(*torch.broadcast_shapes(x.shape[:-1], (self.J.heads,)), x.size(-1))

    def _solve(self, h: Tensor, J: Precision | None = None) -> Tensor:
        J, h = self.J if J is None else J, self._whole_batch(h)
        if J.num_nodes == 0:
            return h
        way = choose_method(J, self._asked)
        J = working_copy(J, way)
        columns, S = to_columns(J, h), None
        if way == "estimated":  # an iteration ends by the largest J_ii, beside which those of other nodes may be small
            J, S = balanced(J)
            columns = columns * S.unsqueeze(2)
        mu = solve(J, columns, SOLVERS[way], refuse_indefinite, "raise")
        mu = mu if S is None else mu * S.unsqueeze(2)
        return self._back(in_range(mu, self._like), h.shape)

    def _product(self, x: Tensor, J: Precision | None = None) -> Tensor:
        """``J x`` of every row."""
        J = self.J if J is None else J
        return self._back(J @ to_columns(J, x), x.shape)

    def _quadratic(self, x: Tensor) -> Tensor:
        """``x^T J x`` of every row."""
        x = self._whole_batch(x)
        columns = to_columns(self.J, x)
        return self._back((columns * (self.J @ columns)).sum(1), x.shape[:-1])

    def _logdet(self, J: Precision | None = None) -> Tensor:
        return logdet(self.J if J is None else J, self._asked).to(self._like)

    @property
    def free(self) -> Tensor:
        """The nodes without an exact observation, ascending."""
        return torch.arange(self.event_shape[0], device=self._like.device) if self._part is None else self._part.nodes

    def _positions(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Where ``nodes`` stand among the free ones, and whether they do."""
        free = self.free
        place = torch.searchsorted(free, nodes).clamp_max(max(free.numel() - 1, 0))
        return place, free[place] == nodes if free.numel() else torch.zeros_like(nodes, dtype=torch.bool)

    def _take(self, x: Tensor) -> Tensor:
        return x if self._part is None else x.index_select(-1, self._part.nodes)

    def _put(self, x: Tensor) -> Tensor:
        """Values of free nodes among zeros for the others."""
        if self._part is None:
            return x
        return x.new_zeros(*x.shape[:-1], *self.event_shape).index_copy(-1, self._part.nodes, x)

    # -- the distribution ------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def h(self) -> Tensor:
        """The information vector J mu, of the nodes without exact observations."""
        return self._put(self._product(self._take(self.loc)))

    @property
    def variance(self) -> Tensor:
        """The marginal variances; zero where a node was observed exactly."""
        found = in_range(marginals(self.J, self._asked), self._like)
        return self._put(found).expand(*self.batch_shape, *self.event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples; the gradient in J is the pathwise derivative of :func:`walksum.sample`."""
        shape = self._extended_shape(torch.Size(sample_shape))
        n = self.J.num_nodes
        columns = math.prod(shape[:-1]) // self.J.heads
        x = centred_columns(self.J, columns, self.method)
        return self.loc + self._put(self._back(in_range(x, self._like), [*shape[:-1], n]))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density at ``[..., H, N]``; with exact observations, with respect to the other nodes."""
        if self._validate_args:
            self._validate_sample(value)
        deviation = value - self.loc
        free = self._take(deviation)
        result = 0.5 * (self._logdet() - self._quadratic(free) - free.size(-1) * LOG_2PI)
        if self._part is None:
            return result
        elsewhere = deviation.index_fill(-1, self._part.nodes, 0.0).ne(0).any(-1)
        return torch.where(elsewhere, -math.inf, result)

    def entropy(self) -> Tensor:
        return (0.5 * (self.J.num_nodes * (1 + LOG_2PI) - self._logdet())).expand(self.batch_shape)

    # -- what a Markov field adds ----------------------------------------------------------------------------------

    def covariance(self, nodes: Any) -> Tensor:
        """Columns of the covariance matrix, ``[H, N, n]``: of every node with each of ``nodes``; differentiable."""
        nodes = check_nodes(nodes, self.event_shape[0], self._like.device)
        place, found = self._positions(nodes)
        units = self._like.new_zeros(nodes.numel(), self.J.num_nodes)
        units[found, place[found]] = 1  # a node that was observed exactly covaries with none
        columns = self._solve(units.unsqueeze(1).expand(-1, self.J.heads, -1))
        return self._put(columns).movedim(0, -1)

    def correlation(self, pairs: Any) -> Tensor:
        """Correlations ``[H, P]`` of the pairs of nodes ``[2, P]``; NaN with a node that was observed exactly.

        Solves once per node. For all neighbours take :func:`walksum.selected_inverse`, which has their covariances.
        """
        pairs = as_tensor("pairs", pairs, device=self._like.device)
        if pairs.dim() != 2 or pairs.size(0) != 2 or pairs.is_floating_point():
            raise ValueError(
                f"pairs has shape {tuple(pairs.shape)}, dtype {pairs.dtype}; expected whole numbers [2, P]"
            )
        nodes, (i, j) = torch.unique(pairs, return_inverse=True)
        variance, covariance, places = [], [], []
        for start in range(0, max(1, nodes.numel()), BLOCK):
            block = nodes[start : start + BLOCK]
            columns = self.covariance(block)
            variance.append(columns[:, block, torch.arange(block.numel(), device=nodes.device)])
            place = ((j >= start) & (j < start + BLOCK)).nonzero().squeeze(1)
            covariance.append(columns[:, nodes[i[place]], j[place] - start])
            places.append(place)
        deviation = torch.cat(variance, 1).sqrt()
        order = torch.cat(places).argsort()
        return torch.cat(covariance, 1)[:, order] / (deviation[:, i] * deviation[:, j])

    def condition(self, nodes: Any, values: Any, noise: Any = None) -> GaussianField:
        r"""The field given observations, as a field on all nodes again.

        Args:
            nodes: distinct nodes ``[n]``, or a mask ``[N]``.
            values: ``[n]`` or ``[..., H, n]``.
            noise: variance of the observation noise, one number or one per node; None: exact observations, whose nodes
                then have variance zero.
        """
        return conditioning.condition(self, nodes, values, noise)

    def constrain(self, A: Any, e: Any = 0.0) -> ConstrainedField:
        r"""The field given the linear constraints :math:`A x = e`: its mean, variance, samples, density and entropy.

        For an intrinsic field (made with ``validate_args=False``) rows of A span the null space of its J, or more.

        Args:
            A: ``[k, N]`` or ``[N]``, a tensor, an array or a scipy sparse matrix of few rows, linearly independent.
            e: one number, ``[k]`` or ``[..., H, k]``.

        Example:
            >>> import torch, walksum as ws
            >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
            >>> walk = ws.Precision(path, torch.tensor([1.0, 2.0, 1.0]), torch.full((2,), -1.0))  # intrinsic
            >>> ws.GaussianField(walk, validate_args=False).constrain(torch.ones(3)).variance  # the sum is zero
            tensor([[0.5556, 0.2222, 0.5556]])
        """
        return ConstrainedField(self, A, e)

    def log_evidence(self, nodes: Any, values: Any, noise: Any = None) -> Tensor:
        r"""The log-probability density of observations of some nodes, ``[..., H]``.

        .. math:: \log \mathcal{N}(y \mid \mu_o, (J^{-1})_{oo} + \mathrm{diag}(\text{noise}))

        from two log-determinants and one solve. Differentiable in J, h or loc, values and noise; this is what one
        maximises to fit a field. Args as for :meth:`condition`.
        """
        return conditioning.log_evidence(self, nodes, values, noise)

    def leave_one_out(self, nodes: Any, values: Any, noise: Any) -> tuple[Tensor, Tensor]:
        """Mean and variance of every noisy observation given all others, ``[..., H, n]`` each: a check of a fit.

        NaN and infinity for one that no other says anything about: the only one of its component under an intrinsic J.
        """
        return conditioning.leave_one_out(self, nodes, values, noise)


@register_kl(GaussianField, GaussianField)
def _kl(p: GaussianField, q: GaussianField) -> Tensor:
    _check_comparable(p, q)
    like = p._like.new_empty((), dtype=torch.promote_types(p._like.dtype, q._like.dtype))
    p, q = conditioning.in_double(p), conditioning.in_double(q)  # log-determinants of many nodes cancel
    J_p, J_q = on_shared_pattern(p.J, q.J)
    S = selected_inverse(J_p, p._asked)
    trace = torch.linalg.vecdot(S.diag, J_q.diag.to(S.diag)) + 2 * torch.linalg.vecdot(S.off, J_q.off.to(S.off))
    difference = q._quadratic(p.loc - q.loc)
    return (0.5 * (trace + difference - p.event_shape[0] + p._logdet() - q._logdet())).to(like)


@register_kl(GaussianField, MultivariateNormal)
def _kl_to_normal(p: GaussianField, q: MultivariateNormal) -> Tensor:
    _check_comparable(p, q)
    return kl_divergence(_dense(p), q)


@register_kl(MultivariateNormal, GaussianField)
def _kl_from_normal(p: MultivariateNormal, q: GaussianField) -> Tensor:
    _check_comparable(p, q)
    return kl_divergence(p, _dense(q))


def _check_comparable(p: Distribution, q: Distribution) -> None:
    observed = any(getattr(d, "_part", None) is not None for d in (p, q))
    if p.event_shape != q.event_shape or observed:
        raise ValueError("kl_divergence takes two distributions on the same nodes, none of them observed exactly")


def _dense(field: GaussianField) -> MultivariateNormal:
    """The same with a matrix of all pairs of nodes, beside one that holds such a matrix already."""
    J = field.J.to_dense().to(field._like)
    return MultivariateNormal(field.loc, precision_matrix=J, validate_args=False)
