"""How long a run takes, roughly: decides what a sweep begins with, and what it says of the time left."""

from __future__ import annotations

from collections.abc import Iterable

from walksum.paper.rows import row_of
from walksum.paper.sweep.spec import RunSpec

# relative to a fixed GLT on Texas; only the order matters, and that a cell which takes minutes does not come last
_DATASETS = {
    "texas": 1.0,
    "cornell": 1.0,
    "wisconsin": 1.3,
    "digits": 4.0,
    "cora": 6.0,
    "citeseer": 8.0,
    "pubmed": 30.0,
}
_MODELS = {"sat": 12.0, "graphormer": 12.0, "graphormer-1e-3": 12.0, "gde": 6.0, "cgnn": 6.0, "cgnn-weights": 6.0}
_LARGE, _LEARNED = 60.0, 2.5  # a dataset that is not in the table; a J that changes in every step


def cost(spec: RunSpec) -> float:
    """Of one run."""
    epochs = min(spec.max_epochs, 3 * spec.patience) / 300
    learned = _LEARNED if row_of(spec.model).learned else 1.0
    return epochs * _DATASETS.get(spec.dataset, _LARGE) * _MODELS.get(spec.model, learned)


def threads_pay(dataset: str) -> bool:
    """A step on a small graph is a hundred operations of microseconds, to which a second thread only adds."""
    return _DATASETS.get(dataset, _LARGE) >= _DATASETS["pubmed"]


def total(specs: Iterable[RunSpec]) -> float:
    return sum(cost(spec) for spec in specs)
