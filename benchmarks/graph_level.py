"""examples/graph_classification.py with several seeds: accuracies of the models on whole graphs.

python -m benchmarks.graph_level [--seeds 3] [--out results/pyg/graph_level.jsonl]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import runpy
from pathlib import Path
from unittest import mock

import torch

from benchmarks import records

EXAMPLE = Path(__file__).parent.parent / "examples" / "graph_classification.py"
LINE = re.compile(r"(.+): ([0-9.]+)% of 200 new graphs")


def run(offset: int) -> dict[str, float]:
    """What the example prints when its own seeds are moved by ``offset``."""
    seeded, text = torch.manual_seed, io.StringIO()
    with mock.patch.object(torch, "manual_seed", lambda seed: seeded(seed + offset)), contextlib.redirect_stdout(text):
        runpy.run_path(str(EXAMPLE))
    return {found[1]: float(found[2]) for found in LINE.finditer(text.getvalue())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [{"offset": 100 * k, **run(100 * k)} for k in range(args.seeds)]
    for row in rows:
        print(row)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("".join(json.dumps(row) + "\n" for row in [{"commit": records.commit()}, *rows]))


if __name__ == "__main__":
    main()
