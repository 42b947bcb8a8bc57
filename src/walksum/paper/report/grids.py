"""Grids of comparisons: our best row against the paper's and against our other rows, and every pair of rows."""

from __future__ import annotations

from walksum.paper.report import compare
from walksum.paper.report.document import Grid, TableCell
from walksum.paper.report.sections import Section
from walksum.paper.rows import PAPER_RUNS, ROWS, TABLE1

TITLES = {"citeseer": "CiteSeer", "pubmed": "PubMed"}


def dataset_title(name: str) -> str:
    return TITLES.get(name, name.capitalize())


def tests_grid(section: Section) -> Grid | None:
    found = {dataset: compare.against_best(section, dataset) for dataset in section.datasets}
    if not any(found.values()):
        return None
    best = {dataset: compare.best_glt(section, dataset) for dataset in section.datasets}
    rows: list[tuple[TableCell, ...] | str] = [
        (TableCell("best GLT row"), *(TableCell("-" if b is None else ROWS[b.model].title) for b in best.values()))
    ]
    for model in section.models:
        tests = [next((t for t in found[d] if t.b == model), None) for d in section.datasets]
        if any(tests):
            rows.append((TableCell(ROWS[model].title), *(_test_cell(test, section.usual_runs) for test in tests)))
    caption = (
        f"Best GLT row less every other row, protocol {section.protocol}: mean difference in points over the shared "
        f"splits ({section.usual_runs}, or the number in brackets); below it p after Holm's correction over the "
        "column. Bold: p < 0.05."
    )
    return Grid(caption, ("Model", *map(dataset_title, section.datasets)), tuple(rows))


def _test_cell(test: compare.Paired | None, usual: int) -> TableCell:
    if test is None or test.pairs == 0:
        return TableCell("-")
    p = "no test" if test.corrected is None else f"p {p_text(test.corrected)}"
    pairs = "" if test.pairs == usual else f" [{test.pairs}]"
    return TableCell(signed(test.difference), p + pairs, strong=test.significant)


def signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no minus before a zero


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def matrix_grid(section: Section, dataset: str) -> Grid:
    tests = {(t.a, t.b): t for t in compare.matrix(section, dataset)}
    models = [cell.model for cell in section.of(dataset)]

    def entry(a: str, b: str) -> TableCell:
        test, sign = (tests[a, b], 1) if (a, b) in tests else (tests.get((b, a)), -1)
        if test is None or test.pairs == 0:
            return TableCell("")
        p = "" if test.corrected is None else p_text(test.corrected)
        return TableCell(signed(sign * test.difference), p, strong=test.significant)

    rows = tuple((TableCell(ROWS[a].title), *(entry(a, b) for b in models)) for a in models)
    caption = (
        f"{dataset_title(dataset)}, protocol {section.protocol}: row less column in points; below it p after Holm's "
        "correction over all pairs. Bold: p < 0.05."
    )
    return Grid(caption, (dataset_title(dataset), *(ROWS[m].title for m in models)), rows, folded=True)


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
