"""The contract of every precision design, and what the designs share."""

from __future__ import annotations

import inspect
import math
import warnings
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from walksum._checks import check_choice, check_count
from walksum._torch import is_functorch_wrapped, needs_grad, unwrapped
from walksum.designs.edge_formulas import symmetric_scaling
from walksum.graph import Graph
from walksum.ops import edge_sum
from walksum.precision import Precision

SHAPES = {"x": "NF", "h": "HNF"}
SIGN = {"repulsive": 1.0, "attractive": -1.0}
LARGEST = 1e6  # learned maps read inputs clipped to this: beyond it float32 would overflow inside them
CONFIDENCE = (1e-8, 1e8)  # the paper's 1e-8 below; the bound above keeps sums of confidences finite
SMALLEST_WEIGHT = 1e-15  # weights this far below the largest count as no edge: their ratios are only rounding


class Design(nn.Module, ABC):
    """Graph and node features -> :class:`walksum.Precision`.

    For every finite input the result is finite, has a positive diagonal and is walk-summable; a node without
    edges has :math:`J_{ii} = 1` after normalisation; gradients reach every parameter and ``h``.

    Args of forward:
        graph: the graph; its ``edge_weight`` multiplies the couplings.
        x: node features ``[N, F]`` the design reads.
        h: observation vectors ``[H, N, F]``, where the design reads those.

    Learned designs also take ``edge``, one positive factor ``[H, E]`` per head and edge, which acts as an edge weight.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> class Twice(ws.Design):
        ...     def forward(self, graph, x, h=None):
        ...         return ws.Precision(graph, 2.0 + graph.degree, -torch.ones(graph.num_edges))
        >>> Twice("attractive")(path, torch.empty(3, 0)).to_dense()
        tensor([[[ 3., -1.,  0.],
                 [-1.,  4., -1.],
                 [ 0., -1.,  3.]]])
    """

    #: the design wants the model's input features as ``x``, not the layer's embeddings
    reads_input = False
    #: number of heads of J; one J serves all heads of a layer
    heads = 1
    #: counts how often an attribute was set, by which compiled code is told that it is out of date; never 0
    changes = 1

    def __init__(self, coupling: str):
        super().__init__()
        check_choice("coupling", coupling, tuple(SIGN))
        self.coupling = coupling

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "training":
            self.__dict__["changes"] = self.changes + 1

    @property
    def sign(self) -> float:
        """Sign of J_ij for similar nodes: +1 pushes neighbours apart, -1 pulls them together."""
        return SIGN[self.coupling]

    @abstractmethod
    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision: ...

    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor that makes this design again, but for its parameters."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def reset_parameters(self) -> None:
        for module in self.children():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()

    def extra_repr(self) -> str:
        scale: Any = getattr(self, "scale", None)
        given = isinstance(scale, float) and 0 < scale < 1
        known = {"scale": f"{scale:.6g}", "reach": f"{reach_of_scale(scale):.3g}"} if given else {}
        known.update((name, f"{getattr(self, name):.6g}") for name in ("epsilon", "margin") if hasattr(self, name))
        return ", ".join([*(f"{name}={value}" for name, value in known.items()), f"coupling={self.coupling!r}"])


def reach_of_scale(scale: float) -> float:
    """The number of edges along a path after which influence has fallen to 1/e: 1 / arcosh(1 / s)."""
    return 1 / math.acosh(1 / scale)


def check_width(name: str, value: Any) -> int:
    """A number of channels; -1 stands for the width of the first input."""
    return -1 if not isinstance(value, bool) and value == -1 else check_count(name, value)


def linear(
    in_channels: int, out_channels: int, bias: bool = True, kind: type[nn.Linear] = nn.Linear, lazy: Any = nn.LazyLinear
) -> nn.Linear:
    """A layer of this kind, or for ``in_channels=-1`` the ``lazy`` one, which takes its width from the first input."""
    if in_channels != -1:
        return kind(in_channels, out_channels, bias)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Lazy modules")  # torch's notice that they may still change
        return lazy(out_channels, bias)


