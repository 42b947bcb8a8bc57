"""Train the demo on 20 draws of ten labels per class, one line of results/demo/draws.jsonl per draw; resumable.

    python scripts/digits_draws.py [draws]

The draws are the splits of the demo for the seeds 0 to 19: 100 images to learn from, 200 that choose, 1,497 that
are counted once. Label propagation reads the same 100 labels and chooses its reach on the same 200 images.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from walksum._files import write_file
from walksum.data import load
from walksum.data.problem import from_data
from walksum.workflow.comparisons import RowBudget
from walksum.workflow.fit import fit_model
from walksum.workflow.job import Job, default_width
from walksum.workflow.prepare import prepare_data
from walksum.workflow.rows import SCALES, label_propagation

FILE = Path(__file__).parent.parent / "results" / "demo" / "draws.jsonl"


def main(draws: int) -> None:
    records = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
    problem = from_data("digits", load("digits"))
    for seed in range(len(records), draws):
        start = time.process_time()
        job = Job(seed=seed, hidden=default_width(problem), device="cpu")
        prepared = prepare_data(job, problem)
        _, outcome = fit_model(job, prepared)
        test = prepared.split.test
        row = RowBudget(prepared, prepared.split.train, math.inf, len(SCALES))
        guess = row.tuned(SCALES, label_propagation).argmax(1)
        spread = float((guess == problem.y)[test].double().mean())
        record = {"seed": seed, "glt": outcome.best.test_score, "validation": outcome.best.val_score}
        record |= {"label propagation": spread, "cpu_seconds": round(time.process_time() - start, 1)}
        records.append(record)
        write_file(FILE, "".join(json.dumps(each) + "\n" for each in records))
        print(record, flush=True)
    for name in ("glt", "label propagation"):
        values = 100 * np.array([record[name] for record in records])
        print(f"{name}: {values.mean():.2f} +- {values.std(ddof=1):.2f} % over {len(values)} draws")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
