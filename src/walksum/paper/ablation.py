"""What a cell of Table 1 owes to each choice the paper leaves open: one choice changed at a time, a few seeds each.

    python -m walksum.paper.ablation --dataset cora --model glt-pairwise-normal-learned --runs 5

Trains what the store lacks and prints a table; several of these commands may share a store.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from walksum.paper.runs import cell_data, model_factory, train_cell
from walksum.paper.sweep.local import LocalEngine
from walksum.paper.sweep.record import cells_of
from walksum.paper.sweep.spec import RunSpec
from walksum.paper.sweep.store import Store
from walksum.paper.sweep.sweep import Sweep
from walksum.paper.sweep.work import WorkerSettings
from walksum.paper.variants import OPTION, VARIANTS, runs_of, variant_of

LEARNED_PN, LEARNED_DD = "glt-pairwise-normal-learned", "glt-diagonally-dominant-learned"
# the cells of Table 1 that stay below the paper
CELLS = {
    "cora": (LEARNED_PN, LEARNED_DD),
    "citeseer": (LEARNED_PN, LEARNED_DD),
    "pubmed": (LEARNED_PN, "glt-pairwise-normal-fixed"),
    **dict.fromkeys(("texas", "wisconsin", "cornell"), ("cgnn", "gde")),
}
STORE = Path("results/ablation")


def train_variants(specs: Sequence[RunSpec], *, device: str = "cpu", root: str | None = None, **options: Any) -> None:
    """As :func:`walksum.paper.runs.train_runs`, for the runs of one variant of one cell."""
    data, variant = cell_data(specs, device, root), VARIANTS[variant_of(specs[0])]
    data = replace(data, x=variant.features(data.x), edges=variant.edges(data.edges))
    plain = replace(specs[0], options=tuple(pair for pair in specs[0].options if pair[0] != OPTION))
    train_cell(specs, data, model_factory(plain, data, variant.model), **options)


def main() -> None:
    args = _arguments()
    groups = list(_groups(args))
    store, specs = Store(args.out), [spec for group in groups for spec in group]
    store.make()
    engine = LocalEngine(WorkerSettings(str(args.out.absolute()), args.device, trainer=train_variants), args.workers)
    Sweep(specs, store, engine, time_limit=args.time_limit, on_note=print).run()
    for group in groups:
        ((model, dataset), cell), *_ = cells_of(group, store.latest()).items()
        print(f"| {dataset} | {model} | {variant_of(group[0])} | {cell} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", action="append", choices=list(CELLS), help="may be given several times, as --model and --variant")
    add("--model", action="append", help="rows of Table 1; by default those that stay below the paper")
    add("--variant", action="append", choices=list(VARIANTS), help="only these")
    add("--runs", type=int, default=5)
    add("--max-epochs", type=int, default=2000)
    add("--device", default="cpu")
    add("--workers", type=int, default=1, help="processes that train at a time")
    add("--time-limit", type=float, help="begin nothing new after so many seconds")
    add("--out", type=Path, default=STORE, help="store of the records")
    return parser.parse_args()


def _groups(args: argparse.Namespace) -> Iterator[list[RunSpec]]:
    for dataset in args.dataset or CELLS:
        for model in args.model or CELLS[dataset]:
            for name in args.variant or VARIANTS:
                if VARIANTS[name].suits(model):
                    yield runs_of(name, model, dataset, args.runs, max_epochs=args.max_epochs)


if __name__ == "__main__":
    main()
