"""The graph's own axes: Fiedler order, and what J^-1 does to each eigenvector of the normalised adjacency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from walksum._scipy import eigsh
from walksum.analysis.inverse import apply_inverse
from walksum.analysis.part import ball, restrict
from walksum.graph import Graph
from walksum.precision import Precision

__all__ = ["Spectrum", "Response", "normalised_adjacency", "spectrum", "fiedler_order", "response", "classify"]
__all__ += ["ball", "restrict"]  # a graph too large for all its eigenvectors is looked at in part

DENSE_LIMIT = 400  # up to here a dense eigensolver is as fast and has no convergence questions
SPECTRUM_LIMIT = 3000  # a full decomposition takes N^3: seconds up to here, minutes beyond
SAME = 1e-4  # of the largest gain: a J of float32 is a function of the adjacency up to its rounding
DIGITS = 10  # leaves of one node have equal Fiedler entries: rounding must not order them


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of D^-1/2 A D^-1/2, descending from 1 (smooth) to -1 at least (alternating), and their vectors."""

    values: Tensor  # [N], float64
    vectors: Tensor  # [N, N], one per column


@dataclass(frozen=True)
class Response:
    """What J^-1 does to the eigenvectors of the normalised adjacency.

    Attributes:
        eigenvalues: ``[N]``, descending.
        gain: ``[H, N]``, :math:`u_k^\\top J^{-1} u_k`.
        spread: ``[H, N]``, the length of the part of :math:`J^{-1} u_k` across :math:`u_k`; 0 for all k exactly where
            J is a function of the adjacency, and the gain is then its eigenvalue.
    """

    eigenvalues: Tensor
    gain: Tensor
    spread: Tensor

    @property
    def diagonal(self) -> bool:
        """J is a function of the normalised adjacency: the gain says everything."""
        return bool((self.spread <= SAME * self.gain.abs().amax()).all())

    @property
    def kind(self) -> str:
        return classify(self.eigenvalues, self.gain.mean(0))


def normalised_adjacency(graph: Graph) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2 in float64; rows without edges are 0."""
    A = graph.structure.to_scipy()
    degree = np.asarray(A.sum(1)).ravel()
    scale = sp.diags(1 / np.sqrt(np.where(degree > 0, degree, 1.0)))
    return (scale @ A @ scale).tocsr()


def spectrum(graph: Graph) -> Spectrum:
    """All eigenpairs of the normalised adjacency, kept with the graph. Takes N^3: about 4 s for Cora."""
    return graph.derived(_spectrum)


def _spectrum(graph: Graph) -> Spectrum:
    if graph.num_nodes > SPECTRUM_LIMIT:
        raise ValueError(
            f"{graph} has more than {SPECTRUM_LIMIT} nodes; all eigenvectors would take minutes: "
            "use a part of the graph, such as walksum.analysis.spectrum.ball(graph, node, most=1000)"
        )
    values, vectors = torch.linalg.eigh(torch.from_numpy(normalised_adjacency(graph).toarray()))
    return Spectrum(values.flip(0), vectors.flip(1).contiguous())


def fiedler_order(graph: Graph) -> Tensor:
    """Nodes by the second eigenvector of the normalised Laplacian, ``[N]``.

    A graph in several pieces has no such vector of its own: pieces follow each other by size, each in the order of
    its second eigenvector; nodes without edges come last.
    """
    return graph.derived(_fiedler_order)


def _fiedler_order(graph: Graph) -> Tensor:
    A = normalised_adjacency(graph)
    count, label = connected_components(A, directed=False)
    sizes = np.bincount(label, minlength=count)
    order = []
    for piece in np.argsort(-sizes, kind="stable"):
        nodes = np.flatnonzero(label == piece) if sizes[piece] > 1 else None
        if nodes is None:  # nodes without edges, all of them at once
            order.append(np.flatnonzero(sizes[label] == 1))
            break
        vector = np.round(second_vector(A[nodes][:, nodes]), DIGITS)
        order.append(nodes[np.argsort(vector, kind="stable")])
    return torch.from_numpy(np.concatenate(order) if order else np.empty(0, dtype=np.int64))


def second_vector(A: sp.csr_matrix) -> np.ndarray:
    """The eigenvector of the second largest eigenvalue of a normalised adjacency; its largest entry is > 0."""
    size = A.shape[0]
    if size <= DENSE_LIMIT:
        vector = np.linalg.eigh(A.toarray())[1][:, -2]
    else:
        start = np.random.default_rng(0).normal(size=size)
        # the shift makes the wanted end the largest in magnitude too, which Lanczos likes
        vector = eigsh(A + sp.identity(size), k=2, which="LA", v0=start, ncv=min(size - 1, 60))[1][:, 0]
    return vector * np.sign(vector[np.abs(vector).argmax()])


@torch.no_grad()
def response(J: Precision, axes: Spectrum | None = None) -> Response:
    """Gain and spread of J^-1 for every eigenvector of its graph's normalised adjacency, in float64."""
    axes = spectrum(J.graph) if axes is None else axes
    image = apply_inverse(J, axes.vectors)
    gain = (axes.vectors * image).sum(1)
    spread = (image - gain.unsqueeze(1) * axes.vectors).norm(dim=1)
    return Response(axes.values, gain, spread)


def classify(eigenvalues: Tensor, gain: Tensor, edge: float = 0.5, margin: float = 1.1) -> str:
    """Low-pass, high-pass, band-pass or flat: the mean gain of smooth, middle and alternating eigenvectors compared.

    ``edge`` bounds the middle, ``margin`` is the least ratio that counts as a difference.
    """
    parts = (eigenvalues > edge, eigenvalues.abs() <= edge, eigenvalues < -edge)
    smooth, middle, rough = (float(gain[part].mean()) if bool(part.any()) else float("nan") for part in parts)
    outer = [value for value in (smooth, rough) if value == value]
    if middle == middle and outer and middle > margin * max(outer):
        return "band-pass"
    if middle == middle and len(outer) == 2 and margin * middle < min(outer):
        return "band-stop"
    ends = [value for value in (smooth, middle, rough) if value == value]
    if len(ends) < 2 or max(ends) <= margin * min(ends):
        return "flat"
    return "low-pass" if ends[0] > ends[-1] else "high-pass"
