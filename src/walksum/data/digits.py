"""Handwritten digits as a graph: real data that needs no download."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch_geometric.data import Data


def digits(k: int = 8) -> Data:
    """scikit-learn's 1,797 images of 8 x 8 pixels in [0, 1], each joined to its k nearest, both ways.

    The graph is undirected, unweighted and has no self-loops; a node may have more than k neighbours.
    """
    images, labels = load_digits(return_X_y=True)
    if not 1 <= k < len(images):
        raise ValueError(f"k={k} neighbours are not possible; choose 1 to {len(images) - 1}")
    nearest = kneighbors_graph(images, k, include_self=False)
    both_ways = nearest.maximum(nearest.T).tocoo()
    return Data(
        x=torch.from_numpy(images / 16).float(),
        edge_index=torch.from_numpy(np.stack(both_ways.coords).astype(np.int64)),
        y=torch.from_numpy(labels).long(),
    )
