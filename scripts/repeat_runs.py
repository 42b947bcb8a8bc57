"""Train some recorded runs again and compare: the split must be the same, the numbers the same within noise.

    python scripts/repeat_runs.py --dataset texas --dataset cornell --count 18
    python scripts/repeat_runs.py --dataset cora --model gcn --model glt-laplacian-fixed --count 2
    python scripts/repeat_runs.py --again results/ties

Runs are drawn evenly from the store by a fixed seed. A run that was recorded alone on a CPU draws the same dropout
masks again and should repeat to a few digits; one recorded in a batch or on a GPU draws others, so single numbers
differ by the noise of a run, and only the mean of the differences, beside its standard error, says something.
``--again`` trains nothing: it compares a second store, cell by cell. results/ties holds runs of results/table1 once
more, with an exact rule for ties between epochs: the first ones summed n-ths for a validation accuracy, so that equal
counts of nodes could differ in their last bit and hide a tie, which the lower validation loss should break.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

from walksum.paper.runs import train_runs
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import read_records


def main() -> None:
    args = _arguments()
    if args.again is not None:
        compare_stores(args.store, args.again)
        return
    pairs = []
    print(f"{'model':36} {'dataset':9} seed  recorded (epoch)  again (epoch)  split  recorded as")
    for old in pick(args):
        new = again(old, args.device)
        pairs.append((old, new))
        same = "equal" if old.split == new.split else "OTHER"
        print(
            f"{old.spec.model:36} {old.spec.dataset:9} {old.spec.seed:4}  {100 * old.test_accuracy:8.1f} "
            f"({old.best_epoch:4})  {100 * new.test_accuracy:8.1f} ({new.best_epoch:4})  {same}  "
            f"batch of {old.batch}, {old.device}",
            flush=True,
        )
    print(summary(pairs))
    if any(old.split != new.split for old, new in pairs):
        raise SystemExit("a split differs from the recorded one")


def pick(args: argparse.Namespace) -> list[RunRecord]:
    """Runs of the store that ended well, of these datasets and models, drawn by a fixed seed."""
    fitting = [
        record
        for record in read_records(args.store)
        if record.outcome == "ok"
        and record.spec.dataset in args.dataset
        and (not args.model or record.spec.model in args.model)
    ]
    if len(fitting) < args.count:
        raise SystemExit(f"--count {args.count}: the store holds {len(fitting)} such runs")
    return random.Random(args.draw).sample(fitting, args.count)


def again(old: RunRecord, device: str) -> RunRecord:
    records: list[RunRecord] = []
    train_runs([old.spec], device=device, batched=False, on_record=records.append)
    return records[0]


def summary(pairs: list[tuple[RunRecord, RunRecord]]) -> str:
    gaps = [100 * (new.test_accuracy - old.test_accuracy) for old, new in pairs]
    error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    equal = sum(old.split == new.split for old, new in pairs)
    return (
        f"{len(pairs)} runs: {equal} splits equal; again minus recorded: {fmean(gaps):+.2f} points, standard error "
        f"{error:.2f}, largest {max(gaps, key=abs):+.1f}"
    )


def compare_stores(first: Path, second: Path) -> None:
    """The runs of the second store that ended well beside the same ones of the first, by cell and together."""
    before, cells = {record.spec: record for record in read_records(first)}, defaultdict(list)
    for new in read_records(second):
        if new.outcome == "ok":
            cells[f"{new.spec.model} on {new.spec.dataset}"].append((before[new.spec], new))
    for name in sorted(cells):
        print(f"{name}: {summary(cells[name])}")
    print(f"all: {summary([pair for cell in cells.values() for pair in cell])}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("results/table1"))
    parser.add_argument("--again", type=Path, help="a store of the same runs, made again")
    parser.add_argument("--dataset", action="append", default=[])
    parser.add_argument("--model", action="append")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--draw", type=int, default=0, help="seed of the choice of runs")
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
