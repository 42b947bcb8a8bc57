"""Writes the tables of docs/ablation.md from the records: python -m scripts.ablation_page"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.ablation import OPTION, VARIANTS

from walksum.paper import rows
from walksum.paper.report.document import fill_marks, markdown_table
from walksum.paper.rows import DATASETS, ROWS
from walksum.paper.sweep.record import RunRecord, cells_of
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import read_records

PAGE, STORE, TABLE1 = Path("docs/ablation.md"), Path("results/ablation"), Path("results/table1")
SOLVED = Path("results/gabp"), "glt-laplacian-fixed", "solved by the paper's GaBP"
PLAIN, DIRECTIONS = "as in the table", ("forward", "backward")
# what a mark in the page stands for: datasets side by side, or models on one dataset
TABLES = {
    **{
        name: [(model, name) for model in ROWS if ROWS[model].group == "glt"] for name in ("cora", "citeseer", "pubmed")
    },
    **{name: [(name, dataset) for dataset in DATASETS] for name in ("cgnn", "gde")},
}


def table(cells: list[tuple[str, str]], records: list[RunRecord]) -> str:
    """A line for each change, a column for each cell in which one was tried: mean ± standard deviation (runs)."""
    tried = {(record.spec.model, record.spec.dataset) for record in records if _place(record)[2] != PLAIN}
    columns = [cell for cell in cells if cell in tried]
    if not columns:
        return "Not measured."
    lines = [["the paper", *(_paper(*cell) for cell in columns)]]
    for name in VARIANTS:
        shown = [_cell(name, *cell, records) for cell in columns]
        if any(shown):
            lines.append(["nothing" if name == PLAIN else name, *shown])
    return markdown_table(["changed", *(_title(*cell, cells) for cell in columns)], lines)


def _title(model: str, dataset: str, cells: list[tuple[str, str]]) -> str:
    return dataset.title() if len({m for m, _ in cells}) == 1 else ROWS[model].title


def _paper(model: str, dataset: str) -> str:
    cell = rows.TABLE1[model][dataset]
    return "" if cell is None else f"{cell[0]:.1f} ± {cell[1]:.1f}"


def _cell(name: str, model: str, dataset: str, records: list[RunRecord]) -> str:
    """mean ± standard deviation (runs), and how far that is from nothing changed, on the splits that both have."""
    runs, plain = (_runs(which, model, dataset, records) for which in (name, PLAIN))
    if not runs:
        return ""
    cell = str(cells_of([record.spec for record in runs.values()], runs.values())[model, dataset])
    gaps = [100 * (runs[k].test_accuracy - plain[k].test_accuracy) for k in runs if k in plain]
    return cell if name == PLAIN or not gaps else f"{cell}, {fmean(gaps):+.1f}"


def _runs(name: str, model: str, dataset: str, records: list[RunRecord]) -> dict[int, RunRecord]:
    found = (record for record in records if _place(record) == (model, dataset, name) and record.outcome == "ok")
    return {record.spec.seed: record for record in found}


def all_records() -> list[RunRecord]:
    """Of the ablation; runs in which nothing is changed are those of Table 1 where it has the cell."""
    unchanged = [record for record in read_records(TABLE1) if _is_unchanged(record)]
    held = {_place(record) for record in unchanged}
    return unchanged + [record for record in read_records(STORE) if _place(record) not in held]


def _place(record: RunRecord) -> tuple[str, str, str]:
    return record.spec.model, record.spec.dataset, dict(record.spec.options).get(OPTION, PLAIN)


def _is_unchanged(record: RunRecord) -> bool:
    return record.spec == paper_spec(record.spec.model, record.spec.dataset, record.spec.seed)


def solver_table() -> str:
    """Exact solves and the paper's on the same splits: accuracy, the paired difference, steps, seconds per run."""
    store, model, name = SOLVED
    records = read_records(store)
    head = ["dataset", "splits", "exact", "the paper's GaBP", "difference"]
    head, lines = [*head, "steps forward", "backward", "times as long"], []
    for dataset in DATASETS:
        ours, theirs = (_runs(which, model, dataset, records) for which in (PLAIN, name))
        if seeds := sorted(set(ours) & set(theirs)):
            a, b = ([100 * runs[k].test_accuracy for k in seeds] for runs in (ours, theirs))
            gaps = [y - x for x, y in zip(a, b, strict=True)]
            found = {d: [s.steps for k in seeds for s in theirs[k].solves if s.direction == d] for d in DIRECTIONS}
            steps = [f"{min(s[0] for s in found[d])} to {max(s[2] for s in found[d])}" for d in DIRECTIONS]
            slower = fmean(theirs[k].seconds for k in seeds) / fmean(ours[k].seconds for k in seeds)
            gap = f"{fmean(gaps):+.2f} ± {stdev(gaps) / sqrt(len(gaps)):.2f}"
            lines.append([dataset, str(len(seeds)), f"{fmean(a):.1f}", f"{fmean(b):.1f}", gap, *steps, f"{slower:.1f}"])
    return markdown_table(head, lines)


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    records = all_records()
    made = {name: table(cells, records) for name, cells in TABLES.items()} | {"solver": solver_table()}
    for name, lines in made.items():
        text = fill_marks(text, name, lines)
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
