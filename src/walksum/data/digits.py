"""Handwritten digits as a graph: real data that needs no download."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch_geometric.data import Data


def digits(k: int = 6) -> Data:
    """scikit-learn's 1,797 images of 8 x 8 pixels in [0, 1], each joined to its k nearest, both ways.

    The distance of two images is the smallest over shifts of one of them by at most a pixel. The graph is undirected,
    unweighted and has no self-loops; a node may have more than k neighbours.
    """
    images, labels = load_digits(return_X_y=True)
    if not 1 <= k < len(images):
        raise ValueError(f"k={k} neighbours are not possible; choose 1 to {len(images) - 1}")
    return Data(
        x=torch.from_numpy(images / 16).float(),
        edge_index=torch.from_numpy(_nearest(shift_distance(images), k)),
        y=torch.from_numpy(labels).long(),
    )


def shift_distance(images: np.ndarray) -> np.ndarray:
    """The squared distance of each pair of images, the smallest over shifts by at most a pixel.

    Pixels are whole numbers, so distances are exact, and the graph is the same on every machine.
    """
    square = images.reshape(-1, 8, 8)
    padded = np.pad(square, ((0, 0), (1, 1), (1, 1)))
    found = np.full((len(images), len(images)), np.inf)
    for down, right in np.ndindex(3, 3):
        moved = padded[:, down : down + 8, right : right + 8].reshape(len(images), -1)
        products = images @ moved.T
        np.minimum(found, (images**2).sum(1)[:, None] + (moved**2).sum(1) - 2 * products, out=found)
    return np.minimum(found, found.T)


def _nearest(distance: np.ndarray, k: int) -> np.ndarray:
    """Pairs of an image and its k nearest, both ways; of equally near ones the first.

    Scikit-learn's search chooses among equals by the number of threads.
    """
    distance = distance.copy()
    np.fill_diagonal(distance, np.inf)
    joined = np.zeros(distance.shape, dtype=bool)
    np.put_along_axis(joined, np.argsort(distance, axis=1, kind="stable")[:, :k], True, axis=1)
    return np.stack(np.nonzero(joined | joined.T)).astype(np.int64)
