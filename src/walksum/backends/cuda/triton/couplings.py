"""Learned couplings on the GPU: from linear maps to J in two launches, and back in two more.

    off_ij = factor S_ij / sqrt(D_i D_j)

S is the similarity of the vectors v at the ends of an edge; it is computed again wherever it is needed, which costs
less than to store it. Laplacian: v = LeakyReLU of a map, S = exp(-|v_i - v_j|^2 / 2), D_i = sum_j S_ij (1 + bound
sigma(logit_i)), factor = scale sigma(gate). Diagonally dominant: S the cosine, D_i = (1 + bound) sum_j |S_ij| +
softplus(logit_i), factor = scale.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from walksum.backends.cuda.triton.launch import CachedLaunch
from walksum.backends.cuda.triton.plan import feature_width
from walksum.graph import Graph

WIDEST = 256  # channels per head
TILE, SLOTS = 1024, 32  # numbers of a program, neighbours that it reads at a time
SHARES = 8  # rows of a program that reads no vectors
LARGEST, SLOPE = tl.constexpr(1e6), tl.constexpr(0.01)
SMALLEST_EXPONENT = tl.constexpr(-50.0)  # exp(-50) = 2e-22: below, degree normalisation would divide rounding errors
SMALLEST = tl.constexpr(math.exp(-50) * (1 + 1e-5))  # at most this much is a value that was clipped
LEAST, MOST = tl.constexpr(1e-8), tl.constexpr(1e8)  # of a confidence


@triton.jit
def load_vectors(v, node, here, cols, head, row, each, K, GAUSSIAN: tl.constexpr):
    """Vectors of nodes along a last axis, and their lengths: LeakyReLU within LARGEST, or unit vectors."""
    value = tl.load(v + head * each + node.to(tl.int64) * row + cols, mask=here & (cols < K), other=0.0)
    length = tl.sum(value * 0.0, -1)
    if GAUSSIAN:  # comparisons, unlike minima, leave NaN as it is
        value = tl.where(value > 0, value, SLOPE * value)
        value = tl.where(value > LARGEST, LARGEST, tl.where(value < -LARGEST, -LARGEST, value))
    else:  # dividing by the largest entry first keeps the squares in range
        largest = tl.max(tl.abs(value), -1) + length
        largest = tl.where(largest == 0, 1.0, largest)
        value = value / tl.expand_dims(largest, -1)
        length = tl.sqrt(tl.sum(value * value, -1))
        length = tl.where(length == 0, 1.0, length)
        value = value / tl.expand_dims(length, -1)
        length *= largest
    return value, length


@triton.jit
def similarity(a, b, here, GAUSSIAN: tl.constexpr):
    """S of vectors along their last axis; 0 where there is no edge."""
    if GAUSSIAN:
        exponent = -0.5 * tl.sum((a - b) * (a - b), -1)
        found = tl.exp(tl.where(exponent < SMALLEST_EXPONENT, SMALLEST_EXPONENT, exponent))
    else:
        found = tl.sum(a * b, -1)
    return tl.where(here, found, 0.0)


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def load_logit(logit, bias, rows, here, head, stride, first, GAUSSIAN: tl.constexpr):
    found = tl.load(logit + rows.to(tl.int64) * stride + first + head, mask=here, other=0.0)
    return found + tl.load(bias + head) if GAUSSIAN else found


@triton.jit
def load_factor(gate, head, scale, GAUSSIAN: tl.constexpr):
    return scale * sigmoid(tl.load(gate + head)) if GAUSSIAN else scale


@triton.jit(do_not_specialize=["num_nodes"])
def roots_kernel(
    indptr, indices, v, logit, bias, root, num_nodes, row, each, K, stride, first, bound,
    ROWS: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, GAUSSIAN: tl.constexpr,
):  # fmt: skip
    """``D^-1/2`` of the nodes, 1 where D is not positive."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = rows < num_nodes
    begin = tl.load(indptr + rows, mask=mine, other=0)
    end = tl.load(indptr + rows + 1, mask=mine, other=0)
    cols = tl.arange(0, WIDTH)
    own = load_vectors(v, rows[:, None], mine[:, None], cols[None, :], head, row, each, K, GAUSSIAN)[0]
    total = tl.zeros([ROWS], tl.float32)
    for begun in range(0, tl.max(end - begin, 0), SLOTS):
        slot = begin[:, None] + begun + tl.arange(0, SLOTS)[None, :]
        here = slot < end[:, None]
        j = tl.load(indices + slot, mask=here, other=0)[:, :, None]
        other = load_vectors(v, j, here[:, :, None], cols[None, None, :], head, row, each, K, GAUSSIAN)[0]
        total += tl.sum(tl.abs(similarity(own[:, None, :], other, here, GAUSSIAN)), 1)
    x = load_logit(logit, bias, rows, mine, head, stride, first, GAUSSIAN)
    if GAUSSIAN:
        D = total * (1 + bound * sigmoid(x))
    else:
        confidence = tl.where(x > 20, x, tl.log(1 + tl.exp(x))) + LEAST
        D = total * (1 + bound) + tl.where(confidence > MOST, MOST, confidence)
    tl.store(root + head * num_nodes + rows, tl.where(D > 0, 1 / tl.sqrt(D), 1.0), mask=mine)


