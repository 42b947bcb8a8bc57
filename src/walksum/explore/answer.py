"""Answer: why a node got its label, in numbers; and the same as CSV or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from walksum.analysis.influence import Influence, Path, influence, longest_only
from walksum.explore.matrices import LRUCache, Matrix, precision_of
from walksum.explore.view import AS_TRAINED, View
from walksum.explore.whole_model import WholeModel
from walksum.workflow.predict import escaped
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
        by_label: share of each label among the sources, falling; where known targets are carried, among these.
        adds: what the known target of each node adds ``[N]``; None where the operator carries features.
    """

    view: View
    node: int
    influence: Influence
    listed: np.ndarray
    paths: list[Path]
    by_label: list[tuple[str, float]]
    adds: np.ndarray | None = None


class Session:
    """A trained run with the matrices and answers that were made for it."""

    def __init__(self, trained: TrainedRun):
        self.trained = trained
        self.whole = WholeModel(trained)
        self._matrices, self._answers = LRUCache(KEPT_MATRICES), LRUCache(KEPT_ANSWERS)

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
        adds = None
        if view.design == AS_TRAINED:
            adds = self.trained.operators[view.layer - 1].adds(node, found.value)
        labels = by_label(self.trained, found.share if adds is None else np.abs(adds))
        listed = _reaching(found, node) if adds is None else _strongest(adds, node)
        return Answer(view, node, found, listed, longest_only(paths)[:PATHS], labels, adds)


def _reaching(found: Influence, node: int) -> np.ndarray:
    """The strongest sources that reach the node at all, and itself."""
    order = found.ranked(LISTED)
    return order[(found.value[order] != 0) | (order == node)]


def _strongest(adds: np.ndarray, node: int) -> np.ndarray:
    """Itself, then the known targets that add most."""
    order = np.argsort(-np.abs(adds), kind="stable")[:LISTED]
    order = order[(adds[order] != 0) & (order != node)]
    return np.concatenate([[node], order])[:LISTED]


def by_label(trained: TrainedRun, share: np.ndarray) -> list[tuple[str, float]]:
    """How much of the influence comes from the nodes of each label; nothing for numbers."""
    if trained.problem.regression:
        return []
    y = trained.problem.y.numpy()
    totals = np.bincount(y + 1, weights=share, minlength=len(trained.problem.classes) + 1)
    names = [UNKNOWN, *trained.problem.classes]
    return sorted(
        ((name, float(total)) for name, total in zip(names, totals, strict=True) if total > 0), key=lambda s: -s[1]
    )


COLUMNS = ("rank", "id", "label", "prediction", "hops", "influence", "share", "adds")


def rows(trained: TrainedRun, answer: Answer) -> list[dict[str, Any]]:
    """One row per node, the strongest first; empty where nothing is known."""
    found = answer.influence
    return [
        {
            "rank": rank,
            "id": trained.name(node),
            "label": _saved(trained, trained.problem.y[node], trained.label(node)),
            "prediction": _saved(trained, trained.prediction[node], trained.predicted(node)),
            "hops": int(found.hops[node]) if found.hops[node] >= 0 else None,
            "influence": float(found.value[node]),
            "share": float(found.share[node]),
            "adds": None if answer.adds is None else float(answer.adds[node]),
        }
        for rank, node in enumerate(found.ranked().tolist(), 1)
    ]


def _saved(trained: TrainedRun, value: Any, words: str) -> str | float | None:
    """A class by its name, a number to the seven digits that float32 holds; None where it is not known."""
    if words == UNKNOWN:
        return None
    return float(f"{float(value):.7g}") if trained.problem.regression else words


def as_csv(trained: TrainedRun, answer: Answer) -> str:
    """One line per node; what a spreadsheet would take for a formula is escaped."""
    lines = [{name: escaped(value) for name, value in row.items()} for row in rows(trained, answer)]
    return pd.DataFrame(lines, columns=COLUMNS, dtype=object).to_csv(index=False, lineterminator="\n")


def as_json(trained: TrainedRun, answer: Answer) -> str:
    node, solution = answer.node, answer.influence.solution
    record = {
        "view": asdict(answer.view),
        "label": _saved(trained, trained.problem.y[node], trained.label(node)),
        "prediction": _saved(trained, trained.prediction[node], trained.predicted(node)),
        "probability": trained.probability(node),
        "variance": answer.influence.variance,
        "solver": {"name": solution.solver, "steps": solution.steps, "residual": solution.residual},
        "share_by_hop": answer.influence.share_by_hop().tolist(),
        "paths": [
            {"nodes": [trained.name(each) for each in path.nodes], "weight": path.weight} for path in answer.paths
        ],
        "sources": rows(trained, answer),
    }
    return json.dumps(record, indent=1)


def file_name(trained: TrainedRun, answer: Answer, ending: str) -> str:
    return f"influence-{letters_and_digits(f'{trained.problem.name}-{trained.name(answer.node)}')}.{ending}"


def letters_and_digits(name: str) -> str:
    """For names of files: ids may hold anything."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)
