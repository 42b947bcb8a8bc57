"""The first layer on a CPU where features are bags of words: dropout and product over the entries that are not zero.

Of the features of the citation graphs and WebKB 1 to 10 % are not zero. Dropout leaves zeros alone, so this layer is
the dense one, sum by sum in another order, at a small part of its cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.dropout import _bits, _hash
from walksum.backends.cpu.simd import WIDTHS, at, fma, load, splat, store, width
from walksum.nn import GLT
from walksum.nn.dropout import LANES
from walksum.ops import OverHeads
from walksum.solvers.factor import over_threads

DENSEST = 0.25  # share of entries up to which the sparse way pays


@dataclass(frozen=True)
class Sparse:
    """Features by rows and by columns: row pointers, indices, values, and the number of each entry by rows."""

    shape: tuple[int, int]
    by_row: tuple[np.ndarray, ...]
    by_column: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, x: Tensor) -> Sparse:
        rows = sp.csr_matrix(x.numpy())
        numbered = sp.csr_matrix((np.arange(rows.nnz), rows.indices, rows.indptr), rows.shape)
        columns = numbered.tocsc()
        return cls(
            rows.shape,
            (rows.indptr, rows.indices, rows.data, numbered.data),
            (columns.indptr, columns.indices, rows.data[columns.data], columns.data),
        )


class SparseInput(nn.Module):
    """``Linear(Dropout(x))`` for features known beforehand; the weight lies transposed, ``[K, C]``."""

    def __init__(self, features: Sparse, linear: nn.Linear, p: float):
        super().__init__()
        self.features, self.p = features, p
        self.weight = nn.Parameter(linear.weight.detach().t().contiguous())
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        p = self.p if self.training else 0.0
        seed = torch.randint(2**62, (1,)) if p else torch.zeros(1, dtype=torch.int64)
        return _Product.apply(self.weight.unsqueeze(0), seed, self.features, p).squeeze(0) + self.bias


class _Product(OverHeads):
    @staticmethod
    def forward(weight: Tensor, seed: Tensor, features: Sparse, p: float) -> Tensor:
        return _multiply(weight, features.shape[0], seed, p, features.by_row)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        _, seed, ctx.features, ctx.p = inputs
        ctx.save_for_backward(seed)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        (seed,), features = ctx.saved_tensors, ctx.features
        return _multiply(grads[0], features.shape[1], seed, ctx.p, features.by_column), None, None, None


def _multiply(given: Tensor, rows: int, seed: Tensor, p: float, X: tuple[np.ndarray, ...]) -> Tensor:
    numbers = given.detach().contiguous().numpy()
    members, _, channels = numbers.shape
    out, step = given.new_empty(members, rows, channels), min(32, channels // 2)
    units, work = members * channels // (2 * step), members * channels * len(X[1])
    knobs = (seed.numpy(), round(p * LANES), numbers.dtype.type(1 / (1 - p)))
    over_threads(product, units, work, WIDTHS[step], numbers, out.numpy(), *knobs, *X)
    return out


_known: WeakIdKeyDictionary = WeakIdKeyDictionary()


def use_sparse_input(model: nn.Module, x: Tensor) -> nn.Module:
    """Give a GLT on a CPU a sparse first layer if ``x`` is sparse; it then takes no other features than ``x``."""
    if not isinstance(model, GLT) or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return model
    if x not in _known:
        _known[x] = Sparse.of(x) if float((x != 0).float().mean()) <= DENSEST else None
    channels = model.embed.out_features
    if _known[x] is not None and (channels in (16, 32) or channels % 64 == 0):
        sparse = SparseInput(_known[x], model.embed, model.dropout.p)
        model.add_module("embed", sparse)
        model.add_module("dropout", nn.Identity())
    return model


@jit
def product(start, stop, lanes, given, out, seeds, threshold, scale, indptr, indices, values, place):
    """``out[s] = drop(X) given[s]`` for given ``[S, K, C]``, out ``[S, N, C]``, X ``[N, K]`` by rows.

    ``place[p]`` numbers entry p for its mask, so that X by rows and by columns drop the same entries. A unit of work is
    one member and two neighbouring blocks of lanes: both share the mask.
    """
    step = width(lanes)
    pairs, zero = given.shape[2] // (2 * step), scale * 0
    for unit in range(start, stop):
        s, first = unit // pairs, 2 * step * (unit % pairs)
        left, right = given[s, :, first : first + step], given[s, :, first + step : first + 2 * step]
        to_left, to_right = out[s, :, first : first + step], out[s, :, first + step : first + 2 * step]
        seed = seeds[s]
        for row in range(len(indptr) - 1):
            a, b = splat(lanes, zero), splat(lanes, zero)
            for p in range(at(indptr, row), at(indptr, row + 1)):
                # a product with zero, not a branch: a branch on random numbers is mispredicted
                value = at(values, p) * (scale if _kept(seed, at(place, p), threshold) else zero)
                k = at(indices, p)
                a, b = fma(value, load(lanes, left, k), a), fma(value, load(lanes, right, k), b)
            store(to_left, row, a)
            store(to_right, row, b)


@jit
def _kept(seed, position, threshold):
    return _bits(_hash(seed, position >> 2), position & 3) >= np.uint64(threshold)
