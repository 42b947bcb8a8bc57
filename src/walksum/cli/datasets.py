"""walksum datasets."""

from __future__ import annotations

from walksum.cli.console import Console, Debug, Json, run_command


def datasets(as_json: Json = False, debug: Debug = False) -> None:
    """List the datasets that --dataset knows.

    Example: walksum datasets
    """
    console = Console(as_json, debug=debug)
    run_command(console, lambda: _datasets(console))


def _datasets(console: Console) -> None:
    from walksum.data.datasets import names

    console.say("\n".join(names()))
    console.result({"datasets": names()})
