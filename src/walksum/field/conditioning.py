"""A field given observations, and how probable they are: Schur complements by one solve and two log-determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from walksum.field.factors import choose_method
from walksum.field.observations import LOG_2PI, Observations, check_observations
from walksum.field.part import Part, part_of
from walksum.field.variances import SelectedInverse, selected_inverse
from walksum.precision import Precision

if TYPE_CHECKING:
    from walksum.field.distribution import GaussianField


def condition(field: GaussianField, nodes: Any, values: Any, noise: Any) -> GaussianField:
    """See :meth:`GaussianField.condition`."""
    seen, place = _observations(field, nodes, values, noise)
    loc = field._whole_batch(field.loc)
    residual = seen.values - loc[..., seen.nodes]
    if seen.noise is not None:
        J = _with_noise(field.J, place, seen.noise)
        step = _noisy_step(field, residual, place, seen.noise, J)
        return field._made(J, loc + field._put(step), field._part)
    rest, part = _rest(field, place)
    step = _conditional_step(field, residual, place, rest)
    free = field.free[rest.nodes]
    loc = loc.expand(*step.shape[:-1], -1)
    loc = loc.index_copy(-1, free, loc[..., free] + step)
    loc = loc.index_copy(-1, seen.nodes, seen.values.expand(*loc.shape[:-1], -1))
    return field._made(rest.of(field.J), loc, part)


def log_evidence(field: GaussianField, nodes: Any, values: Any, noise: Any) -> Tensor:
    """See :meth:`GaussianField.log_evidence`."""
    like, field = field._like, in_double(field)
    seen, place = _observations(field, nodes, values, noise)
    residual = field._whole_batch(seen.values - field.loc[..., seen.nodes])
    constant = place.numel() * LOG_2PI
    # x^T J x (+ noise terms) at its minimum over what was not seen: an error of the solve counts squared
    if seen.noise is None:
        rest, _ = _rest(field, place)
        step = _conditional_step(field, residual, place, rest)
        x = _scattered(field.J, residual, place)
        x = x.expand(*step.shape[:-1], -1).index_copy(-1, rest.nodes, step)
        difference = field._logdet() - field._logdet(rest.of(field.J))
        return (0.5 * (difference - field._quadratic(x) - constant)).to(like)
    J = _with_noise(field.J, place, seen.noise)
    x = _noisy_step(field, residual, place, seen.noise, J)
    misfit = (_misfit(field, residual, x, seen.noise, place).square() / seen.noise).sum(-1)
    difference = field._logdet() - field._logdet(J) - seen.noise.log().sum(-1)
    return (0.5 * (difference - field._quadratic(x) - misfit - constant)).to(like)


def _misfit(field: GaussianField, residual: Tensor, x: Tensor, noise: Tensor, place: Tensor) -> Tensor:
    """What the observations differ by from the posterior mean: ``r - x_o``, which is ``noise (J x)_o``.

    Beside a small noise the first form is nothing but rounding, which the noise is then divided into.
    """
    small = noise * field.J.diag[:, place] < torch.finfo(field.J.dtype).eps
    return torch.where(small, noise * field._product(x)[..., place], residual - x[..., place])


def leave_one_out(field: GaussianField, nodes: Any, values: Any, noise: Any) -> tuple[Tensor, Tensor]:
    """See :meth:`GaussianField.leave_one_out`."""
    wide = in_double(field)
    seen, place = _observations(wide, nodes, values, noise)
    if seen.noise is None:
        raise ValueError("noise=None; leave_one_out is for noisy observations, pass their variance")
    given = condition(wide, nodes, values, noise)
    error = seen.values - given.loc[..., seen.nodes]
    if given.method == "estimated":
        share = given.variance[..., seen.nodes] / seen.noise  # of an observation in its own mean
        left = 1 - share.clamp_max(1 - 1e-9)  # not zero: the variance is an estimate
    else:
        S = selected_inverse(given.J, given._asked)
        error, left = _leaving_out(wide, S, seen.noise, place, error, wide._take(given.loc - wide.loc))
    mean, variance = seen.values - error / left, (seen.noise / left).expand_as(error)
    return mean.to(field._like), variance.to(field._like)


def _leaving_out(
    field: GaussianField, S: SelectedInverse, noise: Tensor, place: Tensor, error: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    # With K = (J^-1)_oo + diag(noise) and r = y - mu_o the errors are (K^-1 r)_i / (K^-1)_ii, their variances
    # 1 / (K^-1)_ii. With x = E[x | y] - mu and S = (J + diag(1 / noise))^-1, noise K^-1 r is r - x_o = noise (J x)_o,
    # and noise (K^-1)_ii is 1 - S_ii / noise = (J S)_ii. The first forms cancel where the noise is small, the second
    # where it is large.
    J, x = field.J, field._whole_batch(x)
    JS = (J.diag * S.diag).index_add(1, J.graph.edges.flatten(), (J.off * S.off).repeat(1, 2))
    size = (J.diag * S.diag)[:, place]
    left = torch.where(size < 1, JS[:, place], 1 - S.diag[:, place] / noise)
    unknown = left <= torch.finfo(left.dtype).eps * J.num_nodes * size  # rounding: J is singular without it
    error = torch.where(unknown, torch.nan, torch.where(size < 1, noise * field._product(x)[..., place], error))
    return error, torch.where(unknown, 0.0, left)


def in_double(field: GaussianField) -> GaussianField:
    """The same field with all results in float64."""
    wide = field._made(field.J, field.loc.double(), field._part)
    wide._like = field._like.double()
    return wide


def _observations(field: GaussianField, nodes: Any, values: Any, noise: Any) -> tuple[Observations, Tensor]:
    """Checked, and the positions of their nodes among the free ones."""
    seen = check_observations(nodes, values, noise, field.event_shape[0], field.batch_shape, field._like)
    if field._part is None:
        return seen, seen.nodes
    place, found = field._positions(seen.nodes)
    if not bool(found.all()):
        raise ValueError("nodes contains one that was observed exactly before; it cannot be observed again")
    return seen, place


def _scattered(J: Precision, x: Tensor, place: Tensor) -> Tensor:
    return x.new_zeros(*x.shape[:-1], J.num_nodes).index_copy(-1, place, x)


def _with_noise(J: Precision, place: Tensor, noise: Tensor) -> Precision:
    added = (1 / noise).to(device=J.device, dtype=J.dtype)
    added = added.unsqueeze(0) if added.dim() == 1 else added
    heads = max(J.heads, added.size(0))
    diag, off = (t.expand(heads, -1) for t in (J.diag, J.off))
    return Precision(J.graph, diag.index_add(1, place, added.expand(heads, -1)), off)


def _noisy_step(field: GaussianField, residual: Tensor, place: Tensor, noise: Tensor, J: Precision) -> Tensor:
    """``J^-1 h`` for the J with noise: what noisy observations add to the mean."""
    if choose_method(J, field._asked) != "estimated":
        return field._solve(_scattered(J, residual / noise, place), J)
    # An iteration ends by the largest numbers of h, beside which those of other nodes would be lost if the noise is
    # small. So the part of each observation in its own node is taken out: what is left has no division by the noise.
    x = _scattered(J, residual / (1 + noise * field.J.diag[:, place]), place)
    couplings = Precision(field.J.graph, torch.zeros_like(field.J.diag), field.J.off)
    return x + field._solve(-field._product(x, couplings), J)


def _rest(field: GaussianField, place: Tensor) -> tuple[Part, Part]:
    """What is left without the free nodes at ``place``: as a part of J, and of the whole graph."""
    left = torch.ones(field.J.num_nodes, dtype=torch.bool, device=field.J.device)
    left[place] = False
    rest = part_of(field.J.graph, left.nonzero().squeeze(1))
    return rest, rest if field._part is None else rest.within(field._part)


def _conditional_step(field: GaussianField, residual: Tensor, place: Tensor, rest: Part) -> Tensor:
    """``-J_uu^-1 J_uo r``: what exact observations add to the mean of the others."""
    x = field._whole_batch(_scattered(field.J, residual, place))
    return field._solve(-field._product(x)[..., rest.nodes], rest.of(field.J))


def to_columns(J: Precision, x: Tensor) -> Tensor:
    """``[..., H, n]`` as columns of J: ``[H, n, F]``; with one head every leading dimension becomes columns."""
    x = x.to(device=J.device, dtype=J.dtype)
    heads, n = J.heads, x.size(-1)
    if heads > 1:
        x = x.expand(*x.shape[:-2], heads, n) if x.dim() > 1 else x.expand(heads, n)
        x = x.movedim(-2, 0)
    return x.reshape(heads, math.prod(x.shape[:-1]) // heads, n).transpose(1, 2).contiguous()


def to_rows(columns: Tensor, shape: Sequence[int]) -> Tensor:
    """The inverse: ``[H, n, F]`` to ``shape = [..., H, n]``, or ``[H, F]`` to ``shape = [..., H]``."""
    heads, inner = columns.size(0), columns.dim() - 2  # dimensions after the heads
    if inner:
        columns = columns.transpose(1, 2)
    if heads == 1:
        return columns.reshape(*shape)
    at = len(shape) - 1 - inner  # where the heads stand
    return columns.reshape(heads, *shape[:at], *shape[at + 1 :]).movedim(0, at)
