"""The fields of spatial statistics as designs: what other packages call CAR, SAR, Leroux, ICAR, Matern and random walk.

All have a learned precision tau and at most one further learned parameter per head, read no node features, and take
non-negative edge weights. J is positive definite, though not always walk-summable.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from walksum._checks import check_count, check_positive
from walksum.designs.base import Design, check_width, degree_sum, ends, linear, need, refuse_negative_weights
from walksum.designs.two_hop import laplacian, sandwich
from walksum.graph import Graph
from walksum.ops import edge_dot
from walksum.precision import Precision


class FieldDesign(Design):
    """A design with one precision per head, without node features."""

    log_tau: nn.Parameter
    raw: nn.Parameter
    log_kappa: nn.Parameter

    def __init__(self, heads: int, tau: float):
        super().__init__("attractive")
        check_positive(tau=tau)
        self.heads = check_count("heads", heads)
        self._starts: dict[str, float] = {}
        self._learn("log_tau", math.log(tau))

    def _learn(self, name: str, start: float) -> None:
        """Make one parameter per head, which :meth:`reset_parameters` sets back to where it started."""
        self._starts[name] = start
        self.register_parameter(name, nn.Parameter(torch.full((self.heads, 1), start)))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for name, start in self._starts.items():
            nn.init.constant_(self.get_parameter(name), start)

    @property
    def tau(self) -> Tensor:
        """``[H, 1]``."""
        return self.log_tau.exp()

    def arguments(self) -> dict[str, Any]:
        return {name: value for name, value in super().arguments().items() if not isinstance(value, Tensor)}

    def weights(self, graph: Graph) -> Tensor:
        _check_graph(graph)
        refuse_negative_weights(type(self).__name__, graph)
        return graph.weights(self.log_tau.dtype)

    def extra_repr(self) -> str:
        return f"heads={self.log_tau.size(0)}"


class CAR(FieldDesign):
    r"""Proper conditional autoregressive field (CAR; PyMC ``CAR``, brms ``car(type="escar")``).

    .. math:: J = \tau\,(D - \alpha A), \qquad |\alpha| < 1

    A node without edges has :math:`J_{ii} = \tau`.

    Args:
        heads: number of heads H, each with its own parameters.
        alpha: starting value of the learned dependence.
        tau: starting value of the learned precision.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.CAR(alpha=0.5)(path).to_dense().detach()
        tensor([[[ 1.0000, -0.5000,  0.0000],
                 [-0.5000,  2.0000, -0.5000],
                 [ 0.0000, -0.5000,  1.0000]]])
    """

    def __init__(self, heads: int = 1, alpha: float = 0.9, tau: float = 1.0):
        super().__init__(heads, tau)
        self._learn("raw", math.atanh(_inside("alpha", alpha, -1)))

    @property
    def alpha(self) -> Tensor:
        return torch.tanh(self.raw)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        degree, off = laplacian(graph, self.weights(graph))
        return Precision(graph, self.tau * _at_least_one_edge(degree), self.tau * self.alpha * off)


class SAR(FieldDesign):
    r"""Simultaneous autoregressive field, the spatial error model (spreg ``ML_Error``, R spatialreg ``errorsarlm``).

    .. math:: J = \tau\,(I - \rho W)^\top (I - \rho W), \qquad W = D^{-1} A, \quad |\rho| < 1

    from :math:`u = \rho W u + \varepsilon`, :math:`\varepsilon \sim \mathcal{N}(0, 1/\tau)`; the rows of W sum to one.
    J lives on the two-hop graph.

    Args:
        heads: number of heads H.
        rho: starting value of the learned dependence (spreg: lambda).
        tau: starting value of the learned precision (one over sigma squared).

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.SAR(rho=0.5)(path).to_dense().detach()
        tensor([[[ 1.0625, -0.7500,  0.0625],
                 [-0.7500,  1.5000, -0.7500],
                 [ 0.0625, -0.7500,  1.0625]]])
    """

    def __init__(self, heads: int = 1, rho: float = 0.5, tau: float = 1.0):
        super().__init__(heads, tau)
        self._learn("raw", math.atanh(_inside("rho", rho, -1)))

    @property
    def rho(self) -> Tensor:
        return torch.tanh(self.raw)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        degree, off = laplacian(graph, self.weights(graph))
        degree = _at_least_one_edge(degree)
        # I - rho W = D^-1 (D - rho A), so the product is (D - rho A) D^-2 (D - rho A)
        J = sandwich(graph, degree.expand_as(self.rho * degree), self.rho * off, degree.square().reciprocal())
        return Precision(J.graph, self.tau * J.diag, self.tau * J.off)


class Leroux(FieldDesign):
    r"""Leroux field, between independence and the intrinsic field (CARBayes ``S.CARleroux``, INLA ``besagproper2``).

    .. math:: J = \tau\,((1 - \lambda) I + \lambda (D - A)), \qquad 0 < \lambda < 1

    Args:
        heads: number of heads H.
        lam: starting value of the learned mixture.
        tau: starting value of the learned precision.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.Leroux(lam=0.5)(path).to_dense().detach()
        tensor([[[ 1.0000, -0.5000,  0.0000],
                 [-0.5000,  1.5000, -0.5000],
                 [ 0.0000, -0.5000,  1.0000]]])
    """

    def __init__(self, heads: int = 1, lam: float = 0.5, tau: float = 1.0):
        super().__init__(heads, tau)
        lam = _inside("lam", lam, 0)
        self._learn("raw", math.log(lam / (1 - lam)))

    @property
    def lam(self) -> Tensor:
        return torch.sigmoid(self.raw)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        degree, off = laplacian(graph, self.weights(graph))
        independent = torch.sigmoid(-self.raw)  # 1 - lam without cancellation
        return Precision(graph, self.tau * (independent + self.lam * degree), self.tau * self.lam * off)


class Intrinsic(FieldDesign):
    r"""Intrinsic field with a ridge (ICAR; PyMC ``ICAR``, INLA ``besag``, with the ridge ``besagproper``).

    .. math:: J = \tau\,(D - A + \epsilon I)

    The ridge makes it proper: a constant has precision :math:`\tau\epsilon` instead of zero. With ``ridge=0`` J is
    singular, for :meth:`GaussianField.constrain` or noisy observations, and no layer can solve it.

    Args:
        heads: number of heads H.
        tau: starting value of the learned precision.
        ridge: :math:`\epsilon`, fixed.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.Intrinsic(ridge=0.5)(path).to_dense().detach()
        tensor([[[ 1.5000, -1.0000,  0.0000],
                 [-1.0000,  2.5000, -1.0000],
                 [ 0.0000, -1.0000,  1.5000]]])
    """

    def __init__(self, heads: int = 1, tau: float = 1.0, ridge: float = 1e-4):
        super().__init__(heads, tau)
        _check_ridge(ridge)
        self.ridge = ridge

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        degree, off = laplacian(graph, self.weights(graph))
        return Precision(graph, self.tau * (degree + self.ridge), self.tau * off)


class Matern(FieldDesign):
    r"""Matern-like field on a graph (the graph Matern kernel of Borovitskiy et al. 2021; INLA's SPDE with alpha = nu).

    .. math:: J = \tau\,(\kappa^2 I + D - A)^\nu, \qquad \nu \in \{1, 2\}

    Args:
        heads: number of heads H.
        nu: 1, on the graph itself; or 2, smoother, on the two-hop graph.
        kappa: starting value of the learned inverse range.
        tau: starting value of the learned precision.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.Matern(nu=2)(path).to_dense().detach()
        tensor([[[ 5., -5.,  1.],
                 [-5., 11., -5.],
                 [ 1., -5.,  5.]]])
    """

    def __init__(self, heads: int = 1, nu: int = 1, kappa: float = 1.0, tau: float = 1.0):
        super().__init__(heads, tau)
        check_positive(kappa=kappa)
        self.nu = _one_or_two("nu", nu)
        self._learn("log_kappa", math.log(kappa))

    @property
    def kappa(self) -> Tensor:
        return self.log_kappa.exp()

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        degree, off = laplacian(graph, self.weights(graph))
        diag = self.kappa.square() + degree
        if self.nu == 1:
            return Precision(graph, self.tau * diag, self.tau * off)
        J = sandwich(graph, diag, off, torch.ones_like(degree))
        return Precision(J.graph, self.tau * J.diag, self.tau * J.off)


class RandomWalk(FieldDesign):
    r"""Random walk of order 1 or 2 on a chain, with a small ridge (INLA ``rw1`` and ``rw2``).

    .. math::
        x^\top J x = \tau \sum_i (x_{i+1} - x_i)^2 + \tau\epsilon\, |x|^2 \quad\text{or}\quad
        \tau \sum_i (x_{i-1} - 2 x_i + x_{i+1})^2 + \tau\epsilon\, |x|^2

    The graph must be made of paths or rings; in order 2 the sum runs over nodes with two neighbours. Edge weights are
    not read. With ``ridge=0`` J is singular, as that of :class:`Intrinsic`.

    Args:
        heads: number of heads H.
        order: 1 or 2.
        tau: starting value of the learned precision.
        ridge: :math:`\epsilon`, fixed.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.RandomWalk(order=2, ridge=0.5)(path).to_dense().detach()
        tensor([[[ 1.5000, -2.0000,  1.0000],
                 [-2.0000,  4.5000, -2.0000],
                 [ 1.0000, -2.0000,  1.5000]]])
    """

    def __init__(self, heads: int = 1, order: int = 1, tau: float = 1.0, ridge: float = 1e-6):
        super().__init__(heads, tau)
        _check_ridge(ridge)
        self.order, self.ridge = _one_or_two("order", order), ridge

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        _check_graph(graph)
        if graph.num_nodes and int(graph.degree.max()) > 2:
            raise ValueError(f"{graph} has a node with {int(graph.degree.max())} neighbours; RandomWalk takes chains")
        ones = torch.ones(graph.num_edges, dtype=self.log_tau.dtype, device=graph.device)
        degree, off = laplacian(graph, ones)
        if self.order == 1:
            return Precision(graph, self.tau * (degree + self.ridge), self.tau * off)
        J = sandwich(graph, degree, off, (degree == 2).to(degree))
        return Precision(J.graph, self.tau * (J.diag + self.ridge), self.tau * J.off)


class Squared(FieldDesign):
    r"""Any signs, positive definite by construction: the square of a signed matrix on the graph.

    .. math::
        J = \tau\,(B B^\top + \epsilon I), \qquad B_{ij} = w_{ij}\, s_i^\top s_j / \sqrt{d_i d_j}, \quad B_{ii} = 1,

    where :math:`s = \tanh(x W)` is learned from the node features. B is symmetric and may be indefinite, J is not
    restricted to walk-summable matrices and lives on the two-hop graph: solve it with ``solver="direct"`` or "cg".

    Args:
        in_channels: number of features of ``x [N, F]``.
        heads: number of heads H.
        channels: length of s.
        epsilon: smallest eigenvalue of J over tau, fixed.
        tau: starting value of the learned precision.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Squared(8)(path, torch.randn(3, 8))
        >>> bool(torch.linalg.eigvalsh(J.to_dense()).min() > 0.09)  # epsilon=0.1, whatever the signs
        True
    """

    def __init__(self, in_channels: int, heads: int = 1, channels: int = 4, epsilon: float = 0.1, tau: float = 1.0):
        super().__init__(heads, tau)
        check_positive(epsilon=epsilon)
        self.epsilon, self.channels = epsilon, check_count("channels", channels)
        self.in_channels = check_width("in_channels", in_channels)
        self.project = linear(in_channels, heads * channels, bias=False)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        x = need(self, "x", x, graph)
        s = torch.tanh(self.project(x)).view(-1, self.heads, self.channels).transpose(0, 1).contiguous()
        weight = graph.weights(s.dtype)
        degree = _at_least_one_edge(degree_sum(graph, weight.abs().unsqueeze(0)))
        root_i, root_j = ends(graph, degree.sqrt())
        off = weight * edge_dot(graph, s, s) / 2 / (root_i * root_j)
        J = sandwich(graph, torch.ones_like(s[..., 0]), off, torch.ones_like(degree))
        return Precision(J.graph, self.tau * (J.diag + self.epsilon), self.tau * J.off)


def _at_least_one_edge(degree: Tensor) -> Tensor:
    """A node without edges counts as if it had one of weight 1, to nowhere."""
    return torch.where(degree > 0, degree, torch.ones_like(degree))


def _inside(name: str, value: float, low: float) -> float:
    if not low < value < 1:
        raise ValueError(f"{name}={value!r}; expected a number strictly between {low} and 1")
    return float(value)


def _check_graph(graph: object) -> None:
    if not isinstance(graph, Graph):
        raise ValueError(f"graph is a {type(graph).__name__}; expected a Graph, Graph.from_edge_index makes one")


def _check_ridge(ridge: float) -> None:
    if ridge != 0 and not (isinstance(ridge, Real) and 0 < ridge < math.inf):
        raise ValueError(f"ridge={ridge!r}; expected a positive finite number or 0")


def _one_or_two(name: str, value: int) -> int:
    if value not in (1, 2):
        raise ValueError(f"{name}={value!r}; expected 1 or 2")
    return int(value)
