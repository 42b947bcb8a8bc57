"""What the benches are held to, as data: a name, the records it reads, a bound.

The rule: a target is met where every run of every record it reads keeps the bound, missed where a median does not, and
"within noise" in between. A ratio compares like with like: the same kind of graph (known or new), the same way to be
launched, the same dropout.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import GPU_CAPTURED, GPU_PEERS, PEERS
from benchmarks.problems import DESIGNS
from benchmarks.records import Record

ERROR = 4e-6
LOOSE = 1e-3  # a peer may be less exact than we ask of ourselves and still count as a rival
MET, NOISE, MISSED, NOT_MEASURED = "met", "within noise", "missed", "not measured"
VERDICTS = (MET, NOISE, MISSED, NOT_MEASURED)
Runs = list[float]  # one value for each run
Values = Callable[[list[Record]], list[Runs]]  # empty: not measured
CITATION = ("cora", "citeseer", "pubmed")
LEARNED = ("L-PN", "L-DD", "L-Lap")
SINGLE = ("gabp", "cg", "cg-dic", "direct", "hybrid", "chebyshev", "multigrid", "dense")


@dataclass(frozen=True)
class Target:
    bench: str
    name: str
    values: Values
    at_least: float = -math.inf
    at_most: float = math.inf

    def verdict(self, records: Iterable[Record]) -> tuple[str, Runs | None]:
        """One of VERDICTS, and the runs that come closest to failing."""
        values = self.values(list(records))
        if not values:
            return NOT_MEASURED, None
        if any(math.isnan(v) for runs in values for v in runs):
            return MISSED, [math.nan]
        worst = (min if self.at_most == math.inf else max)(values, key=statistics.median)
        if not self._keeps(statistics.median(worst)):
            return MISSED, worst
        return (MET if all(self._keeps(v) for runs in values for v in runs) else NOISE), worst

    def _keeps(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most

    @property
    def bound(self) -> str:
        parts = [f">= {self.at_least:g}"] if self.at_least > -math.inf else []
        return " and ".join(parts + ([f"<= {self.at_most:g}"] if self.at_most < math.inf else []))


def interval_text(runs: Runs | None) -> str:
    """Median and interval of runs, in words."""
    if runs is None:
        return "-"
    middle, low, high = statistics.median(runs), min(runs), max(runs)
    return f"{middle:.3g}" if low == high else f"{middle:.3g} ({low:.3g} to {high:.3g})"


def runs_of(record: Record, name: str) -> Runs:
    """The field of every run; of a record without runs, its one value."""
    return [number(run.get(name)) for run in record["runs"]] if "runs" in record else [number(record.get(name))]


def number(value: Any) -> float:
    """NaN for what is missing or was not finite, which no bound forgives."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def matching(records: list[Record], **where: Any) -> list[Record]:
    """Records whose fields equal, or lie in, what is asked."""
    wanted = {k: v if isinstance(v, tuple) else (v,) for k, v in where.items()}
    return [r for r in records if all(r.get(k) in v for k, v in wanted.items())]


def field(name: str, need: int = 1, **where: Any) -> Values:
    """The field of all records that match; nothing unless ``need`` of them are there."""

    def values(records: list[Record]) -> list[Runs]:
        found = matching(records, **where)
        return [_of_runs_or_record(r, name) for r in found] if len(found) >= need else []

    return values


def _of_runs_or_record(record: Record, name: str) -> Runs:
    in_runs = "runs" in record and name in record["runs"][0]
    return runs_of(record, name) if in_runs else [number(record.get(name))]


def ratio(need: int = 1, name: str = "ratio", **where: Any) -> Values:
    """Times faster than the yardstick; a wrong answer counts as no speed at all."""

    def values(records: list[Record]) -> list[Runs]:
        found = matching(records, kind="solve", **where)
        return [runs_of(r, name) if accurate(r) else [0.0] for r in found] if len(found) >= need else []

    return values


def accurate(record: Record, bound: float = ERROR) -> bool:
    return all(number(record.get(name)) <= bound for name in ("error_mu", "error_g"))


def same_problem(records: list[Record], one: Record, contestant: Any) -> list[Record]:
    """Of the same measurement: times of two days are not compared."""
    where = {k: one[k] for k in ("graph", "design", "heads", "columns")} | {"earlier": one.get("earlier")}
    return matching(records, kind="solve", contestant=contestant, **where)


