"""Table 2 in numbers: ranges of GaBP iterations, what they left behind, and what follows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from walksum.paper.rows import DATASETS, ROWS
from walksum.paper.solve_record import RULES, SolveRecord

COARSE = 1e-3  # a residual or an error above this is no solution in float32
DIRECTIONS = ("forward", "backward")
NO_SPEEDUP = 1.05  # forward steps over backward steps below which there is nothing to explain


@dataclass(frozen=True)
class SolveGroup:
    """Some solves of one design, one direction and one rule."""

    records: tuple[SolveRecord, ...]

    @property
    def steps(self) -> list[int]:
        return [record.steps for record in self.records]

    @property
    def unmet(self) -> int:
        return sum(not record.met for record in self.records)

    def range(self) -> str:
        """Least to most steps; > where the rule was not met in the allowed steps."""
        if not self.records:
            return "-"
        low, high = min(self.steps), max(self.steps)
        top = f">{high}" if self.unmet else str(high)
        low_text = top if self.unmet == len(self.records) else str(low)
        return top if low_text == top else f"{low_text} - {top}"

    def worst(self, name: str) -> float:
        return max((getattr(record, name) for record in self.records), default=math.nan)

    def median(self, name: str) -> float:
        return statistics.median([getattr(r, name) for r in self.records]) if self.records else math.nan

    def above(self, name: str) -> int:
        """How many are coarse; NaN counts as coarse."""
        return sum(not getattr(record, name) <= COARSE for record in self.records)


@dataclass(frozen=True)
class Table2:
    records: tuple[SolveRecord, ...]

    @property
    def models(self) -> list[str]:
        held = {record.model for record in self.records}
        return [name for name in ROWS if name in held]

    @property
    def datasets(self) -> list[str]:
        held = {record.dataset for record in self.records}
        return [*(d for d in DATASETS if d in held), *sorted(held - set(DATASETS))]

    @property
    def epochs(self) -> list[int]:
        return sorted({record.epoch for record in self.records})

    def group(
        self, direction: str, rule: str, models: Iterable[str] | None = None, dataset: str | None = None
    ) -> SolveGroup:
        chosen = set(self.models if models is None else models)
        return SolveGroup(
            tuple(
                r
                for r in self.records
                if r.direction == direction and r.rule == rule and r.model in chosen and dataset in (None, r.dataset)
            )
        )

    def speedups(self, rule: str, models: Iterable[str] | None = None) -> dict[tuple, float]:
        """Forward steps over backward steps of the same J, epoch and layer.

        The backward solves are those under ``rule``; "rescaled" leaves the forward ones alone, so they are the paper's
        rule's. Pairs in which either was cut off are left out: their ratio is unknown.
        """
        forward_rule = "messages" if rule == "rescaled" else rule
        forward = {_layer(r): r for r in self.group("forward", forward_rule, models).records if r.met}
        backward = {_layer(r): r for r in self.group("backward", rule, models).records if r.met}
        return {at: forward[at].steps / backward[at].steps for at in backward if at in forward}


def _layer(record: SolveRecord) -> tuple:
    return (*record.probe, record.layer)


@dataclass(frozen=True)
class Finding:
    """What the numbers say about "the backward pass converges faster"."""

    speedup: dict[str, float]  # rule -> geometric mean of forward / backward steps
    by_size: float | None  # share of the logarithm of the speedup that the size of dL/dmu accounts for
    by_rule: float | None  # the same of the absolute rule as a whole: what is gone by the true residual
    size: float  # median of the largest entry of dL/dmu over that of h, of the same layer
    backward: SolveGroup
    forward: SolveGroup

    @property
    def artefact(self) -> bool | None:
        """Mostly an artefact: the size explains more than half of it; None where there is nothing to explain."""
        return None if self.by_size is None else self.by_size > 0.5


def finding(table: Table2, models: Iterable[str] | None = None) -> Finding:
    chosen = list(table.models if models is None else models)
    ratios = {rule: found for rule in RULES if (found := table.speedups(rule, chosen))}
    common = set.intersection(*map(set, ratios.values())) if ratios else set()  # the same systems under every rule
    speedup = {rule: statistics.geometric_mean(found[at] for at in common) for rule, found in ratios.items() if common}
    ahead, back = (table.group(direction, "messages", chosen) for direction in DIRECTIONS)
    h = {_layer(record): record.size for record in ahead.records}
    sizes = [record.size / h[at] for record in back.records if h.get(at := _layer(record))]
    size = statistics.median(sizes) if sizes else math.nan
    return Finding(speedup, _gone(speedup, "rescaled"), _gone(speedup, "residual"), size, back, ahead)


def _gone(speedup: dict[str, float], rule: str) -> float | None:
    """The share of the paper's rule's speedup, on a logarithmic scale, that another rule does not show."""
    if not {"messages", rule} <= set(speedup) or speedup["messages"] < NO_SPEEDUP:
        return None
    return 1 - math.log(speedup[rule]) / math.log(speedup["messages"])
