"""Buckets of all pairs as the attention kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ALIGN = 128  # rows of a packed tensor are a multiple of it, and so of every block of a kernel
SPAN = 64  # rows and columns of a tile whose smallest and largest bucket are known
NOWHERE = 31  # the bucket of pairs beyond the last node


def filled(num_nodes: int) -> int:
    """Rows of a packed tensor."""
    return -(-num_nodes // ALIGN) * ALIGN


@dataclass(frozen=True)
class Tiles:
    """A symmetric bucket matrix whose nodes follow ``order``.

    Args:
        bucket: ``[R, R]`` uint8, R at least N, pairs beyond the last node in the bucket NOWHERE.
        order: ``[R]`` int32, the node of each row.
        low, high: the smallest and largest bucket of each tile, uint8.

    The sums by bucket go through a tile once for every bucket between low and high, so nodes are put in an order
    that makes the buckets of a tile alike: by distance from the most central node, then from the one farthest from it.
    """

    bucket: Tensor
    order: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, bucket: Tensor) -> Tiles:
        num_nodes = bucket.size(0)
        rows = filled(num_nodes)
        order = _similar_together(bucket)
        wide = bucket.new_full((rows, rows), NOWHERE)
        wide[:num_nodes, :num_nodes] = bucket[order].index_select(1, order)
        tiled = wide.view(rows // SPAN, SPAN, rows // SPAN, SPAN)
        low, high = tiled.amin((1, 3)), tiled.amax((1, 3)).clamp(max=NOWHERE - 1)
        places = torch.zeros(rows, dtype=torch.int32, device=bucket.device)
        places[:num_nodes] = order
        return cls(wide, places, low, high)

    def plain(self, num_nodes: int) -> Tensor:
        """The bucket matrix ``[N, N]`` it was made of."""
        back = self.order[:num_nodes].long().argsort()
        return self.bucket[back].index_select(1, back)


def _similar_together(bucket: Tensor) -> Tensor:
    if not bucket.numel():
        return torch.zeros(0, dtype=torch.int64, device=bucket.device)
    centre = bucket[bucket.sum(1).argmin()].long()
    reached = centre < centre.max().clamp(min=1)  # the largest bucket may mean that there is no path
    far = bucket[torch.where(reached, centre, -1).argmax()].long()
    return (centre * SPAN + far).argsort(stable=True)
