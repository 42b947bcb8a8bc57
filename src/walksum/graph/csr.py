"""Neighbour lists of a graph: the directed edges grouped by row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class CSR:
    """Directed edges grouped by row: slot e of row i stands for the neighbour ``indices[e]``.

    ``edge`` maps a slot to the undirected edge it belongs to, ``reverse`` to the slot of the opposite
    direction, ``row`` to the row it lies in. 32-bit where the counts allow: kernels are bandwidth bound.
    """

    indptr: Tensor  # [N + 1], int64
    indices: Tensor  # [2 E]
    edge: Tensor  # [2 E]
    reverse: Tensor  # [2 E]
    row: Tensor  # [2 E]

    def to(self, device: torch.device | str) -> CSR:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})


def index_dtype(largest: int) -> torch.dtype:
    return torch.int32 if largest < 2**31 else torch.int64


def build_csr(edges: Tensor, num_nodes: int) -> CSR:
    """The neighbour lists of edges ``[2, E]`` with ``i < j`` in lexicographic order."""
    # The edges are sorted by i already, so the upper half of every row stands in order; the lower half is one
    # stable sort of the E numbers j. A sort of all 2 E pairs would take four times the time and memory.
    i, j = edges
    small = index_dtype(max(2 * edges.size(1), num_nodes))
    edge = torch.arange(edges.size(1), device=edges.device)
    by_j = torch.sort(j.to(index_dtype(num_nodes)), stable=True).indices
    below, above = (torch.bincount(end, minlength=num_nodes) for end in (j, i))
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=edges.device)
    torch.cumsum(below + above, 0, out=indptr[1:])
    up = edge + (indptr[:-1] + below - (above.cumsum(0) - above))[i]  # the slot of j in row i
    down = torch.empty_like(up)  # the slot of i in row j
    down[by_j] = edge + (indptr[:-1] - (below.cumsum(0) - below))[j[by_j]]
    return CSR(
        indptr=indptr,
        indices=_fill_slots(up, down, j, i, small),
        edge=_fill_slots(up, down, edge, edge, small),
        reverse=_fill_slots(up, down, down, up, small),
        row=_fill_slots(up, down, i, j, small),
    )


def _fill_slots(up: Tensor, down: Tensor, at_up: Tensor, at_down: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty(2 * up.numel(), dtype=dtype, device=up.device)
    out[up], out[down] = at_up.to(dtype), at_down.to(dtype)
    return out
