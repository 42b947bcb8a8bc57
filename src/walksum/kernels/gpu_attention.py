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
    BIASED: tl.constexpr, MASKED: tl.constexpr, SPARE: tl.constexpr, D: tl.constexpr,
    COLS: tl.constexpr,
):  # fmt: skip
    """One tile of keys into the running maximum, sum and product of each row.

    SPARE: the sum is a column of the product, that of a column of ones beside the values.
    """
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
    if not SPARE:
        mass = mass * shrink + tl.sum(p, 1)
    return top, mass, acc


@triton.jit(do_not_specialize=["num_nodes"])
def attention_forward(
    q, k, v, units, v_size, table, bucket, order, out, tops, masses, num_nodes, stride, WIDTH,
    BIASED: tl.constexpr, SPARE: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
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
            own, k, v, first, unit, table, bucket, rows, stride, m, mass, acc, num_nodes,
            BIASED, False, SPARE, D, COLS,
        )  # fmt: skip
    if not BIASED:  # noqa: SIM102
        if end < num_nodes:
            m, mass, acc = absorb(
                own, k, v, end, unit, table, bucket, rows, stride, m, mass, acc, num_nodes,
                BIASED, True, SPARE, D, COLS,
            )  # fmt: skip
    if SPARE:
        mass = tl.sum(tl.where((tl.arange(0, D) == WIDTH)[None, :], acc, 0.0), 1)
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
