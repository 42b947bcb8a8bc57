"""What an exact rule for ties between epochs changes in Table 1: ``python scripts/ties.py``.

The runs of results/table1 summed n-ths for a validation accuracy, so that equal counts of nodes could differ in their
last bit and hide a tie, which the lower validation loss should break. results/ties holds some of them again, with
counts divided.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

from walksum.paper.sweep.store import read_records


def gaps() -> dict[str, list[float]]:
    """Test accuracy in points, with the exact rule less without, of each run of both stores, by cell."""
    before, found = {record.spec: record for record in read_records("results/table1")}, defaultdict(list)
    for again in read_records("results/ties"):
        if again.outcome == "ok":
            gap = 100 * (again.test_accuracy - before[again.spec].test_accuracy)
            found[f"{again.spec.model} on {again.spec.dataset}"].append(gap)
    return found


def said(name: str, gaps: list[float]) -> str:
    error = statistics.stdev(gaps) / len(gaps) ** 0.5
    return f"{name}: {statistics.mean(gaps):+.2f} ± {error:.2f} points ({len(gaps)} runs)"


def main() -> None:
    cells = gaps()
    for name in sorted(cells):
        print(said(name, cells[name]))
    print(said("all", [gap for cell in cells.values() for gap in cell]))


if __name__ == "__main__":
    main()