@triton.jit(do_not_specialize=["num_nodes", "num_edges"])
def couplings_kernel(
    edges, v, gate, root, off, num_nodes, num_edges, row, each, K, scale,
    EDGES: tl.constexpr, WIDTH: tl.constexpr, GAUSSIAN: tl.constexpr,
):  # fmt: skip
    """``factor S_ij / sqrt(D_i D_j)`` of the edges."""
    head = tl.program_id(1).to(tl.int64)
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    here = edge < num_edges
    i = tl.load(edges + edge, mask=here, other=0)
    j = tl.load(edges + num_edges + edge, mask=here, other=0)
    cols = tl.arange(0, WIDTH)[None, :]
    a = load_vectors(v, i[:, None], here[:, None], cols, head, row, each, K, GAUSSIAN)[0]
    b = load_vectors(v, j[:, None], here[:, None], cols, head, row, each, K, GAUSSIAN)[0]
    root += head * num_nodes
    roots = tl.load(root + i, mask=here, other=0.0) * tl.load(root + j, mask=here, other=0.0)
    found = load_factor(gate, head, scale, GAUSSIAN) * roots * similarity(a, b, here, GAUSSIAN)
    tl.store(off + head * num_edges + edge, found, mask=here)


@triton.jit(do_not_specialize=["num_nodes", "num_edges"])
def shares_kernel(
    indptr, edge, logit, bias, gate, root, off, grad, d_logit, d_degree, sums,
    num_nodes, num_edges, stride, first, bound,
    ROWS: tl.constexpr, SLOTS: tl.constexpr, GAUSSIAN: tl.constexpr,
):  # fmt: skip
    """The gradients of D's parts: of the logits, of ``sum_j |S_ij|``, and per node that of bias and gate."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = rows < num_nodes
    begin = tl.load(indptr + rows, mask=mine, other=0)
    end = tl.load(indptr + rows + 1, mask=mine, other=0)
    share = tl.zeros([ROWS], tl.float32)
    for begun in range(0, tl.max(end - begin, 0), SLOTS):
        slot = begin[:, None] + begun + tl.arange(0, SLOTS)[None, :]
        here = slot < end[:, None]
        at = head * num_edges + tl.load(edge + slot, mask=here, other=0).to(tl.int64)
        share += tl.sum(tl.load(grad + at, mask=here, other=0.0) * tl.load(off + at, mask=here, other=0.0), 1)
    at = head * num_nodes + rows
    inverse = tl.load(root + at, mask=mine, other=1.0)
    x = load_logit(logit, bias, rows, mine, head, stride, first, GAUSSIAN)
    c = sigmoid(x)
    if GAUSSIAN:
        of_logit = -0.5 * share * bound * c * (1 - c) / (1 + bound * c)
        of_degree = -0.5 * share * inverse * inverse * (1 + bound * c)
        of_gate = 0.5 * share * (1 - sigmoid(tl.load(gate + head)))
        tl.store(sums + at, of_logit, mask=mine)
        tl.store(sums + tl.num_programs(1) * num_nodes + at, of_gate, mask=mine)
    else:
        of_logit = tl.where(x < MOST, -0.5 * share * inverse * inverse * c, 0.0)
        of_degree = -0.5 * share * inverse * inverse * (1 + bound)
    tl.store(d_logit + rows.to(tl.int64) * stride + first + head, of_logit, mask=mine)
    tl.store(d_degree + at, of_degree, mask=mine)


@triton.jit(do_not_specialize=["num_nodes", "num_edges"])
def vectors_kernel(
    indptr, indices, edge, v, gate, root, grad, d_degree, d_v, num_nodes, num_edges, row, each, K, scale,
    ROWS: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, GAUSSIAN: tl.constexpr,
):  # fmt: skip
    """The gradient of v: ``sum_j dS_ij (v_j - v_i) S_ij``, of cosines ``sum_j dS_ij (u_j - S_ij u_i) / |v_i|``."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = rows < num_nodes
    begin = tl.load(indptr + rows, mask=mine, other=0)
    end = tl.load(indptr + rows + 1, mask=mine, other=0)
    cols = tl.arange(0, WIDTH)
    own, length = load_vectors(v, rows[:, None], mine[:, None], cols[None, :], head, row, each, K, GAUSSIAN)
    root += head * num_nodes
    d_degree += head * num_nodes
    own_root = load_factor(gate, head, scale, GAUSSIAN) * tl.load(root + rows, mask=mine, other=0.0)
    own_degree = tl.load(d_degree + rows, mask=mine, other=0.0)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for begun in range(0, tl.max(end - begin, 0), SLOTS):
        slot = begin[:, None] + begun + tl.arange(0, SLOTS)[None, :]
        here = slot < end[:, None]
        j = tl.load(indices + slot, mask=here, other=0)
        at = tl.load(edge + slot, mask=here, other=0).to(tl.int64)
        other = load_vectors(v, j[:, :, None], here[:, :, None], cols[None, None, :], head, row, each, K, GAUSSIAN)[0]
        S = similarity(own[:, None, :], other, here, GAUSSIAN)
        given = tl.load(grad + head * num_edges + at, mask=here, other=0.0)
        pull = given * own_root[:, None] * tl.load(root + j, mask=here, other=0.0)
        around = own_degree[:, None] + tl.load(d_degree + j, mask=here, other=0.0)
        if GAUSSIAN:
            pull = tl.where(S > SMALLEST, (pull + around) * S, 0.0)
            total += tl.sum(pull[:, :, None] * (other - own[:, None, :]), 1)
        else:
            sign = tl.where(S > 0, 1.0, tl.where(S < 0, -1.0, 0.0))
            pull = tl.where(here, pull + around * sign, 0.0)
            total += tl.sum(pull[:, :, None] * (other - S[:, :, None] * own[:, None, :]), 1)
    if GAUSSIAN:
        total = tl.where((own < LARGEST) & (own > -LARGEST), tl.where(own > 0, total, SLOPE * total), 0.0)
    else:
        total = total / length[:, None]
    at = head * each + rows.to(tl.int64)[:, None] * row + cols[None, :]
    tl.store(d_v + at, total, mask=mine[:, None] & (cols < K)[None, :])


