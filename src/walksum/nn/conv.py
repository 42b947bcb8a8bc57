"""GLTConv: the mixing alone, as a PyG layer."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from walksum._checks import check_choice, check_count
from walksum._torch import no_compile
from walksum.designs import Design, FixedLaplacian, Setting, make_design
from walksum.designs.base import check_width, linear
from walksum.graph import EdgeInput, Graph, as_graph
from walksum.nn import compiled
from walksum.nn.explained import call_message_hooks, is_explained, masked, partial_correlation
from walksum.nn.inputs import (
    Activation,
    check_edge_attr,
    check_features,
    check_pair,
    join_sides,
    make_activation,
    mean_per_edge,
    without_autocast,
    working_precision,
)
from walksum.nn.node_linear import NodeLinear
from walksum.precision import Precision
from walksum.solvers import Solver, resolve_name
from walksum.solving import HALF, ON_NONCONVERGED, solve

# Of a Laplacian in a layer without norm or residual. Each layer strengthens what all nodes share by 1 / (1 - s): with
# the paper's 0.99, two of them leave little else. The largest that trains with every seed on Cora's validation nodes
# (benchmarks/layer_scale.py): 0.8 fails with one of five, 0.9 with most.
LAYER_SCALE = 0.7
LARGEST_LOGIT = 10.0  # edge features change a coupling by at most e^10


class GLTConv(compiled.SolvingLayer, MessagePassing):
    r"""The graph linear transformation as a PyG layer.

    .. math::
        h = \phi(X W_{\mathrm{obs}}), \qquad \mu = J^{-1} h

    with J made from the graph by a precision design. One layer carries information between all connected nodes.

    J is symmetric, so an edge counts in both directions whichever of them are given: the weights and features of i -> j
    and j -> i are averaged. Loops are left out.

    Args:
        in_channels: size of each input sample; -1 takes that of the first input, a pair serves the two sides of a
            bipartite relation.
        out_channels: size of each output sample, per head.
        heads: number of heads; each has its own J (learned designs) and its own observation vector.
        concat: concatenate the heads; otherwise average them.
        design: "laplacian", "diagonally-dominant", "pairwise-normal", one of the fields of spatial statistics
            ("car", "sar", "leroux", "intrinsic", "matern", "random-walk", "squared"), or a
            :class:`walksum.designs.Design`.
        learned: learn J, or take the fixed variant. A fixed J is the same for all heads.
        coupling: "attractive" or "repulsive"; by default the paper's sign for the design.
        solver: a solver object or name, see :func:`walksum.solve`.
        on_nonconverged: "ignore", "warn" or "raise".
        bias: add a bias to the observation.
        act: :math:`\phi`: the name of an activation in torch.nn, a function, or None.
        edge_dim: size of the edge features, which multiply the couplings of a learned design by
            :math:`\exp(e_{ij} W)`, one factor per head.
        keep_values: let ``last_solve`` and ``last_backward_solve`` hold mu and its gradient too.
        settings: of the design, by name: ``scale`` or ``reach`` (how many edges influence travels along a path before
            it falls to 1/e) of a Laplacian, ``epsilon`` of a pairwise normal, ``similarity``, ``margin``, ... where the
            design has them; see :func:`walksum.designs.make_design`. A Laplacian has ``scale=0.7`` here by
            default: between stacked layers with more of it, put a norm that takes out what all nodes share.

    Shapes:
        - **input:** node features ``(N, in_channels)``, ``(B, N, in_channels)`` for B samples on one graph, or a pair
          ``(N_s, F_s), (N_t, F_t)`` for a relation between two kinds of nodes; edge indices ``(2, M)`` or a Graph,
          optional weights ``(M,)``, optional edge features ``(M, edge_dim)``
        - **output:** ``(N, heads * out_channels)`` or ``(N, out_channels)``, of the target nodes for a pair; with
          ``return_precision=True`` also J

    Example:
        >>> import torch, walksum as ws
        >>> conv = ws.GLTConv(16, 8, heads=4, design="laplacian", reach=3)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> conv(x, edge_index).shape
        torch.Size([4, 32])

    ``last_solve`` and ``last_backward_solve`` hold the :class:`walksum.Solution` of the latest passes, without value.
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        design: str | Design = "laplacian",
        learned: bool = True,
        coupling: str | None = None,
        solver: Solver | str = "auto",
        on_nonconverged: str = "warn",
        bias: bool = True,
        act: str | Activation | None = "leaky_relu",
        edge_dim: int | None = None,
        keep_values: bool = False,
        **settings: Setting,
    ):
        # MessagePassing only so that PyG's tools (explainers, summaries) know it as a graph layer: it never
        # propagates messages of its own
        super().__init__(aggr=None)
        check_choice("on_nonconverged", on_nonconverged, ON_NONCONVERGED)
        pair = in_channels if isinstance(in_channels, tuple | list) else None
        if pair is not None and len(pair) != 2:
            raise ValueError(f"in_channels={in_channels!r}; expected one width or a pair (source, target)")
        self.in_channels = check_width("in_channels", pair[1] if pair else in_channels)
        self.out_channels = out_channels = check_count("out_channels", out_channels)
        self.heads = heads = check_count("heads", heads)
        self.concat, self.keep_values = concat, keep_values
        self.act, self._act_name = make_activation(act), act
        self.solver, self.on_nonconverged = resolve_name(solver), on_nonconverged
        width = heads * out_channels
        known = self.in_channels != -1
        self.observe = NodeLinear(self.in_channels, width, bias) if known else linear(-1, width, bias)
        self.observe_source = linear(check_width("in_channels", pair[0]), width, bias) if pair else None
        read = width if pair else self.in_channels  # sides of different widths meet in their observations
        if isinstance(design, Design):
            _check_given_design(design, heads, read, out_channels, {"coupling": coupling, **settings})
            self.design = design
        else:
            if design == "laplacian" and settings.get("reach") is None and settings.get("scale") is None:
                settings["scale"] = LAYER_SCALE
            self.design = make_design(design, learned, read, out_channels, heads, coupling, **settings)
        self.edge_dim = edge_dim if edge_dim is None else check_count("edge_dim", edge_dim)
        if edge_dim is not None and "edge" not in signature(self.design.forward).parameters:
            raise ValueError(
                f"edge_dim={edge_dim!r}; edge features enter learned couplings, of which {self.design} has none"
            )
        self.edge = None if edge_dim is None else nn.Linear(edge_dim, heads, bias=False)
        self.write_recipe()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for module in (self.observe, self.observe_source, self.design, self.edge):
            reset(module)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: EdgeInput,
        edge_weight: Tensor | None = None,
        features: Tensor | None = None,
        return_precision: bool = False,
        *,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Mix ``x`` over the graph.

        Args:
            x: node features.
            edge_index: anything :meth:`walksum.Graph.from_edge_index` takes, a Graph, or the list of Graphs of a batch.
            edge_weight: weights of the couplings; where the layer has ``edge_dim``, a matrix here is ``edge_attr``.
            features: the model's input features, for the design that reads those (fixed pairwise normal); by
                default ``x``.
            return_precision: also return J.
            edge_attr: edge features, one row per entry of ``edge_index``.
            return_attention_weights: also return ``(edge_index, alpha)`` as PyG's attention layers do; alpha ``[M, H]``
                is the partial correlation :math:`-J_{ij} / \\sqrt{J_{ii} J_{jj}}` of each entry, 0 for loops.
        """
        if isinstance(edge_weight, Tensor) and edge_weight.dim() == 2:
            edge_weight, edge_attr = self._weight_or_features(edge_weight, edge_attr)
        if isinstance(edge_index, list):
            edge_index = as_graph(edge_index)
        targets = 0
        if isinstance(x, tuple | list):
            observed, source, edge_index, targets = self._observe_pair(x, edge_index)
        elif isinstance(x, Tensor) and x.dim() > 2:
            return self._each_sample(
                x, edge_index, edge_weight, features, return_precision or return_attention_weights, edge_attr
            )
        else:
            check_features(x, self.in_channels, first=self.observe)
            observed = self.observe(x)
            source = x if self.observe_source is None else observed
            if self.in_channels == -1:
                self._settle(x)
            if features is not None and self.design.reads_input:
                source = features
        observed = observed if self.act is None else self.act(observed)
        h = observed.view(-1, self.heads, self.out_channels).transpose(0, 1)
        if self.heads % 8 or not h.is_cpu:  # eight heads at once are solved as they lie
            h = h.contiguous()
        asked = return_precision or return_attention_weights is not None or is_explained(self)
        J = None
        # J must be symmetric positive definite to the last bits: designs and solves never run in half precision
        with without_autocast(observed.device):
            h = working_precision(h, self.design.scale if isinstance(self.design, FixedLaplacian) else 0.0)
            source = source.to(h.dtype)
            if torch.compiler.is_compiling() and not asked:
                mu = self._mix_compiled(source, h.contiguous(), edge_index, edge_weight, edge_attr)
            else:
                graph = as_graph(edge_index, source.size(0), edge_weight)
                factor = self._edge_factor(edge_attr, edge_index, graph, h.dtype)
                J = masked(self, self._precision(graph, source, h, factor), edge_index)
                mu = solve(J, h, self.solver, observe=self.remember, on_nonconverged=self.on_nonconverged)
        out = mu.transpose(0, 1).to(self._dtype)
        out = out.flatten(1) if self.concat else out.mean(1)
        if J is not None and mu.requires_grad and out._is_view():
            out = out.clone()  # the backward pass reads mu; what is returned may be changed in place
        out = out[-targets:] if targets else out
        if J is None or not asked:
            return out
        if return_attention_weights is not None or self._message_forward_hooks:
            alpha = partial_correlation(J, edge_index)
            call_message_hooks(self, alpha, alpha=alpha.abs())
            if return_attention_weights is not None:
                return out, (edge_index.edges if isinstance(edge_index, Graph) else edge_index, alpha)
        return (out, J) if return_precision else out

    def _weight_or_features(self, given: Tensor, edge_attr: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """A matrix in the place of the weights: edge features, or a column of weights."""
        if self.edge is not None and edge_attr is None:
            return None, given
        if given.size(1) == 1:
            return given.squeeze(1), edge_attr
        hint = "" if self.edge is not None else "; for edge features make the layer with edge_dim=..."
        raise ValueError(f"edge_weight has shape {tuple(given.shape)}; expected [{given.size(0)}]{hint}")

    def _observe_pair(self, x: Any, edge_index: Any) -> tuple[Tensor, Tensor, Any, int]:
        """Both sides of a relation as one set of nodes; two times the same tensor are one side."""
        one_side = len(x) == 2 and x[0] is x[1]
        first = (self.observe_source or self.observe, self.observe)
        check_pair(x, (_width(first[0], self.in_channels), self.in_channels), first)
        if self.observe_source is None:
            if x[0].size(-1) != x[1].size(-1):
                raise ValueError(
                    f"x has widths {x[0].size(-1)} and {x[1].size(-1)}; make the layer with in_channels=(..., ...)"
                )
            source = x[1] if one_side else torch.cat([x[0], x[1]])
            observed = self.observe(source)
        else:
            of_target = self.observe(x[1])
            source = observed = of_target if one_side else torch.cat([self.observe_source(x[0]), of_target])
        if self.in_channels == -1:
            self._settle(x[1])
        if one_side:
            return observed, source, edge_index, 0
        return observed, source, join_sides(edge_index, x[0].size(0), x[1].size(0)), x[1].size(0)

    def _settle(self, x: Tensor) -> None:
        """The first input has told the width."""
        self.in_channels = x.size(-1)
        if getattr(self.design, "in_channels", None) == -1:
            self.design.in_channels = self.in_channels
        if isinstance(self.observe_source, nn.LazyLinear):  # both sides are of one kind
            self.observe_source(x.detach())
        self.write_recipe()

    def _each_sample(
        self, x: Tensor, edge_index: Any, weight: Any, features: Any, asked: Any, edge_attr: Any
    ) -> Tensor:
        """Several samples ``[B, N, F]`` on one graph, solved together."""
        check_features(x, self.in_channels, first=self.observe)
        if asked or is_explained(self):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; J, attention weights and explanations are given for one sample [N, F]"
            )
        if self.in_channels == -1:
            with torch.no_grad():
                self(x.flatten(0, -3)[0], edge_index, weight, features, edge_attr=edge_attr)
        if not torch.compiler.is_compiling():  # compiled code makes no Graph
            graph = as_graph(edge_index, x.size(-2), weight)
            if edge_attr is not None and not isinstance(edge_index, Graph):
                edge_attr = mean_per_edge(edge_index, graph, check_edge_attr(edge_attr, self.edge_dim, len(edge_attr)))
            edge_index, weight = graph, None
        samples = x.flatten(0, -3)
        if not x.numel():  # vmap takes no batch without samples
            return self.observe(x)[..., : self.out_channels * (self.heads if self.concat else 1)]
        if features is None or features.dim() == 2:
            out = torch.vmap(lambda one: self(one, edge_index, weight, features, edge_attr=edge_attr))(samples)
        else:
            each = features.flatten(0, -3)
            out = torch.vmap(lambda one, read: self(one, edge_index, weight, read, edge_attr=edge_attr))(samples, each)
        return out.view(*x.shape[:-1], out.size(-1))

    @property
    def _dtype(self) -> torch.dtype:
        return self.observe.weight.dtype

    def _parameters_of_design(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = dict(self.design.named_parameters())
        return {k: v.float() for k, v in named.items()} if self._dtype in HALF else named

    @no_compile  # after a graph break a compiler would go into the design, which looks at numbers
    def _precision(self, graph: Graph, x: Tensor, h: Tensor, factor: Tensor | None) -> Precision:
        given = (graph, x, h) if factor is None else (graph, x, h, factor)
        if self._dtype not in HALF:
            return self.design(*given)
        return functional_call(self.design, self._parameters_of_design(), given)

    def _edge_factor(self, edge_attr: Tensor | None, edge_index: Any, graph: Graph | None, dtype: Any) -> Tensor | None:
        """``exp(e W)``, ``[H, E]``: what edge features make of a coupling."""
        if self.edge is None and edge_attr is None:
            return None
        if isinstance(edge_index, Graph):
            entries = edge_index.num_edges
        else:
            entries = edge_index.size(1) if edge_index.layout == torch.strided else edge_index._nnz()
        edge_attr = check_edge_attr(edge_attr, self.edge_dim, entries)
        assert self.edge is not None
        if graph is not None and graph is not edge_index:
            edge_attr = mean_per_edge(edge_index, graph, edge_attr)
        given, weight = edge_attr.to(dtype), self.edge.weight
        logit = self.edge(given) if weight.dtype == dtype else nn.functional.linear(given, weight.to(dtype))
        return logit.clamp(-LARGEST_LOGIT, LARGEST_LOGIT).exp().t()

    def _mix_compiled(self, x: Tensor, h: Tensor, edge_index: Any, weight: Any, edge_attr: Any) -> Tensor:
        """The same as one operator, which a compiler leaves whole."""
        factor = None
        if self.edge is not None or edge_attr is not None:
            if not isinstance(edge_index, Graph):
                raise ValueError("edge features in compiled code need a walksum.Graph, with one row per edge of it")
            factor = self._edge_factor(edge_attr, edge_index, None, h.dtype)
        parameters = list(self._parameters_of_design().values())
        return compiled.mix_over(edge_index, weight, x, h, factor, parameters, self.current_recipe())

    def __repr__(self) -> str:
        width: Any = self.in_channels
        if self.observe_source is not None:
            width = (_width(self.observe_source, -1), width)
        more = "" if self._act_name == "leaky_relu" else f", act={self._act_name}"
        more += "" if self.edge_dim is None else f", edge_dim={self.edge_dim}"
        return f"{type(self).__name__}({width}, {self.out_channels}, heads={self.heads}, design={self.design}{more})"


def _width(layer: nn.Linear, otherwise: int) -> int:
    return layer.in_features or otherwise  # 0 while it waits for the first input


def _check_given_design(design: Design, heads: int, read: int, channels: int, settings: dict[str, Setting]) -> None:
    for name, value in settings.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} was given beside a Design object; give it to the design")
    if design.heads not in (1, heads):
        raise ValueError(f"design has {design.heads} heads for a layer of heads={heads}; they must agree")
    for name, expected in (("in_channels", read), ("channels", channels)):
        has = getattr(design, name, None)
        if has is not None and -1 not in (has, expected) and has != expected:
            raise ValueError(f"design has {name}={has} for a layer that gives it {expected}; they must agree")
