"""walksum info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from walksum.cli.console import Debug, Json, Voice, speak


def info(
    run: Annotated[Path, typer.Argument(help="A folder written by 'walksum train'.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a run is: its data, its model, its result.

    Example: walksum info runs/digits
    """
    voice = Voice(as_json, debug=debug)
    speak(voice, lambda: _info(voice, run))


def _info(voice: Voice, folder: Path) -> None:
    from walksum.cli.progress import outcome_table, say_data, say_end
    from walksum.workflow.run import read_run

    run = read_run(folder)
    say_data(voice, run.metrics["data"])
    voice.say("model: " + ", ".join(f"{name} {value}" for name, value in _job(run.config["job"]).items()))
    voice.say(f"columns: {', '.join(run.encoding.columns[:8])}{', ...' if len(run.encoding.columns) > 8 else ''}")
    voice.table(outcome_table(run.metrics))
    say_end(voice, run.metrics)
    voice.result({"run": str(folder), "config": run.config, "metrics": run.metrics})


def _job(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if value is not None}
