"""What PyG hands to a layer, made into what walksum mixes: node features, relations between two kinds of nodes, edge
features."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.nn.resolver import activation_resolver

from walksum._torch import no_compile, outside_transforms
from walksum.graph import EdgeInput, Graph
from walksum.graph.cache import Snapshot
from walksum.graph.edges import check_pairs, read_pairs
from walksum.solving import HALF

FLOAT32_SCALE = 1 - 1e-5  # beyond it float32 rounds J = I - s A away from what was asked: the error is eps / (1 - s)
Activation = Callable[[Tensor], Tensor]


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context without automatic casts; on a small graph entering torch's own takes as long as a solve."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def working_precision(h: Tensor, scale: float = 0.0) -> Tensor:
    """h in the precision that a solve with I - scale A needs: at least float32, float64 next to a singular J."""
    if scale > FLOAT32_SCALE:
        return h.double()
    return h.float() if h.dtype in HALF else h


def make_activation(act: str | Activation | None) -> Activation | None:
    """A function of that name in ``torch.nn`` ("leaky_relu", "elu", ...), the function itself, or None for none."""
    if act is None or (callable(act) and not isinstance(act, type)):
        return act
    try:
        return activation_resolver(act)
    except (ValueError, TypeError) as error:
        raise ValueError(f"act={act!r}; expected the name of an activation in torch.nn, a function or None") from error


def check_features(x: Any, in_channels: int, name: str = "x", first: nn.Module | None = None) -> None:
    """Rows of the width and dtype of ``first``, the map that reads them; ``in_channels=-1`` takes any width."""
    if in_channels == -1 and torch.compiler.is_compiling():
        raise ValueError("in_channels=-1: the first input tells the width; call the layer once before it is compiled")
    width = "F" if in_channels == -1 else in_channels
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} has type {type(x).__name__}; expected a floating-point tensor [N, {width}]")
    if not x.is_floating_point():
        raise ValueError(
            f"{name} has type {x.dtype}; expected a floating-point tensor [N, {width}], use {name}.float()"
        )
    check_layout(x, name)
    dtype = getattr(getattr(first, "weight", None), "dtype", x.dtype)
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"{name} is {x.dtype} but the layer is {dtype}; use {name}.to({dtype}) or layer.to({x.dtype})")
    if x.dim() < 2 or (in_channels != -1 and x.size(-1) != in_channels):
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected [N, {width}] (or [B, N, {width}] for B samples)")


def check_layout(x: Tensor, name: str = "x") -> None:
    if x.layout != torch.strided:
        raise ValueError(f"{name} has layout {x.layout}; a layer takes dense features, use {name}.to_dense()")
    if x.is_meta:
        raise ValueError(f"{name} is on the meta device, which holds no numbers to solve with; give it a real one")


def check_pair(x: Any, in_channels: tuple[int, int], first: tuple[nn.Module, nn.Module]) -> None:
    """The two sides of a bipartite relation."""
    if len(x) != 2:
        raise ValueError(f"x has {len(x)} parts; a relation between two kinds of nodes takes (x_source, x_target)")
    if x[1] is None:
        raise ValueError("x[1] is None; both sides of a relation are mixed: give the target nodes features, zeros do")
    for k, name in enumerate(("x[0]", "x[1]")):
        check_features(x[k], in_channels[k], name, first[k])
        if x[k].dim() != 2:
            raise ValueError(f"{name} has shape {tuple(x[k].shape)}; expected [N, F]")


def join_sides(edge_index: Any, sources: int, targets: int) -> Tensor | Graph:
    """The edges of a relation in the numbering of both sides: sources first, then targets.

    Kept as long as the given tensor lives unchanged, so that its graph is made once.
    """
    if isinstance(edge_index, Graph):
        if edge_index.num_nodes != sources + targets:
            raise ValueError(
                f"x has {sources} + {targets} rows but the graph has {edge_index.num_nodes} nodes; a Graph of a "
                "relation numbers the sources first, then the targets"
            )
        return edge_index
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = getattr(edge_index, "layout", type(edge_index).__name__)
        raise ValueError(
            f"edge_index of a relation between two kinds of nodes must be an integer tensor [2, M], not {kind}; use "
            "torch_geometric.utils.to_edge_index(...)[0], and .flip(0) for an adj_t, whose rows are the targets"
        )
    if torch.compiler.is_compiling():
        return _shift(check_pairs(edge_index), sources, targets)
    return _kept_join(edge_index, sources, targets)


_joined: WeakIdKeyDictionary = WeakIdKeyDictionary()


@no_compile
def _kept_join(edge_index: Tensor, sources: int, targets: int) -> Tensor:
    known = _joined.get(edge_index)
    if known is None or known[0] != (sources, targets) or not known[1].fits(edge_index):
        pairs = check_pairs(edge_index)
        _check_range(pairs, sources, targets)
        joined = outside_transforms(_shift, pairs, sources, targets)
        known = _joined[edge_index] = ((sources, targets), Snapshot(edge_index), joined)
    return known[2]


def _shift(pairs: Tensor, sources: int, targets: int) -> Tensor:
    row, col = pairs
    none = sources + targets  # in compiled code nobody has checked yet: one side's number must not become the other's
    return torch.stack([torch.where(row < sources, row, none), torch.where(col < 0, none, col + sources)])


def _check_range(edge_index: Tensor, sources: int, targets: int) -> None:
    for side, count, name in ((0, sources, "source"), (1, targets, "target")):
        low, high = map(int, torch.aminmax(edge_index[side])) if edge_index.size(-1) else (0, -1)
        if low < 0:
            raise ValueError(f"edge_index contains the negative {name} node {low}; nodes are numbered from 0")
        if high >= count:
            raise ValueError(f"edge_index contains {name} node {high}, but x has {count} {name} rows")


def one_column(edge_weight: Tensor | None) -> Tensor | None:
    """Weights ``[M, 1]`` as ``[M]``."""
    column = isinstance(edge_weight, Tensor) and edge_weight.dim() == 2 and edge_weight.size(1) == 1
    return edge_weight.squeeze(1) if column and edge_weight is not None else edge_weight


def edge_of_entry(edge_index: EdgeInput, graph: Graph) -> Tensor:
    """The edge of ``graph`` that each given entry belongs to, ``[M]``; -1 for a loop."""
    n = graph.num_nodes
    pairs = edge_index.edges if isinstance(edge_index, Graph) else read_pairs(edge_index, n)[0]
    low, high = pairs.min(0).values, pairs.max(0).values
    found = torch.searchsorted(graph.edges[0] * n + graph.edges[1], low * n + high)
    return torch.where(low == high, -1, found)


def mean_per_edge(edge_index: EdgeInput, graph: Graph, values: Tensor) -> Tensor:
    """The mean of ``values [M, D]`` over the entries of each edge, ``[E, D]``: both directions count alike."""
    edge = edge_of_entry(edge_index, graph)
    keep = edge >= 0
    edge, kept = edge[keep], values[keep]
    count = torch.bincount(edge, minlength=graph.num_edges).clamp_min(1)
    total = values.new_zeros(graph.num_edges, values.size(1)).index_add(0, edge, kept)
    return total / count.unsqueeze(1).to(values.dtype)


def check_edge_attr(edge_attr: Any, edge_dim: int | None, entries: int) -> Tensor:
    """One row of ``edge_dim`` numbers per entry; a vector stands for one column."""
    if edge_dim is None:
        raise ValueError("edge_attr was given to a layer without edge features; make it with edge_dim=...")
    if edge_attr is None:
        raise ValueError(f"the layer has edge_dim={edge_dim}; pass edge_attr=... of shape [{entries}, {edge_dim}]")
    if not isinstance(edge_attr, Tensor) or not edge_attr.is_floating_point():
        kind = edge_attr.dtype if isinstance(edge_attr, Tensor) else type(edge_attr).__name__
        raise ValueError(f"edge_attr has type {kind}; expected a floating-point tensor, use edge_attr.float()")
    edge_attr = edge_attr.unsqueeze(-1) if edge_attr.dim() == 1 else edge_attr
    if edge_attr.shape != (entries, edge_dim):
        raise ValueError(f"edge_attr has shape {tuple(edge_attr.shape)}; expected [{entries}, {edge_dim}]")
    return edge_attr
