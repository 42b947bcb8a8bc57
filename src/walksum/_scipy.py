"""``eigsh`` that gives the same vectors each time: where its start is used up (a graph in pieces) scipy draws one."""

from __future__ import annotations

import inspect
from typing import Any

from scipy.sparse import linalg

# before 1.17 there is no such argument: ARPACK goes on from vectors that depend on the calls before
SEEDED = {"rng": 0} if "rng" in inspect.signature(linalg.eigsh).parameters else {}


def eigsh(*matrix: Any, **options: Any) -> Any:
    return linalg.eigsh(*matrix, **SEEDED, **options)
