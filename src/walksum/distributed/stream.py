"""A streaming partition: Fennel (Tsourakakis et al. 2014), with passes over what earlier passes decided."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def fennel(indptr, indices, order, parts, limit, passes):
    """The part of every node, int64 ``[N]``; no part grows beyond ``limit`` nodes.

    A node joins the part with the most of its neighbours less ``1.5 a sqrt(size)``, a = sqrt(parts) E / N^1.5: the
    derivative of the cost a size^1.5 of a part.
    """
    n = indptr.size - 1
    price = 1.5 * np.sqrt(parts) * (indices.size / 2) / max(n, 1) ** 1.5
    found, sizes = np.full(n, -1, np.int64), np.zeros(parts, np.int64)
    near = np.zeros(parts, np.int64)
    for _ in range(passes):
        for node in order:
            if found[node] >= 0:
                sizes[found[node]] -= 1
            for e in range(indptr[node], indptr[node + 1]):
                if found[indices[e]] >= 0:
                    near[found[indices[e]]] += 1
            best, best_score = -1, -np.inf
            for part in range(parts):
                score = near[part] - price * np.sqrt(sizes[part])
                if sizes[part] < limit and score > best_score:
                    best, best_score = part, score
            found[node] = best
            sizes[best] += 1
            near[:] = 0
    return found
