"""Cells of a table from records: mean and standard deviation over runs, and what did not end well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import RunSpec


@dataclass(frozen=True)
class Cell:
    """Test accuracies of one model on one dataset in %, of the runs that ended well, and how all of them ended."""

    accuracies: tuple[float, ...]
    outcomes: dict[str, int]

    @property
    def mean(self) -> float | None:
        return fmean(self.accuracies) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation; None for fewer than two runs."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def trouble(self) -> dict[str, int]:
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != "ok"}

    def __str__(self) -> str:
        if not self.accuracies:
            return ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items()) or "-"
        spread = "" if self.std is None else f" ± {self.std:.1f}"
        return f"{self.mean:.1f}{spread} ({len(self.accuracies)})" + ("*" if self.trouble else "")


def cells_of(specs: Iterable[RunSpec], records: Iterable[RunRecord]) -> dict[tuple[str, str], Cell]:
    """(model, dataset) -> its cell, of those records that belong to ``specs``."""
    wanted = {spec.key: (spec.model, spec.dataset) for spec in specs}
    found: dict[tuple[str, str], list[RunRecord]] = {place: [] for place in wanted.values()}
    for record in records:
        if record.key in wanted:
            found[wanted[record.key]].append(record)
    return {place: _cell(members) for place, members in found.items()}


def _cell(records: list[RunRecord]) -> Cell:
    well = tuple(100 * record.test_accuracy for record in records if record.outcome == "ok")
    return Cell(well, dict(Counter(record.outcome for record in records)))
