"""Write the tables of docs/longrange.md from results/longrange and results/links.

python scripts/longrange_page.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from walksum.paper.longrange.bench import TITLES, Key, read_records, rows_of, timing
from walksum.paper.longrange.contestants import CAP
from walksum.paper.longrange.tasks import TASKS
from walksum.paper.report.document import fill_marks, markdown_table

ROOT = Path(__file__).parent.parent


def links() -> str:
    """Test AUC of each encoder, mean and deviation over splits."""
    records = [json.loads(line) for line in (ROOT / "results/links/cora.jsonl").read_text().splitlines()]
    lines = [["encoder", "validation AUC", "test AUC"], ["---", "---:", "---:"]]
    for name in dict.fromkeys(record["encoder"] for record in records):
        mine = [record for record in records if record["encoder"] == name]
        val, test = (np.array([record[part] for record in mine]) for part in ("validation", "test"))
        lines.append([name, f"{val.mean():.3f}", f"{test.mean():.3f} ± {test.std(ddof=1):.3f}"])
    return markdown_table(lines)


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


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    text = fill_marks(text, "long range", markdown(read_records(ROOT / "results/longrange")))
    return fill_marks(text, "links", links())


if __name__ == "__main__":
    path = ROOT / "docs" / "longrange.md"
    path.write_text(updated(path.read_text()))
