"""The forward and backward pass of attention by the Triton kernels, one launch of each for all batches and heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from walksum.baselines.tiles import NOWHERE, Tiles, filled
from walksum.kernels.gpu_attention import attention_forward
from walksum.kernels.gpu_attention_backward import attention_keys, attention_queries
from walksum.kernels.gpu_attention_pack import pack, pack_weighed, weigh
from walksum.kernels.gpu_launch import launch

LOG2_E = 1 / math.log(2)
PACK_ROWS = 64


@dataclass(frozen=True)
class Block:
    """Queries and keys of a tile, warps of a program, stages of its pipeline."""

    rows: int
    cols: int
    warps: int = 4
    stages: int = 2

    def meta(self) -> dict[str, int]:
        return {"ROWS": self.rows, "COLS": self.cols, "warps": self.warps, "num_stages": self.stages}


BLOCKS = {  # kernel, width at most 16
    (kernel, narrow): Block(64, 64, stages=3 if narrow or kernel == "forward" else 2)
    for kernel in ("forward", "keys", "queries")
    for narrow in (False, True)
}


def attention(query: Tensor, key: Tensor, value: Tensor, table: Tensor, tiles: Tiles | None) -> tuple[Tensor, ...]:
    """The output, and what the backward pass needs: packed q, k, v, their sizes, and each row's maximum and mass."""
    batch, heads, num_nodes, width = query.shape
    rows = filled(num_nodes)
    largest = torch.stack([torch.linalg.vector_norm(x, math.inf, (-2, -1)) for x in (query, key, value)])
    q_size, k_size, v_size = torch.where(largest == 0, 1.0, largest)
    spare = width < _padded(width)
    packed = (
        _packed(query, q_size, tiles),
        _packed(key, k_size, tiles),
        _packed(value, v_size, tiles, ones=spare),
    )
    out = _like_states(query)
    tops, masses = (query.new_empty(batch, heads, rows) for _ in range(2))
    block = _block("forward", width)
    launch(
        attention_forward, (heads, rows // block.rows, batch), query,
        *packed, _units(q_size, k_size, width), v_size, *_bias(table, tiles), out, tops, masses,
        num_nodes, rows, width, SPARE=spare, **_shape(width, tiles), **block.meta(),
    )  # fmt: skip
    return out, *packed, q_size, k_size, v_size, tops, masses


def attention_gradient(
    grad: Tensor, out: Tensor, q: Tensor, k: Tensor, v: Tensor, q_size: Tensor, k_size: Tensor, v_size: Tensor,
    tops: Tensor, masses: Tensor, table: Tensor, tiles: Tiles | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of query, key, value and table."""
    batch, heads, num_nodes, width = out.shape
    rows = filled(num_nodes)
    q, k, v, q_size, k_size, v_size = (t.contiguous() for t in (q, k, v, q_size, k_size, v_size))
    tops, masses = tops.contiguous(), masses.contiguous()
    g, g_size, deltas = _weighed(grad, out, masses, v_size, tiles)
    units, bias, shape = _units(q_size, k_size, width), _bias(table, tiles), _shape(width, tiles)
    score_size = g_size * v_size
    dq, dk, dv = (_like_states(out) for _ in range(3))
    block = _block("keys", width)
    launch(
        attention_keys, (heads, -(-num_nodes // block.cols), batch), out,
        q, k, v, g, units, g_size, score_size * q_size / math.sqrt(width), *bias, tops, deltas, dk, dv,
        num_nodes, rows, width, **shape, **block.meta(),
    )  # fmt: skip
    block = _block("queries", width)
    spans = (tops, tops) if tiles is None else (tiles.low, tiles.high)
    blocks = -(-num_nodes // block.rows)
    partial = tops.new_empty(batch, heads, blocks, NOWHERE + 1) if tiles is not None else tops
    launch(
        attention_queries, (heads, blocks, batch), out,
        q, k, v, g, units, score_size * k_size / math.sqrt(width), *bias, *spans, tops, deltas, dq, partial,
        num_nodes, rows, width, **shape, **block.meta(),
    )  # fmt: skip
    if tiles is None:
        return dq, dk, dv, torch.zeros_like(table)
    return dq, dk, dv, (partial.sum(-2) * score_size.unsqueeze(-1))[..., : table.size(-1)]


def _block(kernel: str, width: int) -> Block:
    return BLOCKS[kernel, width <= 16]


def _shape(width: int, tiles: Tiles | None) -> dict[str, Any]:
    return {"BIASED": tiles is not None, "D": _padded(width)}


def _padded(width: int) -> int:
    """Tensor cores multiply sixteen at a time."""
    return max(16, 1 << (width - 1).bit_length())


def _like_states(x: Tensor) -> Tensor:
    """[B, H, N, d] that lies in memory as the states [B, N, H d] do, of which it is a part before and after."""
    batch, heads, num_nodes, width = x.shape
    return x.new_empty(batch, num_nodes, heads, width).transpose(1, 2)


def _units(q_size: Tensor, k_size: Tensor, width: int) -> Tensor:
    """Of a product of packed rows, as a score in powers of two."""
    return q_size * k_size * (LOG2_E / math.sqrt(width))


def _bias(table: Tensor, tiles: Tiles | None) -> tuple[Tensor, Tensor, Tensor]:
    if tiles is None:
        return table, table, table  # never read
    return F.pad(table * LOG2_E, (0, NOWHERE + 1 - table.size(-1)), value=-math.inf), tiles.bucket, tiles.order


def _packed(x: Tensor, size: Tensor, tiles: Tiles | None, ones: bool = False) -> Tensor:
    batch, heads, num_nodes, width = x.shape
    rows, depth = filled(num_nodes), _padded(width)
    out = torch.empty(batch, heads, rows, depth, dtype=torch.float16, device=x.device)
    launch(
        pack, (heads, rows // PACK_ROWS, batch), x,
        x, size, x if tiles is None else tiles.order, out, num_nodes, rows, *x.stride(), width,
        ORDERED=tiles is not None, ONES=ones, D=depth, ROWS=PACK_ROWS,
    )  # fmt: skip
    return out


def _weighed(
    grad: Tensor, out: Tensor, masses: Tensor, v_size: Tensor, tiles: Tiles | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient divided by each row's mass and packed, its size, and the part of it along the output."""
    batch, heads, num_nodes, width = out.shape
    rows, depth = filled(num_nodes), _padded(width)
    grid, order = (heads, rows // PACK_ROWS, batch), masses if tiles is None else tiles.order
    shape = {"ORDERED": tiles is not None, "D": depth, "ROWS": PACK_ROWS}
    deltas, sizes = (torch.empty_like(masses) for _ in range(2))
    launch(weigh, grid, out, grad, masses, order, sizes, num_nodes, rows, *grad.stride(), width, **shape)
    size = sizes.amax(-1)
    size = torch.where(size == 0, 1.0, size)
    g = torch.empty(batch, heads, rows, depth, dtype=torch.float16, device=out.device)
    launch(
        pack_weighed, grid, out,
        grad, out, size, v_size, masses, order, g, deltas, num_nodes, rows,
        *grad.stride(), *out.stride(), width, **shape,
    )  # fmt: skip
    return g, size, deltas