def ratio_as_exact(need: int = 1, **where: Any) -> Values:
    """Times faster than the yardstick, for a method allowed the yardstick's own error where that is the larger."""

    def values(records: list[Record]) -> list[Runs]:
        found = matching(records, kind="solve", **where)
        bounds = [_yardstick_error(records, r) for r in found]
        speeds = [runs_of(r, "ratio") if accurate(r, b) else [0.0] for r, b in zip(found, bounds, strict=True)]
        return speeds if len(found) >= need else []

    return values


def _yardstick_error(records: list[Record], one: Record) -> float:
    yard = same_problem(records, one, "yardstick")
    errors = [number(r.get(name)) for r in yard for name in ("error_mu", "error_g")]
    return max([ERROR, *(e for e in errors if not math.isnan(e))])


def against(others: Iterable[str], error: float, time: str = "seconds", mine: str = "auto", **where: Any) -> Values:
    """Run by run, the time of the fastest of ``others`` (with an error below ``error``) over that of ``mine``.

    ``time``: "seconds" on a known graph, "new_seconds" on a new one.
    """
    rivals = tuple(others)

    def values(records: list[Record]) -> list[Runs]:
        timed = [r for r in matching(records, kind="solve", **where) if time in r]
        found: list[Runs] = []
        for own in matching(timed, contestant=mine):
            others_here = [runs_of(r, time) for r in same_problem(timed, own, rivals) if accurate(r, error)]
            if others_here:
                pairs = zip(zip(*others_here, strict=True), runs_of(own, time), strict=True)
                found.append([min(theirs) / taken for theirs, taken in pairs] if accurate(own) else [0.0])
        return found

    return values


def _cpu() -> list[Target]:
    one = {"heads": 1, "contestant": "auto"}
    every, faster = tuple(DESIGNS), "x faster than the yardstick"
    out = []
    for graph, bar, bar_laplacian in (("texas", 40, 1000), ("cora", 100, 2000), ("citeseer", 100, 2000)):
        out.append(Target("cpu", f"{graph}, every design: {faster}", ratio(6, graph=graph, design=every, **one), bar))
        laplacian = ratio(graph=graph, design="F-Lap", **one)
        out.append(Target("cpu", f"{graph}, fixed Laplacian: {faster}", laplacian, bar_laplacian))
    out += [
        Target("cpu", f"pubmed, every design: {faster}", ratio(6, graph="pubmed", design=every, **one), 100),
        Target("cpu", f"pubmed, fixed Laplacian: {faster}", ratio(graph="pubmed", design="F-Lap", **one), 1000),
    ]
    for graph in CITATION:
        heads = ratio(3, graph=graph, design=LEARNED, heads=8, contestant="auto")
        out.append(Target("cpu", f"{graph}, 8 heads x 8 columns, learned designs: {faster}", heads, 80))
    large = {"graph": "power-law-100k", **one}
    out += [
        Target("cpu", f"power-law-100k, learned pairwise normal: {faster}", ratio(design="L-PN", **large), 100),
        Target("cpu", f"power-law-100k, fixed Laplacian: {faster}", ratio(design="F-Lap", **large), 1000),
    ]
    largest = {"graph": "power-law-1m", "contestant": "auto-forward"}
    out += [
        Target("cpu", "power-law-1m, 64 columns, forward: seconds", field("seconds", **largest), at_most=10),
        Target("cpu", "power-law-1m, 64 columns, forward: bytes", field("peak_bytes", **largest), at_most=4 * 2**30),
        Target("cpu", "power-law-1m, 64 columns, forward: error", field("error_mu", **largest), at_most=ERROR),
    ]
    for graph in ("cora", "pubmed"):
        kept = ratio_as_exact(6, graph=graph, heads=1, contestant="gabp")
        out.append(Target("cpu", f"{graph}, GaBP kept as GaBP, every design: {faster}", kept, 20))
    for graph in ("texas", *CITATION, "grid-300", "power-law-100k"):
        for kind, time in (("known", "seconds"), ("new", "new_seconds")):
            rivals = against(PEERS, LOOSE, time, graph=graph, heads=1)
            out.append(Target("cpu", f"{graph} as a {kind} graph: faster than every installed peer", rivals, 1))
    for graph in ("cora", "pubmed"):
        for peer in ("torch-sla", "torchsparsegradutils"):
            rival = against((peer,), LOOSE, graph=graph, design="F-DD", heads=1)
            out.append(Target("cpu", f"{graph}, fixed DD: times faster than {peer}", rival, 15))
    out += [
        Target("cpu", "auto against the best single solver, everywhere: its speed", against(SINGLE, ERROR), 1 / 1.3),
        *_steps("cpu", 1.0, 1.2),
        *_scaling("cpu"),
    ]
    return out


