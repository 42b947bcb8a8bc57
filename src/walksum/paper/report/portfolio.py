"""The portfolio beside every model that has records on the same splits: means, ranks, and whether it is chance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from walksum.paper.portfolio_bench import REFIT
from walksum.paper.report.compare import Paired, holm, signed_rank
from walksum.paper.report.sections import sections_of
from walksum.paper.rows import ROWS
from walksum.paper.sweep.record import RunRecord

PORTFOLIO = "auto"
Scores = dict[str, dict[int, float]]  # row -> split -> test score in points


@dataclass(frozen=True)
class Line:
    """One row of one dataset.

    Attributes:
        splits: those that count here.
        std: the sample's deviation over splits; None below two.
        rank: by the mean, among rows that learned from as many labels and have all splits of the portfolio; else None.
        test: the portfolio against this row, None of the portfolio itself.
    """

    dataset: str
    row: str
    splits: int
    mean: float
    std: float | None
    rank: float | None
    test: Paired | None


def scores_of(records: Iterable[dict[str, Any]], table1: Sequence[RunRecord] = ()) -> dict[str, Scores]:
    """Test scores by dataset, of the portfolio's records and of Table 1's on the very same splits."""
    found: dict[str, Scores] = {}
    digests: dict[tuple[str, int], str] = {}
    for record in records:
        name, seed = record["dataset"], record["seed"]
        digests[name, seed] = record.get("split", "")
        for row, blend in record["blends"].items():
            if blend:
                found.setdefault(name, {}).setdefault(row, {})[seed] = 100 * blend["test"]
    plain = [section for section in sections_of(table1) if section.protocol == "random" and not section.changes]
    for cell in (cell for section in plain for cell in section.cells.values() if cell.dataset in found):
        same = {
            seed: score for seed, score in cell.scores.items()
            if digests.get((cell.dataset, seed)) and cell.finished[seed].split == digests[cell.dataset, seed]
        }  # fmt: skip
        if same:
            found[cell.dataset][ROWS[cell.model].title] = same
    return found


def lines_of(dataset: str, scores: Scores) -> list[Line]:
    """The rows of a dataset, the best first; Holm's correction over the dataset."""
    mine = scores.get(PORTFOLIO, {})
    others = [row for row in scores if row != PORTFOLIO]
    tests = dict(zip(others, holm([_paired(mine, row, scores[row]) for row in others]), strict=True))
    ranks = _ranks(
        {row: values for row, values in scores.items() if set(mine) <= set(values) and not row.endswith(REFIT)}, mine
    )
    lines = []
    for row, values in scores.items():
        shared = [values[seed] for seed in sorted(values) if seed in mine] or list(values.values())
        std = statistics.stdev(shared) if len(shared) > 1 else None
        lines.append(Line(dataset, row, len(shared), statistics.fmean(shared), std, ranks.get(row), tests.get(row)))
    return sorted(lines, key=lambda line: -line.mean)


def _paired(mine: dict[int, float], row: str, theirs: dict[int, float]) -> Paired:
    gaps = [mine[seed] - theirs[seed] for seed in sorted(mine) if seed in theirs]
    return Paired(PORTFOLIO, row, len(gaps), statistics.fmean(gaps) if gaps else math.nan, signed_rank(gaps))


def _ranks(scores: Scores, seeds: Iterable[int]) -> dict[str, float]:
    """1 is the best mean; equal means share their ranks."""
    from scipy.stats import rankdata

    means = {row: statistics.fmean(values[seed] for seed in seeds) for row, values in scores.items()}
    return dict(zip(means, rankdata(-np.array(list(means.values()))).tolist(), strict=True)) if means else {}


def mean_ranks(lines: Iterable[Line]) -> dict[str, tuple[float, int]]:
    """Mean rank and number of datasets of each row, the best first."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if line.rank is not None:
            found.setdefault(line.row, []).append(line.rank)
    ranked = {row: (statistics.fmean(values), len(values)) for row, values in found.items()}
    return dict(sorted(ranked.items(), key=lambda pair: pair[1][0]))
