"""Answer: why a node got its label, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from walksum.analysis.influence import Influence, Path, influence, longest_only
from walksum.explore.matrices import Matrix, Recent, precision_of
from walksum.explore.view import View
from walksum.workflow.trained_run import UNKNOWN, TrainedRun

LISTED = 20  # sources
PATHS, PATH_SOURCES = 6, 24
KEPT_MATRICES, KEPT_ANSWERS = 6, 32


@dataclass(frozen=True)
class Answer:
    """What a click on a node shows.

    Attributes:
        influence: of every node on this one.
        listed: the strongest sources, itself included.
        paths: the strongest paths of the strongest sources.
        by_label: share of each label among the sources, falling.
    """

    view: View
    node: int
    influence: Influence
    listed: np.ndarray
    paths: list[Path]
    by_label: list[tuple[str, float]]


class Session:
    """A trained with the matrices and answers that were made for it."""

    def __init__(self, trained: TrainedRun):
        self.trained = trained
        self._matrices, self._answers = Recent(KEPT_MATRICES), Recent(KEPT_ANSWERS)

    def matrix(self, view: View) -> Matrix:
        return self._matrices.get(view.matrix, lambda: Matrix(precision_of(self.trained, view)))

    def answer(self, view: View) -> Answer | None:
        """None without a node."""
        if view.node is None:
            return None
        return self._answers.get((view.matrix, view.solver, view.node), lambda: self._answer(view))

    def _answer(self, view: View) -> Answer:
        assert view.node is not None
        node, matrix = self.trained.node(view.node), self.matrix(view)
        found = influence(matrix.J, node, matrix.prepared(view.solver))
        paths = matrix.walks.strongest(node, found.ranked(PATH_SOURCES).tolist())
        return Answer(
            view, node, found, found.ranked(LISTED), longest_only(paths)[:PATHS], by_label(self.trained, found)
        )


def by_label(trained: TrainedRun, found: Influence) -> list[tuple[str, float]]:
    """How much of the influence comes from the nodes of each label; nothing for numbers."""
    if trained.problem.regression:
        return []
    y = trained.problem.y.numpy()
    totals = np.bincount(y + 1, weights=found.share, minlength=len(trained.problem.classes) + 1)
    names = [UNKNOWN, *trained.problem.classes]
    return sorted(
        ((name, float(total)) for name, total in zip(names, totals, strict=True) if total > 0), key=lambda s: -s[1]
    )
