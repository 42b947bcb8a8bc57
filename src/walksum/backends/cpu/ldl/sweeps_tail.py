"""The dense tail of a sweep: the last columns of L are full, so four rows at a time can share what they read."""

from __future__ import annotations

from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.simd import at, fma, load, store, width


@jit
def dense_tail(colptr, n):
    """The columns from here on are full."""
    tail = n
    while tail > 0 and at(colptr, tail) - at(colptr, tail - 1) == n - tail:
        tail -= 1
    return tail


@jit
def forward_tail(lanes, x, factor, colptr, tail):
    """Rows from ``tail`` on of ``L^-1 h``; x holds what the columns before the tail leave of h."""
    n, W = len(colptr) - 1, width(lanes)
    for i in range(tail, n - 3, 4):
        a, b = load(lanes, x, W * i), load(lanes, x, W * (i + 1))
        c, d = load(lanes, x, W * (i + 2)), load(lanes, x, W * (i + 3))
        for k in range(tail, i):
            known, slot = load(lanes, x, W * k), at(colptr, k) + i - k - 1
            a, b = fma(-at(factor, slot), known, a), fma(-at(factor, slot + 1), known, b)
            c, d = fma(-at(factor, slot + 2), known, c), fma(-at(factor, slot + 3), known, d)
        first, second, third = at(colptr, i), at(colptr, i + 1), at(colptr, i + 2)
        b = fma(-at(factor, first), a, b)
        c = fma(-at(factor, second), b, fma(-at(factor, first + 1), a, c))
        d = fma(-at(factor, third), c, fma(-at(factor, second + 1), b, fma(-at(factor, first + 2), a, d)))
        _put(x, W, i, a, b, c, d)
    for i in range(tail + (n - tail) // 4 * 4, n):
        total = load(lanes, x, W * i)
        for k in range(tail, i):
            total = fma(-at(factor, at(colptr, k) + i - k - 1), load(lanes, x, W * k), total)
        store(x, W * i, total)


@jit
def backward_tail(lanes, x, block, factor, inverse, plan):
    """Four columns of the dense tail at a time; the number of columns that are left."""
    order, colptr = plan[0], plan[1]
    n, W, (mu, step, skip) = len(order), width(lanes), block
    k, tail = n - 4, dense_tail(colptr, n)
    while k >= tail:  # the columns k, k + 1, k + 2, k + 3
        p, q, r, s = at(colptr, k) + 3, at(colptr, k + 1) + 2, at(colptr, k + 2) + 1, at(colptr, k + 3)
        a, b = at(inverse, k) * load(lanes, x, W * k), at(inverse, k + 1) * load(lanes, x, W * (k + 1))
        c, d = at(inverse, k + 2) * load(lanes, x, W * (k + 2)), at(inverse, k + 3) * load(lanes, x, W * (k + 3))
        for t in range(n - 4 - k):
            known = load(lanes, x, W * (k + 4 + t))
            a, b = fma(-at(factor, p + t), known, a), fma(-at(factor, q + t), known, b)
            c, d = fma(-at(factor, r + t), known, c), fma(-at(factor, s + t), known, d)
        c = fma(-at(factor, r - 1), d, c)
        b = fma(-at(factor, q - 2), c, fma(-at(factor, q - 1), d, b))
        a = fma(-at(factor, p - 3), b, fma(-at(factor, p - 2), c, fma(-at(factor, p - 1), d, a)))
        _put(x, W, k, a, b, c, d)
        for place, total in ((k, a), (k + 1, b), (k + 2, c), (k + 3, d)):
            store(mu, step * at(order, place) + skip, total)
        k -= 4
    return k + 4


@jit
def _put(x, W, i, a, b, c, d):
    """Four rows that follow each other."""
    store(x, W * i, a)
    store(x, W * (i + 1), b)
    store(x, W * (i + 2), c)
    store(x, W * (i + 3), d)
