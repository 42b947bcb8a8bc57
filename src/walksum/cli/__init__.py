"""The command, one file for each: train, predict, info, figures, explore, datasets, bench, report, solve, doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from walksum.cli import (
    bench,
    bench_auto,
    bench_longrange,
    bench_table2,
    datasets,
    doctor,
    explore,
    figures,
    info,
    predict,
    report,
    solve,
    train,
)
from walksum.cli.console import as_command

app = typer.Typer(
    help="Graph layers whose mixing is one exact linear operator, mu = J^-1 h.\n\n"
    "Start with 'walksum train': it needs no data of yours. Exit codes: 0 done, 1 unexpected, 2 wrong use or bad "
    "input, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: tuple[Callable[..., Any], ...] = (
    *(train.train, predict.predict, info.info, figures.figures, explore.explore),
    *(datasets.datasets, report.report, solve.solve, doctor.doctor),
)
TABLES: tuple[Callable[..., Any], ...] = (bench.table1, bench_table2.table2, bench_auto.auto, bench_longrange.longrange)
for command in COMMANDS:
    app.command()(as_command(command))
for command in TABLES:
    bench.bench.command()(as_command(command))
app.add_typer(bench.bench, name="bench")


@app.callback()
def main() -> None:
    """Graph layers whose mixing is one exact linear operator, mu = J^-1 h."""


__all__ = ["app"]
