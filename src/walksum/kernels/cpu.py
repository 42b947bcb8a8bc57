"""CPU kernels of the sparse products and of the backward error: rows of 8 to 32 columns in vector registers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.kernels.blocks import AHEAD, for_blocks, padded, rows, view
from walksum.kernels.compile import jit
from walksum.kernels.cpu_chebyshev import chebyshev as chebyshev
from walksum.kernels.cpu_dic import DIC as DIC  # these are found by name, see kernels.find
from walksum.kernels.cpu_gabp import InformationMessages as InformationMessages
from walksum.kernels.cpu_gabp import PrecisionMessages as PrecisionMessages
from walksum.kernels.lanes import WIDTHS, add_up, at, fma, lanes_for, largest, load, prefetch, splat, store
from walksum.kernels.parallel import over_columns

EDGES = 1 << 14  # edges a task of edge_dot


def spmm(graph: Graph, diag: Tensor, off: Tensor, x: Tensor) -> Tensor:
    """``J x``: diag ``[H, N]``, off ``[H, E]``, x ``[H, N, F]`` -> ``[H, N, F]``."""
    out = torch.empty(x.shape, dtype=x.dtype)
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
    return _edge_dots(graph, _chunked(a, b), a, 1.0)


def value_gradients(graph: Graph, g: Tensor, mu: Tensor) -> tuple[Tensor, Tensor]:
    """``-g_i . mu_i`` and ``-(g_i . mu_j + g_j . mu_i)``: the gradients of diag ``[H, N]`` and off ``[H, E]``."""
    cut, diag = _chunked(g, mu), torch.empty(g.shape[:2], dtype=g.dtype)
    over_columns(_node_dot, g.size(1), g.numel(), *cut, diag.numpy(), -1.0, width=EDGES)
    return diag, _edge_dots(graph, cut, g, -1.0)


def _edge_dots(graph: Graph, cut: tuple, like: Tensor, sign: float) -> Tensor:
    heads, _, columns = like.shape
    out = torch.empty(heads, graph.num_edges, dtype=like.dtype)
    work = 2.0 * graph.num_edges * heads * columns
    over_columns(_edge_dot, graph.num_edges, work, *cut, out.numpy(), rows(graph).ends, sign, width=EDGES)
    return out


def _chunked(a: Tensor, b: Tensor) -> tuple:
    """Lanes, both arrays as rows of whole registers ``[H, N chunks, lanes]``, and the number of chunks a node."""
    A, B = view(a), view(b)
    if A.shape[2] % 8:
        A, B = (np.pad(m, ((0, 0), (0, 0), (0, -m.shape[2] % 8))) for m in (A, B))
    step = 16 if A.shape[2] % 16 == 0 else 8
    shape = len(A), A[0].size // step, step
    return WIDTHS[step], A.reshape(shape), B.reshape(shape), A.shape[2] // step


def norm_inf(graph: Graph, diag: Tensor, off: Tensor) -> Tensor:
    """The largest row sum of ``|J|`` of each head, ``[H]``."""
    G, J_diag, J_off = rows(graph), view(diag), view(off)
    return diag.new_tensor([_norm_inf(G.indptr, G.edge, J_off[k], J_diag[k]) for k in range(diag.size(0))])


def backward_error(graph: Graph, diag: Tensor, off: Tensor, mu: Tensor, h: Tensor, J_norm: Tensor) -> Tensor:
    """``|h - J mu|_inf / (|J|_inf |mu|_inf + |h|_inf)`` of every column, ``[H, F]``, sums in float64."""
    out = torch.empty(mu.size(0), mu.size(2), dtype=torch.float64)
    G, J_diag, J_off, X, B, norm, Y = rows(graph), view(diag), view(off), view(mu), view(h), view(J_norm), out.numpy()

    def block(head: int, start: int, stop: int) -> None:
        x, b = padded(X[head, :, start:stop]), padded(B[head, :, start:stop])
        errors = np.empty((1, x.shape[1]))
        lanes = lanes_for(stop - start)
        _backward_error(lanes, x, b, G.indptr, G.indices, G.edge, J_off[head], J_diag[head], float(norm[head]), errors)
        Y[head, start:stop] = errors[0, : stop - start]

    for_blocks(block, mu.size(0), mu.size(2), graph.num_nodes + 2 * graph.num_edges)
    return out.to(mu.dtype)


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
def _edge_dot(start, stop, lanes, a, b, chunks, out, ends, sign):
    for k in range(a.shape[0]):
        x, y, z = a[k], b[k], out[k]
        for e in range(start, stop):
            i, j = ends[0, e] * chunks, ends[1, e] * chunks
            both = load(lanes, x, i) * load(lanes, y, j)
            both = fma(load(lanes, x, j), load(lanes, y, i), both)
            for c in range(1, chunks):
                both = fma(load(lanes, x, i + c), load(lanes, y, j + c), both)
                both = fma(load(lanes, x, j + c), load(lanes, y, i + c), both)
            z[e] = sign * add_up(both)


@jit
def _node_dot(start, stop, lanes, a, b, chunks, out, sign):
    for k in range(a.shape[0]):
        x, y, z = a[k], b[k], out[k]
        for i in range(start, stop):
            total = load(lanes, x, i * chunks) * load(lanes, y, i * chunks)
            for c in range(i * chunks + 1, (i + 1) * chunks):
                total = fma(load(lanes, x, c), load(lanes, y, c), total)
            z[i] = sign * add_up(total)


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
    scale = np.empty_like(errors)
    store(errors, 0, residual)
    store(scale, 0, norm * size_x + size_h)
    for c in range(errors.shape[1]):
        if errors[0, c] != 0:
            errors[0, c] /= scale[0, c]
