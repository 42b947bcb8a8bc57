"""Chebyshev iteration: product and update of a step in one pass over the rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.simd import at, fma, lanes_for, load, prefetch, store
from walksum.backends.cpu.tiling import AHEAD, aligned, for_blocks, rows, view
from walksum.graph import Graph


def chebyshev(
    graph: Graph, off: Tensor, inverse: Tensor, x: Tensor, old: Tensor, h: Tensor, gain: float, weights: list[float]
) -> tuple[Tensor, Tensor]:
    """The two newest iterates after a step for each weight, starting from ``x`` and ``old``, all ``[H, N, F]``."""
    G, J_off, D_inverse = rows(graph), view(off), view(inverse.squeeze(-1))
    sources = [view(t) for t in (x, old, h)]
    new, last = torch.empty_like(x), torch.empty_like(x)

    def block(head: int, start: int, stop: int) -> None:
        lanes, w = lanes_for(stop - start), stop - start
        buffers = aligned(3, x.size(1), lanes.itemsize * 8, dtype=J_off.dtype)
        for buffer, source in zip(buffers, sources, strict=True):
            buffer[:, :w] = source[head, :, start:stop]
        pattern = (G.indptr, G.indices, G.edge, J_off[head], D_inverse[head])
        _steps(lanes, *buffers, *pattern, gain, np.array(weights))
        order = (1, 0) if len(weights) % 2 else (0, 1)
        for target, k in zip((new, last), order, strict=True):
            target.numpy()[head, :, start:stop] = buffers[k, :, :w]

    for_blocks(block, x.size(0), x.size(2), len(weights) * (x.size(1) + 2.0 * graph.num_edges))
    return new, last


@jit
def _steps(lanes, x, old, h, indptr, indices, edge, off, inverse, gain, omegas):
    """Steps ``old <- old + omega (x + gain D^-1 (h - J x) - old)``, then x and old change names.

    After an odd number of steps the newest iterate is in ``old``.
    """
    keep = inverse.dtype.type(1 - gain)
    for omega in omegas:
        weight = inverse.dtype.type(omega)
        for i in range(inverse.size):
            total = load(lanes, h, i)
            for e in range(at(indptr, i), at(indptr, i + 1)):
                if e + AHEAD < indices.size:
                    prefetch(lanes, x, at(indices, e + AHEAD))
                total = fma(-at(off, at(edge, e)), load(lanes, x, at(indices, e)), total)
            before = load(lanes, old, i)
            total = fma(keep, load(lanes, x, i), inverse.dtype.type(gain) * inverse[i] * total)
            store(old, i, fma(weight, total - before, before))
        x, old = old, x
