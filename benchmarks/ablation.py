"""What a cell of Table 1 owes to each choice the paper leaves open: one choice changed at a time, a few seeds each.

    python -m benchmarks.ablation --dataset cora --model glt-pairwise-normal-learned --runs 5

Trains what the store lacks and prints a table; several of these commands may share a store.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.utils import to_undirected

from benchmarks import ablation_changes as changes
from benchmarks.ablation_changes import Change
from walksum.designs import NAMES
from walksum.paper.rows import PAPERS_GABP, row_of
from walksum.paper.runs import cell_data, model_factory, train_cell
from walksum.paper.sweep.local_engine import LocalEngine
from walksum.paper.sweep.record import cells_of
from walksum.paper.sweep.spec import RunSpec, paper_spec
from walksum.paper.sweep.store import Store
from walksum.paper.sweep.sweep import Sweep
from walksum.paper.sweep.worker import WorkerSettings

OPTION = "ablation"  # the name under which a variant stands among the options of its runs

CGNN, GDE = ("cgnn",), ("gde",)


def _same(thing: Any) -> Any:
    return thing


@dataclass(frozen=True)
class Variant:
    """One change.

    Args:
        settings: of the run; options: keyword arguments of the model.
        features, edges, model: what becomes of the features, of the edges, and of the model once it is made.
        designs: those it makes sense for; learned: whether only where J is learned.
        baselines: the same of those.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    features: Callable[[Tensor], Tensor] = _same
    edges: Callable[[Any], Any] = _same
    model: Change = _same
    designs: tuple[str, ...] = NAMES
    learned: bool = False
    baselines: tuple[str, ...] = ()

    def suits(self, model: str) -> bool:
        row = row_of(model)
        if row.baseline:
            return row.baseline in self.baselines
        return row.design in self.designs and (row.learned or not self.learned)


def row_normalised(x: Tensor) -> Tensor:
    return x / x.sum(1, keepdim=True).clamp_min(1e-12)


VARIANTS: dict[str, Variant] = {
    "as in the table": Variant(baselines=CGNN + GDE),
    "learning rate 1e-2": Variant({"lr": 1e-2}),
    "learning rate 3e-3": Variant({"lr": 3e-3}),
    "patience 500": Variant({"patience": 500}, baselines=GDE),
    "chosen by validation loss": Variant({"select": "loss"}, baselines=CGNN + GDE),
    "no dropout": Variant({"dropout": 0.0}, baselines=CGNN + GDE),
    "dropout on the input alone": Variant(model=changes.only_input_dropout),
    "no dropout on the input": Variant(model=changes.without_input_dropout),
    "features row-normalised": Variant(features=row_normalised, baselines=CGNN + GDE),
    "Glorot initialisation": Variant(model=changes.glorot),
    "one layer": Variant({"layers": 1}),
    "one head of 64": Variant({"heads": (1, 1)}, learned=True),
    "8 heads of 64": Variant(model=changes.heads_in_full_width(concat=True), learned=True),
    "8 heads of 64, averaged": Variant(model=changes.heads_in_full_width(concat=False), learned=True),
    "no norm before mixing": Variant(model=changes.without_norm),
    "no residual around mixing": Variant(model=changes.without_residual),
    "h without activation": Variant(model=changes.linear_observation),
    "no gradient through J": Variant(model=changes.given_precision, learned=True),
    "solved by the paper's GaBP": Variant(model=changes.on_mixers(solver=PAPERS_GABP)),
    "couplings times 0.9": Variant(model=changes.couplings_times(0.9)),
    "couplings halved": Variant(model=changes.couplings_times(0.5)),
    "epsilon 0.9999": Variant(model=changes.on_designs(epsilon=0.9999), designs=("pairwise-normal",)),
    "J not normalised": Variant(model=changes.not_normalised, learned=True),
    "end time 1": Variant(options={"time": 1.0}, designs=(), baselines=CGNN),
    "end time 2": Variant(options={"time": 2.0}, designs=(), baselines=CGNN),
    "edges made undirected": Variant(edges=to_undirected, designs=(), baselines=GDE),
}


def runs_of(name: str, model: str, dataset: str, runs: int, **settings: Any) -> list[RunSpec]:
    """The first runs of a cell with this change, ``settings`` on top of it."""
    variant = VARIANTS[name]
    options = (*variant.options.items(), (OPTION, name))
    both = {"options": options, **variant.settings, **settings}
    return [paper_spec(model, dataset, seed, **both) for seed in range(runs)]


def variant_of(spec: RunSpec) -> str:
    return str(dict(spec.options)[OPTION])


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
    batched = False if args.no_batch else None
    job = WorkerSettings(str(args.out.absolute()), args.device, batched=batched, trainer=train_variants)
    engine = LocalEngine(job, args.workers)
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
    add("--no-batch", action="store_true", help="train runs one after another: a rule to stop then sees one run alone")
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
