"""The command, one a file: train, predict, info, figures, explore, datasets, bench, report, solve, doctor."""

from __future__ import annotations

import typer

from walksum.cli import bench, bench_table2, datasets, doctor, explore, figures, info, predict, report, solve, train

app = typer.Typer(
    help="Graph layers whose mixing is one exact linear operator, mu = J^-1 h.\n\n"
    "Start with 'walksum train': it needs no data of yours. Exit codes: 0 done, 1 unexpected, 2 wrong use or bad "
    "input, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(train.train)
app.command()(predict.predict)
app.command()(info.info)
app.command()(figures.figures)
app.command()(explore.explore)
app.command()(datasets.datasets)
app.command()(report.report)
app.command()(solve.solve)
app.command()(doctor.doctor)
bench.bench.command()(bench_table2.table2)
app.add_typer(bench.bench, name="bench")


@app.callback()
def main() -> None:
    """Graph layers whose mixing is one exact linear operator, mu = J^-1 h."""


__all__ = ["app"]
