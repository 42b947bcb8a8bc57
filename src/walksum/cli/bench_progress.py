"""The progress of a sweep: a live table in a terminal, else a line from time to time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Group as Stacked
from rich.live import Live
from rich.table import Table
from rich.text import Text

from walksum.cli.console import Console
from walksum.paper.rows import row_of
from walksum.paper.sweep.record import Cell, cells_of

if TYPE_CHECKING:
    from walksum.paper.sweep.record import RunRecord
    from walksum.paper.sweep.spec import RunSpec
    from walksum.paper.sweep.sweep import Sweep

MOST = 8  # workers to show


class Screen:
    """What a sweep shows while it runs."""

    def __init__(self, console: Console):
        self.console = console
        self._live: Live | None = None
        self._full: set[tuple[str, str]] | None = None

    def __enter__(self) -> Screen:
        if self.console.err.is_terminal and not self.console.quiet:
            self._live = Live(console=self.console.err, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*exception)

    def note(self, text: str) -> None:
        if not self.console.quiet:
            self.console.err.print(f"note: {text}", markup=False)

    def show(self, sweep: Sweep) -> None:
        if self.console.quiet:
            return
        cells = cells_of(sweep.specs, sweep.store.latest())
        if self._live is None:
            self._say_full(sweep, cells)
            self.console.progress("; ".join([headline(sweep), *sweep.engine.doing()[:MOST]]))
        else:
            lines = [headline(sweep), *sweep.engine.doing()[:MOST]]
            self._live.update(Stacked(filled(sweep.specs, cells), *map(Text, lines)), refresh=True)

    def _say_full(self, sweep: Sweep, cells: dict[tuple[str, str], Cell]) -> None:
        """A line for each cell that has become complete since the last look."""
        missing = {(spec.model, spec.dataset) for spec in sweep.left()}
        full = set(cells) - missing
        for model, dataset in sorted(full - (full if self._full is None else self._full)):
            self.console.err.print(f"{model} on {dataset}: {cells[model, dataset]}", markup=False)
        self._full = full


def headline(sweep: Sweep) -> str:
    total, left = len(sweep.specs), len(sweep.left())
    seconds = sweep.seconds_left()
    rest = "" if seconds is None else f", about {duration(seconds)} left"
    waiting = "" if sweep.engine.running() or not left else "; waiting for another sweep on this store"
    return f"{total - left} of {total} runs{rest}{waiting}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def filled(specs: Iterable[RunSpec], cells: dict[tuple[str, str], Cell]) -> Table:
    """Rows models, columns datasets: mean ± standard deviation (runs)."""
    specs = list(specs)
    datasets = list(dict.fromkeys(spec.dataset for spec in specs))
    table = Table(title="test accuracy in %: mean ± standard deviation (runs)", title_justify="left")
    table.add_column("model")
    for name in datasets:
        table.add_column(name, justify="right")
    for model in dict.fromkeys(spec.model for spec in specs):
        table.add_row(row_of(model).title, *(str(cells[model, name]) for name in datasets))
    return table


def trouble(specs: Iterable[RunSpec], records: Iterable[RunRecord]) -> list[str]:
    """One line per cell with failed runs, with the reason of the first."""
    specs, records = list(specs), list(records)
    reasons: dict[tuple[str, str], str] = {}
    wanted = {spec.key for spec in specs}
    for record in records:
        if record.key in wanted and record.outcome != "ok" and record.message:
            reasons.setdefault((record.spec.model, record.spec.dataset), record.message)
    lines = []
    for (model, dataset), cell in cells_of(specs, records).items():
        if cell.lost:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in cell.lost.items())
            reason = reasons.get((model, dataset))
            lines.append(f"{model} on {dataset}: {counts}" + (f" ({reason})" if reason else ""))
    return lines


def cell_json(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in ("model", "dataset", "mean", "std", "runs", "outcomes")}
