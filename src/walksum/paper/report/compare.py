"""Is a difference more than chance? Against the paper by standard errors, between our rows by paired tests."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import wilcoxon

from walksum.paper.report.sections import Section
from walksum.paper.rows import PAPER_RUNS, ROWS, TABLE1
from walksum.paper.sweep.record import Cell

LEVEL = 0.05
ROUNDING = 0.05  # the paper prints one decimal: no smaller difference can be told from none
SAME = 3e-4  # points: what six digits of two accuracies can make of equal gaps, and less than a node of 300,000


@dataclass(frozen=True)
class Difference:
    """Ours less the paper's, in points.

    Args:
        error: standard error of the difference, from both spreads and both numbers of runs; None below two runs.
    """

    value: float
    error: float | None

    @property
    def within(self) -> bool | None:
        """Whether it is at most two standard errors, or the paper's rounding; None where that is unknown."""
        return None if self.error is None else abs(self.value) <= max(2 * self.error, ROUNDING)


def paper_cell(model: str, dataset: str) -> tuple[float, float] | None:
    return TABLE1.get(model, {}).get(dataset)


def from_paper(cell: Cell) -> Difference | None:
    paper = paper_cell(cell.model, cell.dataset)
    if paper is None or cell.mean is None:
        return None
    return difference(cell.mean, cell.std, cell.runs, *paper, PAPER_RUNS)


def difference(
    mean: float, std: float | None, runs: int, other: float, other_std: float | None, other_runs: int
) -> Difference:
    if std is None or other_std is None:
        return Difference(mean - other, None)
    return Difference(mean - other, math.sqrt(std**2 / runs + other_std**2 / other_runs))


@dataclass(frozen=True)
class Paired:
    """Row ``a`` against row ``b`` on the splits that both have.

    Args:
        difference: mean of a - b over those splits, in points.
        p: of Wilcoxon's signed-rank test, two-sided; None below two pairs.
        corrected: the same after Holm's correction over the family it belongs to.
    """

    a: str
    b: str
    pairs: int
    difference: float
    p: float | None
    corrected: float | None = None

    @property
    def significant(self) -> bool:
        return self.corrected is not None and self.corrected < LEVEL


def paired(a: Cell, b: Cell) -> Paired:
    gaps = [a.scores[seed] - b.scores[seed] for seed in sorted(a.scores) if _same_split(a, b, seed)]
    mean = sum(gaps) / len(gaps) if gaps else math.nan
    return Paired(a.model, b.model, len(gaps), mean, signed_rank(gaps))


def _same_split(a: Cell, b: Cell, seed: int) -> bool:
    if seed not in b.scores:
        return False
    ours, theirs = a.finished[seed].split, b.finished[seed].split
    return not ours or not theirs or ours == theirs


def signed_rank(gaps: list[float]) -> float | None:
    """p of the two-sided test; 1 if all gaps are zero, which scipy leaves undefined."""
    if len(gaps) < 2:
        return None
    levels = _levels(gaps)
    if not levels.any():
        return 1.0
    with warnings.catch_warnings(action="ignore"):  # of small samples: the number of pairs is shown beside
        return float(wilcoxon(levels).pvalue)


def _levels(gaps: list[float]) -> np.ndarray:
    """The gaps as signed whole numbers in the order of their sizes, which is all that ranks need.

    Accuracies are counts over the test nodes: gaps of as many nodes are one size, although six digits of an accuracy
    tell them apart.
    """
    found = np.array(gaps)
    found = found[np.argsort(np.abs(found))]
    return np.sign(found) * np.cumsum(np.diff(np.abs(found), prepend=0.0) > SAME)


def holm(tests: list[Paired]) -> list[Paired]:
    """The same tests with Holm's step-down correction; those without p are no part of the family."""
    order = sorted((t.p, k) for k, t in enumerate(tests) if t.p is not None)
    corrected: dict[int, float] = {}
    largest = 0.0
    for rank, (p, k) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[k] = largest
    return [replace(test, corrected=corrected.get(k)) for k, test in enumerate(tests)]


def best_glt(section: Section, dataset: str) -> Cell | None:
    """The GLT row with the highest mean; the first of equal ones."""
    rows = [cell for cell in section.of(dataset) if ROWS[cell.model].baseline is None]
    return max(rows, key=lambda cell: cell.mean or 0.0, default=None)


def against_best(section: Section, dataset: str) -> list[Paired]:
    """The best GLT row against every other row of a column, corrected over the column."""
    best = best_glt(section, dataset)
    if best is None:
        return []
    return holm([paired(best, cell) for cell in section.of(dataset) if cell.model != best.model])


def matrix(section: Section, dataset: str) -> list[Paired]:
    """Every pair of rows of a column once, corrected over all of them."""
    column = section.of(dataset)
    return holm([paired(a, b) for k, a in enumerate(column) for b in column[k + 1 :]])


def ranks(section: Section, dataset: str) -> tuple[set[str], set[str]]:
    """The models with the best and the second best mean, compared as printed: equal ones share the place."""
    shown = {cell.model: round(cell.mean or 0.0, 1) for cell in section.of(dataset)}
    places = sorted(set(shown.values()), reverse=True)
    found = [{model for model, value in shown.items() if value == place} for place in places[:2]]
    return (found[0] if found else set()), (found[1] if len(found) > 1 else set())
