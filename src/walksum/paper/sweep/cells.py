"""Cells of a table from records: mean and standard deviation over runs, and what did not end well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import RunSpec


@dataclass(frozen=True)
class Cell:
    """The runs of one model on one dataset, all with the same settings. Means are over the runs that ended well."""

    model: str
    dataset: str
    records: tuple[RunRecord, ...]

    @cached_property
    def finished(self) -> dict[int, RunRecord]:
        """The runs that count, by seed."""
        return {record.spec.seed: record for record in self.records if record.outcome == "ok"}

    @cached_property
    def scores(self) -> dict[int, float]:
        """Test accuracy in % by seed."""
        return {seed: 100 * record.test_accuracy for seed, record in self.finished.items()}

    @property
    def runs(self) -> int:
        return len(self.scores)

    @property
    def mean(self) -> float | None:
        return fmean(self.scores.values()) if self.scores else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation; None for fewer than two runs."""
        return stdev(self.scores.values()) if self.runs > 1 else None

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(Counter(record.outcome for record in self.records))

    @property
    def lost(self) -> dict[str, int]:
        """How many runs did not end well, by outcome."""
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != "ok"}

    def __str__(self) -> str:
        if not self.scores:
            return ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items()) or "-"
        spread = "" if self.std is None else f" ± {self.std:.1f}"
        return f"{self.mean:.1f}{spread} ({self.runs})" + ("*" if self.lost else "")


def cells_of(specs: Iterable[RunSpec], records: Iterable[RunRecord]) -> dict[tuple[str, str], Cell]:
    """(model, dataset) -> its cell, of those records that belong to ``specs``."""
    wanted = {spec.key: (spec.model, spec.dataset) for spec in specs}
    found: dict[tuple[str, str], list[RunRecord]] = {place: [] for place in wanted.values()}
    for record in records:
        if record.key in wanted:
            found[wanted[record.key]].append(record)
    return {place: Cell(*place, tuple(members)) for place, members in found.items()}
