"""What a reader must know to read Table 1 rightly."""

from __future__ import annotations

from collections import Counter
from typing import Any

from walksum.designs import DESIGNS
from walksum.paper.report import compare
from walksum.paper.report.sections import Section
from walksum.paper.rows import DATASETS, HOMOPHILY, PAPERS_HOMOPHILY, ROWS, Row

PROTOCOLS = {
    "random": (
        "The paper's: every run has its own random split with the published numbers of training, validation and test "
        "nodes, classes not balanced. Seed k gives every model the same split, so rows can be compared run by run."
    ),
    "one-split": (
        "One split (the random one of seed 0) for all runs; only the initial weights differ. The spread is that of the "
        "training alone and says nothing about other splits: small standard deviations here are no sign of certainty."
    ),
    **{
        f"one-split-{which}": f"As one-split, with the random split of seed {which}: another split, another table."
        for which in range(1, 5)
    },
    "public": "The splits that come with the data; where there are several folds, fold seed mod folds.",
    "geom-gcn": "Geom-GCN's ten published folds, fold seed mod 10.",
    "balanced": "20 training nodes of each class, then 500 validation and 1000 test nodes in random order.",
}
TESTS = (
    "Wilcoxon's signed-rank test, two-sided, over the seeds that both rows have on the same split; Holm's correction "
    "over the comparisons of a column. The best GLT row is the one with the highest mean on these very test nodes, "
    "which favours it a little."
)


def caption(section: Section) -> str:
    return (
        f"Test accuracy in %, mean ± standard deviation over runs, protocol {section.protocol}. Best in bold, second "
        "best underlined, per dataset over all rows. Below each: the paper's value and our difference from it; "
        "* marks one beyond two standard errors. " + counted(section)
    )


def counted(section: Section) -> str:
    counts = {cell.runs for cell in section.cells.values() if cell.runs}
    return f"{numbered(section.usual_runs, 'run')} per cell" + (
        ", or the number in brackets." if len(counts) > 1 else "."
    )


def numbered(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)


def of(sections: list[Section]) -> list[str]:
    datasets = {dataset for section in sections for dataset in section.datasets}
    models = {model for section in sections for model in section.models}
    found = [
        "Difference and standard error: ours less the paper's; the error is the root of the sum of both variances of "
        "a mean, from both standard deviations, our runs and the paper's 30.",
        "The epoch is chosen by validation accuracy (ties: lower validation loss); the test nodes are not looked at.",
    ]
    found += _homophily(datasets) + _solved(sections) + _capacity(sections) + _recipes(models)
    if {"texas", "cornell"} & datasets:
        found.append(_texas_and_cornell(sections))
    if signs := _signs(models):
        found.append(signs)
    if "glt-diagonally-dominant-fixed" in models:
        found.append(
            "The sign of (F) Diag. Dom. was settled by the paper's own tables: its text reads J_ij = +1, but with -1 "
            "accuracy and iteration counts match the paper's numbers and with +1 they do not. The row with +1 is under "
            "the other sign of the coupling."
        )
    if "gat" in models:
        found.append(
            "The paper's GAT on Texas, 48.6 ± 0.0, is exactly 18 of 37 test nodes: 30 random splits cannot give a "
            "spread of zero. Some of its baselines probably ran on one split, which the protocol one-split repeats."
        )
    if any(section.protocol.startswith("one-split") for section in sections):
        found.append(
            "In one-split runs with the same seed share nothing but the split: the paired tests are then no stronger "
            "than unpaired ones, and hold for that split alone."
        )
    found += _below(sections) + _ties(sections) + _other_splits(sections)
    if any(cell.lost for section in sections for cell in section.cells.values()):
        found.append("Runs that ran out of memory, diverged, failed or were interrupted count in no mean.")
    return found


def _records(sections: list[Section], glt: bool) -> list[Any]:
    """Records of our rows, or of the others."""
    held = [cell for s in sections for cell in s.cells.values() if (ROWS[cell.model].design is not None) == glt]
    return [record for cell in held for record in cell.finished.values()]


def _homophily(datasets: set[str]) -> list[str]:
    if not datasets & set(HOMOPHILY):
        return []
    printed = ", ".join(f"{PAPERS_HOMOPHILY[d]:.2f}" for d in DATASETS)
    return [
        "Homophily is the share of edges, as the files list them, that join nodes of one class; the paper prints "
        f"{printed}."
    ]


def _solved(sections: list[Section]) -> list[str]:
    """Whether the systems were solved as the paper solves them."""
    exact = [record for record in _records(sections, glt=True) if record.spec.solver == "auto"]
    if not exact:
        return []
    return [
        f"{len(exact)} GLT runs solve their systems exactly (elimination, or conjugate gradients down to float32's "
        "rounding), not by the paper's damped belief propagation, which stops at an absolute change of 1e-6 or after "
        "1000 steps. For the fixed Laplacian that rule ends gradients long before the solution (docs/table2.md); on "
        "WebKB it changes test accuracy by less than the splits can tell (docs/ablation.md)."
    ]


