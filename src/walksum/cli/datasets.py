"""walksum datasets."""

from __future__ import annotations

from walksum.cli.console import Console


def datasets(console: Console) -> None:
    """List the datasets that --dataset knows.

    Example: walksum datasets
    """
    from walksum.data.datasets import names, on_disk
    from walksum.data.sources import SIZES

    found = {name: (*SIZES[name], on_disk(name)) for name in names()}
    for name, (nodes, columns, classes, here) in found.items():
        where = "on disk" if here else "to download"
        console.say(f"{name:21} {nodes:8,} nodes {columns:6,} columns {classes:3} classes  {where}", always=True)
    keys = ("nodes", "columns", "classes", "on_disk")
    details = {name: dict(zip(keys, each, strict=True)) for name, each in found.items()}
    console.result({"datasets": names(), "details": details})
