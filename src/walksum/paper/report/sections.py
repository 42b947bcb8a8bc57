"""Records in order: one section for each protocol and each way to depart from the paper's settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from walksum.data.splits import PROTOCOLS
from walksum.paper.rows import DATASETS, ROWS
from walksum.paper.sweep.record import Cell, RunRecord
from walksum.paper.sweep.spec import RunSpec, paper_spec

Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Section:
    """What one table shows. ``changes`` is what differs from the paper's settings, nothing for the main tables."""

    protocol: str
    changes: Changes
    cells: dict[tuple[str, str], Cell] = field(repr=False)

    @property
    def name(self) -> str:
        return ", ".join(f"{name}={_shown(value)}" for name, value in self.changes)

    @cached_property
    def models(self) -> list[str]:
        return _in_order({model for model, _ in self.cells}, ROWS)

    @cached_property
    def datasets(self) -> list[str]:
        return _in_order({dataset for _, dataset in self.cells}, DATASETS)

    @cached_property
    def usual_runs(self) -> int:
        """The most frequent number of runs in a cell."""
        counts = Counter(cell.runs for cell in self.cells.values() if cell.runs)
        return max(counts, key=lambda n: (counts[n], n), default=0)

    def of(self, dataset: str) -> list[Cell]:
        """The cells of a column that have runs."""
        found = (self.cells.get((model, dataset)) for model in self.models)
        return [cell for cell in found if cell is not None and cell.runs]


def changes_of(spec: RunSpec) -> Changes:
    """The fields in which a run departs from the paper's settings for its row."""
    plain = paper_spec(spec.model, spec.dataset, spec.seed, protocol=spec.protocol)
    names = (f.name for f in fields(RunSpec))
    return tuple((name, getattr(spec, name)) for name in names if getattr(spec, name) != getattr(plain, name))


def sections_of(records: Iterable[RunRecord]) -> list[Section]:
    """Main tables first. Of a run recorded twice the last counts."""
    latest = {record.key: record for record in records}
    found: dict[tuple[str, str], tuple[Changes, dict[tuple[str, str], list[RunRecord]]]] = {}
    for record in latest.values():
        spec, changes = record.spec, changes_of(record.spec)
        _, cells = found.setdefault((spec.protocol, repr(changes)), (changes, {}))
        cells.setdefault((spec.model, spec.dataset), []).append(record)
    made = [
        Section(protocol, changes, {at: Cell(*at, tuple(runs)) for at, runs in cells.items()})
        for (protocol, _), (changes, cells) in found.items()
    ]
    return sorted(made, key=lambda s: (bool(s.changes), _place(s.protocol, PROTOCOLS), s.name))


def _in_order(names: set[str], order: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (_place(name, order), name))


def _place(name: str, order: Iterable[str]) -> int:
    known = list(order)
    return known.index(name) if name in known else len(known)


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and value and all(isinstance(v, tuple | list) and len(v) == 2 for v in value):
        return "{" + ", ".join(f"{name}: {v}" for name, v in value) + "}"
    return str(value)
