"""The gradients of attention: of keys and values by blocks of keys, of queries and the table by blocks of queries.

Scores are computed again instead of stored. Each program owns what it writes, so results are the same every time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from walksum.kernels.gpu_attention import SLOTS, deliver, pair_buckets, place, score, tile_of

SPAN = tl.constexpr(64)  # rows and columns of a tile whose smallest and largest bucket are known


@triton.jit(do_not_specialize=["num_nodes"])
def attention_keys(
    q, k, v, g, units, v_factor, k_factor, table, bucket, order, tops, deltas, dk, dv, num_nodes, stride, WIDTH,
    BIASED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A block of keys against all queries: the gradients of key and value."""
    batch, head, z = place()
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    base = z * stride * D
    q, g, table = q + base, g + base, table + z * SLOTS
    tops, deltas = tops + z * stride, deltas + z * stride
    unit = tl.load(units + z)
    own_k = tile_of(k + base, tl.program_id(1) * COLS, COLS, D)
    own_v = tile_of(v + base, tl.program_id(1) * COLS, COLS, D)
    acc_k = tl.zeros([COLS, D], tl.float32)
    acc_v = tl.zeros([COLS, D], tl.float32)
    for first in range(0, num_nodes, ROWS):
        rows = first + tl.arange(0, ROWS)
        queries, grads = tile_of(q, first, ROWS, D), tile_of(g, first, ROWS, D)
        buckets = 0
        if BIASED:  # distances are the same both ways
            buckets = pair_buckets(bucket, cols, rows, stride)
        s = score(tl.dot(own_k, tl.trans(queries)), unit, table, buckets, BIASED)
        p = tl.exp2(s - tl.load(tops + rows)[None, :])
        acc_v = tl.dot(p.to(tl.float16), grads, acc_v)
        ds = p * (tl.dot(own_v, tl.trans(grads)) - tl.load(deltas + rows)[None, :])
        acc_k = tl.dot(ds.to(tl.float16), queries, acc_k)
    deliver(dk, acc_k * tl.load(k_factor + z), batch, head, cols, order, num_nodes, WIDTH, BIASED, D)
    deliver(dv, acc_v * tl.load(v_factor + z), batch, head, cols, order, num_nodes, WIDTH, BIASED, D)


@triton.jit
def retrace(
    q, g, k, v, first, unit, table, bucket, rows, stride, top, delta, acc, hist, lows, highs, num_nodes,
    BIASED: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One tile of keys into the gradients of a block of queries and of the table."""
    cols = first + tl.arange(0, COLS)
    keys = tile_of(k, first, COLS, D)
    buckets = 0
    if BIASED:
        buckets = pair_buckets(bucket, rows, cols, stride)
    s = score(tl.dot(q, tl.trans(keys)), unit, table, buckets, BIASED)
    if MASKED:
        s = tl.where((cols < num_nodes)[None, :], s, float("-inf"))
    p = tl.exp2(s - top[:, None])
    ds = p * (tl.dot(g, tl.trans(tile_of(v, first, COLS, D))) - delta[:, None])
    if BIASED:
        hist = count(hist, ds, buckets, first, stride, lows, highs, rows.shape[0], COLS)
    return tl.dot(ds.to(tl.float16), keys, acc), hist


@triton.jit
def count(hist, ds, buckets, first, stride, lows, highs, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Add a tile to the sums by bucket; only those that occur in it are looked for."""
    row = tl.program_id(1) * (ROWS // SPAN) + tl.arange(0, ROWS // SPAN)
    col = first // SPAN + tl.arange(0, COLS // SPAN)
    at = row[:, None] * (stride // SPAN) + col[None, :]
    low, high = tl.min(tl.load(lows + at).to(tl.int32)), tl.max(tl.load(highs + at).to(tl.int32))
    # Made from ds, it lies in the registers as ds does: otherwise every turn of the loop would bring it there.
    kinds = tl.where(ds == ds, buckets.to(tl.float32), SLOTS)
    for kind in range(low, high + 1):
        total = tl.sum((kinds == kind).to(tl.float32) * ds)
        hist += tl.where(tl.arange(0, SLOTS) == kind, total, 0.0)
    return hist


@triton.jit(do_not_specialize=["num_nodes"])
def attention_queries(
    q, k, v, g, units, q_factor, table, bucket, order, lows, highs, tops, deltas, dq, partial, num_nodes, stride, WIDTH,
    BIASED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A block of queries against all keys: the gradient of query, and this block's part of the table's."""
    batch, head, z = place()
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    base = z * stride * D
    k, v, table = k + base, v + base, table + z * SLOTS
    unit = tl.load(units + z)
    own_q = tile_of(q + base, tl.program_id(1) * ROWS, ROWS, D)
    own_g = tile_of(g + base, tl.program_id(1) * ROWS, ROWS, D)
    top = tl.load(tops + z * stride + rows)
    delta = tl.load(deltas + z * stride + rows)
    acc = tl.zeros([ROWS, D], tl.float32)
    hist = tl.zeros([SLOTS], tl.float32)
    end = num_nodes
    if not BIASED:
        end = num_nodes // COLS * COLS
    for first in range(0, end, COLS):
        acc, hist = retrace(
            own_q, own_g, k, v, first, unit, table, bucket, rows, stride, top, delta, acc, hist, lows, highs, num_nodes,
            BIASED, False, D, COLS,
        )  # fmt: skip
    if not BIASED:  # noqa: SIM102
        if end < num_nodes:
            acc, hist = retrace(
                own_q, own_g, k, v, end, unit, table, bucket, rows, stride, top, delta, acc, hist, lows, highs,
                num_nodes, BIASED, True, D, COLS,
            )  # fmt: skip
    deliver(dq, acc * tl.load(q_factor + z), batch, head, rows, order, num_nodes, WIDTH, BIASED, D)
    if BIASED:
        at = (z * tl.num_programs(1) + tl.program_id(1)) * SLOTS + tl.arange(0, SLOTS)
        tl.store(partial + at, hist)
