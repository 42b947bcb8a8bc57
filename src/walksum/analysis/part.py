"""Parts of a graph that is too large to look at: a piece, the neighbourhood of a node, J on some nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.precision import Precision


def largest_piece(graph: Graph) -> Tensor:
    """The nodes of the largest connected component, ascending."""
    component = graph.components()
    return (component == component.bincount().argmax()).nonzero().view(-1)


def typical_node(graph: Graph) -> int:
    """Of the largest piece, the first node closest to average degree."""
    piece = largest_piece(graph)
    degree = graph.degree.cpu()[piece].double()
    return int(piece[(degree - degree.mean()).abs().argmin()])


def ball(graph: Graph, node: int, most: int, fanout: int | None = None) -> Tensor:
    """``node`` and the nodes nearest to it by hops, at most ``most``, ascending.

    ``fanout``: follow only so many neighbours of each node, those of lowest degree but leaves last, so that neither
    hubs nor their leaves fill a picture.
    """
    if not 0 <= node < graph.num_nodes:
        raise ValueError(f"node={node}; expected a node of {graph}, 0 to {graph.num_nodes - 1}")
    graph = graph.to("cpu")
    csr, seen = graph.csr, torch.zeros(graph.num_nodes, dtype=torch.bool)
    seen[node] = True
    found = front = torch.tensor([node])
    while found.numel() < most:
        reached = torch.zeros_like(seen)
        for k in front.tolist():
            beside = csr.indices[csr.indptr[k] : csr.indptr[k + 1]].long()
            reached[beside if fanout is None else _worth_following(graph, beside)[:fanout]] = True
        front = (reached & ~seen).nonzero().view(-1)[: most - found.numel()]
        if not front.numel():
            break
        seen[front] = True
        found = torch.cat([found, front])
    return found.sort().values


def _worth_following(graph: Graph, nodes: Tensor) -> Tensor:
    degree = graph.degree[nodes]
    return nodes[torch.where(degree == 1, graph.num_nodes, degree).argsort(stable=True)]


def restrict(J: Precision, nodes: Tensor) -> Precision:
    """J on some nodes only: the Gaussian in which the others are known to be 0."""
    J = J.detach().to("cpu")
    place = torch.full((J.num_nodes,), -1)
    place[nodes] = torch.arange(nodes.numel())
    i, j = place[J.graph.edges]
    kept = (i >= 0) & (j >= 0)
    low, high = torch.minimum(i, j)[kept], torch.maximum(i, j)[kept]
    order = (low * nodes.numel() + high).argsort()
    graph = Graph(torch.stack([low, high])[:, order], nodes.numel())
    return Precision(graph, J.diag[:, nodes], J.off[:, kept][:, order])
