"""The command: train, predict, info, figures, explore, datasets, bench, report, solve, doctor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from walksum.cli import bench, bench_table1, explore, figures, info, predict, report, solve, train
from walksum.cli.console import Console, as_command, leave

app = typer.Typer(
    help="Graph layers whose mixing is one exact linear operator, mu = J^-1 h.\n\n"
    "Start with 'walksum train': it needs no data of yours. Exit codes: 0 done, 1 unexpected, 2 wrong use or bad "
    "input, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
tables = typer.Typer(
    help="Make the paper's tables again.", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
COMMANDS: tuple[Callable[..., Any], ...] = (
    *(train.train, predict.predict, info.info, figures.figures, explore.explore),
    *(info.datasets, report.report, solve.solve, info.doctor),
)
TABLES: tuple[Callable[..., Any], ...] = (bench_table1.table1, bench.table2, bench.auto, bench.longrange)
for command in COMMANDS:
    app.command()(as_command(command))
for command in TABLES:
    tables.command()(as_command(command))
app.add_typer(tables, name="bench")


def run() -> None:
    """The program ``walksum``."""
    try:
        code: Any = app(prog_name="walksum", standalone_mode=False)
    except SystemExit as end:
        code = end.code
    except Exception as error:
        if not hasattr(error, "show"):  # what typer calls wrong use has it, in every version
            raise
        error.show()
        code = error.exit_code  # type: ignore[attr-defined]
        if "--json" in sys.argv:
            Console(as_json=True).result({"error": error.format_message(), "exit_code": code})  # type: ignore[attr-defined]
    leave(code if isinstance(code, int) else 0)


__all__ = ["app", "run"]
