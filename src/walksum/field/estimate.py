"""Estimates for graphs that fill in too much: stochastic Lanczos quadrature, samples and Hutchinson's probes.

All work by products of J with blocks of columns, which run on every device, and use what is known exactly: the diagonal
of J, and the expectation of polynomials of its off-diagonal part, which are subtracted as control variates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum._checks import check_count, check_positive
from walksum.field.factors import refuse
from walksum.field.sampling import dominant_root
from walksum.field.system import System, system_of
from walksum.ops import edge_dot
from walksum.precision import Precision
from walksum.solvers.base import Status
from walksum.solvers.cg.solver import CG

LOOK = 8  # Lanczos steps between looks at the quadrature
SETTLED = 0.02  # share of the standard error below which a further look must change the mean


@dataclass(frozen=True)
class Estimate:
    """The settings of an estimate.

    Args:
        probes: number P of random vectors; the standard error falls like one over its square root.
        max_steps: most Lanczos steps, or CG steps of the solves.
        tol: backward error of those solves.
        seed: of the probes, which are drawn on the CPU and so are the same on every device.
    """

    probes: int = 64
    max_steps: int = 500
    tol: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("probes", self.probes)
        if self.probes < 8:
            raise ValueError(f"probes={self.probes}; expected at least 8, or their spread says nothing")
        check_count("max_steps", self.max_steps)
        check_positive(tol=self.tol)


DEFAULT = Estimate()


def estimate_logdet(J: Precision, settings: Estimate) -> tuple[Tensor, Tensor, int, Status]:
    """The log-determinant ``[H]`` with unbiased gradients, its standard error ``[H]``, steps and status."""
    system = system_of(J)
    check_values(system)
    z = system.signs(settings.probes, settings.seed)
    unit = system.J.normalised()
    samples, steps, status = _quadrature(system.with_values(unit.diag, unit.off), z, settings.max_steps)
    value = samples.mean(1).to(J.device) + system.total(system.own(system.J.diag).double().log().sum(1))
    error = samples.std(1).to(J.device) / settings.probes**0.5
    if J.diag.requires_grad or J.off.requires_grad:
        value = value + _gradient_carrier(J, system, z, settings)
    return value, error, steps, status


def _gradient_carrier(J: Precision, system: System, z: Tensor, settings: Estimate) -> Tensor:
    """Zero, with the gradient ``mean_k z_k^T J^-1 dJ z_k`` of the log-determinant."""
    w = _solved(system, z, settings)
    S_diag, S_off = (w * z).mean(2), edge_dot(J.graph, system.fill(w), system.fill(z)) / (2 * z.size(2))
    linear = torch.linalg.vecdot(S_diag, system.own(J.diag)) + 2 * torch.linalg.vecdot(system.edge_share(S_off), J.off)
    return system.total(linear - linear.detach())


def _solved(system: System, columns: Tensor, settings: Estimate) -> Tensor:
    floor = 16 * torch.finfo(columns.dtype).eps
    return system.solve(columns, CG(max(settings.tol, floor), settings.max_steps))


def check_values(system: System) -> None:
    J = system.J
    if not system.every(torch.isfinite(J.diag).all() & torch.isfinite(J.off).all()):
        refuse(Status.nonfinite)
    if not system.every(J.diag > 0):
        refuse(Status.not_positive_definite)


def _quadrature(system: System, z: Tensor, max_steps: int) -> tuple[Tensor, int, Status]:
    """``z^T log(J) z`` of every probe ``[H, P]`` for a J of unit diagonal, less its control variate."""
    nodes, small = system.num_nodes, torch.finfo(z.dtype).eps
    square = 2 * system.total(system.edge_share(system.J.off.double().square()).sum(1, keepdim=True)).cpu() / nodes
    q, before, beta = z / nodes**0.5, torch.zeros_like(z), z.new_zeros(z.size(0), z.size(2))
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    last, steps = None, min(max_steps, nodes)
    for step in range(1, steps + 1):
        w = system.product(q)
        alpha = system.total((w * q).sum(1))
        w = w - alpha.unsqueeze(1) * q - beta.unsqueeze(1) * before
        beta = system.total(w.square().sum(1)).sqrt()
        alphas.append(alpha.double())
        # an invariant subspace ends the recursion of its probe: what follows has weight zero
        beta = torch.where(beta > 10 * small, beta, torch.zeros_like(beta))
        betas.append(beta.double())
        before, q = q, w / torch.where(beta > 0, beta, torch.ones_like(beta)).unsqueeze(1)
        q = torch.where((beta > 0).unsqueeze(1), q, torch.zeros_like(q))
        if step % LOOK == 0 or step == steps:
            samples = nodes * _controlled(square, alphas, betas)
            error = samples.std(1) / samples.size(1) ** 0.5
            if last is not None:
                change = (samples.mean(1) - last).abs()
                if bool((change <= SETTLED * error + 1e-10 * nodes).all()):
                    return samples, step, Status.converged
            last = samples.mean(1)
    return samples, steps, Status.converged if steps == nodes else Status.max_steps_reached


def _controlled(square: Tensor, alphas: list[Tensor], betas: list[Tensor]) -> Tensor:
    """The quadrature of the logarithm less its best quadratic, whose expectation is put back: ``[H, P]``, per node.

    ``square`` is tr R^2 / N for R = I - J.
    """
    T = torch.diag_embed(torch.stack(alphas, -1).cpu())  # small: a GPU takes longer for its eigenvalues
    if len(betas) > 1:
        side = torch.stack(betas[:-1], -1).cpu()
        T = T + torch.diag_embed(side, 1) + torch.diag_embed(side, -1)
    ritz, vectors = torch.linalg.eigh(T)
    weight = vectors[..., 0, :].square()
    if bool(((ritz <= 0) & (weight > 1e-10)).any()):
        refuse(Status.not_positive_definite)
    ritz = ritz.clamp_min(torch.finfo(torch.float64).tiny)
    R = 1 - ritz
    log = torch.where(weight > 1e-14, ritz.log(), torch.zeros_like(ritz))
    # the quadratic that fits log on the spectrum as the probes see it; its first coefficient times tr R = 0 is lost
    basis = torch.stack([torch.ones_like(R), R, R.square()], -1)
    root = weight.sqrt().unsqueeze(-1)
    heads = R.size(0)
    design = (basis * root).reshape(heads, -1, 3)
    target = (log.unsqueeze(-1) * root).reshape(heads, -1, 1)
    gram = design.mT @ design
    ridge = 1e-12 * gram.diagonal(dim1=1, dim2=2).amax(1).clamp_min(1e-30)
    eye = torch.eye(3, dtype=gram.dtype, device=gram.device)
    c = torch.linalg.solve(gram + ridge.view(-1, 1, 1) * eye, design.mT @ target).unsqueeze(-1)  # [H, 3, 1, 1]
    moments = [(weight * R**k).sum(-1) for k in (1, 2)]  # z^T R^k z / N
    control = c[:, 1, 0] * moments[0] + c[:, 2, 0] * (moments[1] - square)
    return (weight * log).sum(-1) - control


def estimate_marginals(J: Precision, settings: Estimate) -> tuple[Tensor, Tensor, int, Status]:
    """The diagonal of J^-1 and its standard error, ``[H, N]`` each, both without gradient."""
    system = system_of(J)
    check_values(system)
    value, error = _by_samples(system, settings) or _by_probes(*system.scaled(), settings)
    return value, error, 0, Status.converged


def _by_samples(system: System, settings: Estimate) -> tuple[Tensor, Tensor] | None:
    r"""Rao-Blackwell: the variance given the neighbours, plus that of the conditional mean, over samples.

    :math:`\Sigma_{ii} = 1 / J_{ii} + \mathrm{Var}(\sum_j J_{ij} x_j) / J_{ii}^2`. Its relative error is at most
    :math:`\sqrt{2 / P}`, however strong the correlations are; None if J is not walk-summable.
    """
    root = dominant_root(system)
    if root is None:
        return None
    noise = system.normals(settings.probes, settings.seed, "cpu")
    x = _solved(system, system.own(root(noise)), settings)
    diag = system.own(system.J.diag)
    around = (system.product(x) - diag.unsqueeze(2) * x).double() / diag.double().unsqueeze(2)
    sample = around.square()
    own = 1 / diag.double()
    mean = sample.mean(2)
    # of the square of a Gaussian, whose spread is known; P - 4 allows for its mean being estimated
    return own + mean, mean * (2 / (settings.probes - 4)) ** 0.5


def _by_probes(system: System, S: Tensor, settings: Estimate) -> tuple[Tensor, Tensor]:
    r"""Hutchinson: :math:`\Sigma_{ii} = E[z_i (J^{-1} z)_i]`, for every positive definite J, scaled as S says.

    The control variate is the same with the Neumann polynomial
    :math:`D^{-1} + D^{-1} A D^{-1} + D^{-1} A D^{-1} A D^{-1}`, D - A = J, whose diagonal is known.
    """
    J = system.J
    z = system.signs(settings.probes, settings.seed)
    sample = (z * _solved(system, z, settings)).double()
    inverse, i, j = 1 / J.diag, *J.graph.edges
    A, own = system.with_values(torch.zeros_like(J.diag), -J.off), system.own(inverse).unsqueeze(2)
    first = own * A.product(own * z)
    second = own * A.product(first)
    known = torch.zeros_like(inverse).index_add(1, i, J.off.square() * inverse[:, j])
    known = known.index_add(1, j, J.off.square() * inverse[:, i]) * inverse.square()
    value, error = _regressed(sample, (z * (first + second)).double() - system.own(known).double().unsqueeze(2))
    return value * S.double().square(), error * S.double().square()


def _regressed(sample: Tensor, control: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard error of what is left after the best multiple of a control, whose mean is zero."""
    P = sample.size(2)
    mean = control.mean(2)
    centred = control - mean.unsqueeze(2)
    spread = centred.square().sum(2)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    c = (centred * sample).sum(2) / spread
    left = sample - c.unsqueeze(2) * control
    variance = (left - left.mean(2, keepdim=True)).square().sum(2) / (P - 2)
    # the multiple is estimated too: the second term is its share, as in every regression
    return left.mean(2), (variance * (1 / P + mean.square() / spread)).sqrt()
