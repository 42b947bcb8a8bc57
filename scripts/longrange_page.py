"""Write the tables of docs/longrange.md from results/longrange and results/links.

python scripts/longrange_page.py
"""

import json
from pathlib import Path

import numpy as np

from walksum.paper.longrange.bench import markdown, read_records
from walksum.paper.report.marks import fill_marks, markdown_table

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


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    text = fill_marks(text, "long range", markdown(read_records(ROOT / "results/longrange")))
    return fill_marks(text, "links", links())


if __name__ == "__main__":
    path = ROOT / "docs" / "longrange.md"
    path.write_text(updated(path.read_text()))
