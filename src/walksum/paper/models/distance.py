"""Shortest-path distances between all nodes."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.backends.cpu.threads import over_columns
from walksum.paper.models.distance_kernel import steps_from

MAX_DISTANCE = 20
UNREACHABLE = MAX_DISTANCE + 1
NUM_BUCKETS = MAX_DISTANCE + 2


def distance_buckets(near: Tensor, num_nodes: int, rows: int = 256) -> Tensor:
    """[N, N] uint8: the number of steps from i to j, at most 20; 21 where there is no path.

    One byte a pair: 0.4 GB for PubMed, where float distances would be 3 GB. Threads take ``rows`` sources at a time.
    """
    source, target = near.cpu().numpy()
    graph = sp.csr_matrix((np.ones(len(source), np.int8), (source, target)), (num_nodes, num_nodes))
    out = np.full((num_nodes, num_nodes), UNREACHABLE, dtype=np.uint8)
    work = float(num_nodes) * (num_nodes + graph.nnz)
    links = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    over_columns(steps_from, num_nodes, work, *links, MAX_DISTANCE, out, width=rows)
    return torch.from_numpy(out).to(near.device)
