"""One operator on many columns: a product with its dense inverse where the graph is small, a sparse solve elsewhere."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from walksum._torch import free_memory
from walksum.graph import Graph
from walksum.nn.propagate import Propagate


class Operator(NamedTuple):
    """``P_s``; without ``own`` the walks of length zero are left out, by which a node sees its own row."""

    scale: float  # signed; 0: identity
    loops: bool = False
    own: bool = True


DENSE_ON_CPU = 400  # nodes up to which one product is quicker than the calls of a sparse solve
DENSE_ON_GPU = 20_000  # there the inverse of 20,000 nodes is read in a third of a millisecond
ROOM = 4 * 8  # bytes per entry that inverting takes at its peak
INVERSES = 10  # operators of all members, whose inverses are kept


def layer(operator: tuple) -> Propagate:
    scale, loops = operator[:2]
    return Propagate(abs(scale), coupling="attractive" if scale > 0 else "repulsive", loops=loops)


def spread(operator: Operator, columns: Tensor, graph: Graph) -> Tensor:
    """``P_s columns``, exact; ``columns [N, K]``."""
    if operator.scale == 0:
        return columns
    found = _propagated(operator, columns, graph)
    return found if operator.own else (found - (1 - abs(operator.scale)) * columns) / abs(operator.scale)


def _propagated(operator: Operator, columns: Tensor, graph: Graph) -> Tensor:
    if graph.derived(is_small):
        return graph.derived(_inverse, operator[:2], columns.dtype) @ columns
    return layer(operator)(columns, graph)


def neighbours(columns: Tensor, graph: Graph) -> Tensor:
    """``D^-1/2 A D^-1/2 columns``, from the J of a propagation: ``z - J z = s S z``."""
    if graph.derived(is_small):
        return graph.derived(_adjacency, columns.dtype) @ columns
    return (columns - Propagate(0.5).precision(graph, columns.dtype) @ columns) / 0.5


def is_small(graph: Graph) -> bool:
    """Decided once per graph, so that all members see the same arithmetic."""
    if graph.device.type != "cuda":
        return graph.num_nodes <= DENSE_ON_CPU
    needed = (2 * ROOM + 4 * INVERSES) * graph.num_nodes**2
    return graph.num_nodes <= DENSE_ON_GPU and needed < free_memory(graph.device)


def _inverse(graph: Graph, operator: tuple, dtype: torch.dtype) -> Tensor:
    J = layer(operator).precision(graph, torch.float64).to_dense()[0]
    return ((1 - abs(operator[0])) * torch.cholesky_inverse(torch.linalg.cholesky(J))).to(dtype)


def _adjacency(graph: Graph, dtype: torch.dtype) -> Tensor:
    J = Propagate(0.5).precision(graph, torch.float64).to_dense()[0]
    return ((torch.eye(graph.num_nodes, dtype=J.dtype, device=J.device) - J) / 0.5).to(dtype)
