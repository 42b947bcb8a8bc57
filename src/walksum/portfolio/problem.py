"""Problem: what every member of the portfolio is given; the same rows, folds and targets for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.graph import Graph

Maker = TypeVar("Maker", bound=Callable[..., Any])
Fold = tuple[np.ndarray, np.ndarray]  # row numbers: learned from, judged by
WIDE = 200  # columns beyond which a table counts as words
UNITS, CELLS = 100, 10_000_000  # a column this much larger than most is no word; cells of a table read as it is
DRAWS = 4  # times each judged row is drawn on average, where rows have weights
SPARSE = 0.25  # share of non-zero entries up to which the sparse way pays


@dataclass
class Problem:
    """A table of nodes with a graph, targets of some nodes, and the folds that choose.

    Attributes:
        X: features ``[N, F]``, a dense array or a CSR matrix.
        y: codes of classes, or standardised numbers; only rows of the folds are read.
        classes: number of classes; 0 for a regression.
        folds: one pair (train, validation) if validation rows were given, else the folds of a cross-validation.
        arcs: the directed edges as they came ``[2, M]``, or None where the graph came undirected.
        arc_weight: what each of them weighs ``[M]``; None: all the same.
        arc_targets: whether known targets are read by direction too; runs of before did not.
        unit: the weight in which sums of weights are counted, the mean of training; None: edges have none.
        wide: many columns of one unit: words rather than measurements; None: as X shows.
        exact: whether the diagonal of the operator's inverse is affordable; None: not tried yet.
        basis: leading directions ``[components, F]`` of a wide table; None: those of X.
        smoothed_basis: the same of what neighbours at two steps make of it; None: of X on this graph.
        position: where each node lies ``[N, d]``, isotropic; None: the nodes have edges alone.
        weight: how much each labelled row counts ``[N]``; None: all the same.
        budget: seconds that all members have; what is optional and takes a large part of them is left out.
    """

    X: Any
    graph: Graph
    y: np.ndarray
    classes: int
    folds: list[Fold]
    seed: int = 0
    device: str = "cpu"
    arcs: np.ndarray | None = None
    wide: bool | None = None
    exact: bool | None = None
    basis: np.ndarray | None = None
    smoothed_basis: np.ndarray | None = None
    position: np.ndarray | None = None
    weight: np.ndarray | None = None
    budget: float = 60.0
    arc_weight: np.ndarray | None = None
    arc_targets: bool = True
    unit: float | None = None
    kept: dict[Any, Any] = field(default_factory=dict)  # what several members read: features, reduced tables

    def __post_init__(self) -> None:
        if self.wide is None:
            many = self.X.shape[1] > WIDE
            self.wide = (bool(sp.issparse(self.X)) or many) and not (many and _measured(self.X))
        if not self.wide and sp.issparse(self.X):
            self.X = self.X.toarray()

    @property
    def outputs(self) -> int:
        return max(1, self.classes)

    @property
    def num_nodes(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def judged(self) -> np.ndarray:
        """Rows that some fold judges."""
        return np.unique(np.concatenate([valid for _, valid in self.folds]))

    @cached_property
    def labelled(self) -> np.ndarray:
        return np.unique(np.concatenate([np.concatenate(fold) for fold in self.folds]))

    @property
    def unjudged(self) -> bool:
        """Whether the labelled rows are too few for any of them to judge what others learned from."""
        train, valid = self.folds[0]
        return len(self.folds) == 1 and np.array_equal(train, valid)

    @cached_property
    def counted(self) -> np.ndarray:
        """Places in ``judged``, drawn evenly in proportion to their weights: a metric of these is a weighted one."""
        count = len(self.judged)
        if self.weight is None:
            return np.arange(count)
        share = np.cumsum(self.weight[self.judged]) / self.weight[self.judged].sum()
        drawn = np.searchsorted(share, (np.arange(DRAWS * count) + 0.5) / (DRAWS * count))
        return np.minimum(drawn, count - 1)

    @property
    def known(self) -> np.ndarray:
        """Rows whose targets may be read when other tables are asked about."""
        return self.folds[0][0]

    def other(
        self,
        X: Any,
        graph: Graph,
        y: np.ndarray | None = None,
        arcs: np.ndarray | None = None,
        device: str = "cpu",
        position: np.ndarray | None = None,
        arc_weight: np.ndarray | None = None,
    ) -> Problem:
        """Another table with the same columns, to be asked about; ``y``: targets, NaN where not known."""
        y = np.full(X.shape[0], np.nan) if y is None else y
        folds = [(np.nonzero(~np.isnan(y))[0], np.zeros(0, np.int64))]
        if self.arcs is None:
            arcs = None
        elif arcs is None:
            i, j = graph.edges.cpu().numpy()
            arcs, arc_weight = np.stack([np.r_[i, j], np.r_[j, i]]), np.tile(graph.weights().cpu().numpy(), 2)
        return Problem(X, graph, y, self.classes, folds, self.seed, device, arcs, self.wide, self.exact, self.basis,
                       self.smoothed_basis, position, arc_weight=arc_weight, arc_targets=self.arc_targets,
                       unit=self.unit)  # fmt: skip

    def target(self) -> Tensor:
        kind = np.int64 if self.classes else np.float32
        return torch.from_numpy(np.where(np.isnan(self.y), 0, self.y).astype(kind))

    def once(self, key: Any, make: Any) -> Any:
        """``make()``, kept for other members that ask for the same."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def out_of_fold(self, outputs: np.ndarray) -> np.ndarray:
        """``[folds, N, C] -> [N, C]``: every judged row by the fold that did not learn from it; mean elsewhere."""
        out = outputs.mean(0)
        counts = np.zeros(self.num_nodes)
        total = np.zeros_like(out)
        for each, (_, valid) in zip(outputs, self.folds, strict=True):
            total[valid] += each[valid]
            counts[valid] += 1
        seen = counts > 0
        out[seen] = total[seen] / counts[seen, None]
        return out


def once(name: str) -> Callable[[Maker], Maker]:
    """A function of a problem whose result is kept with it, by this name and by the further arguments, if any."""

    def keeping(make: Maker) -> Maker:
        @wraps(make)
        def found(problem: Problem, *of: Any) -> Any:
            key = (name, *(each.tobytes() if isinstance(each, np.ndarray) else each for each in of)) if of else name
            return problem.once(key, lambda: make(problem, *of))

        return found  # type: ignore[return-value]

    return keeping


def _measured(X: Any) -> bool:
    """Whether a table of many columns holds measurements in units of their own beside its yes and no.

    Directions and networks made for words would see the column of the largest unit alone.
    """
    found: Any = abs(X).max(0) if X.shape[0] else np.zeros(0)
    largest = found.toarray().ravel() if sp.issparse(found) else found
    some = largest[largest > 0]
    return bool(np.prod(X.shape) <= CELLS and len(some) and some.max() > UNITS * np.median(some))


def mean_weight(graph: Graph) -> float | None:
    """The mean weight of a graph's edges; None where they have none."""
    return None if graph.edge_weight is None or not graph.num_edges else float(graph.edge_weight.double().mean())


def directed(pairs: np.ndarray) -> np.ndarray | None:
    """The edges ``[2, M]`` if some have no twin of the other direction, else None."""
    if not pairs.shape[1]:
        return None
    width = int(pairs.max()) + 1
    code, twin = np.unique(pairs[0] * width + pairs[1]), np.unique(pairs[1] * width + pairs[0])
    return None if np.array_equal(code, twin) else pairs.astype(np.int64)
