"""GaussianField: the Gaussian with a sparse precision matrix, as a torch distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from walksum.field.estimate import check_values
from walksum.field.factors import SOLVERS, choose_method, factorise, working_copy
from walksum.field.logdet import logdet
from walksum.field.marginals import marginals, selected_inverse
from walksum.field.observations import Observations, check_nodes, check_observations
from walksum.field.part import Part, part_of
from walksum.field.sampling import centred_columns
from walksum.field.shared_pattern import on_shared_pattern
from walksum.precision import Precision
from walksum.solving import solve

LOG_2PI = math.log(2 * math.pi)


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
        validate_args: bool | None = None,
    ):
        if not isinstance(J, Precision):
            raise ValueError(f"J is a {type(J).__name__}; expected a walksum.Precision")
        if h is not None and loc is not None:
            raise ValueError("h and loc were both given; the mean is loc or J^-1 h, give one of them")
        self.method = choose_method(J, method)
        self._asked = method
        self.J = working_copy(J, self.method)
        self._like, self._part = J.diag, None
        mean = self._zeros() if loc is None and h is None else self._vector("loc" if h is None else "h", loc, h)
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
        new.J = working_copy(J, new.method)
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

    def _zeros(self) -> Tensor:
        return torch.zeros_like(self._like)

    def _vector(self, name: str, *given: Tensor | None) -> Tensor:
        value = next(t for t in given if t is not None)
        value = torch.as_tensor(value, dtype=self._like.dtype, device=self._like.device)
        heads, nodes = self._like.shape
        fits = value.dim() > 0 and value.size(-1) == nodes
        if not fits or (value.dim() > 1 and heads > 1 and value.size(-2) not in (1, heads)):
            raise ValueError(f"{name} has shape {tuple(value.shape)}; expected [{nodes}] or [..., {heads}, {nodes}]")
        if not bool(torch.isfinite(value.detach()).all()):
            raise ValueError(f"{name} contains NaN or infinity")
        return value

    def _check_definite(self) -> None:
        check_values(self.J)
        if self.method != "estimated" and self.J.num_nodes:
            J = self.J
            factorise(J.graph, J.diag.detach(), J.off.detach(), J.prepared, self.method)

    # -- linear algebra with heads ---------------------------------------------------------------------------------

    def _columns(self, x: Tensor) -> Tensor:
        """``[..., H, n]`` as columns of J: ``[H, n, F]``."""
        x = x.to(device=self.J.device, dtype=self.J.dtype)
        heads, n = self.J.heads, x.size(-1)
        if heads > 1:
            x = x.expand(*x.shape[:-2], heads, n) if x.dim() > 1 else x.expand(heads, n)
            x = x.movedim(-2, 0)
        return x.reshape(heads, math.prod(x.shape[:-1]) // heads, n).transpose(1, 2).contiguous()

    def _rows(self, columns: Tensor, shape: Sequence[int]) -> Tensor:
        """The inverse of :meth:`_columns`; ``[H, F]`` goes to ``shape`` without nodes."""
        columns = columns.to(self._like)
        if columns.dim() == 3:
            columns = columns.transpose(1, 2)
        if self.J.heads == 1:
            return columns.reshape(*shape)
        at = len(shape) - (columns.dim() - 1)  # where the heads stand
        moved = [*shape[:at], *shape[at + 1 :]]
        return columns.reshape(self.J.heads, *moved).movedim(0, at)

    def _whole_batch(self, x: Tensor) -> Tensor:
        """Broadcast leading dimensions to end in the heads of J."""
        return x.expand(*torch.broadcast_shapes(x.shape[:-1], (self.J.heads,)), x.size(-1))

    def _solve(self, h: Tensor, J: Precision | None = None) -> Tensor:
        J, h = self.J if J is None else J, self._whole_batch(h)
        if J.num_nodes == 0:
            return h
        way = choose_method(J, self._asked)
        return self._rows(solve(J, self._columns(h), SOLVERS[way], on_nonconverged="raise"), h.shape)

    def _quadratic(self, x: Tensor, J: Precision | None = None) -> Tensor:
        """``x^T J x`` of every row."""
        J, x = self.J if J is None else J, self._whole_batch(x)
        columns = self._columns(x)
        return self._rows((columns * (J @ columns)).sum(1), x.shape[:-1])

    def _logdet(self, J: Precision | None = None) -> Tensor:
        return logdet(self.J if J is None else J, self._asked).to(self._like)

    @property
    def free(self) -> Tensor:
        """The nodes without an exact observation, ascending."""
        return torch.arange(self.event_shape[0], device=self._like.device) if self._part is None else self._part.nodes

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
        x = self._take(self.loc)
        columns = self._columns(x)
        return self._put(self._rows(self.J @ columns, x.shape))

    @property
    def variance(self) -> Tensor:
        """The marginal variances; zero where a node was observed exactly."""
        found = marginals(self.J, self._asked).to(self._like)
        return self._put(found).expand(*self.batch_shape, *self.event_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples; the gradient in J is the pathwise derivative of :func:`walksum.sample`."""
        shape = self._extended_shape(torch.Size(sample_shape))
        n = self.J.num_nodes
        columns = math.prod(shape[:-1]) // self.J.heads
        x = centred_columns(self.J, columns, self.method)
        return self.loc + self._put(self._rows(x, [*shape[:-1], n]))

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
        place = torch.searchsorted(self.free, nodes).clamp_max(max(self.J.num_nodes - 1, 0))
        units = self._like.new_zeros(nodes.numel(), self.J.num_nodes)
        if self.J.num_nodes:
            hit = (self.free[place] == nodes).nonzero().squeeze(1)  # an observed node covaries with none
            units[hit, place[hit]] = 1
        columns = self._solve(units.unsqueeze(1).expand(-1, self.J.heads, -1))
        return self._put(columns).movedim(0, -1)

    def correlation(self, pairs: Any) -> Tensor:
        """Correlations ``[H, P]`` of the pairs of nodes ``[2, P]``; NaN with a node that was observed exactly."""
        pairs = torch.as_tensor(pairs, device=self._like.device)
        if pairs.dim() != 2 or pairs.size(0) != 2 or pairs.is_floating_point():
            raise ValueError(
                f"pairs has shape {tuple(pairs.shape)}, dtype {pairs.dtype}; expected whole numbers [2, P]"
            )
        nodes, place = torch.unique(pairs, return_inverse=True)
        columns = self.covariance(nodes)
        deviation = columns[..., nodes, torch.arange(nodes.numel())].sqrt()
        i, j = place
        return columns[..., nodes[i], j] / (deviation[..., i] * deviation[..., j])

    def condition(self, nodes: Any, values: Any, noise: Any = None) -> GaussianField:
        r"""The field given observations, as a field on all nodes again.

        Args:
            nodes: distinct nodes ``[n]``, or a mask ``[N]``.
            values: ``[n]`` or ``[..., H, n]``.
            noise: variance of the observation noise, one number or one per node; None: exact observations, whose nodes
                then have variance zero.
        """
        seen, place = self._observations(nodes, values, noise)
        loc = self._whole_batch(self.loc)
        residual = seen.values - loc[..., seen.nodes]
        if seen.noise is None:
            rest, part = self._rest(place)
            step = self._conditional_step(residual, place, rest)
            free = self.free[rest.nodes]
            loc = loc.expand(*step.shape[:-1], -1)
            loc = loc.index_copy(-1, free, loc[..., free] + step)
            loc = loc.index_copy(-1, seen.nodes, seen.values.expand(*loc.shape[:-1], -1))
            return self._made(rest.of(self.J), loc, part)
        J = self._with_noise(place, seen.noise)
        step = self._solve(self._scattered(residual / seen.noise, place), J)
        return self._made(J, loc + self._put(step), self._part)

    def log_evidence(self, nodes: Any, values: Any, noise: Any = None) -> Tensor:
        r"""The log-probability density of observations of some nodes, ``[..., H]``.

        .. math:: \log \mathcal{N}(y \mid \mu_o, (J^{-1})_{oo} + \mathrm{diag}(\text{noise}))

        from two log-determinants and one solve. Differentiable in J, h or loc, values and noise; this is what one
        maximises to fit a field. Args as for :meth:`condition`.
        """
        seen, place = self._observations(nodes, values, noise)
        residual = self._whole_batch(seen.values - self.loc[..., seen.nodes])
        constant = place.numel() * LOG_2PI
        # x^T J x (+ noise terms) at its minimum over what was not seen: an error of the solve counts squared
        if seen.noise is None:
            rest, _ = self._rest(place)
            step = self._conditional_step(residual, place, rest)
            x = self._scattered(residual, place)
            x = x.expand(*step.shape[:-1], -1).index_copy(-1, rest.nodes, step)
            half_logdet = self._logdet() - self._logdet(rest.of(self.J))
            return 0.5 * (half_logdet - self._quadratic(x) - constant)
        J = self._with_noise(place, seen.noise)
        x = self._solve(self._scattered(residual / seen.noise, place), J)
        misfit = ((residual - x[..., place]).square() / seen.noise).sum(-1)
        both = self._logdet() - self._logdet(J) - seen.noise.log().sum(-1)
        return 0.5 * (both - self._quadratic(x) - misfit - constant)

    def leave_one_out(self, nodes: Any, values: Any, noise: Any) -> tuple[Tensor, Tensor]:
        """Mean and variance of every noisy observation given all others, ``[..., H, n]`` each: a check of a fit."""
        seen, _ = self._observations(nodes, values, noise)
        if seen.noise is None:
            raise ValueError("noise=None; leave_one_out is for noisy observations, pass their variance")
        given = self.condition(nodes, values, noise)
        share = given.variance[..., seen.nodes] / seen.noise  # of an observation in its own mean
        residual = seen.values - given.loc[..., seen.nodes]
        return seen.values - residual / (1 - share), (seen.noise / (1 - share)).expand_as(residual)

    def _observations(self, nodes: Any, values: Any, noise: Any) -> tuple[Observations, Tensor]:
        """Checked, and the positions of their nodes among the free ones."""
        seen = check_observations(nodes, values, noise, self.event_shape[0], self.batch_shape, self._like)
        if self._part is None:
            return seen, seen.nodes
        place = torch.searchsorted(self.free, seen.nodes).clamp_max(max(self.J.num_nodes - 1, 0))
        if seen.nodes.numel() and (self.J.num_nodes == 0 or not bool((self.free[place] == seen.nodes).all())):
            raise ValueError("nodes contains one that was observed exactly before; it cannot be observed again")
        return seen, place

    def _scattered(self, x: Tensor, place: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:-1], self.J.num_nodes).index_copy(-1, place, x)

    def _with_noise(self, place: Tensor, noise: Tensor) -> Precision:
        added = (1 / noise).to(device=self.J.device, dtype=self.J.dtype)
        if added.dim() == 1:
            added = added.unsqueeze(0)
        heads = max(self.J.heads, added.size(0))
        diag, off = (t.expand(heads, -1) for t in (self.J.diag, self.J.off))
        return Precision(self.J.graph, diag.index_add(1, place, added.expand(heads, -1)), off)

    def _rest(self, place: Tensor) -> tuple[Part, Part]:
        """What is left without the free nodes at ``place``: as a part of J, and of the whole graph."""
        left = torch.ones(self.J.num_nodes, dtype=torch.bool, device=self._like.device)
        left[place] = False
        rest = part_of(self.J.graph, left.nonzero().squeeze(1).to(self.J.device))
        if self._part is None:
            return rest, rest
        whole = object.__new__(Part)
        whole.nodes, whole.graph, whole.edges = self._part.nodes[rest.nodes], rest.graph, self._part.edges[rest.edges]
        return rest, whole

    def _conditional_step(self, residual: Tensor, place: Tensor, rest: Part) -> Tensor:
        """``-J_uu^-1 J_uo r``: what exact observations add to the mean of the others."""
        x = self._whole_batch(self._scattered(residual, place))
        pull = self._rows(self.J @ self._columns(x), x.shape)[..., rest.nodes]
        return self._solve(-pull, rest.of(self.J))


@register_kl(GaussianField, GaussianField)
def _kl(p: GaussianField, q: GaussianField) -> Tensor:
    if p.event_shape != q.event_shape or p._part is not None or q._part is not None:
        raise ValueError("kl_divergence takes two fields on the same nodes, none of them observed exactly")
    J_p, J_q = on_shared_pattern(p.J, q.J)
    S = selected_inverse(J_p, p._asked)
    trace = torch.linalg.vecdot(S.diag, J_q.diag) + 2 * torch.linalg.vecdot(S.off, J_q.off)
    difference = q._quadratic(p.loc - q.loc)
    return 0.5 * (trace.to(p._like) + difference - p.event_shape[0] + p._logdet() - q._logdet())
