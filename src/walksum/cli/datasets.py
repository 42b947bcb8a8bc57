"""walksum datasets."""

from __future__ import annotations

from walksum.cli.console import Console


def datasets(console: Console) -> None:
    """List the datasets that --dataset knows.

    Example: walksum datasets
    """
    from walksum.data.datasets import names

    console.say("\n".join(names()), always=True)
    console.result({"datasets": names()})
