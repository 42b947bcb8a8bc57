"""Propagate: the mixing alone, (1 - s) J^-1 x, as a PyG layer without weights of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from walksum._checks import check_choice
from walksum.designs import Design, scale_for_reach
from walksum.designs.base import SIGN, check_fraction, reach_of_scale
from walksum.graph import Graph, as_graph
from walksum.nn import compiled
from walksum.nn.adjacency import LARGEST_LEARNED, Adjacency, adjacency_precision, logit_of, scale_of
from walksum.nn.explained import call_message_hooks, is_explained, masked, partial_correlation
from walksum.nn.inputs import check_layout, one_column, without_autocast, working_precision
from walksum.precision import Precision
from walksum.solvers import Solver, resolve_name
from walksum.solving import ON_NONCONVERGED, solve


class Propagate(compiled.SolvingLayer, MessagePassing):
    r"""Exact propagation over all paths of the graph, in one linear operator.

    .. math::
        \mu = (1 - s)\, J^{-1} x, \qquad J = I \mp s\, D^{-1/2} A D^{-1/2}

    With ``coupling="attractive"`` (the minus sign) this is PPNP's personalised PageRank with teleport probability
    1 - s; with "repulsive" neighbours push each other apart. ``loops=True`` adds one loop of weight 1 per node before
    normalising, as GCN and PPNP do. A node without edges gives (1 - s) x without loops, x with attractive loops.

    Args:
        scale: s, in (0, 1).
        reach: instead of ``scale``: the number of hops along a path after which influence has fallen to 1/e.
        coupling: "attractive" or "repulsive".
        loops: add a loop to each node before normalising.
        design: a :class:`walksum.Design` that makes J instead; the result is then :math:`J^{-1} x`.
        learned: make s a parameter.
        solver, on_nonconverged: see :func:`walksum.solve`.

    Shapes:
        - **input:** node features ``(N, F)``, ``(N,)`` or ``(B, N, F)``, edge indices ``(2, M)`` or a Graph,
          optional weights ``(M,)``
        - **output:** the shape of the node features

    Example:
        >>> import torch, walksum as ws
        >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> out = ws.Propagate(reach=2)(torch.tensor([1.0, 0.0, 0.0, 0.0]), path)
        >>> bool((out[:-1] > out[1:]).all() and (out > 0).all())
        True

    ``last_solve`` and ``last_backward_solve`` hold the :class:`walksum.Solution` of the latest passes, without value.
    """

    written = (*compiled.SolvingLayer.written, "start", "coupling", "loops", "logit")

    def __init__(
        self,
        scale: float = 0.9,
        reach: float | None = None,
        coupling: str = "attractive",
        loops: bool = False,
        design: Design | None = None,
        learned: bool = False,
        solver: Solver | str = "auto",
        on_nonconverged: str = "warn",
    ):
        super().__init__(aggr=None)  # MessagePassing only so that PyG's tools know it as a graph layer
        check_choice("coupling", coupling, tuple(SIGN))
        check_choice("on_nonconverged", on_nonconverged, ON_NONCONVERGED)
        if design is not None:
            if not isinstance(design, Design):
                raise ValueError(
                    f"design={design!r}; expected a walksum.Design object, for example ws.FixedLaplacian()"
                )
            if reach is not None or loops or learned or coupling != "attractive":
                raise ValueError("reach, loops, learned or coupling was given beside a design; give them to the design")
        self.coupling, self.loops, self.design = coupling, loops, design
        self.start = check_fraction("scale", scale) if reach is None else scale_for_reach(reach)
        if learned and self.start > LARGEST_LEARNED:
            raise ValueError(
                f"scale={self.start!r} with learned=True; a learned scale stays at or below {LARGEST_LEARNED}, a reach "
                f"of about {reach_of_scale(LARGEST_LEARNED):.0f}"
            )
        self.logit = nn.Parameter(torch.empty(())) if learned else None
        self.solver, self.on_nonconverged = resolve_name(solver), on_nonconverged
        self.reset_parameters()
        self.write_recipe()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.logit is not None:
            nn.init.constant_(self.logit, logit_of(self.start))
        reset(self.design)

    @property
    def scale(self) -> float | Tensor:
        """s: a number, or the learned tensor; it stays a little below 1, where J would be singular."""
        return scale_of(self.start, self.logit)

    def precision(self, graph: Graph, dtype: torch.dtype, x: Tensor | None = None) -> Precision:
        """J on this graph; one object per graph as long as nothing of it is learned, so that its factor is kept."""
        if self.design is not None:
            return self.design(graph, x, None if x is None else x.unsqueeze(0))
        return adjacency_precision(graph, self.scale, SIGN[self.coupling], self.loops, dtype)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Mix ``x`` over the graph; ``edge_index`` is anything :meth:`walksum.Graph.from_edge_index` takes."""
        check_nodes(x)
        if x.dim() > 2:  # several samples on one graph
            return self._each_sample(x, edge_index, edge_weight)
        edge_index = as_graph(edge_index) if isinstance(edge_index, list) else edge_index
        edge_weight, J = one_column(edge_weight), None
        with without_autocast(x.device):  # J must be positive definite to the last bits
            h = working_precision(x, self.start if self.design is None and self.logit is None else 0.0)
            h = h.unsqueeze(-1) if x.dim() == 1 else h
            if torch.compiler.is_compiling() and not is_explained(self):
                mu = self._mix_compiled(h, edge_index, edge_weight)
            else:
                J = self.precision(as_graph(edge_index, x.size(0), edge_weight), h.dtype, h)
                J = masked(self, J, edge_index)
                mu = solve(J, h, self.solver, observe=self.remember, on_nonconverged=self.on_nonconverged)
            if self.design is None:
                mu = (1 - self.scale) * mu
            elif mu.requires_grad:
                mu = mu.clone()  # the backward pass reads mu; what is returned may be changed in place
        out = mu.view(x.shape).to(x.dtype)
        if J is not None and self._message_forward_hooks:
            alpha = partial_correlation(J, edge_index)
            call_message_hooks(self, alpha, alpha=alpha.abs())
        return out

    def _each_sample(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        if self.design is not None:
            raise ValueError(f"x has shape {tuple(x.shape)}; with a design of its own Propagate takes [N, F]")
        columns = x.movedim(-2, 0)  # a J that no sample changes has them as columns
        return self(columns.flatten(1), edge_index, edge_weight).view(columns.shape).movedim(0, -2)

    def whole_design(self) -> Design:
        return self.design or Adjacency(self.start, self.coupling, self.loops, self.logit is not None)

    def _mix_compiled(self, h: Tensor, edge_index: Any, weight: Tensor | None) -> Tensor:
        """The same as one operator, which a compiler leaves whole."""
        if self.design is None:
            parameters, x = [] if self.logit is None else [self.logit], h.detach()  # no J of these reads x
        else:
            parameters, x = list(self.design.parameters()), h
        return compiled.mix_over(edge_index, weight, x, h.unsqueeze(0), None, parameters, self.current_recipe())

    def __repr__(self) -> str:
        if self.design is not None:
            return f"Propagate(design={self.design})"
        learned = "" if self.logit is None else ", learned=True"
        scale = float(self.scale.detach() if isinstance(self.scale, Tensor) else self.scale)
        digits = f"{scale:.6g}" if scale < 0.99999 else repr(scale)  # six would round to 1, which is no scale
        sizes = f"scale={digits}, reach={reach_of_scale(scale):.3g}"
        return f"Propagate({sizes}, coupling={self.coupling!r}, loops={self.loops}{learned})"


def check_nodes(x: Any) -> None:
    """One row of floating-point features per node."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind, remedy = (x.dtype, ", use x.float()") if isinstance(x, Tensor) else (type(x).__name__, "")
        if isinstance(x, tuple | list):
            remedy = "; of layers only walksum.GLTConv takes (x_source, x_target)"
        raise ValueError(f"x has type {kind}; expected a floating-point tensor [N, F] or [N]{remedy}")
    check_layout(x)
    if x.dim() == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected [N, F], [N] or [B, N, F]")
