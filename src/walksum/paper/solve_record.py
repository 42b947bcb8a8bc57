"""What one GaBP solve during a training did: the raw data of Table 2, one line of JSON each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from walksum._files import append_lines, to_json

FILE = "solves.jsonl"
RULES = ("messages", "rescaled", "residual")


@dataclass(frozen=True)
class SolveRecord:
    """One solve of a layer's own J and right-hand side at one epoch.

    Args:
        rule: "messages" (the paper's: largest absolute change of a message), "rescaled" (the same rule on dL/dmu
            multiplied to the size of the forward h), "residual" (relative true residual).
        size: largest absolute entry of the right-hand side.
        steps: of Algorithm 1; ``max_steps`` where ``met`` is False.
        met: whether the rule was met in ``max_steps``.
        status: how the library judges the result: "converged" only with a true residual of at most ``tol``.
        residual: normwise backward error, the worst over heads and columns.
        error: |mu - exact| / |exact| in the Frobenius norm, exact from a float64 solve.
        worst_error: the same of the worst column of any head.
    """

    model: str
    dataset: str
    seed: int
    epoch: int
    layer: int
    direction: str
    rule: str
    steps: int
    met: bool
    status: str
    residual: float
    error: float
    worst_error: float
    size: float
    nodes: int
    edges: int
    heads: int
    columns: int
    train_nodes: int
    damping: float = 0.5
    tol: float = 1e-6
    max_steps: int = 1000
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def probe(self) -> tuple[str, str, int, int]:
        """The training and its epoch: all solves of a probe are written together."""
        return self.model, self.dataset, self.seed, self.epoch

    def to_line(self) -> str:
        return to_json(asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> SolveRecord:
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {k: v for k, v in json.loads(line).items() if k in known}
        for name in ("residual", "error", "worst_error", "size"):
            values[name] = math.nan if values[name] is None else values[name]
        return cls(**values)


def append_solves(folder: Path, records: Iterable[SolveRecord]) -> None:
    """Add records; those of one probe together."""
    append_lines(folder / FILE, (record.to_line() for record in records))


def read_solves(folder: Path) -> list[SolveRecord]:
    """All whole records of a store; torn lines are skipped, and of a solve written twice the last counts."""
    found: dict[tuple, SolveRecord] = {}
    for line in (folder / FILE).read_text(encoding="utf-8").splitlines():
        try:
            record = SolveRecord.from_line(line)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        found[(*record.probe, record.layer, record.direction, record.rule)] = record
    return list(found.values())
