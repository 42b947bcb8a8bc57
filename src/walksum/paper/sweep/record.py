"""What one run left behind, and the cells of a table made of such records."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

import walksum
from walksum._checks import check_choice
from walksum.paper.sweep.spec import RunSpec

OUTCOMES = ("ok", "oom", "diverged", "interrupted", "failed")


@dataclass(frozen=True)
class Solves:
    """All solves of one direction in one layer over a run.

    Args:
        steps: (least, median, most) iterations.
        residual: the worst true residual (normwise backward error).
        status: how many solves ended in each status.
    """

    layer: int
    direction: str  # "forward" or "backward"
    steps: tuple[int, float, int]
    residual: float
    status: dict[str, int]


@dataclass(frozen=True)
class RunRecord:
    """One finished run. Accuracies are shares in [0, 1], taken at the epoch chosen on validation.

    Args:
        seconds: of this run; of a run trained in a batch, its share of the batch's time.
        batch, seeds: how many runs were trained together (1: alone), and their seeds; no seeds in older records.
        peak_memory: bytes; of the whole batch where there is one; None where it was not measured.
        curve: epoch number, training loss, validation loss, validation and test accuracy of some epochs, thinned
            to at most about 40 rows (the chosen epoch is among them).
        steps_by_epoch: epoch number, most forward and most backward steps, of the same epochs.
        versions, device, split: of walksum, torch and Python; the machine's; SHA-256 of the split.
        commit: of the source; None where it is not known, and in older records.
    """

    spec: RunSpec
    outcome: str
    val_accuracy: float = math.nan
    test_accuracy: float = math.nan
    val_loss: float = math.nan
    best_epoch: int = 0
    epochs: int = 0
    seconds: float = 0.0
    batch: int = 1
    seeds: tuple[int, ...] = ()
    peak_memory: int | None = None
    solves: tuple[Solves, ...] = ()
    curve: tuple[tuple[float, ...], ...] = ()
    steps_by_epoch: tuple[tuple[int, ...], ...] = ()
    parameters: int = 0
    message: str = ""
    split: str = ""
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    finished: str = ""  # UTC, ISO 8601
    commit: str | None = None

    def __post_init__(self) -> None:
        check_choice("outcome", self.outcome, OUTCOMES)

    @property
    def key(self) -> str:
        return self.spec.key

    def to_line(self) -> str:
        """One line of JSON; NaN becomes null, and measured numbers keep six digits."""
        values = {"key": self.key, **_short(asdict(self)), "spec": self.spec.to_json()}
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> RunRecord:
        values = json.loads(line)
        key, spec = values.pop("key"), RunSpec.from_json(values.pop("spec"))
        if key != spec.key:
            raise ValueError(f"record {key} does not fit its own settings (their key is {spec.key})")
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in values.items() if name in known}
        for name in ("val_accuracy", "test_accuracy", "val_loss"):
            values[name] = math.nan if values.get(name) is None else values[name]
        values["solves"] = tuple(Solves(**{**s, "steps": tuple(s["steps"])}) for s in values.get("solves", ()))
        for name in ("curve", "steps_by_epoch"):
            values[name] = tuple(tuple(row) for row in values.get(name, ()))
        values["seeds"] = tuple(values.get("seeds", ()))
        return cls(spec=spec, **values)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return value


def made_by(device: torch.device) -> dict[str, Any]:
    """The fields of a record that say how it was made."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": name,
        "versions": versions(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    return {"walksum": walksum.__version__, "torch": torch.__version__, "python": platform.python_version()}


@lru_cache(maxsize=1)
def commit() -> str | None:
    """$WALKSUM_COMMIT, else the commit of the checkout that this source lies in; None for an installed package."""
    if named := os.environ.get("WALKSUM_COMMIT"):
        return named
    root = Path(walksum.__file__).parents[2]
    if not (root / ".git").exists():
        return None
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None


@dataclass(frozen=True)
class Cell:
    """The runs of one model on one dataset, all with the same settings. Means are over the runs that ended well."""

    model: str
    dataset: str
    records: tuple[RunRecord, ...]

    @cached_property
    def finished(self) -> dict[int, RunRecord]:
        """The runs that count, by seed."""
        return {record.spec.seed: record for record in self.records if record.outcome == "ok"}

    @cached_property
    def scores(self) -> dict[int, float]:
        """Test accuracy in % by seed."""
        return {seed: 100 * record.test_accuracy for seed, record in self.finished.items()}

    @property
    def runs(self) -> int:
        return len(self.scores)

    @property
    def mean(self) -> float | None:
        return fmean(self.scores.values()) if self.scores else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation; None for fewer than two runs."""
        return stdev(self.scores.values()) if self.runs > 1 else None

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(Counter(record.outcome for record in self.records))

    @property
    def lost(self) -> dict[str, int]:
        """How many runs did not end well, by outcome."""
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != "ok"}

    def __str__(self) -> str:
        if not self.scores:
            return ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items()) or "-"
        spread = "" if self.std is None else f" ± {self.std:.1f}"
        return f"{self.mean:.1f}{spread} ({self.runs})" + ("*" if self.lost else "")


def cells_of(specs: Iterable[RunSpec], records: Iterable[RunRecord]) -> dict[tuple[str, str], Cell]:
    """(model, dataset) -> its cell, of those records that belong to ``specs``."""
    wanted = {spec.key: (spec.model, spec.dataset) for spec in specs}
    found: dict[tuple[str, str], list[RunRecord]] = {place: [] for place in wanted.values()}
    for record in records:
        if record.key in wanted:
            found[wanted[record.key]].append(record)
    return {place: Cell(*place, tuple(members)) for place, members in found.items()}