def check_fraction(name: str, value: float) -> float:
    try:
        inside = 0 < value < 1
    except TypeError:
        inside = False
    if not inside:
        raise ValueError(f"{name}={value!r}; expected a number strictly between 0 and 1, or J is not walk-summable")
    return float(value)


def need(design: Design, name: str, value: Tensor | None, graph: Graph) -> Tensor:
    """The features a design cannot do without, checked against the graph."""
    if value is None:
        raise ValueError(f"{type(design).__name__} reads {name}; pass {name}=...")
    if value.dim() != len(SHAPES[name]):
        raise ValueError(f"{name} has shape {tuple(value.shape)}; expected [{', '.join(SHAPES[name])}]")
    value = graph.fill(value)
    if value.size(-2) != graph.num_nodes:
        raise ValueError(f"{name} has {value.size(-2)} rows but the graph has {graph.num_nodes} nodes")
    if value.device != graph.device:
        raise ValueError(f"{name} is on {value.device} but the graph on {graph.device}; move one of them")
    return value


def degree_sum(graph: Graph, strength: Tensor) -> Tensor:
    """Sum of an edge quantity around each node: ``[H, E] -> [H, N]``; of a part of a graph, with all its neighbours."""
    return graph.fill(edge_sum(graph, strength).unsqueeze(-1)).squeeze(-1)


def ends(graph: Graph, values: Tensor) -> tuple[Tensor, Tensor]:
    """Node values ``[H, N]`` at both ends of every edge; index_select, for the gradient of indexing sorts."""
    i, j = graph.edges
    return values.index_select(1, i), values.index_select(1, j)


def normalise(graph: Graph, diag: Tensor, off: Tensor) -> Precision:
    """``D^-1/2 J D^-1/2``; a node whose diagonal is 0 (no edges) gets 1."""
    return Precision(graph, torch.ones_like(diag), symmetric_scaling(graph, diag, off))


def clipped(x: Tensor) -> Tensor:
    """x within LARGEST. On a CPU x itself where it lies within: a look is cheaper than a mask for the gradient."""
    if x.is_cpu and x.numel() and not is_functorch_wrapped(x):
        low, high = torch.aminmax(x.detach())
        if float(low) >= -LARGEST and float(high) <= LARGEST:  # not so for NaN
            return x
    return x.clamp(-LARGEST, LARGEST)


def relative_weight(graph: Graph, dtype: torch.dtype, edge: Tensor | None = None) -> Tensor | None:
    """Edge weights over their largest magnitude ``[E]``: all that a normalised design depends on.

    With factors ``edge [H, E]`` of learned edge features: the products, ``[H, E]``.
    """
    weight = graph.edge_weight
    if weight is None or weight.numel() == 0:
        return edge
    weight = weight.to(dtype) / graph.largest_weight().clamp_min(torch.finfo(weight.dtype).tiny).to(dtype)
    weight = torch.where(weight.abs() < SMALLEST_WEIGHT, torch.zeros_like(weight), weight)
    return weight if edge is None else weight * edge


def refuse_negative_weights(name: str, graph: Graph) -> None:
    """Raise a ValueError if any weight is negative, in the name of a design."""
    smallest = _smallest_weight(graph) if needs_grad(graph.edge_weight) else graph.derived(_smallest_weight)
    if smallest < 0:
        raise ValueError(
            f"edge_weight has the negative value {smallest:g}; {name} divides by sums of weights: "
            "use a diagonally dominant or pairwise normal design, or edge_weight.abs()"
        )


def _smallest_weight(graph: Graph) -> float:
    weight = None if graph.edge_weight is None else unwrapped(graph.edge_weight)
    return 0.0 if weight is None or weight.numel() == 0 else float(weight.detach().min())
