"""What a node's surroundings say, as columns: of features near and far, and of the known targets of other nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from walksum.backends.cpu.ldl.symbolic import symbolic
from walksum.graph import Graph
from walksum.portfolio.spread import layer
from walksum.solvers import Direct
from walksum.solvers.cost import STEPS, of_iterating

SCALES = (0.5, 0.9, 0.99, -0.5, -0.9)
SPARE = 10  # random columns more than directions
STEP = 1e-12 * np.pi  # of sums, as a share of a usual target
BLOCK = 200  # columns of the identity that are solved for at once
DENSE = 3000  # nodes up to which a dense inverse gives the diagonal sooner than the factor
MOST_OPERATIONS = 2e10  # multiply-adds of a factor beyond which no diagonal is taken from it
RATE = 1e9  # multiply-adds of a factor per second of one thread, its selected inverse included


def leading_directions(table: Any, components: int, random_state: int | None = 0) -> np.ndarray:
    """The right singular vectors ``[components, F]`` of a table; fewer where it has fewer rows or columns."""
    from sklearn.decomposition import TruncatedSVD

    components = max(1, min(components, min(table.shape) - 1))
    with np.errstate(divide="ignore", invalid="ignore"):  # shares of a variance that equal rows do not have
        return TruncatedSVD(components, random_state=random_state).fit(table).components_


def smoothed_directions(
    table: Any, smooth: Callable[[np.ndarray], np.ndarray], components: int, seed: int
) -> np.ndarray:
    """The leading right singular vectors ``[components, F]`` of ``smooth(table)``, which is never made.

    Noise of single rows averages out over neighbours, so that directions in which classes differ lead here, while in
    the table itself they may lie behind hundreds of others. ``smooth`` is linear and symmetric; the range is found from
    random columns and two further products (Halko et al. 2011).
    """
    components = max(1, min(components, min(table.shape) - 1))
    found = np.random.default_rng(seed).normal(size=(table.shape[1], components + SPARE))
    for _ in range(2):
        range_, _ = np.linalg.qr(smooth(np.asarray(table @ found)))
        found = np.asarray(table.T @ smooth(range_))
    return np.linalg.svd(found, full_matrices=False)[0][:, :components].T


def as_dense(table: Any) -> np.ndarray:
    return table.toarray() if sp.issparse(table) else np.asarray(table, dtype=np.float64)


def reduce_columns(table: Any, components: int | None, random_state: int | None = 0) -> np.ndarray:
    """A wide or sparse table's leading singular directions; others as they are."""
    if components is None or (table.shape[1] <= components and not sp.issparse(table)) or min(table.shape) < 2:
        return as_dense(table)
    return np.asarray(table @ leading_directions(table, components, random_state).T)


def node_features(
    X: np.ndarray, graph: Graph, scales: Sequence[float], hops: int, degrees: bool = True, columns: bool = True
) -> tuple[np.ndarray, list[str]]:
    """Columns of all nodes, and what each holds."""
    parts, names = [], []
    if columns:
        parts.append(("x", X))
    if degrees:
        parts.append(("log degree", log_degree(graph)))
    mean, near = neighbour_mean(graph), X
    for hop in range(1, hops + 1):
        near = mean @ near
        parts.append((f"mean at {hop} hops", near))
    parts += [(f"propagated, s={s:g}", propagated(graph, X, s)) for s in scales]
    for name, part in parts:
        names += [f"{name}, {k}" for k in range(part.shape[1])]
    return np.concatenate([part for _, part in parts], 1), names


def log_degree(graph: Graph) -> np.ndarray:
    """``log(1 + degree)`` of each node, one column."""
    return np.log1p(graph.degree.cpu().numpy().astype(np.float64))[:, None]


def propagated(graph: Graph, X: np.ndarray, scale: float) -> np.ndarray:
    """``P_s X`` in float64."""
    x = torch.from_numpy(np.require(X, np.float64, ["C", "W"]))
    return x.numpy() if scale == 0 else layer((scale, False))(x, graph.to("cpu")).numpy()


def other_targets(
    graph: Graph, nodes: np.ndarray, Y: np.ndarray, scales: Sequence[float], ratio: bool = False
) -> np.ndarray:
    """``(P_s Y)_i - (P_s)_ii Y_i`` for targets ``Y [n, C]`` known at ``nodes``; ``[N, C * scales]``.

    ratio: divide by the same sum of ones, which makes it a weighted mean of the other targets.
    """
    known, full = _on_all_nodes(graph.num_nodes, nodes, Y)
    parts = []
    for scale in scales:
        diagonal = np.zeros((graph.num_nodes, 1))
        diagonal[nodes, 0] = diagonal_at(graph, nodes, scale)
        part = _rounded(propagated(graph, full, scale) - diagonal * full, full)
        if ratio:
            mass = _rounded(propagated(graph, known, scale) - diagonal * known, known)
            part = _weighted_mean(part, mass, full, known)
        parts.append(part)
    return np.concatenate(parts, 1)


