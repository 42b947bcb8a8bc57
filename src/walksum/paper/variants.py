"""The choices the paper leaves open, each as a change of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch_geometric.utils import to_undirected

from walksum.designs import NAMES
from walksum.nn import GLT, GLTBlock
from walksum.paper import changes
from walksum.paper.changes import Change
from walksum.paper.rows import row_of
from walksum.paper.sweep.spec import RunSpec, paper_spec
from walksum.solvers import GaBP

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


PAPERS_GABP = GaBP(damping=0.5, tol=1e-6, max_steps=1000, stop="messages")

VARIANTS: dict[str, Variant] = {
    "as in the table": Variant(baselines=CGNN + GDE),
    "learning rate 1e-2": Variant({"lr": 1e-2}),
    "learning rate 3e-3": Variant({"lr": 3e-3}),
    "patience 500": Variant({"patience": 500}, baselines=GDE),
    "chosen by validation loss": Variant({"select": "loss"}, baselines=CGNN + GDE),
    "no weight decay": Variant({"weight_decay": 0.0}),
    "no dropout": Variant({"dropout": 0.0}, baselines=CGNN + GDE),
    "dropout 0.3": Variant({"dropout": 0.3}),
    "dropout on the input alone": Variant(model=changes.only_input_dropout),
    "no dropout on the input": Variant(model=changes.without_input_dropout),
    "features row-normalised": Variant(features=row_normalised, baselines=CGNN + GDE),
    "Glorot initialisation": Variant(model=changes.glorot),
    "one layer": Variant({"layers": 1}),
    "three layers": Variant({"layers": 3}),
    "one head of 64": Variant({"heads": (1, 1)}, learned=True),
    "8 heads of 64": Variant(model=changes.heads_in_full_width(concat=True), learned=True),
    "8 heads of 64, averaged": Variant(model=changes.heads_in_full_width(concat=False), learned=True),
    "feed-forward width 256": Variant(options={"ffn_channels": 256}),
    "no norm before mixing": Variant(model=changes.without("norm", GLTBlock)),
    "no norm after mixing": Variant(model=changes.without("mix_norm", GLTBlock)),
    "no norm before the output": Variant(model=changes.without("norm", GLT)),
    "no residual around mixing": Variant(model=changes.without_residual),
    "h without activation": Variant(model=changes.linear_observation),
    "no gradient through J": Variant(model=changes.given_precision, learned=True),
    "solved by the paper's GaBP": Variant(model=changes.on_mixers(solver=PAPERS_GABP)),
    "couplings times 0.9": Variant(model=changes.couplings_times(0.9)),
    "couplings halved": Variant(model=changes.couplings_times(0.5)),
    "epsilon 0.9999": Variant(model=changes.on_designs(epsilon=0.9999), designs=("pairwise-normal",)),
    "confidence times ten": Variant(
        model=changes.confidence_times(10.0), designs=("diagonally-dominant",), learned=True
    ),
    "J not normalised": Variant(model=changes.not_normalised, learned=True),
}

VARIANTS |= {
    "end time 1": Variant(options={"time": 1.0}, designs=(), baselines=CGNN),
    "end time 2": Variant(options={"time": 2.0}, designs=(), baselines=CGNN),
    "end time 4": Variant(options={"time": 4.0}, designs=(), baselines=CGNN),
    "edges as published": Variant(model=changes.directed(turned=False), designs=(), baselines=CGNN),
    "published edges turned round": Variant(model=changes.directed(turned=True), designs=(), baselines=CGNN),
    "edges made undirected": Variant(edges=to_undirected, designs=(), baselines=GDE),
    "edges turned round": Variant(edges=lambda edge_index: edge_index.flip(0), designs=(), baselines=GDE),
}


def runs_of(name: str, model: str, dataset: str, runs: int, **settings: Any) -> list[RunSpec]:
    """The first runs of a cell with this change, ``settings`` on top of it."""
    variant = VARIANTS[name]
    options = (*variant.options.items(), (OPTION, name))
    both = {"options": options, **variant.settings, **settings}
    return [paper_spec(model, dataset, seed, **both) for seed in range(runs)]


def variant_of(spec: RunSpec) -> str:
    return str(dict(spec.options)[OPTION])
