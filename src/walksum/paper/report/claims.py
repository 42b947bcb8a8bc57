"""May one claim that some GLT row reaches the best row of the paper, whatever model that was?"""

from __future__ import annotations

from walksum.paper.numbers import PAPER_RUNS, TABLE1
from walksum.paper.report import compare
from walksum.paper.report.document import Grid, TableCell
from walksum.paper.report.pairs import dataset_title, signed
from walksum.paper.report.sections import Section
from walksum.paper.rows import ROWS


def paper_best(dataset: str) -> tuple[str, float, float] | None:
    """Model, mean and standard deviation of the paper's highest row."""
    known = [(model, *cell) for model, row in TABLE1.items() if (cell := row.get(dataset)) is not None]
    return max(known, key=lambda row: row[1], default=None)


def claim(gap: compare.Difference) -> str:
    if gap.value >= 0:
        return "reached"
    if gap.within is None:
        return "too few runs"
    return "no claim: within two standard errors" if gap.within else "below"


def claims_grid(section: Section) -> Grid | None:
    """The best GLT row of each dataset beside the paper's best row of any model; None where neither is known."""
    columns = []
    for dataset in section.datasets:
        ours, best = compare.best_glt(section, dataset), paper_best(dataset)
        if ours is None or ours.mean is None or best is None:
            continue
        model, mean, std = best
        gap = compare.difference(ours.mean, ours.std, ours.runs, mean, std, PAPER_RUNS)
        error = "" if gap.error is None else f"± {gap.error:.1f}"
        columns.append(
            (
                TableCell(dataset_title(dataset)),
                TableCell(f"{mean:.1f}", ROWS[model].title),
                TableCell(f"{ours.mean:.1f}", ROWS[ours.model].title),
                TableCell(signed(gap.value), error),
                TableCell(claim(gap)),
            )
        )
    if not columns:
        return None
    caption = (
        f"Best row of the paper, of any model, and our best GLT row, protocol {section.protocol}. Below the "
        "difference: its standard error. Both rows were picked by their test accuracy, which flatters both."
    )
    return Grid(caption, ("Dataset", "Paper's best", "Best GLT", "Difference", "Claim"), tuple(columns))