def class_gains(graph: Graph, nodes: np.ndarray, Y: np.ndarray, scale: float) -> np.ndarray:
    """What each node gets of a class, over what all get of it (Zhu, Ghahramani and Lafferty 2003): shares ``[N, C]``.

    ``Y [n, C]`` of 0 and 1 are the classes known at ``nodes``, of which a node's own counts nowhere. Of a scale near
    one most of what a node gets is the same everywhere: how many known nodes of which degree a class has. No columns
    for trees: two nodes of the same surroundings differ by what all others get, which tells their own classes.
    """
    full, even = np.zeros((graph.num_nodes, Y.shape[1])), 1 / graph.num_nodes
    full[nodes] = Y
    spread = propagated(graph, np.c_[full, np.ones(graph.num_nodes)], scale)
    gets, reach = spread[:, :-1], spread[:, -1:]
    gets[nodes] -= diagonal_at(graph, nodes, scale)[:, None] * Y
    gets = gets.clip(0)
    total = (reach * full).sum(0) - reach * full
    gains = np.where(total > 1e-9, gets / total.clip(1e-9), even) + 1e-6 * even
    return gains / gains.sum(1, keepdims=True)


def neighbour_targets(graph: Graph, nodes: np.ndarray, Y: np.ndarray, hops: int = 1) -> np.ndarray:
    """The mean of the known targets of a node's neighbours and the share of them that is known: ``[N, C + 1]`` per hop.

    Of two hops also those of the neighbours' other neighbours: ways back to the node itself are taken out exactly.
    """
    known, full = _on_all_nodes(graph.num_nodes, nodes, Y)
    mean = neighbour_mean(graph)
    total, mass, parts = mean @ full, mean @ known, []
    parts += [_weighted_mean(total, mass, full, known), mass]
    if hops == 2:
        back = np.asarray(mean.multiply(mean.T).sum(1))
        total, mass = _rounded(mean @ total - back * full, full), _rounded(mean @ mass - back * known, known)
        parts += [_weighted_mean(total, mass, full, known), mass]
    return np.concatenate(parts, 1)


def _on_all_nodes(count: int, nodes: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ones ``[N, 1]`` and targets ``[N, C]`` at ``nodes``, zeros elsewhere."""
    known, full = np.zeros((count, 1)), np.zeros((count, Y.shape[1]))
    known[nodes], full[nodes] = 1.0, Y
    return known, full


def _rounded(others: np.ndarray, full: np.ndarray) -> np.ndarray:
    """Sums over targets without the own, which was subtracted: its rounding is in the last digits, and trees read it.

    Where many nodes have equal sums, as in pairs, it told each node's own class. No sum of fractions lies half-way
    between multiples of such a step.
    """
    some = np.abs(full[full != 0])
    step = STEP * (np.median(some) if some.size else 1.0)  # which a single large target does not change
    return np.round(others / step) * step


def targets_along(mean: sp.csr_matrix, nodes: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The known targets by one matrix of means ``[N, N]`` without a diagonal: ``[N, C + 1]``."""
    known, full = _on_all_nodes(mean.shape[0], nodes, Y)
    mass = mean @ known
    return np.concatenate([_weighted_mean(mean @ full, mass, full, known), mass], 1)


def _weighted_mean(total: np.ndarray, mass: np.ndarray, full: np.ndarray, known: np.ndarray) -> np.ndarray:
    """``total / mass``; where no other target is near, a mean that is the same for all such nodes.

    It is of the targets that have others near: the mean of all others differs from node to node by the own target.
    """
    small = np.abs(mass) < 1e-9
    some = known * ~small if known[~small].any() else known
    middle = (some * full).sum(0) / np.maximum(some.sum(), 1)
    return np.where(small, middle, total / np.where(small, 1.0, mass))


def diagonal_at(graph: Graph, nodes: np.ndarray, scale: float) -> np.ndarray:
    """``(P_s)_ii`` at ``nodes``, exact: from a factor, or by one solve per node where those take less time."""
    if has_whole_diagonal(graph, seconds_of_solves(graph, len(nodes))):
        return operator_diagonal(graph, scale)[nodes]
    parts = []
    for some in np.array_split(nodes, max(1, -(-len(nodes) // BLOCK))):
        unit = np.zeros((graph.num_nodes, len(some)))
        unit[some, np.arange(len(some))] = 1.0
        parts.append(propagated(graph, unit, scale)[some, np.arange(len(some))])
    return np.concatenate(parts)


def has_whole_diagonal(graph: Graph, seconds: float) -> bool:
    """Whether :func:`operator_diagonal` takes less than so many seconds."""
    most = min(MOST_OPERATIONS, RATE * seconds)
    return graph.num_nodes <= DENSE or symbolic(graph.to("cpu"), most) is not None


def seconds_of_solves(graph: Graph, count: int) -> float:
    """Of one solve per node, for so many nodes."""
    return of_iterating(graph, 1, max(1, count)).seconds(STEPS)


def operator_diagonal(graph: Graph, scale: float) -> np.ndarray:
    """``(P_s)_ii``, exact, ``[N]``; kept with the graph."""
    return graph.to("cpu").derived(_diagonal, float(scale))


def _diagonal(graph: Graph, scale: float) -> np.ndarray:
    J = layer((scale, False)).precision(graph, torch.float64)
    if graph.num_nodes <= DENSE:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(J.to_dense()[0]))
        return (1 - abs(scale)) * inverse.diagonal().numpy()
    return (1 - abs(scale)) * Direct(max_operations=MOST_OPERATIONS).prepare(J).marginal_variance[0].numpy()


def neighbour_mean(graph: Graph) -> sp.csr_matrix:
    """The matrix that takes the weighted mean over each node's neighbours."""
    A = graph.to_scipy(graph.weights())
    total = np.asarray(abs(A).sum(1)).ravel()
    return sp.diags(1 / np.where(total > 0, total, 1.0)) @ A
