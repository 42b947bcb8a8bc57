"""The records of the long-range bench as tables: mean accuracy per model and size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from walksum.paper.longrange.bench import TIME, Key
from walksum.paper.longrange.contestants import CAP, MODELS
from walksum.paper.longrange.tasks import TASKS

TITLES = {
    "chain": "Chains: accuracy in % at the far end, by length",
    "ring": "Rings: accuracy in % at the opposite node, by size",
    "tree": "Tree-neighbours-match: accuracy in % on new trees (on training trees), by depth",
}


def cell(records: list[dict[str, Any]]) -> str:
    """Mean over seeds; a dash where nothing was measured, brackets where the model was not trained."""
    if not records:
        return "-"
    mean = f"{100 * np.mean([each['test'] for each in records]):.0f}"
    if not all(each["trained"] for each in records):
        return f"({mean})"
    if records[0]["task"] == "tree":
        return f"{mean} ({100 * np.mean([each['train'] for each in records]):.0f})"
    return mean


def rows_of(records: Mapping[Key, dict[str, Any]], task: str) -> tuple[list[int], list[tuple[str, list[str]]]]:
    """The sizes of a task, and for each model its cells."""
    mine = [each for each in records.values() if each["task"] == task]
    sizes = sorted({each["size"] for each in mine})
    rows = []
    for model in MODELS:
        of_model = [each for each in mine if each["model"] == model]
        if of_model:
            rows.append((model, [cell([each for each in of_model if each["size"] == size]) for size in sizes]))
    return sizes, rows


def timing(records: Mapping[Key, dict[str, Any]]) -> dict[str, Any] | None:
    """The record of how time grows with the length."""
    return next((each for each in records.values() if each["task"] == TIME), None)


def markdown(records: Mapping[Key, dict[str, Any]]) -> str:
    """All tables as Markdown."""
    parts = []
    for task in TASKS:
        sizes, rows = rows_of(records, task)
        if sizes:
            guess = ("guessing", [f"{100 * _chance(task, size):.0f}" for size in sizes])
            parts.append(_table(TITLES[task], [f"{size:,}" for size in sizes], [*rows, guess]))
    found = timing(records)
    if found is not None:
        heads = [*(f"{size:,}" for size in found["sizes"]), "exponent"]
        rows = [
            (name, [*(f"{1000 * each:.1f}" for each in found[key]), f"{found[slope]:.2f}"])
            for key, slope, name in (
                ("first", "exponent_first", "first pass on a graph"),
                ("later", "exponent", "every later pass"),
            )
        ]
        parts.append(_table("CPU milliseconds of one layer, forward and backward, by length", heads, rows))
    return "\n".join(parts) + f"\n(In brackets: more than {CAP} hops; the answer cannot depend on the question.)\n"


def _table(title: str, heads: list[str], rows: list[tuple[str, list[str]]]) -> str:
    lines = [f"### {title}", "", f"| | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)]) + "\n"


def _chance(task: str, size: int) -> float:
    return {"chain": 0.5, "ring": 0.2, "tree": 0.5**size}[task]
