"""The rows of the tables by name: the model, the paper's settings for it, and its numbers as data."""

from __future__ import annotations

from dataclasses import dataclass

from walksum.designs import NAMES
from walksum.solvers import GaBP
from walksum.training.models import MODELS

DATASETS = ("texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")  # the paper's columns, in its order

HEADED = ("gat", "sat", "graphormer")  # baselines with heads
PAPERS_GABP = GaBP(damping=0.5, tol=1e-6, max_steps=1000, stop="messages")


@dataclass(frozen=True)
class Row:
    """One model of a table.

    Args:
        name: as in records and on the command line.
        title: as in the printed table.
        group: "baseline", "glt" (the paper's six), "sign" (the same with the other sign) or "extra".
        baseline: name in :data:`walksum.training.models.MODELS`, or None for a GLT.
        design, learned, coupling: of a GLT; coupling None is the paper's sign.
        lr, patience: of the paper's recipe for it.
    """

    name: str
    title: str
    group: str
    baseline: str | None = None
    design: str | None = None
    learned: bool = False
    coupling: str | None = None
    lr: float = 1e-3
    patience: int = 100

    def takes(self, setting: str) -> bool:
        """Whether this setting of a run means anything to the model."""
        if self.baseline is None:
            return True
        return setting not in ("layers", "solver") and (setting != "heads" or self.baseline in HEADED)


def _glt(design: str, learned: bool, coupling: str | None = None) -> Row:
    kind = "learned" if learned else "fixed"
    title = f"({kind[0].upper()}) {design.replace('-', ' ').title()}"
    return Row(
        name=f"glt-{design}-{kind}" + (f"-{coupling}" if coupling else ""),
        title=title + (f", {coupling}" if coupling else ""),
        group="sign" if coupling else "glt",
        design=design,
        learned=learned,
        coupling=coupling,
        patience=200 if design == "laplacian" and not learned else 100,
    )


def _baseline(name: str, title: str, group: str = "baseline") -> Row:
    return Row(name, title, group, baseline=name, lr=MODELS[name].lr)


_ROWS = [
    _baseline("gcn", "GCN"),
    _baseline("gat", "GAT"),
    _baseline("sage", "GraphSAGE"),
    _baseline("sat", "SAT"),
    _baseline("graphormer", "Graphormer"),
    _baseline("gde", "GDE"),
    _baseline("cgnn", "CGNN"),
    *(_glt(design, learned) for learned in (True, False) for design in NAMES),
    # the sign the paper did not try, for the designs where it has a choice
    _glt("pairwise-normal", True, "attractive"),
    _glt("diagonally-dominant", True, "attractive"),
    _glt("pairwise-normal", False, "attractive"),
    _glt("diagonally-dominant", False, "repulsive"),
    # rows the paper lacks
    _baseline("cgnn-weights", "CGNN with weights", "extra"),
    Row("graphormer-1e-3", "Graphormer, lr 1e-3", "extra", baseline="graphormer", lr=1e-3),
    _baseline("mlp", "MLP", "extra"),
    _baseline("appnp", "APPNP", "extra"),
    _baseline("gcnii", "GCNII", "extra"),
    _baseline("gprgnn", "GPR-GNN", "extra"),
    _baseline("h2gcn", "H2GCN", "extra"),
    _baseline("acm-gcn", "ACM-GCN", "extra"),
]
ROWS: dict[str, Row] = {row.name: row for row in _ROWS}


def row_of(name: str) -> Row:
    if name not in ROWS:
        raise ValueError(f"model={name!r} is unknown; choose one of {', '.join(ROWS)}")
    return ROWS[name]


PAPERS_HOMOPHILY = dict(zip(DATASETS, (0.11, 0.21, 0.30, 0.81, 0.74, 0.80), strict=True))
# the share of edges, as the published files list them, that join nodes of one class; a test measures it again
HOMOPHILY = dict(zip(DATASETS, (0.108, 0.196, 0.305, 0.810, 0.736, 0.802), strict=True))

_TABLE1 = {
    "gcn": "60.6 5.3, 61.0 0.6, 62.5 0.9, 80.2 0.3, 65.3 0.6, 75.6 0.3",
    "gat": "48.6 0.0, 64.5 2.5, 63.4 5.5, 76.6 1.1, 64.6 1.8, 74.0 0.5",
    "sage": "78.4 0.0, 85.0 1.0, 76.9 1.8, 76.9 0.4, 63.4 1.6, 71.0 0.4",
    "sat": "77.8 2.6, 82.7 2.4, 77.9 2.6, 53.5 1.4, 47.6 2.2, OOM",
    "graphormer": "69.4 7.6, 65.2 4.3, 57.7 7.0, 31.7 2.3, 28.7 3.4, OOM",
    "gde": "57.8 6.2, 55.9 1.6, 60.0 2.9, 80.1 1.3, 65.1 1.6, 75.0 0.9",
    "cgnn": "52.3 1.7, 75.2 1.8, 66.8 1.2, 73.9 0.2, 65.2 0.5, 74.9 0.4",
    "glt-pairwise-normal-learned": "82.1 4.2, 78.1 2.2, 75.5 4.3, 46.4 1.2, 39.0 1.2, 64.1 1.3",
    "glt-diagonally-dominant-learned": "83.7 3.7, 76.5 1.8, 74.9 4.6, 47.7 1.3, 41.9 1.5, 62.3 1.5",
    "glt-laplacian-learned": "61.1 7.3, 76.1 3.1, 63.7 3.9, 80.4 1.3, 64.5 1.3, 74.2 1.4",
    "glt-pairwise-normal-fixed": "82.7 3.4, 76.8 1.9, 80.2 4.0, 44.8 1.0, 39.4 1.4, 66.0 1.7",
    "glt-diagonally-dominant-fixed": "56.2 7.0, 68.4 3.0, 57.0 5.2, 80.6 1.2, 65.1 1.4, 75.3 0.9",
    "glt-laplacian-fixed": "77.8 10.3, 83.1 2.0, 81.3 2.3, 71.9 1.4, 66.0 1.8, 76.8 1.0",
}


def _cell(text: str) -> tuple[float, float] | None:
    if text == "OOM":
        return None
    mean, std = map(float, text.split())
    return mean, std


# model -> dataset -> (mean, std), None where the paper ran out of memory; 30 runs per cell
TABLE1: dict[str, dict[str, tuple[float, float] | None]] = {
    model: {dataset: _cell(text) for dataset, text in zip(DATASETS, row.split(", "), strict=True)}
    for model, row in _TABLE1.items()
}
PAPER_RUNS = 30

# model -> (forward, backward) ranges of GaBP iterations; None as upper end: more than the lower
TABLE2: dict[str, tuple[tuple[int, int | None], tuple[int, int | None]]] = {
    "glt-pairwise-normal-learned": ((20, 40), (15, 25)),
    "glt-diagonally-dominant-learned": ((25, 100), (20, 40)),
    "glt-laplacian-learned": ((45, 65), (15, 25)),
    "glt-pairwise-normal-fixed": ((20, 30), (15, 20)),
    "glt-diagonally-dominant-fixed": ((70, 200), (20, 25)),
    "glt-laplacian-fixed": ((1000, None), (1000, None)),
}
