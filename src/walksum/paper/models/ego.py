"""Every node's k-hop ego graph, side by side as one graph."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.paper.models.structure import gcn_edges


@dataclass(frozen=True)
class EgoGraphs:
    """Copy c of a node is node[c] as seen from centre[c]; the edges join copies of one ego graph.

    Shapes: node [M], centre [M], edge_index [2, K], weight [K].
    """

    node: Tensor
    centre: Tensor
    edge_index: Tensor
    weight: Tensor


def ego_graphs(edge_index: Tensor, num_nodes: int, dtype: torch.dtype, hops: int) -> EgoGraphs:
    """Induced subgraphs on the nodes at most `hops` steps upstream, GCN-normalised each on its own."""
    source, target = edge_index.cpu().numpy()
    ones = np.ones(len(source), dtype=bool)
    # Row i holds the nodes whose messages reach i in one step.
    adjacency = sp.csr_matrix((ones, (target, source)), (num_nodes, num_nodes))
    reach = sp.eye_array(num_nodes, dtype=bool, format="csr")
    for _ in range(hops):
        reach = (reach + reach @ adjacency).astype(bool).tocsr()
    reach.sort_indices()
    centre = np.repeat(np.arange(num_nodes), np.diff(reach.indptr))
    node = reach.indices.astype(np.int64)
    copies = torch.from_numpy(_copy_edges(adjacency, centre, node, num_nodes)).to(edge_index.device)
    return EgoGraphs(
        torch.from_numpy(node).to(edge_index.device),
        torch.from_numpy(centre).to(edge_index.device),
        *gcn_edges(copies, len(node), dtype),
    )


def _copy_edges(adjacency: sp.csr_matrix, centre: np.ndarray, node: np.ndarray, num_nodes: int) -> np.ndarray:
    """For each copy (centre, node), the edges into it from copies with the same centre."""
    degree = np.diff(adjacency.indptr)[node]
    receiver = np.repeat(np.arange(len(node)), degree)
    offset = np.arange(degree.sum()) - np.repeat(np.cumsum(degree) - degree, degree)
    sender_node = adjacency.indices[adjacency.indptr[node][receiver] + offset]
    # Copies are ordered by (centre, node), so one search finds the sender's copy, or that there is none.
    key = centre * num_nodes + node
    wanted = centre[receiver] * num_nodes + sender_node
    sender = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    inside = key[sender] == wanted
    return np.stack([sender[inside], receiver[inside]])
