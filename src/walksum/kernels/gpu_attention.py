"""softmax(q k^T / sqrt(d) + table[bucket]) v by tiles: no tensor of the size of the pairs but the buckets, a byte each.

Tensor cores take 16-bit numbers only from registers as they lie, and float16 has the mantissa of tf32. So operands are
float16 divided by their largest entry (``gpu_attention_pack``), and everything else is float32. Probabilities are kept
relative to the largest of their row, in [0, 1], also in the backward pass: there the gradient of the output is divided
by the row's sum in their stead.

Layouts: a packed tensor is [Z, ROWS, D], Z = batch and heads, rows and width filled up with zeros. bucket [ROWS, ROWS]
is filled up with a bucket whose table entry is -inf, so pairs beyond the last node need no mask. Where there are
buckets, rows follow ``order``.
"""

from __future__ import annotations

import triton
import triton.language as tl

SLOTS = tl.constexpr(32)  # entries of a table, those of no bucket included
SPAN = tl.constexpr(64)  # rows and columns of a tile whose smallest and largest bucket are known


@triton.jit
def place():
    """Batch, head and their common number. Heads run fastest: they read the same buckets at the same time."""
    batch, head = tl.program_id(2).to(tl.int64), tl.program_id(0)
    return batch, head, batch * tl.num_programs(0) + head


@triton.jit
def tile_of(x, first, SIZE: tl.constexpr, D: tl.constexpr):
    at = (first + tl.arange(0, SIZE))[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(x + at)


@triton.jit
def pair_buckets(bucket, rows, cols, stride):
    return tl.load(bucket + rows.to(tl.int64)[:, None] * stride + cols[None, :])


@triton.jit
def score(product, unit, table, buckets, BIASED: tl.constexpr):
    """In powers of two."""
    s = product * unit
    if BIASED:
        # From shared memory, by flat places: each thread reads for the pairs it holds, and a table meets no bank twice.
        entries = tl.load(table + tl.arange(0, SLOTS))
        at = tl.reshape(buckets.to(tl.int32), [product.shape[0] * product.shape[1]])
        s += tl.reshape(tl.gather(entries, at, 0), [product.shape[0], product.shape[1]])
    return s


@triton.jit
def absorb(
    q, k, v, first, unit, table, bucket, rows, stride, m, mass, acc, num_nodes,
    BIASED: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One tile of keys into the running maximum, sum and product of each row."""
    cols = first + tl.arange(0, COLS)
    buckets = 0
    if BIASED:
        buckets = pair_buckets(bucket, rows, cols, stride)
    s = score(tl.dot(q, tl.trans(tile_of(k, first, COLS, D))), unit, table, buckets, BIASED)
    if MASKED:
        s = tl.where((cols < num_nodes)[None, :], s, float("-inf"))
    top = tl.maximum(m, tl.max(s, 1))
    shrink = tl.exp2(m - top)
    p = tl.exp2(s - top[:, None])
    acc = tl.dot(p.to(tl.float16), tile_of(v, first, COLS, D), acc * shrink[:, None])
    return top, mass * shrink + tl.sum(p, 1), acc


@triton.jit(do_not_specialize=["num_nodes"])
def attention_forward(
    q, k, v, units, v_size, table, bucket, order, out, tops, masses, num_nodes, stride, WIDTH,
    BIASED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A block of queries against all keys: out, and each row's maximum and sum of exp2(score - maximum)."""
    batch, head, z = place()
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k, v, table = k + z * stride * D, v + z * stride * D, table + z * SLOTS
    unit = tl.load(units + z)
    own = tile_of(q + z * stride * D, tl.program_id(1) * ROWS, ROWS, D)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    end = num_nodes
    if not BIASED:
        end = num_nodes // COLS * COLS
    for first in range(0, end, COLS):
        m, mass, acc = absorb(
            own, k, v, first, unit, table, bucket, rows, stride, m, mass, acc, num_nodes, BIASED, False, D, COLS
        )
    if not BIASED:  # noqa: SIM102
        if end < num_nodes:
            m, mass, acc = absorb(
                own, k, v, end, unit, table, bucket, rows, stride, m, mass, acc, num_nodes, BIASED, True, D, COLS
            )
    here = rows < num_nodes
    deliver(out, acc * (tl.load(v_size + z) / mass)[:, None], batch, head, rows, order, num_nodes, WIDTH, BIASED, D)
    # Rows beyond the last node get probability zero in the backward pass.
    tl.store(tops + z * stride + rows, tl.where(here, m, float("inf")))
    tl.store(masses + z * stride + rows, tl.where(here, mass, 1.0))


@triton.jit
def deliver(out, tile, batch, head, rows, order, num_nodes, WIDTH, ORDERED: tl.constexpr, D: tl.constexpr):
    """Into [batch, node, head, WIDTH]."""
    cols, nodes = tl.arange(0, D), rows
    if ORDERED:
        nodes = tl.load(order + rows)
    row = (batch * num_nodes + nodes) * tl.num_programs(0) + head
    mask = (rows < num_nodes)[:, None] & (cols < WIDTH)[None, :]
    tl.store(out + row[:, None] * WIDTH + cols[None, :], tile, mask=mask)


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
        hist = count(hist, ds, buckets, rows, first, stride, lows, highs, COLS)
    return tl.dot(ds.to(tl.float16), keys, acc), hist


@triton.jit
def count(hist, ds, buckets, rows, first, stride, lows, highs, COLS: tl.constexpr):
    """Add a tile to the sums by bucket; only those that occur in it are looked for."""
    spans = (tl.program_id(1) * rows.shape[0] // SPAN) * (stride // SPAN) + first // SPAN
    at = spans + tl.arange(0, COLS // SPAN)
    low, high = tl.min(tl.load(lows + at).to(tl.int32), 0), tl.max(tl.load(highs + at).to(tl.int32), 0)
    # Made from ds, it lies in the registers as ds does: otherwise every turn of the loop would bring it there.
    kinds = tl.where(ds == ds, buckets.to(tl.int32), SLOTS)
    for kind in range(low, high + 1):
        total = tl.sum(tl.where(kinds == kind, ds, 0.0))
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
