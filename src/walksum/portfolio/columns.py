"""Columns that members read: a node's own, what its surroundings add, and the known targets of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from walksum.analysis.spectrum import normalised_adjacency
from walksum.graph import Graph
from walksum.portfolio.arrays import Arrays
from walksum.portfolio.features import (
    SCALES,
    as_dense,
    has_whole_diagonal,
    leading_directions,
    log_degree,
    neighbour_mean,
    neighbour_targets,
    node_features,
    operator_diagonal,
    other_targets,
    seconds_of_solves,
    smoothed_directions,
    targets_along,
)
from walksum.portfolio.problem import Problem, once
from walksum.portfolio.residual import affordable
from walksum.portfolio.spread import Operator, layer, spread
from walksum.portfolio.threads import few_threads

COMPONENTS = 64
OF_A_CLASS, MOST_DIRECTIONS, MOST_CELLS = 2, 256, 20_000_000  # directions, and numbers in all of them
MOST_COLUMNS = 1024  # that a network reads as they are
COORDINATES = 32
MANY_NODES = 20_000  # beyond, eigenvectors of a graph like a map take minutes unless found by solves
LABEL_SCALES = (0.5, 0.9, 0.99)
NEAR_LABELS = "surroundings + near labels"  # tried where the others with labels cost too much
SMOOTHED = Operator(0.8, loops=True)
ALL_OWN, PLACES = "all x", "place directions"  # names of columns
MOST_PLACES = 128
WALKS = {"near": (2, 0.0), "far": (0, 0.9), "beyond": (2, 0.8)}  # steps and scale of what carries directions
EACH_WALK = tuple(f"directions {kind}" for kind in WALKS)  # names of columns
WALK_WORDS = {"near": "two steps", "far": "spread, scale 0.9", "beyond": "spread, scale 0.8, and two steps"}
DIAGONAL = 0.03  # of the budget that one diagonal of an inverse may take; members read three


@once("own")
def own_columns(problem: Problem) -> np.ndarray:
    """x, reduced if it is wide."""
    if not problem.wide or (problem.basis is None and min(problem.X.shape) < 2):  # one row of another table has a basis
        return as_dense(problem.X)
    if problem.basis is None:
        problem.basis = leading_directions(problem.X, COMPONENTS, problem.seed)
    return np.asarray(problem.X @ problem.basis.T)


@once("neighbours")
def neighbours(problem: Problem) -> np.ndarray:
    """x, neighbour means and degree: few columns, in which trees find what dozens would hide."""
    own, graph = own_columns(problem), problem.graph
    return np.concatenate([own, neighbour_mean(graph) @ own, log_degree(graph), *amounts(problem)], 1)


@once("surroundings")
def surroundings(problem: Problem) -> np.ndarray:
    """x, degrees, sums of weights, neighbour means, ``P_k x``; with the edges' directions where they came directed."""
    own = own_columns(problem)
    found, _ = node_features(own, problem.graph, SCALES, hops=2)
    parts = [found]
    if exact_diagonal(problem):
        parts += [operator_diagonal(problem.graph, s)[:, None] for s in (0.5, 0.9)]
    return np.concatenate(parts + amounts(problem) + directed_means(problem, own), 1)


@once("smoothed")
def smoothed(problem: Problem) -> np.ndarray:
    """``P_s x`` alone: noisy columns of few labelled nodes are averaged before a network reads them."""
    own = np.require(own_columns(problem), np.float64, ["C", "W"])
    return layer(SMOOTHED)(torch.from_numpy(own), problem.graph.to("cpu")).numpy()


@once("directions")
def directions(problem: Problem, kind: str) -> np.ndarray:
    """Of a wide table: the leading directions of what neighbours make of it, carried along walks of one kind."""
    own = np.require(problem.X @ smoothed_basis(problem).T, np.float64, ["C", "W"])
    return carried(problem.graph.to("cpu"), torch.from_numpy(own), kind).numpy()


