"""Kernels over edges on the GPU: dot products, values in slot order, row sums of scalars."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from walksum.backends.cuda.triton.launch import CachedLaunch, launch
from walksum.backends.cuda.triton.plan import feature_width
from walksum.graph import Graph

DOT_EDGES, DOT_WARPS = 32, 8
SLOTS = 1024


@triton.jit(do_not_specialize=["num_edges", "num_nodes"])
def edge_dot_kernel(edges, a, b, out, num_edges, num_nodes, F, EDGES: tl.constexpr, WIDTH: tl.constexpr):
    head = tl.program_id(2).to(tl.int64)
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    here = edge < num_edges
    i = tl.load(edges + edge, mask=here, other=0)[:, None] * F
    j = tl.load(edges + num_edges + edge, mask=here, other=0)[:, None] * F
    a += head * num_nodes * F
    b += head * num_nodes * F
    dot = tl.zeros([EDGES], tl.float32)
    for first in range(0, F, WIDTH):
        cols = (first + tl.arange(0, WIDTH))[None, :]
        mask = here[:, None] & (cols < F)
        # edges are sorted by i, so the rows of i come from the cache
        ab = tl.load(a + i + cols, mask=mask, other=0.0) * tl.load(b + j + cols, mask=mask, other=0.0)
        ba = tl.load(a + j + cols, mask=mask, other=0.0) * tl.load(b + i + cols, mask=mask, other=0.0)
        dot += tl.sum(ab + ba, 1)
    tl.store(out + head * num_edges + edge, dot, mask=here)


def edge_dot(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """``sum_f a_if b_jf + a_jf b_if`` for every edge, without an E x F temporary."""
    heads, num_nodes, F = a.shape
    out = a.new_zeros(heads, graph.num_edges) if F == 0 else a.new_empty(heads, graph.num_edges)
    if F:
        launch(
            edge_dot_kernel, (-(-graph.num_edges // DOT_EDGES), 1, heads), a, graph.edges.contiguous(), a.contiguous(),
            b.contiguous(), out, graph.num_edges, num_nodes, F, warps=DOT_WARPS, EDGES=DOT_EDGES,
            WIDTH=feature_width(F),
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num_edges", "num_nodes", "blocks"])
def gradients_kernel(
    edges, g, mu, d_diag, d_off, num_edges, num_nodes, blocks, F, EDGES: tl.constexpr, WIDTH: tl.constexpr
):
    """Edges by the first ``blocks`` programs, nodes by the others."""
    head, block = tl.program_id(2).to(tl.int64), tl.program_id(0)
    g += head * num_nodes * F
    mu += head * num_nodes * F
    dot = tl.zeros([EDGES], tl.float32)
    if block < blocks:
        edge = block.to(tl.int64) * EDGES + tl.arange(0, EDGES)
        here = edge < num_edges
        i = tl.load(edges + edge, mask=here, other=0)[:, None] * F
        j = tl.load(edges + num_edges + edge, mask=here, other=0)[:, None] * F
        for first in range(0, F, WIDTH):
            cols = (first + tl.arange(0, WIDTH))[None, :]
            mask = here[:, None] & (cols < F)
            there = tl.load(g + i + cols, mask=mask, other=0.0) * tl.load(mu + j + cols, mask=mask, other=0.0)
            back = tl.load(g + j + cols, mask=mask, other=0.0) * tl.load(mu + i + cols, mask=mask, other=0.0)
            dot += tl.sum(there + back, 1)
        tl.store(d_off + head * num_edges + edge, -dot, mask=here)
    else:
        node = (block - blocks).to(tl.int64) * EDGES + tl.arange(0, EDGES)
        here = node < num_nodes
        for first in range(0, F, WIDTH):
            cols = (first + tl.arange(0, WIDTH))[None, :]
            mask, at = here[:, None] & (cols < F), node[:, None] * F + cols
            dot += tl.sum(tl.load(g + at, mask=mask, other=0.0) * tl.load(mu + at, mask=mask, other=0.0), 1)
        tl.store(d_diag + head * num_nodes + node, -dot, mask=here)


def value_gradients(graph: Graph, g: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """``-g_i . mu_i`` and ``-(g_i . mu_j + g_j . mu_i)``: the gradients of diag ``[H, N]`` and off ``[H, E]``."""
    heads, num_nodes, F = g.shape
    new = g.new_empty if F else g.new_zeros
    d_diag, d_off = new(heads, num_nodes), new(heads, graph.num_edges)
    if F:
        start = graph.derived(_gradients, heads, F)
        start(graph.edges.contiguous(), g.contiguous(), mu.contiguous(), d_diag, d_off)
    return d_diag, d_off


def _gradients(graph: Graph, heads: int, F: int) -> CachedLaunch:
    blocks = -(-graph.num_edges // DOT_EDGES)
    grid = (blocks + -(-graph.num_nodes // DOT_EDGES), 1, heads)
    numbers = (graph.num_edges, graph.num_nodes, blocks, F)
    return CachedLaunch(gradients_kernel, grid, numbers, DOT_WARPS, EDGES=DOT_EDGES, WIDTH=feature_width(F))


@triton.jit(do_not_specialize=["num_slots", "num_edges"])
def slot_values_kernel(edge, off, out, num_slots, num_edges, BLOCK: tl.constexpr):
    head = tl.program_id(2).to(tl.int64)
    slot = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = slot < num_slots
    at = tl.load(edge + slot, mask=here, other=0).to(tl.int64)
    tl.store(out + head * num_slots + slot, tl.load(off + head * num_edges + at, mask=here), mask=here)


def slot_values(graph: Graph, off: Tensor) -> Tensor:
    """Values ``[H, E]`` of edges -> ``[H, 2 E]`` of slots."""
    num_slots = 2 * graph.num_edges
    out = off.new_empty(off.size(0), num_slots)
    grid = (-(-num_slots // SLOTS), 1, off.size(0))
    launch(slot_values_kernel, grid, off, graph.csr.edge, off, out, num_slots, graph.num_edges, BLOCK=SLOTS)
    return out


@triton.jit(do_not_specialize=["num_nodes", "num_slots"])
def row_sums_kernel(
    indptr, start, message, out, num_nodes, num_slots, ROWS: tl.constexpr, EDGES: tl.constexpr, ABSOLUTE: tl.constexpr
):
    head = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = rows < num_nodes
    begin = tl.load(indptr + rows, mask=here, other=0)
    end = tl.load(indptr + rows + 1, mask=here, other=0)
    acc = tl.zeros([ROWS], tl.float32)
    message += head * num_slots
    for first in range(0, tl.max(end - begin, 0), EDGES):
        slot = begin[:, None] + first + tl.arange(0, EDGES)[None, :]
        value = tl.load(message + slot, mask=slot < end[:, None], other=0.0)
        acc += tl.sum(tl.abs(value) if ABSOLUTE else value, 1)
    at = head * num_nodes + rows
    first = tl.load(start + at, mask=here, other=0.0)
    tl.store(out + at, (tl.abs(first) if ABSOLUTE else first) + acc, mask=here)


def row_sums(graph: Graph, start: Tensor, message: Tensor, out: Tensor | None = None, absolute: bool = False) -> Tensor:
    """``start [H, N]`` plus the sum of each row's slots of ``message [H, 2 E]``; ``absolute``: of magnitudes."""
    heads, num_nodes = start.shape
    out = torch.empty_like(start) if out is None else out
    grid = (-(-num_nodes // 8), 1, heads)
    launch(
        row_sums_kernel, grid, start, graph.csr.indptr, start, message, out, num_nodes, 2 * graph.num_edges,
        ROWS=8, EDGES=64, ABSOLUTE=absolute,
    )  # fmt: skip
    return out
