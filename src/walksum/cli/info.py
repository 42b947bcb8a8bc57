"""walksum info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli.console import Console


def info(
    console: Console,
    run: Annotated[Path, typer.Argument(help="A folder written by 'walksum train'.")],
) -> None:
    """Say what a run is: its data, its model, its result.

    Example: walksum info runs/digits
    """
    from walksum.cli.progress import outcome_table, say_data, say_end
    from walksum.workflow.run import open_run

    trained = open_run(run)
    say_data(console, trained.metrics["data"])
    console.say("model: " + ", ".join(f"{name} {value}" for name, value in trained.used_settings.items()))
    columns = trained.encoding.columns
    console.say(f"columns: {', '.join(columns[:8])}{', ...' if len(columns) > 8 else ''}")
    console.table(outcome_table(trained.metrics))
    say_end(console, trained.metrics)
    console.result({"run": str(run), "config": trained.config, "metrics": trained.metrics})
