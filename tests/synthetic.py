"""Records of runs that never ran: accuracies drawn by seed, or given."""

import random

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import paper_spec

TEST_NODES = {"texas": 37, "wisconsin": 51, "cornell": 37}


def run(model, dataset, seed, accuracy, outcome="ok", split=None, full=False, **changes):
    """A record with this test accuracy in %; ``full``: with curves."""
    spec = paper_spec(model, dataset, seed, **changes)
    curve = tuple((e, 1.0, 1.0, accuracy / 100, accuracy / 100) for e in range(1, 30 + seed, 4)) if full else ()
    steps = tuple((e, 40, 20) for e in range(1, 30, 4)) if full and model.startswith("glt") else ()
    return RunRecord(
        spec,
        outcome,
        test_accuracy=accuracy / 100,
        val_accuracy=accuracy / 100,
        seconds=1.0 + seed,
        curve=curve,
        steps_by_epoch=steps,
        split=f"{dataset}-{seed}" if split is None else split,
    )


def draw(model, dataset, runs=8, mean=75.0, std=3.0, **options):
    """Runs with seeds 0, 1, ...; accuracies are whole numbers of test nodes."""
    chance, nodes = random.Random(f"{model} {dataset}"), TEST_NODES.get(dataset, 1000)
    scores = [round(nodes * chance.gauss(mean, std) / 100) / nodes for _ in range(runs)]
    return [run(model, dataset, seed, 100 * score, **options) for seed, score in enumerate(scores)]


def write(folder, records):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_text("".join(record.to_line() + "\n" for record in records))
    return folder
