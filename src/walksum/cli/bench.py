"""walksum bench table2, auto and longrange; table1 has a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from walksum.cli import completion
from walksum.cli.console import Console, Device, resumable

if TYPE_CHECKING:
    from walksum.paper.report.portfolio import Line


def table2(
    console: Console,
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Datasets, a,b,c; default: the paper's six.", autocompletion=completion.of_datasets),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Rows, a,b,c; default: glt, the paper's six.", autocompletion=completion.of_rows),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Train for so many epochs, measuring at 1, 2, 5, 10, ...")] = 100,
    probes: Annotated[str, typer.Option(help="Measure at these epochs instead, a,b,c.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the initial weights.")] = 0,
    store: Annotated[Path, typer.Option(help="Folder of the records; what it holds is not measured again.")] = Path(
        "results/table2"
    ),
    device: Device = "cpu",
) -> None:
    """Measure GaBP iterations, forward and backward, under the paper's stop rule and under the true residual.

    Example: walksum bench table2 --datasets texas,cora --epochs 20, then: walksum report results/table2
    """
    from walksum.cli.bench_options import chosen_datasets, chosen_models, whole_numbers
    from walksum.paper.table2 import measure, up_to
    from walksum.training.devices import available_device

    columns, rows = chosen_datasets(datasets or []), chosen_models(models or ["glt"])
    at = tuple(sorted(set(whole_numbers("probes", probes, 1, "epoch numbers")))) or up_to(epochs)
    with resumable(f"what was measured is in {store}"):
        new = measure(store, tuple(columns), tuple(rows), at, seed, available_device(device), console.progress)
    console.say(f"{new} solves measured, in {store}; read them with: walksum report {store}")
    console.result({"store": str(store), "new_records": new})


def longrange(
    console: Console,
    tasks: Annotated[str, typer.Option(help="Tasks, a,b,c: chain, ring, tree.")] = "chain,ring,tree",
    models: Annotated[str, typer.Option(help="Contestants, a,b,c; default: all.")] = "",
    sizes: Annotated[str, typer.Option(help="Lengths, ring sizes or depths, a,b,c; default: those of the page.")] = "",
    seeds: Annotated[int, typer.Option(help="Runs per cell.", min=1)] = 3,
    epochs: Annotated[int | None, typer.Option(help="Epochs at most of each training; default: 100.", min=1)] = None,
    store: Annotated[Path, typer.Option(help="Folder of the records; what it holds is not measured again.")] = Path(
        "results/longrange"
    ),
) -> None:
    """Ask nodes for what other nodes know, many edges away: chains, rings and trees.

    Example: walksum bench longrange --tasks chain --sizes 10,100 --models "Propagate(reach),GCN"
    """
    from walksum.cli.bench_options import whole_numbers, words
    from walksum.paper.longrange.bench import EPOCHS, TITLES, rows_of, run_bench, timing
    from walksum.paper.longrange.contestants import MODELS
    from walksum.paper.longrange.tasks import TASKS

    with resumable(f"the records are in {store}"):
        records = run_bench(
            store,
            words(tasks) or [*TASKS],
            words(models) or [*MODELS],
            whole_numbers("sizes", sizes, 2, "whole numbers") or None,
            range(seeds),
            epochs or EPOCHS,
            console.progress,
        )
    for task in TASKS:
        found, rows = rows_of(records, task)
        table = Table("", *map(str, found), title=TITLES[task], title_justify="left")
        for model, cells in rows:
            table.add_row(model, *cells)
        if found:
            console.table(table, always=True)
    grown = timing(records)
    if grown is not None:
        console.say(f"time of one layer grows with length ** {grown['exponent']:.2f}", always=True)
    console.result({"store": str(store), "records": [*records.values()]})


def auto(
    console: Console,
    datasets: Annotated[
        list[str] | None, typer.Argument(help="Names, or counties for its four targets; default: all.")
    ] = None,
    splits: Annotated[
        int, typer.Option(help="Splits per dataset; published ones have ten; 0: show the records.", min=0)
    ] = 10,
    first: Annotated[int, typer.Option(help="Number of the first split.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Fits at a time; processes of their own, also on one GPU.", min=1)] = 1,
    budget: Annotated[float, typer.Option(help="Seconds of each portfolio, and of the networks beside it.")] = 600.0,
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="File of the records; the command goes on where they end.")] = Path(
        "results/auto/bench.jsonl"
    ),
    table1: Annotated[Path, typer.Option(help="Records of Table 1: more rows on the same splits.")] = Path(
        "results/table1"
    ),
    dump: Annotated[Path | None, typer.Option(help="Folder for what every member says of the judged rows.")] = None,
) -> int:
    """Fit the portfolio on published data and compare it with every model that has records on the same splits.

    One configuration for all datasets. Beside the portfolio: equally many networks without edges, its members by
    kind, and the same after the weighted members learned again from all known labels.

    Example: walksum bench auto texas cora --splits 30 --jobs 4
    """
    from walksum.paper.portfolio_bench import chosen, measure, read
    from walksum.paper.report.portfolio import lines_of, mean_ranks, scores_of
    from walksum.paper.sweep.store import read_records
    from walksum.training.devices import available_device

    names, failed = chosen(datasets or []), 0
    seeds = range(first, first + splits)
    with resumable(f"finished splits are in {out}"):
        for line, fault in measure(names, seeds, out, jobs, budget, available_device(device), dump=dump):
            console.say(line, always=fault)
            failed += fault
    found = scores_of(read(out), read_records(table1) if table1.exists() else ())
    lines = [line for name in names if name in found for line in lines_of(name, found[name])]
    ranks = mean_ranks(lines)
    console.table(_table(lines), always=True)
    for place, (row, (rank, count)) in enumerate(ranks.items(), 1):
        console.say(f"{place:3d}. mean rank {rank:5.2f} over {count} datasets: {row}", always=True)
    console.say(f"records: {out}", always=True)
    console.result({"out": str(out), "failed": failed, "rows": [_json(line) for line in lines], "mean_ranks": ranks})
    return 1 if failed else 0


def _table(lines: list[Line]) -> Table:
    table = Table("dataset", "row", "splits", "test", "rank", "auto less it", "p, Holm")
    for line in lines:
        test = line.test
        table.add_row(
            line.dataset,
            line.row,
            str(line.splits),
            f"{line.mean:.2f}" + ("" if line.std is None else f" ± {line.std:.2f}"),
            "" if line.rank is None else f"{line.rank:g}",
            "" if test is None or not test.pairs else f"{test.difference:+.2f}",
            "" if test is None or test.corrected is None else f"{test.corrected:.2g}",
        )
    return table


def _json(line: Line) -> dict[str, Any]:
    test = line.test
    return {"dataset": line.dataset, "row": line.row, "splits": line.splits, "mean": line.mean, "std": line.std,
            "rank": line.rank, "difference": None if test is None else test.difference,
            "p": None if test is None else test.p, "corrected": None if test is None else test.corrected}  # fmt: skip
