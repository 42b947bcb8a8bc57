"""The rows of the tables by name: what model a name means, and the paper's settings for it."""

from __future__ import annotations

from dataclasses import dataclass

from walksum.designs import NAMES
from walksum.paper.models import BASELINES

DATASETS = ("texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")  # the paper's columns, in its order

HEADED = ("gat", "sat", "graphormer")  # baselines with heads


@dataclass(frozen=True)
class Row:
    """One model of a table.

    Args:
        name: as in records and on the command line.
        title: as in the printed table.
        group: "baseline", "glt" (the paper's six), "sign" (the same with the other sign) or "extra".
        baseline: name in BASELINES, or None for a GLT.
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
    return Row(name, title, group, baseline=name, lr=BASELINES[name].lr)


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
