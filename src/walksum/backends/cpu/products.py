"""CPU kernels of the sparse products, of the backward error and of comparing values: 8 to 32 columns in registers."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.backends.cpu.chebyshev import chebyshev as chebyshev
from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.dic import DIC as DIC  # these are found by name, see backends.find
from walksum.backends.cpu.gabp import InformationMessages as InformationMessages
from walksum.backends.cpu.gabp import PrecisionMessages as PrecisionMessages
from walksum.backends.cpu.packing import ratio
from walksum.backends.cpu.pointers import ZERO, contiguous_on_cpu, matrix, node_major, vector
from walksum.backends.cpu.simd import WIDTHS, add_up, at, fma, lanes_for, largest, load, prefetch, splat, store, width
from walksum.backends.cpu.threads import over_columns
from walksum.backends.cpu.tiling import AHEAD, for_blocks, padded, rows, view
from walksum.graph import Graph

ROWS = 1 << 13  # nodes per task of edge_dot


def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x``: diag ``[H, N]``, off ``[H, E]``, x ``[H, N, F]`` -> ``[H, N, F]``."""
    out = x.new_empty(x.shape)
    G, J_diag, J_off, X, Y = rows(graph), view(diag), view(off), view(x), out.numpy()

    def block(head: int, start: int, stop: int) -> None:
        source, target = padded(X[head, :, start:stop]), Y[head, :, start:stop]
        whole = source.shape[1] == stop - start
        result = target if whole else np.empty_like(source)
        lanes = lanes_for(stop - start)
        _spmm(lanes, source, result, G.indptr, G.indices, G.edge, J_off[head], J_diag[head])
        if not whole:
            target[:] = result[:, : stop - start]

    for_blocks(block, x.size(0), x.size(2), graph.num_nodes + 2 * graph.num_edges)
    return out


