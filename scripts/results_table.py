"""Writes the accuracy table of docs/results.md from the records: python scripts/results_table.py"""

from __future__ import annotations

from pathlib import Path

from walksum.paper import rows
from walksum.paper.report.document import fill_marks, markdown_table
from walksum.paper.rows import DATASETS, ROWS
from walksum.paper.sweep.record import cells_of
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import read_records

BESIDE = ["gcn", "gprgnn", "graphormer", "mlp"]  # others that one should know before choosing a GLT
MODELS = [*(name for name, row in ROWS.items() if row.group == "glt"), *BESIDE]
RUNS = 30


def accuracies(store: Path = Path("results/table1")) -> str:
    """The six designs, and others beside them: our mean of 30 runs, and the paper's in brackets."""
    specs = [paper_spec(model, data, seed) for model in MODELS for data in DATASETS for seed in range(RUNS)]
    cells = cells_of(specs, read_records(store))
    lines = [["", *DATASETS], ["---"] * (1 + len(DATASETS))]
    for model in MODELS:
        lines.append([ROWS[model].title, *(f"{cells[model, d].mean:.1f}{_paper(model, d)}" for d in DATASETS)])
    return markdown_table(lines)


def _paper(model: str, data: str) -> str:
    cell = rows.TABLE1.get(model, {}).get(data)
    return "" if cell is None else f" ({cell[0]:.1f})"


def updated(text: str) -> str:
    return fill_marks(text, "accuracy", accuracies())


if __name__ == "__main__":
    page = Path("docs/results.md")
    page.write_text(updated(page.read_text()))
