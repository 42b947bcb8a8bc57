"""A run as a value: every number that decides its result, and a key made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from walksum._checks import check_choice
from walksum.paper.rows import row_of

FORMAT = 1  # raise it when the meaning of a field changes: old keys then no longer match


@dataclass(frozen=True)
class RunSpec:
    """One training run of one model on one split.

    ``options`` are further keyword arguments of the model (sorted pairs), for ablations.
    """

    model: str
    dataset: str
    seed: int = 0
    protocol: str = "random"
    hidden: int = 64
    layers: int = 2
    heads: tuple[int, int] = (8, 1)
    dropout: float = 0.6
    lr: float = 1e-3
    weight_decay: float = 5e-4
    patience: int = 100
    max_epochs: int = 2000
    select: str = "accuracy"  # what chooses the epoch on validation: accuracy (ties: loss), or loss
    solver: str = "auto"
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        row_of(self.model)
        check_choice("select", self.select, ("accuracy", "loss"))
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}; use 0 or more")

    @property
    def cell(self) -> RunSpec:
        """The same run with seed 0: equal for all runs of one cell of a table."""
        return replace(self, seed=0)

    @property
    def key(self) -> str:
        """Stable name of the run: equal specs have equal keys, on every machine and in every version."""
        text = json.dumps({"format": FORMAT, **self.to_json()}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunSpec:
        known = {field.name for field in fields(cls)}
        if unknown := set(values) - known:
            raise ValueError(f"a run with unknown fields {sorted(unknown)}; it was written by a newer walksum")
        pairs = tuple((str(name), value) for name, value in values.get("options", ()))
        return cls(**{**values, "heads": tuple(values["heads"]), "options": pairs})


def paper_spec(model: str, dataset: str, seed: int = 0, **changes: Any) -> RunSpec:
    """The run of a row with the paper's settings for it, ``changes`` on top."""
    row = row_of(model)
    return RunSpec(model, dataset, seed, **{"lr": row.lr, "patience": row.patience, **changes})


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
    """The estimated cost of one run, relative to a fixed GLT on Texas."""
    epochs = min(spec.max_epochs, 3 * spec.patience) / 300
    learned = _LEARNED if row_of(spec.model).learned else 1.0
    return epochs * _DATASETS.get(spec.dataset, _LARGE) * _MODELS.get(spec.model, learned)


def threads_pay(dataset: str) -> bool:
    """A step on a small graph is a hundred operations of microseconds, to which a second thread only adds."""
    return _DATASETS.get(dataset, _LARGE) >= _DATASETS["pubmed"]


def total(specs: Iterable[RunSpec]) -> float:
    return sum(cost(spec) for spec in specs)