def edge_dot(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """``sum_f a_if b_jf + a_jf b_if`` for every edge: a, b ``[H, N, F]`` -> ``[H, E]``."""
    return _dots(graph, a, b, 1.0)[1]


def value_gradients(graph: Graph, g: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """``-g_i . mu_i`` and ``-(g_i . mu_j + g_j . mu_i)``: the gradients of diag ``[H, N]`` and off ``[H, E]``."""
    return _dots(graph, g, mu, -1.0)


def _dots(graph: Graph, a: Tensor, b: Tensor, sign: float) -> tuple[Tensor, Tensor]:
    """``a_i . b_i`` of every node and ``a_i . b_j + a_j . b_i`` of every edge, times ``sign``."""
    heads, nodes, columns = a.shape
    missing = -columns % 8 if columns else 8  # the kernel reads at least one whole chunk
    if missing:
        a, b, columns = nnf.pad(a, (0, missing)), nnf.pad(b, (0, missing)), columns + missing
    if not (a.is_contiguous() and b.is_contiguous()) and not (node_major(a) and node_major(b)):
        a, b = contiguous_on_cpu(a), contiguous_on_cpu(b)
    like_diag, like_off, what, work = graph.derived(prepare_dots, heads, columns, a.dtype)
    diag, off = torch.empty_like(like_diag), torch.empty_like(like_off)
    args = (*what, a.stride()[:2], a.data_ptr(), b.data_ptr(), diag.data_ptr(), off.data_ptr(), sign)
    if nodes <= ROWS:
        dot_rows(0, nodes, *args)
    else:
        over_columns(dot_rows, nodes, work, *args, width=ROWS, owners=(a, b, diag, off))
    return diag, off


def prepare_dots(graph: Graph, heads: int, columns: int, dtype: torch.dtype) -> tuple:
    """Tensors with the shapes of the results, the arguments of the kernel, and the work."""
    nodes, edges, step = graph.num_nodes, graph.num_edges, math.gcd(columns, 64)
    upper, shape = graph.derived(_build_second_ends), (heads, nodes, columns // step)
    like = [torch.empty(heads, count, dtype=dtype, device="cpu") for count in (nodes, edges)]
    return *like, (WIDTHS[step], ZERO[dtype], shape, upper), heads * columns * (nodes + 2.0 * edges)


def _build_second_ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The edges by their first end: where each node's begin, and their second ends."""
    first, second = graph.derived(_build_ends)
    start = np.zeros(graph.num_nodes + 1, np.int64)
    np.cumsum(np.bincount(first, minlength=graph.num_nodes), out=start[1:])  # a search would take ten times as long
    return start, second.astype(np.int32 if graph.num_nodes < 2**31 else np.int64)


def edge_sum(graph: Graph, values: Tensor) -> Tensor:
    """The sum over the edges of each node: ``[H, E] -> [H, N]``."""
    values, out = contiguous_on_cpu(values), values.new_empty(values.size(0), graph.num_nodes)
    _edge_sum(*_sizes(graph, values), values.data_ptr(), out.data_ptr())
    return out


def end_sum(graph: Graph, values: Tensor) -> Tensor:
    """The sum of both ends of each edge: ``[H, N] -> [H, E]``."""
    values, out = contiguous_on_cpu(values), values.new_empty(values.size(0), graph.num_edges)
    _end_sum(*_sizes(graph, values), values.data_ptr(), out.data_ptr())
    return out


def scale_edges(graph: Graph, off: Tensor, factor: Tensor) -> Tensor:
    """Each edge times the factors of both ends: off ``[H, E]``, factor ``[H, N]`` -> ``[H, E]``."""
    off, factor = contiguous_on_cpu(off), contiguous_on_cpu(factor)
    out = torch.empty_like(off)
    _scale_edges(*_sizes(graph, off), off.data_ptr(), factor.data_ptr(), out.data_ptr())
    return out


def _sizes(graph: Graph, values: Tensor) -> tuple:
    ends = graph.derived(_build_ends)
    return ZERO[values.dtype], (values.size(0), graph.num_nodes, len(ends[0])), ends


def _build_ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    first, second = graph.edges.contiguous().numpy()
    return first, second


def norm_inf(graph: Graph, diag: Tensor, off: Tensor) -> Tensor:
    """The largest row sum of ``|J|`` of each head, ``[H]``."""
    G, J_diag, J_off = rows(graph), view(diag), view(off)
    return diag.new_tensor([_norm_inf(G.indptr, G.edge, J_off[k], J_diag[k]) for k in range(diag.size(0))])


def backward_error(graph: Graph, diag: Tensor, off: Tensor, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """``|h - J mu|_inf / (|J|_inf |mu|_inf + |h|_inf)`` of every column, ``[H, F]``, sums in float64."""
    out = mu.new_empty(mu.size(0), mu.size(2), dtype=torch.float64)
    G, J_diag, J_off, X, B, norm, Y = rows(graph), view(diag), view(off), view(mu), view(h), view(J_norm), out.numpy()

    def block(head: int, start: int, stop: int) -> None:
        x, b = padded(X[head, :, start:stop]), padded(B[head, :, start:stop])
        errors = np.empty((1, x.shape[1]))
        lanes = lanes_for(stop - start)
        _backward_error(lanes, x, b, G.indptr, G.indices, G.edge, J_off[head], J_diag[head], float(norm[head]), errors)
        Y[head, start:stop] = errors[0, : stop - start]

    for_blocks(block, mu.size(0), mu.size(2), graph.num_nodes + 2 * graph.num_edges)
    return out.to(mu.dtype)


def same_values(diag: Tensor, off: Tensor, kept_diag: Tensor, kept_off: Tensor) -> bool:
    """Whether two pairs of tensors hold the same bits; several times as fast as ``torch.equal``, and NaN equals NaN."""
    if diag.shape != kept_diag.shape or off.shape != kept_off.shape:
        return False
    if diag.dtype is not kept_diag.dtype or off.dtype is not kept_off.dtype:
        return False
    if not (diag.is_contiguous() and off.is_contiguous() and kept_diag.is_contiguous() and kept_off.is_contiguous()):
        return torch.equal(diag, kept_diag) and torch.equal(off, kept_off)
    addresses = diag.data_ptr(), kept_diag.data_ptr(), off.data_ptr(), kept_off.data_ptr()
    return _same_bytes(*addresses, diag.nbytes, off.nbytes)


@jit
def _spmm(lanes, x, y, indptr, indices, edge, off, diag):
    for i in range(indptr.size - 1):
        total = diag[i] * load(lanes, x, i)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < indices.size:
                prefetch(lanes, x, at(indices, e + AHEAD))
            total = fma(at(off, at(edge, e)), load(lanes, x, at(indices, e)), total)
        store(y, i, total)


@jit
def _edge_sum(zero, shape, ends, values, out):
    (heads, nodes, edges), (first, second) = shape, ends
    V, S = matrix(values, heads, edges, zero), matrix(out, heads, nodes, zero)
    S[:] = 0
    for k in range(heads):
        v, s = V[k], S[k]
        for e in range(edges):
            s[first[e]] += v[e]
            s[second[e]] += v[e]


@jit
def _end_sum(zero, shape, ends, values, out):
    (heads, nodes, edges), (first, second) = shape, ends
    V, S = matrix(values, heads, nodes, zero), matrix(out, heads, edges, zero)
    for k in range(heads):
        v, s = V[k], S[k]
        for e in range(edges):
            s[e] = at(v, first[e]) + at(v, second[e])


@jit
def _scale_edges(zero, shape, ends, off, factor, out):
    (heads, nodes, edges), (first, second) = shape, ends
    V, R, S = matrix(off, heads, edges, zero), matrix(factor, heads, nodes, zero), matrix(out, heads, edges, zero)
    for k in range(heads):
        v, r, s = V[k], R[k], S[k]
        for e in range(edges):
            s[e] = v[e] * at(r, first[e]) * at(r, second[e])


@jit
def dot_rows(start, stop, lanes, zero, shape, upper, strides, a, b, diag, off, sign):
    """The nodes ``start:stop`` and the edges to nodes behind them; what belongs to the node stays in registers."""
    (heads, nodes, chunks), (ptr, ends), W = shape, upper, width(lanes)
    x, y = vector(a, heads * nodes * chunks * W, zero), vector(b, heads * nodes * chunks * W, zero)
    on_node, on_edge = matrix(diag, heads, nodes, zero), matrix(off, heads, len(ends), zero)
    for k in range(heads):
        begin, apart = k * strides[0], strides[1]
        for i in range(start, stop):
            row = begin + apart * i
            x_i, y_i = load(lanes, x, row), load(lanes, y, row)
            total = x_i * y_i
            for c in range(W, W * chunks, W):
                total = fma(load(lanes, x, row + c), load(lanes, y, row + c), total)
            on_node[k, i] = sign * add_up(total)
            for e in range(at(ptr, i), at(ptr, i + 1)):
                if e + AHEAD < len(ends):
                    prefetch(lanes, x, begin + apart * at(ends, e + AHEAD))
                    prefetch(lanes, y, begin + apart * at(ends, e + AHEAD))
                other = begin + apart * at(ends, e)
                both = fma(load(lanes, x, other), y_i, x_i * load(lanes, y, other))
                for c in range(W, W * chunks, W):
                    both = fma(load(lanes, x, row + c), load(lanes, y, other + c), both)
                    both = fma(load(lanes, x, other + c), load(lanes, y, row + c), both)
                on_edge[k, e] = sign * add_up(both)


@jit
def _norm_inf(indptr, edge, off, diag):
    most = 0.0
    for i in range(diag.size):
        total = np.float64(abs(diag[i]))
        for e in range(indptr[i], indptr[i + 1]):
            total += abs(off[edge[e]])
        if not total <= most and most == most:  # NaN enters and stays
            most = total
    return most


@jit
def _backward_error(lanes, x, h, indptr, indices, edge, off, diag, norm, errors):
    residual, size_x, size_h = splat(lanes, 0.0), splat(lanes, 0.0), splat(lanes, 0.0)
    for i in range(indptr.size - 1):
        mine, target = load(lanes, x, i), load(lanes, h, i)
        total = fma(-np.float64(diag[i]), mine, splat(lanes, 0.0) + target)
        for e in range(at(indptr, i), at(indptr, i + 1)):
            if e + AHEAD < indices.size:
                prefetch(lanes, x, at(indices, e + AHEAD))
            total = fma(-np.float64(at(off, at(edge, e))), load(lanes, x, at(indices, e)), total)
        residual, size_x, size_h = largest(residual, total), largest(size_x, mine), largest(size_h, target)
    relative(residual, size_x, size_h, norm, errors)


@jit
def relative(residual, size_x, size_h, norm, errors):
    """``residual / (norm size_x + size_h)`` of every lane, where 0 / 0 is 0."""
    sizes = np.empty((2, errors.shape[1]))
    store(errors, 0, residual)
    store(sizes, 0, size_x)
    store(sizes, 1, size_h)
    for c in range(errors.shape[1]):
        if errors[0, c] != 0:
            errors[0, c] = ratio(errors[0, c], norm, sizes[0, c], sizes[1, c])


@jit
def _same_bytes(a, b, c, d, of_a, of_c):
    return _differing(a, b, of_a) == 0 and _differing(c, d, of_c) == 0


@jit
def _differing(a, b, count):
    """The bits that differ anywhere; a loop without an exit, of which LLVM makes vectors."""
    words = count // 8
    x, y, found = vector(a, words, np.uint64(0)), vector(b, words, np.uint64(0)), np.uint64(0)
    for k in range(words):
        found |= x[k] ^ y[k]
    x_end, y_end = vector(a + 8 * words, count % 8, np.uint8(0)), vector(b + 8 * words, count % 8, np.uint8(0))
    for k in range(count % 8):
        found |= np.uint64(x_end[k] ^ y_end[k])
    return found