def _capacity(sections: list[Section]) -> list[str]:
    counts = [[r.parameters for r in _records(sections, glt) if r.parameters] for glt in (True, False)]
    if not all(counts):
        return []
    ours, others = (f"{min(each):,} to {max(each):,}" for each in counts)
    return [
        f"Parameters: {ours} in the GLT rows, {others} in the others, by dataset and model. Widths, layers and heads "
        "are the paper's; the number of parameters is not held equal."
    ]


def _recipes(models: set[str]) -> list[str]:
    """Rows have the paper's learning rates and patience, which are not equal; the most common pair is named last."""
    by_recipe: dict[tuple[float, int], list[str]] = {}
    for name, row in ROWS.items():
        if name in models:
            by_recipe.setdefault((row.lr, row.patience), []).append(row.title)
    if len(by_recipe) < 2:
        return []
    ordered = sorted(by_recipe.items(), key=lambda item: len(item[1]))
    said = [f"{lr:g} and {patience} epochs for {', '.join(rows)}" for (lr, patience), rows in ordered[:-1]]
    lr, patience = ordered[-1][0]
    return [
        "Learning rate and patience are the paper's for its rows, and those of its baselines for rows that it lacks: "
        f"{'; '.join(said)}; {lr:g} and {patience} epochs for all others. They were tuned for no row here."
    ]


def _texas_and_cornell(sections: list[Section]) -> str:
    splits: dict[str, set[tuple[str, int, str]]] = {"texas": set(), "cornell": set()}
    for section in sections:
        for cell in section.cells.values():
            if cell.dataset in splits:
                splits[cell.dataset] |= {(section.protocol, k, r.split) for k, r in cell.finished.items() if r.split}
    shared = len(splits["texas"] & splits["cornell"])
    also = f", and {shared} of our random splits are the same, node by node" if shared else ""
    return (
        f"Texas and Cornell: the published files hold the same features and labels{also}; only edges and published "
        "splits differ. To a model that ignores edges they are one dataset, and for any model they are not two "
        "independent pieces of evidence."
    )


def _below(sections: list[Section]) -> list[str]:
    """Which cells stay below the paper, and where that is looked into."""
    held = [cell for s in sections if s.protocol == "random" and not s.changes for cell in s.cells.values()]
    gaps = {(cell.model, cell.dataset): compare.from_paper(cell) for cell in held}
    low = {place for place, gap in gaps.items() if gap and gap.within is False and gap.value < 0}
    by_row = {model: [dataset for dataset in DATASETS if (model, dataset) in low] for model in ROWS}
    said = "; ".join(f"{ROWS[model].title} on {', '.join(where)}" for model, where in by_row.items() if where)
    if not said:
        return []
    return [
        f"Below the paper by more than two standard errors: {said}. What such cells owe to choices that the paper "
        "leaves open is in docs/ablation.md, what they owe to the split in docs/protocols.md."
    ]


def _signs(models: set[str]) -> str:
    by_sign: dict[str, list[str]] = {}
    for name, row in ROWS.items():
        if name in models and row.design is not None:
            by_sign.setdefault(_sign(row), []).append(row.title)
    words = {"repulsive": "J_ij > 0 for like neighbours", "attractive": "J_ij < 0 for like neighbours"}
    said = "; ".join(f"{sign} ({words[sign]}): {', '.join(rows)}" for sign, rows in sorted(by_sign.items()))
    return f"Signs. {said}." if said else ""


def _sign(row: Row) -> str:
    assert row.design is not None
    return row.coupling or DESIGNS[row.design].default_coupling(row.learned) or ""


def _other_splits(sections: list[Section]) -> list[str]:
    """Runs of one seed must share one split; where records disagree, the reader has to know."""
    found = []
    for section in sections:
        for dataset in section.datasets:
            splits: dict[int, Counter[str]] = {}
            for cell in section.of(dataset):
                for seed, record in cell.finished.items():
                    if record.split:
                        splits.setdefault(seed, Counter())[record.split] += 1
            odd = sum(seen.total() - max(seen.values()) for seen in splits.values())
            if odd:
                found.append(
                    f"{dataset}, {section.protocol}: {numbered(odd, 'run')} had another split than most runs of the "
                    "same seed; the paired tests pair only equal splits."
                )
    return found


def _ties(sections: list[Section]) -> list[str]:
    found = []
    for section in sections:
        for dataset in section.datasets:
            for place, models in zip(("best", "second best"), compare.ranks(section, dataset), strict=True):
                if len(models) > 1:
                    names = ", ".join(row.title for name, row in ROWS.items() if name in models)
                    where = f"{dataset}, {section.protocol}" + (f", {section.name}" if section.name else "")
                    found.append(f"Tie for {place} ({where}): {names} have equal means as printed; all are marked.")
    return found
