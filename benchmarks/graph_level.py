"""examples/graph_classification.py with several seeds: accuracies of the models on whole graphs.

python -m benchmarks.graph_level [--seeds 3] [--depths 2 12 32] [--out results/pyg/graph_level.jsonl]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import records

EXAMPLE = Path(__file__).parent.parent / "examples" / "graph_classification.py"
LINE = re.compile(r"(.+): ([0-9.]+)% of 200 new graphs")


def run(seed: int, depths: list[int]) -> dict[str, float]:
    """What the example prints, in a process of its own; ``depths`` are numbers of layers of GCN."""
    command = [sys.executable, str(EXAMPLE), *map(str, [seed, *depths])]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {found[1]: float(found[2]) for found in LINE.finditer(text)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 12, 32])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = [{"seed": seed, **run(seed, args.depths)} for seed in range(args.seeds)]
    for row in rows:
        print(row)
    records.write_lines(args.out, [{"commit": records.commit()}, *rows])


if __name__ == "__main__":
    main()
