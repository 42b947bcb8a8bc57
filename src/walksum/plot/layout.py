"""Where the nodes of a small graph stand in a picture."""

from __future__ import annotations

import networkx as nx
import numpy as np

from walksum.graph import Graph

CAREFUL = 150  # nodes up to which distances in the picture follow distances in the graph


def positions(graph: Graph) -> np.ndarray:
    """``[N, 2]`` in [-1, 1], the same for the same graph; pieces stand apart."""
    plain = nx.Graph()
    plain.add_nodes_from(range(graph.num_nodes))
    plain.add_edges_from(graph.edges.t().tolist())
    pieces = sorted(nx.connected_components(plain), key=lambda piece: (-len(piece), min(piece)))
    placed, corner = np.zeros((graph.num_nodes, 2)), 0.0
    for piece in pieces:
        nodes = sorted(piece)
        radius = np.sqrt(len(nodes))
        spots = _piece(plain.subgraph(nodes).copy(), nodes) * radius
        placed[nodes] = spots + np.array([corner + radius, 0.0])
        corner += 2 * radius + 0.6
    return _centred(placed)


def _piece(graph: nx.Graph, nodes: list[int]) -> np.ndarray:
    if len(nodes) == 1:
        return np.zeros((1, 2))
    ordered = nx.Graph()
    ordered.add_nodes_from(nodes)  # subgraphs forget the order, and layouts depend on it
    ordered.add_edges_from(sorted(graph.edges))
    start = nx.kamada_kawai_layout(ordered) if len(nodes) <= CAREFUL else None
    spots = nx.spring_layout(ordered, pos=start, k=1.6 / np.sqrt(len(nodes)), iterations=60, seed=0)
    return _centred(np.array([spots[node] for node in nodes]))


def _centred(spots: np.ndarray) -> np.ndarray:
    """Along its own axes, each stretched to [-1, 1] unless there is nothing to stretch."""
    spots = spots - spots.mean(0)
    axes = np.linalg.eigh(spots.T @ spots)[1][:, ::-1]
    spots = spots @ axes * np.where(axes.sum(0) < 0, -1.0, 1.0)
    spots = spots - (spots.max(0) + spots.min(0)) / 2
    extent = np.abs(spots).max(0)
    return spots / np.maximum(extent, max(0.25 * float(extent.max()), 1e-9))
