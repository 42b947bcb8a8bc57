"""Train the demo on 20 draws of ten labels per class, one line of results/demo/draws.jsonl per draw; resumable.

    python scripts/digits_draws.py [draws] [first]

The draws are the splits of the demo for the seeds 0 to 19: 100 images to learn from, 200 that choose, 1,497 that
are counted once. Label propagation reads the same 100 labels and chooses its reach on the same 200 images. The demo's
probabilities are propagated once more, by a scale that the same 200 images choose; "glt alone" is without that.
Draws from another first one on are kept in a file of their own: choices are made there.
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
from walksum.workflow.baselines import SCALES, label_propagation
from walksum.workflow.comparisons import RowBudget
from walksum.workflow.fit import fit_model, predict, with_smoothing
from walksum.workflow.job import Job, default_width
from walksum.workflow.prepare import prepare_data

FOLDER = Path(__file__).parent.parent / "results" / "demo"


def main(draws: int, first: int) -> None:
    file = FOLDER / ("draws.jsonl" if first == 0 else f"draws-{first}.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    problem = from_data("digits", load("digits"))
    for seed in range(first + len(records), first + draws):
        start = time.process_time()
        job = Job(seed=seed, hidden=default_width(problem), device="cpu")
        prepared = prepare_data(job, problem)
        model, outcome = fit_model(job, prepared)
        own, test = with_smoothing(job, prepared, model).encoding, prepared.split.test

        def right(output, nodes=test):
            return float((output.argmax(1) == problem.y)[nodes].double().mean())

        row = RowBudget(prepared, prepared.split.train, math.inf, len(SCALES))
        record = {"seed": seed, "glt": right(predict(model, prepared.x, problem, own)), "smoothing": own.smoothing}
        record |= {"glt alone": outcome.best.test_score, "validation": outcome.best.val_score}
        record |= {"label propagation": right(row.tuned(SCALES, label_propagation))}
        record |= {"cpu_seconds": round(time.process_time() - start, 1)}
        records.append(record)
        write_file(file, "".join(json.dumps(each) + "\n" for each in records))
        print(record, flush=True)
    for name in ("glt", "glt alone", "label propagation"):
        values = 100 * np.array([record[name] for record in records])
        print(f"{name}: {values.mean():.2f} +- {values.std(ddof=1):.2f} % over {len(values)} draws")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
