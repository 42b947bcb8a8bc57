"""Models of continuous depth: GDE (Poli et al., 2019) and CGNN (Xhonneux et al., 2020)."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, LGConv

from walksum.paper.models.structure import ComparedModel, Edges, gcn_edges, incoming, neighbours

Field = Callable[[Tensor, Tensor], Tensor]

SELF_WEIGHT = 0.555  # s, the published weight of a node's link to itself


def integrate(field: Field, state: Tensor, time: float, step: float = 1.0) -> Tensor:
    """The solution of dH/dt = f(t, H) at `time`, started at 0.

    By the fourth-order 3/8 rule with equal steps of at most `step`. It is written out because torchdiffeq's own copies
    states into a preallocated tensor, which torch.func.vmap forbids.
    """
    if time <= 0:
        raise ValueError(f"time={time} must be positive")
    steps = math.ceil(time / step)
    clock = torch.arange(steps, dtype=state.dtype, device=state.device) * (time / steps)
    for now in clock:
        state = state + _three_eighths(field, now, time / steps, state)
    return state


def _three_eighths(f: Field, t: Tensor, dt: float, y: Tensor) -> Tensor:
    k1 = f(t, y)
    k2 = f(t + dt / 3, y + dt * k1 / 3)
    k3 = f(t + dt * 2 / 3, y + dt * (k2 - k1 / 3))
    k4 = f(t + dt, y + dt * (k1 - k2 + k3))
    return dt * (k1 + 3 * (k2 + k3) + k4) / 8


class GDE(ComparedModel):
    """H(0) = ReLU(GCN(X)); dH/dt = GCN(softplus(GCN(H))) for t in [0, 1]; Y = GCN(H(1)).

    One rk4 step is four evaluations of the field. Dropout inside the field uses one mask per forward: with a
    new one in every evaluation the field would be noise. Self-loops are added where missing.

    Args:
        step: of `integrate`.
    """

    derive = staticmethod(gcn_edges)

    def build(self, inputs: int, hidden: int, classes: int, step: float = 1.0) -> None:
        self.encode = GCNConv(inputs, hidden, normalize=False)
        self.inner = GCNConv(hidden, hidden, normalize=False)
        self.outer = GCNConv(hidden, hidden, normalize=False)
        self.decode = GCNConv(hidden, classes, normalize=False)
        self.step = step

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.structure(edge_index, x)
        h = self.encode(self.drop(x), *edges).relu()
        inner_mask, outer_mask = self.drop(torch.ones_like(h)), self.drop(torch.ones_like(h))

        def field(t: Tensor, state: Tensor) -> Tensor:
            hidden = F.softplus(self.inner(inner_mask * state, *edges))
            return self.outer(outer_mask * hidden, *edges)

        h = integrate(field, h, 1.0, self.step)
        return self.decode(self.drop(h), *edges)


def weighted_loop_edges(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> Edges:
    """A_s = D^-1/2 (A + s I) D^-1/2 of the undirected graph, D the row sums of A + s I."""
    near = neighbours(edge_index, num_nodes)
    scale = (incoming(near, num_nodes, dtype) + SELF_WEIGHT).rsqrt()
    nodes = torch.arange(num_nodes, device=near.device)
    weight = torch.cat([scale[near[0]] * scale[near[1]], SELF_WEIGHT * scale.square()])
    return torch.cat([near, torch.stack([nodes, nodes])], dim=1), weight


def orthonormalised(basis: Tensor) -> Tensor:
    """1.5 U - 0.5 U U^T U: one step towards the nearest orthonormal U, of quadratic convergence."""
    return 1.5 * basis - 0.5 * basis @ (basis.mT @ basis)


class CGNN(ComparedModel):
    """E = Drop(X) W; H(0) = [E | 0]; dH/dt = (sigmoid(a)/2) (A_s - I) H + H_0; Y = Drop(ReLU(H(T)[:d])) W'.

    a is learned, one per node; H_0 is H(0) without its gradient. With weights the field has + H (W - I), where
    W = U diag(clip(m, 0, 1)) U^T. **Call `after_step()` after each optimiser step**: it keeps U orthonormal.

    For T to infinity, without weights, H solves (sigmoid(a)/2) (I - A_s) H = H_0: a linear system on the
    graph. I - A_s is singular, so H grows along its null vector; T cuts that short.

    Self-loops have weight s; those given are dropped and the graph is made undirected.

    Args:
        num_nodes: of the graph, as each node has a rate of its own.
        weights: the second variant.
        time, step: T, and see `integrate`.
    """

    derive = staticmethod(weighted_loop_edges)

    def build(
        self,
        inputs: int,
        hidden: int,
        classes: int,
        num_nodes: int,
        weights: bool = False,
        time: float = 12.0,
        step: float = 1.0,
    ) -> None:
        self.encode, self.decode = nn.Linear(inputs, hidden), nn.Linear(hidden, classes)
        self.propagate = LGConv(normalize=False)
        self.rate = nn.Parameter(torch.empty(num_nodes, 1))
        self.basis = nn.Parameter(torch.empty(2 * hidden, 2 * hidden)) if weights else None
        self.spectrum = nn.Parameter(torch.empty(2 * hidden)) if weights else None
        self.time, self.step = time, step
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.constant_(self.rate, 0.95)
        if self.basis is not None and self.spectrum is not None:
            nn.init.eye_(self.basis)
            nn.init.ones_(self.spectrum)

    @torch.no_grad()
    def after_step(self) -> None:
        if self.basis is not None:
            self.basis.copy_(orthonormalised(self.basis))

    def drift(self, h: Tensor, edges: Edges) -> Tensor:
        """The linear part of the field."""
        out = self.rate.sigmoid() / 2 * (self.propagate(h, *edges) - h)
        if self.basis is None or self.spectrum is None:
            return out
        return out + (h @ (self.basis * self.spectrum.clamp(0, 1))) @ self.basis.mT - h

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if x.size(0) != self.rate.size(0):
            raise ValueError(f"x has {x.size(0)} nodes, the model num_nodes={self.rate.size(0)}; they must agree")
        edges = self.structure(edge_index, x)
        e = self.encode(self.drop(x))
        start = torch.cat([e, torch.zeros_like(e)], dim=-1)
        source = start.detach()
        h = integrate(lambda t, state: self.drift(state, edges) + source, start, self.time, self.step)
        return self.decode(self.drop(h[..., : e.size(-1)].relu()))
