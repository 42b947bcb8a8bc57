"""Where nodes are drawn: springs along edges, repulsion between all, from a spectral start. Deterministic."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from walksum.analysis.spectrum import normalised_adjacency
from walksum.graph import Graph
from walksum.precision import largest_eigenvectors

STEPS, STEPS_OF_A_PICTURE = 90, 300
GRAVITY = 0.05  # keeps parts that no edge joins on the page
SMALLEST = 4  # nodes from which a spectral start exists
DENSE_LIMIT = 400  # nodes up to which all eigenvectors are computed: milliseconds


def positions(graph: Graph) -> np.ndarray:
    """Positions ``[N, 2]`` of all nodes of a small graph in [-1, 1], stretched along its own axes: for a picture."""
    edges = graph.edges.cpu().numpy()
    return _stretched(relax(edges, spectral_start(graph), STEPS_OF_A_PICTURE).astype(np.float64))


def edge_lines(graph: Graph, spots: np.ndarray) -> Any:
    """The edges as lines between their nodes, ``[E, 2, 2]``."""
    i, j = graph.edges.numpy()
    return np.stack([spots[i], spots[j]], 1)


def whole_layout(graph: Graph) -> np.ndarray:
    """Positions ``[N, 2]`` of all nodes, in the unit square; kept with the graph."""
    return graph.derived(_whole)


def _whole(graph: Graph) -> np.ndarray:
    edges = graph.edges.cpu().numpy()
    return into_square(relax(edges, spectral_start(graph)))


def around_layout(edges: np.ndarray, hops: np.ndarray) -> np.ndarray:
    """Positions of a neighbourhood: the first node in the middle, others start on the ring of their distance."""
    count = len(hops)
    angle = np.arange(count) * np.pi * (3 - np.sqrt(5))  # the golden angle: no two in line
    radius = np.sqrt(count) * np.where(hops < 0, hops.max(initial=0) + 1, hops) / max(1, hops.max(initial=0))
    start = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return into_square(relax(edges, start.astype(np.float32), fixed=0))


def spectral_start(graph: Graph) -> np.ndarray:
    """The slowest modes of a random walk, spread out; a random start where there are none."""
    count = graph.num_nodes
    noise = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    if count < SMALLEST or graph.num_edges == 0:
        return noise * np.sqrt(count)
    root = 1 / np.sqrt(np.maximum(graph.degree.cpu().double().numpy(), 1))
    try:
        vectors = _leading_vectors(normalised_adjacency(graph) + sp.identity(count))
    except spla.ArpackError:
        return noise * np.sqrt(count)
    rank = np.argsort(np.argsort(vectors[:, :2] * root[:, None], axis=0), axis=0)  # ranks: positions are evenly spread
    return ((rank / count - 0.5) * 2 * np.sqrt(count) + 0.1 * noise).astype(np.float32)


def _leading_vectors(S: sp.csr_matrix) -> np.ndarray:
    """The eigenvectors of the three largest eigenvalues, ascending."""
    if S.shape[0] <= DENSE_LIMIT:
        return np.linalg.eigh(S.toarray())[1][:, -3:]
    return largest_eigenvectors(S, 3, np.ones(S.shape[0]), tol=1e-3)


def relax(edges: np.ndarray, start: np.ndarray, steps: int = STEPS, fixed: int | None = None) -> np.ndarray:
    """Springs pull in proportion to length, nodes repel as 1 / distance^2, so only near ones."""
    place = start.astype(np.float32).copy()
    count = len(place)
    i, j = edges
    degree = np.bincount(edges.ravel(), minlength=count).astype(np.float32)
    mass = 1 + degree
    pull = sp.coo_matrix((np.ones(len(i), np.float32), (i, j)), shape=(count, count))
    pull = (pull + pull.T).tocsr()
    size = np.sqrt(count)
    for step in range(steps):
        force = pull @ place - degree[:, None] * place + _repulsion(place, mass)
        force -= GRAVITY * mass[:, None] * place
        force /= mass[:, None]
        length = np.linalg.norm(force, axis=1, keepdims=True)
        most = 0.15 * size * (1 - step / steps) + 1e-3
        place += force * np.minimum(1, most / np.maximum(length, 1e-9))
        if fixed is not None:
            place -= place[fixed]
    return place


def _repulsion(place: np.ndarray, mass: np.ndarray) -> np.ndarray:
    square = (place**2).sum(1)
    near = square[:, None] + square[None] - 2 * place @ place.T
    np.maximum(near, 1e-2, out=near)
    near *= np.sqrt(near)
    np.divide(mass[:, None] * mass[None], near, out=near)
    np.fill_diagonal(near, 0)
    return near.sum(1, keepdims=True) * place - near @ place


def into_square(place: np.ndarray) -> np.ndarray:
    """Centred and scaled so that nearly all lie within [0, 1]; the few far ones are drawn in."""
    if not len(place):
        return place
    middle = np.median(place, axis=0)
    offset = place - middle
    reach = max(float(np.quantile(np.abs(offset), 0.99)), 1e-6)
    return 0.5 + 0.5 * np.clip(offset / reach, -1.1, 1.1)


def _stretched(spots: np.ndarray) -> np.ndarray:
    """Along its own axes, each stretched to [-1, 1] unless there is nothing to stretch."""
    spots = spots - spots.mean(0)
    axes = np.linalg.eigh(spots.T @ spots)[1][:, ::-1]
    spots = spots @ axes * np.where(axes.sum(0) < 0, -1.0, 1.0)
    spots = spots - (spots.max(0) + spots.min(0)) / 2
    extent = np.abs(spots).max(0)
    return spots / np.maximum(extent, max(0.25 * float(extent.max()), 1e-9))
