"""The numbers alone: CSV for machines, and the same as values for --json."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from walksum.paper.report import compare
from walksum.paper.report.sections import Section
from walksum.paper.report.table2 import DIRECTIONS, Table2
from walksum.paper.rows import TABLE2
from walksum.paper.solve_record import RULES

TABLE1_COLUMNS = ("model", "dataset", "protocol", "runs", "mean", "std", "paper_mean", "paper_std")
TABLE2_COLUMNS = (
    *("model", "direction", "rule", "solves", "steps_min", "steps_median", "steps_max", "cut_off"),
    *("residual_median", "residual_max", "error_median", "error_max", "paper_min", "paper_max"),
)


def table1_rows(sections: list[Section]) -> list[dict[str, Any]]:
    """The cells with the paper's settings: these columns could not tell others apart."""
    return [
        _table1_row(section, model, dataset)
        for section in sections
        if not section.changes
        for model in section.models
        for dataset in section.datasets
        if (model, dataset) in section.cells
    ]


def _table1_row(section: Section, model: str, dataset: str) -> dict[str, Any]:
    cell, paper = section.cells[model, dataset], compare.paper_cell(model, dataset)
    row = (model, dataset, section.protocol, cell.runs, cell.mean, cell.std, *(paper or (None, None)))
    return dict(zip(TABLE1_COLUMNS, row, strict=True))


def table1_tests(sections: list[Section]) -> list[dict[str, Any]]:
    """The best GLT row of each column against the others."""
    return [
        {"protocol": section.protocol, "settings": section.name, "dataset": dataset, **asdict(test)}
        for section in sections
        for dataset in section.datasets
        for test in compare.against_best(section, dataset)
    ]


def table2_rows(table: Table2) -> list[dict[str, Any]]:
    rows = []
    for model in table.models:
        for direction in DIRECTIONS:
            for rule in RULES:
                group = table.group(direction, rule, [model])
                if not group.records:
                    continue
                paper = TABLE2[model][DIRECTIONS.index(direction)] if model in TABLE2 else (None, None)
                steps = (min(group.steps), group.median("steps"), max(group.steps), group.unmet)
                left = [f(name) for name in ("residual", "error") for f in (group.median, group.worst)]
                row = (model, direction, rule, len(group.records), *steps, *left, *paper)
                rows.append(dict(zip(TABLE2_COLUMNS, row, strict=True)))
    return rows


def as_csv(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_plain(row[name]) for name in columns] for row in rows)
    return file.getvalue()


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
