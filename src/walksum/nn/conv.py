"""GLTConv: the mixing alone, as a PyG layer."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import leaky_relu
from torch_geometric.nn import MessagePassing

from walksum._checks import check_choice, check_count
from walksum.designs import Design, Setting, make_design
from walksum.graph import EdgeInput, Graph, as_graph
from walksum.precision import Precision
from walksum.solvers import Solution, Solver, resolve_name
from walksum.solving import HALF, ON_NONCONVERGED, solve


class GLTConv(MessagePassing):
    r"""The graph linear transformation as a PyG layer.

    .. math::
        h = \mathrm{LeakyReLU}(X W_{\mathrm{obs}}), \qquad \mu = J^{-1} h

    with J made from the graph by a precision design. One layer carries information between all connected nodes.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample, per head.
        heads: number of heads; each has its own J (learned designs) and its own observation vector.
        concat: concatenate the heads; otherwise average them.
        design: "laplacian", "diagonally-dominant", "pairwise-normal", or a :class:`walksum.designs.Design`.
        learned: learn J, or take the fixed variant. A fixed J is the same for all heads.
        coupling: "attractive" or "repulsive"; by default the paper's sign for the design.
        solver: a solver object or name, see :func:`walksum.solve`.
        on_nonconverged: "ignore", "warn" or "raise".
        bias: add a bias to the observation.
        settings: of the design, by name: ``scale`` or ``reach`` (how many edges influence travels along a path before
            it falls to 1/e) of a Laplacian, ``epsilon`` of a pairwise normal, ``similarity``, ``margin``, ... where the
            design has them; see :func:`walksum.designs.make_design`.

    Shapes:
        - **input:** node features ``(N, in_channels)``, edge indices ``(2, M)`` or a Graph, optional weights ``(M,)``
        - **output:** ``(N, heads * out_channels)`` or ``(N, out_channels)``; with ``return_precision=True`` also J

    Example:
        >>> import torch, walksum as ws
        >>> conv = ws.GLTConv(16, 8, heads=4, design="laplacian", reach=3)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> conv(x, edge_index).shape
        torch.Size([4, 32])

    ``last_solve`` and ``last_backward_solve`` hold the :class:`walksum.Solution` of the latest passes.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        design: str | Design = "laplacian",
        learned: bool = True,
        coupling: str | None = None,
        solver: Solver | str = "auto",
        on_nonconverged: str = "warn",
        bias: bool = True,
        **settings: Setting,
    ):
        # MessagePassing only so that PyG's tools (explainers, summaries) know it as a graph layer: it never
        # propagates messages of its own
        super().__init__(aggr=None)
        check_choice("on_nonconverged", on_nonconverged, ON_NONCONVERGED)
        self.in_channels = in_channels = check_count("in_channels", in_channels)
        self.out_channels = out_channels = check_count("out_channels", out_channels)
        self.heads = heads = check_count("heads", heads)
        self.concat = concat
        self.solver, self.on_nonconverged = resolve_name(solver), on_nonconverged
        self.observe = nn.Linear(in_channels, heads * out_channels, bias=bias)
        if isinstance(design, Design):
            _check_given_design(design, heads, {"coupling": coupling, **settings})
            self.design = design
        else:
            self.design = make_design(design, learned, in_channels, out_channels, heads, coupling, **settings)
        self.last_solve: Solution | None = None
        self.last_backward_solve: Solution | None = None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.observe.reset_parameters()
        self.design.reset_parameters()

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: EdgeInput,
        edge_weight: Tensor | None = None,
        features: Tensor | None = None,
        return_precision: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: EdgeInput,
        edge_weight: Tensor | None = None,
        features: Tensor | None = None,
        *,
        return_precision: Literal[True],
    ) -> tuple[Tensor, Precision]: ...

    def forward(
        self,
        x: Tensor,
        edge_index: EdgeInput,
        edge_weight: Tensor | None = None,
        features: Tensor | None = None,
        return_precision: bool = False,
    ) -> Tensor | tuple[Tensor, Precision]:
        """Mix ``x`` over the graph.

        Args:
            x: node features.
            edge_index: anything :meth:`walksum.Graph.from_edge_index` takes, or a Graph.
            edge_weight: weights of the couplings.
            features: the model's input features, for the design that reads those (fixed pairwise normal); by
                default ``x``.
            return_precision: also return J.
        """
        _check_features(x, self.in_channels)
        graph = as_graph(edge_index, x.size(0), edge_weight)
        h = leaky_relu(self.observe(x)).view(-1, self.heads, self.out_channels).transpose(0, 1)
        # J must be symmetric positive definite to the last bits: designs and solves never run in half precision
        with torch.autocast(x.device.type, enabled=False):
            h = _at_least_float32(h)
            source = features if features is not None and self.design.reads_input else x
            J = self._masked(self._precision(graph, source.to(h.dtype), h), edge_index)
            mu = solve(J, h, self.solver, observe=self._remember, on_nonconverged=self.on_nonconverged)
        out = mu.transpose(0, 1).to(self._dtype)
        out = out.flatten(1) if self.concat else out.mean(1)
        return (out, J) if return_precision else out

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.observe.parameters()).dtype

    def _precision(self, graph: Graph, x: Tensor, h: Tensor) -> Precision:
        if self._dtype not in HALF:
            return self.design(graph, x, h)
        return functional_call(self.design, {k: v.float() for k, v in self.design.named_parameters()}, (graph, x, h))

    def _remember(self, solution: Solution) -> None:
        if solution.direction == "forward":
            self.last_solve = solution
        else:
            self.last_backward_solve = solution

    def _masked(self, J: Precision, edge_index: EdgeInput) -> Precision:
        """Under a PyG explainer, multiply the couplings by its edge mask, made symmetric."""
        if not self.explain or self._edge_mask is None or isinstance(edge_index, Graph):
            return J
        mask = self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        weight = as_graph(edge_index, J.num_nodes, mask).edge_weight
        assert weight is not None
        return Precision(J.graph, J.diag, J.off * weight.to(J.dtype))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads}, design={self.design})"
        )


def _check_given_design(design: Design, heads: int, settings: dict[str, Setting]) -> None:
    for name, value in settings.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} was given beside a Design object; give it to the design")
    if design.heads not in (1, heads):
        raise ValueError(f"design has {design.heads} heads for a layer of heads={heads}; they must agree")


def _check_features(x: Tensor, in_channels: int) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x has type {kind}; expected a floating-point tensor [N, {in_channels}]")
    if x.dim() != 2 or x.size(1) != in_channels:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected [N, {in_channels}]")


def _at_least_float32(t: Tensor) -> Tensor:
    return t.float() if t.dtype in HALF else t
