"""Steps between nodes, by breadth-first search from each of them."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit


@jit
def steps_from(start, stop, indptr, indices, longest, out):
    """``out[s, v]``: steps from s to v, at most ``longest``; left as it is where there is no path."""
    queue = np.empty(len(indptr) - 1, np.int64)
    seen = np.full(len(indptr) - 1, -1, np.int64)
    for source in range(start, stop):
        row = out[source]
        queue[0], seen[source], row[source] = source, source, 0
        head, tail, level_end, steps = 0, 1, 1, 1
        while head < tail:
            node = queue[head]
            head += 1
            for p in range(indptr[node], indptr[node + 1]):
                near = indices[p]
                if seen[near] != source:
                    seen[near] = source
                    row[near] = min(steps, longest)
                    queue[tail] = near
                    tail += 1
            if head == level_end:
                level_end, steps = tail, steps + 1
