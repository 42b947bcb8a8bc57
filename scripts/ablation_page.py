"""Writes the tables of docs/ablation.md from the records: python scripts/ablation_page.py"""

from __future__ import annotations

from pathlib import Path

from walksum.experiments import paper
from walksum.experiments.cells import cells_of
from walksum.experiments.record import RunRecord
from walksum.experiments.rows import DATASETS, ROWS
from walksum.experiments.spec import paper_spec
from walksum.experiments.store import read_records
from walksum.experiments.variants import OPTION, VARIANTS

PAGE, STORE, TABLE1 = Path("docs/ablation.md"), Path("results/ablation"), Path("results/table1")
BEGIN, END = "<!-- {} -->", "<!-- /{} -->"
PLAIN = "as in the table"
# what a mark in the page stands for: datasets side by side, or models on one dataset
TABLES = {
    **{
        name: [(model, name) for model in ROWS if ROWS[model].group == "glt"] for name in ("cora", "citeseer", "pubmed")
    },
    **{name: [(name, dataset) for dataset in DATASETS] for name in ("cgnn", "gde")},
}


def table(cells: list[tuple[str, str]], records: list[RunRecord]) -> str:
    """A line for each change, a column for each cell: mean ± standard deviation and the number of runs."""
    lines = {name: [_cell(name, *cell, records) for cell in cells] for name in VARIANTS}
    tried = [k for k, _ in enumerate(cells) if any(line[k] for name, line in lines.items() if name != PLAIN)]
    lines = {
        "changed": [_title(*cells[k], cells) for k in tried],
        "---": ["---"] * len(tried),
        "the paper": [_paper(*cells[k]) for k in tried],
        **{name: [line[k] for k in tried] for name, line in lines.items() if any(line[k] for k in tried)},
    }
    lines["nothing"] = lines.pop(PLAIN)
    order = ["changed", "---", "the paper", "nothing", *(name for name in VARIANTS if name in lines)]
    return "\n".join(f"| {name} | " + " | ".join(lines[name]) + " |" for name in order)


def _title(model: str, dataset: str, cells: list[tuple[str, str]]) -> str:
    return dataset.title() if len({m for m, _ in cells}) == 1 else ROWS[model].title


def _paper(model: str, dataset: str) -> str:
    cell = paper.TABLE1[model][dataset]
    return "" if cell is None else f"{cell[0]:.1f} ± {cell[1]:.1f}"


def _cell(name: str, model: str, dataset: str, records: list[RunRecord]) -> str:
    found = [record for record in records if _place(record) == (model, dataset, name)]
    return str(cells_of([record.spec for record in found], found)[model, dataset]) if found else ""


def all_records() -> list[RunRecord]:
    """Of the ablation; of cells whose unchanged runs are not in it, those of Table 1."""
    records = read_records(STORE)
    held = {_place(record) for record in records}
    return records + [r for r in read_records(TABLE1) if _is_unchanged(r) and _place(r) not in held]


def _place(record: RunRecord) -> tuple[str, str, str]:
    return record.spec.model, record.spec.dataset, dict(record.spec.options).get(OPTION, PLAIN)


def _is_unchanged(record: RunRecord) -> bool:
    return record.spec == paper_spec(record.spec.model, record.spec.dataset, record.spec.seed)


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    records = all_records()
    for name, cells in TABLES.items():
        begin, end = BEGIN.format(name), END.format(name)
        if begin in text:
            before, rest = text.split(begin)
            text = "\n\n".join([before + begin, table(cells, records), end + rest.split(end)[1]])
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
