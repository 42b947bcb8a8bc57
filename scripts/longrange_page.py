"""Write the tables of docs/longrange.md from results/longrange and results/links.

python scripts/longrange_page.py
"""

import json
from pathlib import Path

import numpy as np

from walksum.paper.longrange.bench import markdown, read_records

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- {} -->\n", "<!-- end of {} -->"


def links() -> str:
    """Test AUC of each encoder, mean and deviation over splits."""
    records = [json.loads(line) for line in (ROOT / "results/links/cora.jsonl").read_text().splitlines()]
    lines = ["| encoder | validation AUC | test AUC |", "|---|---:|---:|"]
    for name in dict.fromkeys(record["encoder"] for record in records):
        mine = [record for record in records if record["encoder"] == name]
        val, test = (np.array([record[part] for record in mine]) for part in ("validation", "test"))
        lines.append(f"| {name} | {val.mean():.3f} | {test.mean():.3f} ± {test.std(ddof=1):.3f} |")
    return "\n".join(lines) + "\n"


def filled(text: str, name: str, table: str) -> str:
    """The page with a new table between its two marks."""
    begin, end = BEGIN.format(name), END.format(name)
    head, _, rest = text.partition(begin)
    return head + begin + table + end + rest.partition(end)[2]


def page(text: str) -> str:
    text = filled(text, "long range", markdown(read_records(ROOT / "results/longrange")))
    return filled(text, "links", links())


if __name__ == "__main__":
    path = ROOT / "docs" / "longrange.md"
    path.write_text(page(path.read_text()))
