"""What a row of Table 1 owes to each choice the paper leaves open: one choice changed at a time, a few seeds each.

    python -m walksum.experiments.ablation --dataset cora --model glt-pairwise-normal-learned --runs 5

Appends one record a run to ``results/ablation/DATASET.jsonl`` (runs that are there are not repeated) and prints a
table. What is no sensible argument of a model is changed here, on the finished model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from walksum.designs import Design
from walksum.experiments.loop import train_team
from walksum.experiments.record import RunRecord
from walksum.experiments.sparse_input import use_sparse_input
from walksum.experiments.spec import RunSpec, paper_spec
from walksum.experiments.workbench import Workbench, make_model, workbench
from walksum.graph import Graph
from walksum.nn import GLTBlock, GLTConv
from walksum.nn.dropout import Dropout
from walksum.precision import Precision

OPTION = "ablation"  # the name under which a variant stands among the options of its runs


def _same(thing: Any) -> Any:
    return thing


@dataclass(frozen=True)
class Variant:
    """A change of the settings, of the features, or of the finished model."""

    settings: dict[str, Any] = field(default_factory=dict)
    features: Callable[[Tensor], Tensor] = _same
    model: Callable[[nn.Module], nn.Module] = _same


def row_normalised(x: Tensor) -> Tensor:
    return x / x.sum(1, keepdim=True).clamp_min(1e-12)


def glorot(model: nn.Module) -> nn.Module:
    for layer in _all(model, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return model


def without_input_dropout(model: nn.Module) -> nn.Module:
    model.dropout.p = 0.0  # type: ignore[union-attr]
    return model


def only_input_dropout(model: nn.Module) -> nn.Module:
    for block in _all(model, GLTBlock):
        for layer in _all(block, Dropout):
            layer.p = 0.0
    return model


def heads_in_full_width(concat: bool) -> Callable[[nn.Module], nn.Module]:
    """Every head as wide as the embedding; merged by a Linear from all of them, or averaged."""

    def change(model: nn.Module) -> nn.Module:
        for block in _all(model, GLTBlock):
            old, width = block.mix, block.mix.in_channels
            block.mix = GLTConv(width, width, old.heads, design=_name(old.design), coupling=old.design.coupling)
            block.mix.on_nonconverged = "ignore"
            block.mix_norm = nn.LayerNorm(width)
            block.merge = nn.Linear(old.heads * width, width) if concat else _MeanOfHeads(old.heads, width)
        return model

    return change


class _MeanOfHeads(nn.Module):
    def __init__(self, heads: int, width: int):
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.unflatten(-1, (self.heads, -1)).mean(-2))


def without_norm_before_mixing(model: nn.Module) -> nn.Module:
    for block in _all(model, GLTBlock):
        block.add_module("norm", nn.Identity())
    return model


def without_norm_after_mixing(model: nn.Module) -> nn.Module:
    for block in _all(model, GLTBlock):
        block.add_module("mix_norm", nn.Identity())
    return model


def without_residual(model: nn.Module) -> nn.Module:
    for block in _all(model, GLTBlock):
        block.forward = _mixing_alone.__get__(block)
    return model


def _mixing_alone(self: GLTBlock, x: Tensor, edge_index: Any, edge_weight: Any = None, features: Any = None) -> Tensor:
    mu = self.mix(self.norm(x), edge_index, edge_weight, features).view(-1, self.mix.heads, self.mix.out_channels)
    x = self.merge(self.dropout(nn.functional.leaky_relu(self.mix_norm(mu)).flatten(1)))
    return x + self.ffn(x)


def couplings_times(factor: float) -> Callable[[nn.Module], nn.Module]:
    """Shrink the off-diagonals of the normalised J: a larger diagonal in other words."""

    def change(model: nn.Module) -> nn.Module:
        for mixer in _all(model, GLTConv):
            mixer.design = _Scaled(mixer.design, factor)
        return model

    return change


class _Scaled(Design):
    def __init__(self, design: Design, factor: float):
        super().__init__(design.coupling)
        self.design, self.factor = design, factor
        self.reads_input = design.reads_input

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        J = self.design(graph, x, h)
        return Precision(graph, J.diag, self.factor * J.off)


def not_normalised(model: nn.Module) -> nn.Module:
    for mixer in _all(model, GLTConv):
        mixer.design = _Raw(mixer.design)
    return model


class _Raw(Design):
    """J as it stands before the symmetric normalisation that ends every learned design."""

    def __init__(self, design: Design):
        super().__init__(design.coupling)
        self.design = design

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        def keep(graph: Graph, diag: Tensor, off: Tensor) -> Precision:
            return Precision(graph, torch.where(diag > 0, diag, 1.0), off)

        with mock.patch.object(sys.modules[type(self.design).__module__], "normalise", keep):
            return self.design(graph, x, h)


def _all(model: nn.Module, kind: type) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]


def _name(design: Design) -> str:
    kind = type(design).__name__
    return next(name for part, name in NAMES.items() if part in kind)


NAMES = {"PairwiseNormal": "pairwise-normal", "DiagonallyDominant": "diagonally-dominant", "Laplacian": "laplacian"}

VARIANTS: dict[str, Variant] = {
    "as in the table": Variant(),
    "features row-normalised": Variant(features=row_normalised),
    "Glorot initialisation": Variant(model=glorot),
    "no dropout": Variant({"dropout": 0.0}),
    "dropout 0.3": Variant({"dropout": 0.3}),
    "dropout on the input alone": Variant(model=only_input_dropout),
    "no dropout on the input": Variant(model=without_input_dropout),
    "one head of 64": Variant({"heads": (1, 1)}),
    "8 heads of 64": Variant(model=heads_in_full_width(concat=True)),
    "8 heads of 64, averaged": Variant(model=heads_in_full_width(concat=False)),
    "one layer": Variant({"layers": 1}),
    "three layers": Variant({"layers": 3}),
    "chosen by validation loss": Variant({"select": "loss"}),
    "learning rate 3e-3": Variant({"lr": 3e-3}),
    "learning rate 1e-2": Variant({"lr": 1e-2}),
    "patience 500": Variant({"patience": 500}),
    "couplings halved": Variant(model=couplings_times(0.5)),
    "couplings times 0.9": Variant(model=couplings_times(0.9)),
    "J not normalised": Variant(model=not_normalised),
    "no norm before mixing": Variant(model=without_norm_before_mixing),
    "no norm after mixing": Variant(model=without_norm_after_mixing),
    "no residual around mixing": Variant(model=without_residual),
}


@dataclass(frozen=True)
class VariantBench(Workbench):
    variant: Variant = field(default_factory=Variant)

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        plain = replace(self.cell, options=tuple(pair for pair in self.cell.options if pair[0] != OPTION))
        model = make_model(plain, self.x.size(1), self.num_classes, self.x.size(0))
        return use_sparse_input(self.variant.model(model).to(self.x), self.x)


def runs_of(name: str, model: str, dataset: str, runs: int) -> list[RunSpec]:
    options = ((OPTION, name),)
    return [paper_spec(model, dataset, seed, options=options, **VARIANTS[name].settings) for seed in range(runs)]


def train_variant(name: str, specs: list[RunSpec], device: str = "cpu") -> Iterator[RunRecord]:
    if not specs:
        return
    variant, plain = VARIANTS[name], workbench(specs, device, None)
    bench = VariantBench(**{**vars(plain), "x": variant.features(plain.x), "variant": variant})
    stacked = bench.device.type != "cpu" and len(specs) > 1
    for team in [specs] if stacked else [[spec] for spec in specs]:
        yield from (event for event in train_team(bench, team, stacked) if isinstance(event, RunRecord))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--model", action="append", help="row of Table 1; may be given several times")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="only these")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/ablation"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{args.dataset}.jsonl"
    known = _read(file)
    for name in args.variant or VARIANTS:
        for model in args.model or ("glt-pairwise-normal-learned", "glt-diagonally-dominant-learned"):
            specs = runs_of(name, model, args.dataset, args.runs)
            with torch.random.fork_rng():
                for record in train_variant(name, [spec for spec in specs if spec.key not in known], args.device):
                    known[record.key] = record
                    with file.open("a") as out:
                        out.write(record.to_line() + "\n")
            print(_row(name, model, [known[spec.key] for spec in specs]), flush=True)


def _read(file: Path) -> dict[str, RunRecord]:
    lines = file.read_text().splitlines() if file.is_file() else []
    return {record.key: record for record in map(RunRecord.from_line, lines)}


def _row(name: str, model: str, records: list[RunRecord]) -> str:
    scores = [100 * record.test_accuracy for record in records]
    spread = stdev(scores) if len(scores) > 1 else 0.0
    epochs, seconds = mean(record.epochs for record in records), sum(record.seconds for record in records)
    return f"| {name} | {model} | {mean(scores):.1f} ± {spread:.1f} | {epochs:.0f} | {seconds:.0f} s |"


if __name__ == "__main__":
    main()
