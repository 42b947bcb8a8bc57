"""The record file: one JSON per machine and commit, rewritten atomically after every cell, resumed by default."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from walksum._files import append_lines, write_file

Record = dict[str, Any]
KEY = ("kind", "graph", "design", "heads", "columns", "contestant", "mode", "dropout")
PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "numba", "triton", "pyamg", "cvxopt", "torch-sla")
PACKAGES += ("torchsparsegradutils",)
BESIDE = "keep the records of earlier code on this machine, marked as such, until they are measured again"


def machine(device: str) -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str:
    """The last commit of the sources, with '-dirty' if they differ from it; $WALKSUM_COMMIT for a copy without its git.

    Results and docs do not count: writing them must not make a run look like one of other code.
    """
    root, given = Path(__file__).parent.parent, os.environ.get("WALKSUM_COMMIT")
    if given:
        return given
    try:
        last = _git(root, "log", "-1", "--format=%h", "--abbrev=10", "--", "src", "benchmarks").stdout.strip()
        changed = _git(root, "status", "--porcelain", "--", "src", "benchmarks").stdout.strip()
        return last + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(root: Path, *args: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def read_lines(path: Path) -> list[Record]:
    """One record per line; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_line(path: Path | None, row: Record) -> None:
    """Add one JSON line, where a file was named."""
    if path is not None:
        append_lines(path, [json.dumps(row)])


def write_lines(path: Path | None, rows: Iterable[Record]) -> None:
    """One JSON line per row, where a file was named."""
    if path is not None:
        write_file(path, "".join(json.dumps(row) + "\n" for row in rows))


def key(record: Record) -> tuple:
    return tuple(record.get(name) for name in KEY)


class Store:
    """The records of one bench. Those of the same machine, commit and effort are kept, others are left behind.

    Args:
        fresh: leave all behind.
        beside: keep the records of other commits on this machine too, marked with their day and commit as ``earlier``,
            until they are measured again.
    """

    def __init__(self, path: Path, device: str, fresh: bool = False, beside: bool = False, **about: Any):
        self.path = path
        self.header = {"machine": machine(device), "commit": commit(), **about}
        self.records: dict[tuple, Record] = {}
        held = {} if fresh or not path.exists() else json.loads(path.read_text())
        if any(held.get(name) != self.header.get(name) for name in ("machine", "quick")):
            return
        same = held.get("commit") == self.header["commit"]
        if same:
            self.header = {**{k: v for k, v in held.items() if k != "records"}, **self.header}
            self.records = {key(r): r for r in held["records"]}
        elif beside:
            when = f"{held['written'][:10]}, commit {held['commit']}"
            self.records = {key(r): {"earlier": when} | r for r in held["records"]}

    def has(self, **fields: Any) -> bool:
        """Whether this commit has measured it."""
        return "earlier" not in self.records.get(key(fields), {"earlier": ""})

    def add(self, *records: Record) -> None:
        self.records |= {key(r): r for r in records}
        self.write()

    def write(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = {**self.header, "versions": versions(), "written": now, "records": [*self.records.values()]}
        write_file(self.path, json.dumps(_plain(content), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """JSON has no NaN: what is not finite becomes its name, so that no comparison mistakes it for a number."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else float(f"{value:.4g}")
    return value
