"""walksum bench auto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walksum.cli.console import INTERRUPTED, Console, Debug, Interrupted, Json, Quiet, run_command

if TYPE_CHECKING:
    from rich.table import Table

    from walksum.paper.report.portfolio import Line


def auto(
    datasets: Annotated[
        list[str] | None, typer.Argument(help="Names, or counties for its four targets; default: all.")
    ] = None,
    splits: Annotated[
        int, typer.Option(help="Splits per dataset; published ones have ten; 0: show the records.", min=0)
    ] = 10,
    first: Annotated[int, typer.Option(help="Number of the first split.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Fits at a time; processes of their own, also on one GPU.", min=1)] = 1,
    budget: Annotated[float, typer.Option(help="Seconds of each portfolio, and of the networks beside it.")] = 600.0,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")] = "cpu",
    out: Annotated[Path, typer.Option(help="File of the records; the command goes on where they end.")] = Path(
        "results/auto/bench.jsonl"
    ),
    table1: Annotated[Path, typer.Option(help="Records of Table 1: more rows on the same splits.")] = Path(
        "results/table1"
    ),
    dump: Annotated[Path | None, typer.Option(help="Folder for what every member says of the judged rows.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Fit the portfolio on published data and compare it with every model that has records on the same splits.

    One configuration for all datasets. Beside the portfolio: equally many networks without edges, its members by
    kind, and the same after the weighted members learned again from all known labels.

    Example: walksum bench auto texas cora --splits 30 --jobs 4
    """
    console = Console(as_json, quiet, debug)

    def action() -> None:
        from walksum.estimators.auto.bench import chosen, measure, read
        from walksum.paper.report.portfolio import lines_of, mean_ranks, scores_of
        from walksum.paper.sweep.store import read_records
        from walksum.training.devices import available_device

        names = chosen(datasets or [])
        try:
            seeds = range(first, first + splits)
            for line in measure(names, seeds, out, jobs, budget, available_device(device), dump=dump):
                console.say(line)
        except KeyboardInterrupt:
            console.fail(f"interrupted; finished splits are in {out}, and the same command goes on there", INTERRUPTED)
            raise Interrupted from None
        found = scores_of(read(out), read_records(table1) if table1.exists() else ())
        lines = [line for name in names if name in found for line in lines_of(name, found[name])]
        ranks = mean_ranks(lines)
        console.table(_table(lines), always=True)
        for place, (row, (rank, count)) in enumerate(ranks.items(), 1):
            console.say(f"{place:3d}. mean rank {rank:5.2f} over {count} datasets: {row}", always=True)
        console.say(f"records: {out}", always=True)
        console.result({"out": str(out), "rows": [_json(line) for line in lines], "mean_ranks": ranks})

    run_command(console, action)


def _table(lines: list[Line]) -> Table:
    from rich.table import Table

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
