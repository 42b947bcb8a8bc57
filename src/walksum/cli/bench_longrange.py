"""walksum bench longrange."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli.console import Console, Interrupted


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
    from rich.table import Table

    from walksum.cli.bench_options import whole_numbers, words
    from walksum.paper.longrange.bench import EPOCHS, run_bench
    from walksum.paper.longrange.contestants import MODELS
    from walksum.paper.longrange.table import TITLES, rows_of, timing
    from walksum.paper.longrange.tasks import TASKS

    try:
        records = run_bench(
            store,
            words(tasks) or [*TASKS],
            words(models) or [*MODELS],
            whole_numbers("sizes", sizes, 2, "whole numbers") or None,
            range(seeds),
            epochs or EPOCHS,
            console.progress,
        )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the records are in {store}, and the same command goes on there") from None
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