def smoothed_basis(problem: Problem) -> np.ndarray:
    """The directions ``[components, F]``: those of the training graph, also for other tables."""
    if problem.smoothed_basis is None:
        smooth = partial(_two_steps, problem.graph.to("cpu"))
        problem.smoothed_basis = smoothed_directions(problem.X, smooth, _many_directions(problem), problem.seed)
    return problem.smoothed_basis


def _two_steps(graph: Graph, x: np.ndarray) -> np.ndarray:
    return _steps(graph, torch.from_numpy(np.require(x, np.float64, ["C", "W"])), 2).numpy()


def _many_directions(problem: Problem) -> int:
    """Many classes lie in as many directions: a line in fewer cannot tell them apart."""
    most = min(MOST_DIRECTIONS, MOST_CELLS // max(problem.X.shape))
    return max(COMPONENTS, min(OF_A_CLASS * problem.classes, most))


def carried(graph: Graph, x: torch.Tensor, kind: str) -> torch.Tensor:
    """``S^steps P_s x``, S the normalised adjacency with loops, in rows of length one.

    At a hub much adds up: how long a row is says how many neighbours a node has, its direction what they are.
    """
    steps, scale = WALKS[kind]
    out = _steps(graph, layer(Operator(scale, loops=True))(x, graph) if scale else x, steps)
    length = out.norm(dim=1, keepdim=True)
    return out / torch.where(length > 0, length, 1.0)


def _steps(graph: Graph, x: torch.Tensor, count: int) -> torch.Tensor:
    J = layer(Operator(0.5, loops=True)).precision(graph, x.dtype)  # I - S / 2
    for _ in range(count):
        x = 2 * (x - (J @ x[None])[0])
    return x


def _directions(columns: str, problem: Problem, train: np.ndarray) -> np.ndarray:
    return np.concatenate([directions(problem, kind) for kind in kinds_of_directions(columns)], 1)


def kinds_of_directions(columns: str) -> list[str]:
    """The kinds of walks in a set of columns: one, or all side by side."""
    return list(WALKS) if columns == "directions" else [columns.removeprefix("directions ")]


def place_directions(problem: Problem) -> np.ndarray:
    """Where two steps lead from a node, by their leading directions, in rows of length one: communities, to a line."""
    return problem.graph.to("cpu").derived(_place_directions, problem.seed)


def _place_directions(graph: Graph, seed: int) -> np.ndarray:
    joined = sp.diags((graph.degree.numpy() > 0).astype(np.float64)).tocsr()  # a node alone is a direction of its own
    basis = smoothed_directions(joined, partial(_two_steps, graph), MOST_PLACES, seed)
    return carried(graph, torch.from_numpy(np.ascontiguousarray(joined @ basis.T)), "near").numpy()


@once("coordinates")
def graph_coordinates(problem: Problem) -> np.ndarray:
    """Where a node lies: the smoothest eigenvectors of the normalised Laplacian; trees cut the graph along them."""
    from scipy.sparse.linalg import ArpackNoConvergence

    from walksum.precision import largest_eigenvectors

    n, count = problem.num_nodes, min(COORDINATES, problem.num_nodes // 10)
    if count < 1:
        return np.zeros((n, 0))
    S, degree = normalised_adjacency(problem.graph), problem.graph.degree.cpu().double().numpy()
    start = np.random.default_rng(0).normal(size=n)
    try:
        with few_threads(n):
            operator = _inverse_operator(problem.graph) if n > MANY_NODES and affordable(problem.graph) else S
            vectors = largest_eigenvectors(operator, count, start, tol=1e-4, maxiter=500)
    except ArpackNoConvergence as some:
        vectors = some.eigenvectors
    return vectors * np.sqrt(n) / np.sqrt(np.maximum(degree, 1))[:, None]


def _inverse_operator(graph: Graph) -> Any:
    """``(I - 0.999 S)^-1``: the eigenvectors of S, whose largest eigenvalues lie apart; of S itself they crowd at 1."""
    from scipy.sparse.linalg import LinearOperator

    plain, n = Graph(graph.edges.cpu(), graph.num_nodes), graph.num_nodes

    @torch.no_grad()
    def solve(x: np.ndarray) -> np.ndarray:
        return spread(Operator(0.999), torch.from_numpy(np.array(x).reshape(n, 1)), plain).numpy().ravel()

    return LinearOperator((n, n), matvec=solve, dtype=np.float64)


def directed_means(problem: Problem, own: np.ndarray) -> list[np.ndarray]:
    """Means over the targets and over the sources of a node's arcs, and how many there are."""
    parts = []
    for matrix in arc_matrices(problem):
        count = np.asarray(matrix.sum(1)).ravel()
        parts += [mean_over(matrix) @ own, np.log1p(count)[:, None]]
    return parts


def arc_matrices(problem: Problem) -> list[sp.csr_matrix]:
    """The number of arcs from each node to each other, and its transpose; none where edges came undirected."""
    if problem.arcs is None:
        return []
    source, target = problem.arcs
    A = sp.coo_matrix((np.ones(len(source)), (source, target)), (problem.num_nodes,) * 2).tocsr()
    return [A, A.T.tocsr()]


def mean_over(matrix: sp.csr_matrix) -> sp.csr_matrix:
    return sp.diags(1 / np.maximum(np.asarray(matrix.sum(1)).ravel(), 1)) @ matrix


def amounts(problem: Problem) -> list[np.ndarray]:
    """Logarithms of a node's sums of weights, where edges have some: of all, or of what leaves and what arrives.

    A weighted mean over neighbours says nothing of how much there is.
    """
    if problem.unit is None:
        return []
    if problem.arcs is None:
        sums = [np.asarray(problem.graph.to_scipy().sum(1)).ravel()]
    else:
        sums = [np.bincount(ends, problem.arc_weight, problem.num_nodes) for ends in problem.arcs]
    return [np.log1p(each / problem.unit)[:, None] for each in sums]


@once("targets")
def with_targets(problem: Problem, train: np.ndarray) -> np.ndarray:
    """Targets of other nodes among ``train``, exactly without the node's own."""
    Y = _known_targets(problem, train)
    far = other_targets(problem.graph, train, Y, LABEL_SCALES, ratio=not problem.classes)
    near = neighbour_targets(problem.graph, train, Y)
    return np.concatenate([far, near, *directed_targets(problem, train, Y)], 1)


@once("near targets")
def with_near_targets(problem: Problem, train: np.ndarray) -> np.ndarray:
    """The same of two hops, where the diagonal of the inverse costs too much."""
    Y = _known_targets(problem, train)
    near = neighbour_targets(problem.graph, train, Y, hops=2)
    return np.concatenate([near, *directed_targets(problem, train, Y)], 1)


def directed_targets(problem: Problem, train: np.ndarray, Y: np.ndarray) -> list[np.ndarray]:
    """Known targets where a node's arcs lead and where they come from: who supplies whom tells them apart."""
    if not problem.arc_targets:
        return []
    # without loops, which lead to the own target
    others = [matrix - sp.diags(matrix.diagonal()) for matrix in arc_matrices(problem)]
    return [targets_along(mean_over(matrix), train, Y) for matrix in others]


def _known_targets(problem: Problem, train: np.ndarray) -> np.ndarray:
    y = problem.y[train]
    return np.eye(problem.classes)[y.astype(np.int64)] if problem.classes else y[:, None]


def exact_diagonal(problem: Problem) -> bool:
    """Whether the whole diagonal of the inverse is affordable; centrality needs it."""
    if problem.exact is None:
        problem.exact = has_whole_diagonal(problem.graph, DIAGONAL * problem.budget)
    return problem.exact


def can_leave_one_out(problem: Problem) -> bool:
    """Whether the targets of others are affordable: the diagonal at labelled nodes, or everywhere."""
    seconds = len(problem.folds) * seconds_of_solves(problem.graph, len(problem.labelled))
    return seconds <= DIAGONAL * problem.budget or exact_diagonal(problem)


Columns = Callable[[Problem, np.ndarray], np.ndarray]

COLUMNS: dict[str, Columns] = {
    "x": lambda problem, train: own_columns(problem),
    ALL_OWN: lambda problem, train: as_dense(problem.X),
    "neighbours": lambda problem, train: neighbours(problem),
    "surroundings": lambda problem, train: surroundings(problem),
    "smoothed": lambda problem, train: smoothed(problem),
    "surroundings + labels": lambda problem, train: np.concatenate(
        [surroundings(problem), with_targets(problem, train)], 1
    ),
    NEAR_LABELS: lambda problem, train: np.concatenate([surroundings(problem), with_near_targets(problem, train)], 1),
    **{name: partial(_directions, name) for name in ("directions", *EACH_WALK)},
    PLACES: lambda problem, train: place_directions(problem),
    "place + surroundings + labels": lambda problem, train: np.concatenate(
        [graph_coordinates(problem), surroundings(problem), with_targets(problem, train)], 1
    ),
}


TABLES: dict[str, Callable[[Problem], np.ndarray]] = {
    "own": own_columns,
    "neighbours": neighbours,
    "surroundings": surroundings,
}
MARGIN = 1.0  # standard deviations beyond the range of the training nodes that columns of other tables are read to


def column_limits(problem: Problem) -> Arrays:
    """Least and largest values ``[2, F]`` that members read, a margin around those of all nodes, by table."""
    found = {}
    for name in TABLES:
        if name in problem.kept and problem.num_nodes:
            columns = problem.kept[name]
            margin = MARGIN * columns.std(0)
            found[name] = np.stack([columns.min(0) - margin, columns.max(0) + margin])
    return found


def cut_columns(problem: Problem, limits: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Cut the columns of another table at these limits; which nodes have one beyond them, and a near one, ``[N]`` each.

    On a graph of other degrees a column that hardly varied in training would carry linear models and networks anywhere.
    Means over far surroundings hardly vary within a graph and differ between two: only near columns tell of a node.
    """
    before = {name: make(problem) for name, make in TABLES.items() if name in limits}  # one is made of another
    outside, near = np.zeros((2, problem.num_nodes), dtype=bool)
    for name, columns in before.items():
        problem.kept[name] = columns.clip(*limits[name])
        cut = (problem.kept[name] != columns).any(1)
        outside |= cut
        near |= cut & (name != "surroundings")
    return outside, near


def needs_targets(columns: str) -> bool:
    """Whether these columns hold known targets of other nodes."""
    return columns.endswith("labels")


def needs_this_graph(columns: str) -> bool:
    """Whether these columns hold eigenvectors, which mean nothing on another graph."""
    return columns.startswith("place")


@dataclass(frozen=True)
class Standard:
    """Columns around 0 of size 1, as the training table had them; outliers are cut."""

    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray) -> Standard:
        spread = X.std(0)
        return cls(X.mean(0), np.where(spread > 1e-12, spread, 1.0))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return ((X - self.mean) / self.spread).astype(np.float32).clip(-8, 8)


def by_row(X: Any) -> Any:
    """Rows of words, each summing to one."""
    X = sp.csr_matrix(X)
    total = np.asarray(abs(X).sum(1)).ravel()
    return sp.diags(1 / np.where(total > 0, total, 1.0)) @ X


def own_and_degree(problem: Problem) -> np.ndarray:
    """All columns of x, unless they are thousands, and the degree."""
    own = as_dense(problem.X) if problem.X.shape[1] <= MOST_COLUMNS else own_columns(problem)
    return np.concatenate([own, log_degree(problem.graph)], 1)
