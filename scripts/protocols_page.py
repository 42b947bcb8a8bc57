"""Writes the tables of docs/protocols.md from the records: python scripts/protocols_page.py"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import median

from walksum.data.splits import COUNTS
from walksum.paper import rows
from walksum.paper.report.document import fill_marks, markdown_table
from walksum.paper.rows import ROWS
from walksum.paper.sweep.record import Cell, RunRecord, cells_of
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import read_records

PAGE, STORE, TABLE1 = Path("docs/protocols.md"), Path("results/one-split"), Path("results/table1")
DATASETS = ("texas", "wisconsin", "cornell")
SPLITS = ("one-split", *(f"one-split-{which}" for which in range(1, 5)))

Cells = dict[tuple[str, str, str], Cell]  # by protocol, model, dataset


def read() -> Cells:
    """Every cell with the paper's settings, of the single splits and of Table 1."""
    records: list[RunRecord] = [*read_records(STORE), *read_records(TABLE1)]
    found: Cells = {}
    for protocol in (*SPLITS, "random"):
        wanted = [r.spec for r in records if r.spec.protocol == protocol and r.spec == _plain(r)]
        for (model, dataset), cell in cells_of(wanted, records).items():
            if cell.mean is not None and dataset in DATASETS:
                found[protocol, model, dataset] = cell
    return found


def _plain(record: RunRecord) -> object:
    spec = record.spec
    return paper_spec(spec.model, spec.dataset, spec.seed, protocol=spec.protocol)


def one_dataset(dataset: str, cells: Cells) -> str:
    """A line for each model: its mean on every split, on many of them, and the paper's."""
    models = [model for model in ROWS if any((split, model, dataset) in cells for split in SPLITS)]
    head = [*(f"split {which}" for which, _ in enumerate(SPLITS)), "between splits", "30 random splits", "the paper"]
    lines = []
    for model in models:
        alone = [cells.get((split, model, dataset)) for split in SPLITS]
        shown = [ROWS[model].title, *map(_shown, alone), _range(alone), _shown(cells.get(("random", model, dataset)))]
        lines.append([*shown, _paper(model, dataset)])
    return markdown_table([dataset.title(), *head], lines)


def _shown(cell: Cell | None) -> str:
    return "" if cell is None else str(cell)


def _range(cells: list[Cell | None]) -> str:
    means = _means(cells)
    return f"{min(means):.1f} to {max(means):.1f}" if len(means) > 1 else ""


def _means(cells: list[Cell | None]) -> list[float]:
    return [cell.mean for cell in cells if cell is not None and cell.mean is not None]


def _paper(model: str, dataset: str) -> str:
    cell = rows.TABLE1.get(model, {}).get(dataset)
    return "" if cell is None else f"{cell[0]:.1f} ± {cell[1]:.1f}"


def deviations(cells: Cells) -> str:
    """How far runs of a cell lie apart, by where they differ."""
    alone = [cell.std for (protocol, _, _), cell in cells.items() if protocol != "random"]
    random = [cell.std for (protocol, _, _), cell in cells.items() if protocol == "random"]
    drawn = [_of_drawing(cell, dataset) for (protocol, _, dataset), cell in cells.items() if protocol == "random"]
    head, lines = ["standard deviation of a cell, in points", "least", "median", "most", "cells"], []
    rows = {
        "one split, other initial weights": alone,
        "another random split for each run": random,
        "to be expected from drawing the test nodes alone, √(p(1 - p) / n)": drawn,
        "the paper's baselines": _papers("baseline"),
        "the paper's graph linear transformations": _papers("glt"),
    }
    for name, values in rows.items():
        known = [value for value in values if value is not None]
        spread = (min(known), median(known), max(known)) if known else ()
        lines.append([name, *(f"{value:.1f}" for value in spread), str(len(known))])
    return markdown_table(head, lines)


def _of_drawing(cell: Cell, dataset: str) -> float:
    share = (cell.mean or 0.0) / 100
    return 100 * sqrt(share * (1 - share) / COUNTS[dataset][2])


def _papers(group: str) -> list[float]:
    cells = [rows.TABLE1[model][dataset] for model in rows.TABLE1 if ROWS[model].group == group for dataset in DATASETS]
    return [cell[1] for cell in cells if cell is not None]


def within(cells: Cells) -> str:
    """Where the paper's mean lies among those of the single splits."""
    counts = {"within the range of the five splits": 0, "above it": 0, "below it": 0}
    for model in rows.TABLE1:
        for dataset in DATASETS:
            means = _means([cells.get((split, model, dataset)) for split in SPLITS])
            value = rows.TABLE1[model][dataset]
            if len(means) == len(SPLITS) and value is not None:
                counts[_side(value[0], means)] += 1
    return markdown_table(["the paper's mean", "cells"], ([name, str(count)] for name, count in counts.items()))


def _side(value: float, means: list[float]) -> str:
    means = [round(mean, 1) for mean in means]  # as the paper prints its own
    if min(means) <= value <= max(means):
        return "within the range of the five splits"
    return "above it" if value > max(means) else "below it"


def reached(cells: Cells) -> str:
    """Baselines more than two points below the paper over random splits, and how many of the splits are not."""
    lines = []
    for dataset in DATASETS:
        for model in (name for name in rows.TABLE1 if ROWS[name].group == "baseline"):
            value, cell = rows.TABLE1[model][dataset], cells.get(("random", model, dataset))
            if value is None or cell is None or cell.mean is None or cell.mean > value[0] - 2:
                continue
            count = sum(round(accuracy, 1) >= value[0] for accuracy in cell.scores.values())
            name = f"{ROWS[model].title}, {dataset.title()}"
            lines.append([name, _paper(model, dataset), _shown(cell), f"{count} of {cell.runs}"])
    return markdown_table(["", "the paper", "30 random splits", "splits at or above the paper's mean"], lines)


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    cells = read()
    made = {dataset: one_dataset(dataset, cells) for dataset in DATASETS}
    made |= {"deviations": deviations(cells), "within": within(cells), "reached": reached(cells)}
    for name, content in made.items():
        text = fill_marks(text, name, content)
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
