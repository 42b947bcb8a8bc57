"""What estimators take: tables, graphs and seeds; and rows of X as nodes of a graph."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from walksum._checks import check_real_matrix
from walksum.data.places import nearest_pairs
from walksum.graph import EdgeInput, Graph
from walksum.graph.spatial import is_named

#: rows of numbers: an array, a DataFrame or a sparse matrix
TableLike: TypeAlias = ArrayLike | sp.spmatrix | sp.sparray
#: an adjacency matrix ``[N, N]``, an edge list ``[2, M]``, a :class:`walksum.Graph`, or a graph of networkx or libpysal
GraphLike: TypeAlias = EdgeInput | TableLike
#: a seed, a generator, or None for a new one
RandomState: TypeAlias = int | np.random.RandomState | None


def knn_graph(X: np.ndarray, n_neighbors: int) -> Graph:
    """Join each row to its nearest others: an undirected, unweighted graph."""
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors={n_neighbors}; expected at least 1")
    return Graph.from_edge_index(torch.from_numpy(nearest_pairs(X, n_neighbors)), len(X))


def as_graph_of(graph: Any, num_rows: int) -> Graph:
    """Convert an adjacency matrix, an edge list or a graph of networkx or libpysal to a Graph of ``num_rows`` nodes.

    Nodes of networkx and libpysal are the rows in their own order.
    """
    if isinstance(graph, Graph | Tensor) or is_named(graph):
        found = Graph.from_edge_index(graph, num_rows if isinstance(graph, Tensor) else None)
    elif sp.issparse(graph) or np.shape(graph) == (num_rows, num_rows):
        matrix = entries(graph)
        if matrix.shape != (num_rows, num_rows):
            raise ValueError(f"graph has shape {matrix.shape}; an adjacency matrix of {num_rows} rows is square")
        weight = torch.from_numpy(matrix.data.astype(np.float32))
        pairs = torch.from_numpy(np.stack(matrix.coords).astype(np.int64))
        found = Graph.from_edge_index(pairs, num_rows, None if bool((weight == 1).all()) else weight)
    else:
        pairs = torch.from_numpy(_pairs(graph))
        found = Graph.from_edge_index(pairs, max(num_rows, int(pairs.max()) + 1 if pairs.numel() else 0))
    if found.num_nodes != num_rows:
        raise ValueError(
            f"graph has {found.num_nodes} nodes but X has {num_rows} rows; they must agree: scikit-learn's "
            "cross-validation cuts rows out of X, TransductiveKFold.cross_val_score keeps them without a label, and "
            "GraphFeatures(graph, table=X) takes node numbers as rows"
        )
    return found


def entries(matrix: Any) -> sp.coo_matrix:
    """The entries of an adjacency matrix, each once and not zero, whatever its format; a copy."""
    check_real_matrix("graph", matrix if hasattr(matrix, "dtype") else np.asarray(matrix))
    found = sp.csr_matrix(matrix, copy=True)
    found.sum_duplicates()
    found.eliminate_zeros()
    return found.tocoo()


def warn_of_order(graph: Any, X: Any) -> None:
    """Warn if the graph names the rows of X, by their index or by 0 to N - 1, in another order than X has them."""
    where, nodes, remedy = _node_names(graph)
    rows, order = list(range(len(nodes))), f"range({len(nodes)})"
    if hasattr(X, "iloc") and set(X.index) == set(nodes):
        rows, order = list(X.index), "X.index"
    if nodes != rows and len(nodes) == len(rows) and set(nodes) == set(rows):
        warnings.warn(
            f"row k of X is taken for the k-th node of {where}, but these begin {nodes[:4]} and {order} begins "
            f"{rows[:4]}; to join them by name, give {remedy.format(order)}",
            stacklevel=3,
        )


def _node_names(graph: Any) -> tuple[str, list, str]:
    """Where the graph names its nodes, these names in order, and how to have them in another order."""
    if hasattr(graph, "iloc"):
        square = graph.shape[0] == graph.shape[-1]
        return "graph.index", list(graph.index) if square else [], "graph.loc[{0}, {0}]"
    if hasattr(graph, "nodes") and hasattr(graph, "is_directed"):
        return "graph.nodes", list(graph.nodes), "networkx.to_scipy_sparse_array(graph, nodelist={0})"
    names = next((name for name in ("unique_ids", "id_order") if hasattr(graph, name)), None)
    return f"graph.{names}", list(getattr(graph, names)) if names else [], "walksum.spatial_graph(graph, ids={0}).graph"


def as_features(X: np.ndarray) -> Tensor:
    return torch.from_numpy(np.require(X, np.float32, ["C", "W"]))


def _pairs(graph: Any) -> np.ndarray:
    pairs = np.asarray(graph)
    if pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.shape[0] != 2:
        pairs = pairs.T
    if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"graph has shape {pairs.shape} and dtype {pairs.dtype}; expected an adjacency matrix [N, N], "
            "an integer edge list [2, M] or [M, 2], a walksum.Graph, or a graph of networkx or libpysal"
        )
    return pairs.astype(np.int64)