def _steps(bench: str, learned: float, fixed: float) -> list[Target]:
    """Under every condition that was measured: eager over eager, captured over captured, the same dropout."""
    rows = [("glt-learned", "gat", learned), ("glt-fixed", "gcn" if bench == "cpu" else "gat", fixed)]
    graphs, modes = (("pubmed",), ("eager",)) if bench == "cpu" else (("cora", "pubmed"), ("eager", "captured"))
    return [
        Target(
            bench,
            f"{graph}, {mode}: training step of {model} over that of {other}",
            field(f"over_{other}", kind="step", graph=graph, contestant=model, mode=mode),
            at_most=bar,
        )
        for graph in graphs
        for mode in modes
        for model, other, bar in rows
    ]


def _scaling(bench: str) -> list[Target]:
    return [
        Target(bench, f"{what} grows like {v}^1", field(name, kind="scaling", design=v), at_most=1.2)
        for v in ("E", "F")
        for what, name in (("cost", "exponent"), ("memory", "memory_exponent"))
    ]


def _gpu() -> list[Target]:
    def kernel(name: str, graph: str, contestant: str) -> Values:
        return field(name, kind="kernel", graph=graph, contestant=contestant)

    wide, hubs = "wide-2.4m", "power-law-1m"
    out = [
        Target("gpu", f"{wide}: SpMM, share of the gather floor", kernel("floor_share", wide, "spmm"), 0.95),
        Target("gpu", f"{wide}: SpMM, times faster than cuSPARSE", kernel("over_cusparse", wide, "spmm"), 1.5),
        Target("gpu", f"{wide}: fused GaBP, share of its floor", kernel("floor_share", wide, "gabp-step"), 0.8),
        Target("gpu", f"{wide}: CG to 1e-5 over its SpMMs' floor", kernel("over_floor", wide, "cg"), at_most=1.6),
        Target("gpu", f"{hubs}: SpMM, times faster than cuSPARSE", kernel("over_cusparse", hubs, "spmm"), 1),
        Target("gpu", f"{hubs}: fused GaBP, share of its floor", kernel("floor_share", hubs, "gabp-step"), 0.75),
    ]
    for graph in ("cora", "pubmed"):
        every = ratio(6, graph=graph, heads=1, contestant="auto")
        out.append(Target("gpu", f"{graph}, every design: x faster than the yardstick", every, 50))
        eager = against(GPU_PEERS, LOOSE, graph=graph, heads=1)
        out.append(Target("gpu", f"{graph}, eager: faster than torch's own", eager, 1))
        replayed = against(GPU_CAPTURED, LOOSE, mine="auto-captured", graph=graph, heads=1)
        out.append(Target("gpu", f"{graph}, captured: faster than torch's own, captured", replayed, 1))
    return [*out, *_steps("gpu", 1.2, 1.2), *_scaling("gpu")]


TARGETS = (*_cpu(), *_gpu())


def verdicts(records: list[Record], bench: str) -> list[tuple[Target, str, Runs | None]]:
    return [(t, *t.verdict(records)) for t in TARGETS if t.bench == bench]


def counted(found: list[tuple[Target, str, Runs | None]]) -> str:
    """'3 met, 1 within noise, 2 missed, 0 not measured'."""
    return ", ".join(f"{sum(verdict == kind for _, verdict, _ in found)} {kind}" for kind in VERDICTS)


def summary(records: list[Record], bench: str) -> str:
    rows = verdicts(records, bench)
    lines = [
        f"  {verdict:<12} {target.name}: {interval_text(worst)}; {target.bound}"
        for target, verdict, worst in rows
        if verdict != NOT_MEASURED
    ]
    return "\n".join([*lines, f"targets: {counted(rows)}"])
