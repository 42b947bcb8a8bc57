"""Correlations of the Gaussian with precision J: which nodes move together before anything is observed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walksum.analysis.inverse import apply_inverse, units
from walksum.analysis.part import restrict
from walksum.analysis.spectrum import fiedler_order
from walksum.precision import Precision

DENSE_LIMIT = 3000  # nodes up to which the whole inverse is made
SAMPLE = 400  # nodes shown of a larger graph


@dataclass(frozen=True)
class Correlation:
    """A correlation matrix in the order in which it is drawn.

    Attributes:
        matrix: ``[n, n]``, float64, unit diagonal; the mean over heads unless one was asked for.
        coupling: ``[n, n]``, the direct part of it, -J_ij / sqrt(J_ii J_jj) on edges and 0 elsewhere, heads as above.
        nodes: ``[n]``, the node of each row.
        num_nodes: how many nodes the graph has.
    """

    matrix: Tensor
    coupling: Tensor
    nodes: Tensor
    num_nodes: int

    @property
    def note(self) -> str:
        """Empty, or how the shown nodes were chosen."""
        shown = self.nodes.numel()
        return "" if shown == self.num_nodes else f"{shown} of {self.num_nodes} nodes, evenly spaced in Fiedler order"


@torch.no_grad()
def correlation(J: Precision, nodes: Tensor | None = None) -> Tensor:
    r""":math:`\Sigma_{ij} / \sqrt{\Sigma_{ii} \Sigma_{jj}}` with :math:`\Sigma = J^{-1}`, ``[H, n, n]`` in float64.

    Args:
        J: the precision matrix. All its nodes only up to 3,000 of them.
        nodes: the nodes wanted, all by default; the others are marginalised, not left out.
    """
    if nodes is None and J.num_nodes > DENSE_LIMIT:
        raise ValueError(
            f"nodes=None for {J}; above {DENSE_LIMIT} nodes name the nodes wanted, for example "
            "walksum.analysis.spectrum.fiedler_order(J.graph)[::50]"
        )
    covariance = apply_inverse(J, units(J.num_nodes, nodes))
    covariance = covariance if nodes is None else covariance[:, nodes.cpu()]
    scale = covariance.diagonal(dim1=1, dim2=2).rsqrt()
    return covariance * scale.unsqueeze(1) * scale.unsqueeze(2)


@torch.no_grad()
def ordered(J: Precision, head: int | None = None, most: int = DENSE_LIMIT) -> Correlation:
    """The correlation matrix by Fiedler order, with the couplings beside it.

    Args:
        J: the precision matrix.
        head: one head; by default the mean over heads.
        most: of a larger graph, 400 nodes evenly spaced in that order are shown.
    """
    if head is not None:
        if not 0 <= head < J.heads:
            raise ValueError(f"head={head}; {J} has heads 0 to {J.heads - 1}")
        J = Precision(J.graph, J.diag[head : head + 1], J.off[head : head + 1])
    order = fiedler_order(J.graph)
    evenly = torch.linspace(0, J.num_nodes - 1, min(J.num_nodes, SAMPLE)).round().long()
    nodes = order if J.num_nodes <= most else order[evenly]
    return Correlation(correlation(J, nodes).mean(0), coupling(J, nodes).mean(0), nodes, J.num_nodes)


def coupling(J: Precision, nodes: Tensor) -> Tensor:
    """-J_ij / sqrt(J_ii J_jj) between ``nodes``, ``[H, n, n]``: positive where J_ij pulls the two together."""
    part = restrict(J, nodes.cpu()).to(torch.float64).normalised()
    return Precision(part.graph, torch.zeros_like(part.diag), -part.off).to_dense()