class Couplings:
    """Both directions of one design for one shape.

    Args:
        v: ``[N, H K + H]``, maps and logits (gaussian), or ``[H, N, K]``.
        logit: v itself (gaussian), or ``[N, H]``.
        bias, gate: ``[H]``; read by the gaussian alone.
    """

    def __init__(self, graph: Graph, heads: int, K: int, bound: float, scale: float, gaussian: bool):
        N, E, width = graph.num_nodes, graph.num_edges, feature_width(K, WIDEST)
        self.csr, self.edges, self.gaussian = graph.csr, graph.edges.contiguous(), gaussian
        self.of_nodes, self.of_edges = (heads, N), (heads, E)
        of_v = (heads * (K + 1), K, K) if gaussian else (K, N * K, K)  # from row to row, from head to head, channels
        of_logit = (heads * (K + 1), heads * K) if gaussian else (heads, 0)  # from row to row, where the first begins
        rows, edges = max(1, TILE // (SLOTS * width)), TILE // width
        tile = {"ROWS": rows, "SLOTS": min(SLOTS, 2 * TILE // width), "WIDTH": width, "GAUSSIAN": gaussian}
        flat = {"EDGES": edges, "WIDTH": width, "GAUSSIAN": gaussian}
        shares = {"ROWS": SHARES, "SLOTS": SLOTS, "GAUSSIAN": gaussian}
        by_row, by_edge, by_rows = ((-(-n // size), heads, 1) for n, size in ((N, rows), (E, edges), (N, SHARES)))
        self.roots = CachedLaunch(roots_kernel, by_row, (N, *of_v, *of_logit, bound), 4, **tile)
        self.couplings = CachedLaunch(couplings_kernel, by_edge, (N, E, *of_v, scale), 4, **flat)
        self.shares = CachedLaunch(shares_kernel, by_rows, (N, E, *of_logit, bound), 4, **shares)
        self.vectors = CachedLaunch(vectors_kernel, by_row, (N, E, *of_v, scale), 4, **tile)

    def forward(self, v: Tensor, logit: Tensor, bias: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        """off ``[H, E]`` and ``D^-1/2 [H, N]``."""
        root, off = v.new_empty(self.of_nodes), v.new_empty(self.of_edges)
        self.roots(self.csr.indptr, self.csr.indices, v, logit, bias, root)
        self.couplings(self.edges, v, gate, root, off)
        return off, root

    def backward(
        self, v: Tensor, logit: Tensor, bias: Tensor, gate: Tensor, root: Tensor, off: Tensor, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of v and logit, one tensor for the gaussian, and ``[2, H, N]``: what each node adds to those of
        bias and gate."""
        csr, d_v = self.csr, torch.empty_like(v)
        d_logit = d_v if self.gaussian else torch.empty_like(logit)
        d_degree, sums = torch.empty_like(root), root.new_empty(2, *root.shape) if self.gaussian else root
        self.shares(csr.indptr, csr.edge, logit, bias, gate, root, off, grad, d_logit, d_degree, sums)
        self.vectors(csr.indptr, csr.indices, csr.edge, v, gate, root, grad, d_degree, d_v)
        return d_v, d_logit, sums
