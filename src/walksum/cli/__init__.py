"""The command: walksum train | predict | info | explore | datasets | solve | doctor. One command a file."""

from __future__ import annotations

import typer

from walksum.cli import datasets, doctor, explore, info, predict, solve, train

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
app.command()(explore.explore)
app.command()(datasets.datasets)
app.command()(solve.solve)
app.command()(doctor.doctor)


@app.callback()
def main() -> None:
    """Graph layers whose mixing is one exact linear operator, mu = J^-1 h."""


__all__ = ["app"]
