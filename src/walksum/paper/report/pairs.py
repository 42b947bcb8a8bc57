"""Paired tests as grids: the best GLT row against the others, and every pair of rows."""

from __future__ import annotations

from walksum.paper.report import compare
from walksum.paper.report.document import Grid, TableCell
from walksum.paper.report.sections import Section
from walksum.paper.rows import ROWS

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
