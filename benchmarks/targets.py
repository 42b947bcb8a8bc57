"""What the benches are held to, as data: a name, the records it reads, a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import PEERS
from benchmarks.problems import DESIGNS
from benchmarks.records import Record

ERROR = 4e-6
LOOSE = 1e-3  # a peer may be less exact than we ask of ourselves and still count as a rival
MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"
Values = Callable[[list[Record]], list[float]]  # empty: not measured
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

    def verdict(self, records: Iterable[Record]) -> tuple[str, float | None]:
        """met, missed or not measured, and the value that comes closest to failing."""
        values = self.values(list(records))
        if not values:
            return NOT_MEASURED, None
        worst = min(values) if self.at_most == math.inf else max(values)
        if any(math.isnan(v) for v in values):
            return MISSED, math.nan
        return (MET if self.at_least <= worst <= self.at_most else MISSED), worst

    @property
    def bound(self) -> str:
        parts = [f">= {self.at_least:g}"] if self.at_least > -math.inf else []
        return " and ".join(parts + ([f"<= {self.at_most:g}"] if self.at_most < math.inf else []))


def number(value: Any) -> float:
    """NaN for what is missing or was not finite, which no bound forgives."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def matching(records: list[Record], **where: Any) -> list[Record]:
    """Records whose fields equal, or lie in, what is asked."""
    wanted = {k: v if isinstance(v, tuple) else (v,) for k, v in where.items()}
    return [r for r in records if all(r.get(k) in v for k, v in wanted.items())]


def field(name: str, need: int = 1, **where: Any) -> Values:
    """The field of all records that match; nothing unless ``need`` of them are there."""

    def values(records: list[Record]) -> list[float]:
        found = matching(records, **where)
        return [number(r.get(name)) for r in found] if len(found) >= need else []

    return values


def ratio(need: int = 1, **where: Any) -> Values:
    """Times faster than the yardstick; a wrong answer counts as no speed at all."""

    def values(records: list[Record]) -> list[float]:
        found = matching(records, kind="solve", **where)
        return [number(r.get("ratio")) if accurate(r) else 0.0 for r in found] if len(found) >= need else []

    return values


def accurate(record: Record, bound: float = ERROR) -> bool:
    return all(number(record.get(name)) <= bound for name in ("error_mu", "error_g"))


def same_problem(records: list[Record], one: Record, contestant: Any) -> list[Record]:
    where = {k: one[k] for k in ("graph", "design", "heads", "columns")}
    return matching(records, kind="solve", contestant=contestant, **where)


def ratio_as_exact(need: int = 1, **where: Any) -> Values:
    """Times faster than the yardstick, for a method allowed the yardstick's own error where that is the larger."""

    def values(records: list[Record]) -> list[float]:
        found = matching(records, kind="solve", **where)
        bounds = [_yardstick_error(records, r) for r in found]
        speeds = [number(r.get("ratio")) if accurate(r, b) else 0.0 for r, b in zip(found, bounds, strict=True)]
        return speeds if len(found) >= need else []

    return values


def _yardstick_error(records: list[Record], one: Record) -> float:
    yard = same_problem(records, one, "yardstick")
    errors = [number(r.get(name)) for r in yard for name in ("error_mu", "error_g")]
    return max([ERROR, *(e for e in errors if not math.isnan(e))])


def against(others: tuple[str, ...], error: float, **where: Any) -> Values:
    """Seconds of the fastest of ``others`` (with an error below ``error``) over those of auto, problem by problem."""

    def values(records: list[Record]) -> list[float]:
        timed = [r for r in matching(records, kind="solve", **where) if "seconds" in r]
        found = []
        for mine in matching(timed, contestant="auto"):
            rivals = [r["seconds"] for r in same_problem(timed, mine, others) if accurate(r, error)]
            found += [min(rivals) / mine["seconds"] if accurate(mine) else 0.0] if rivals else []
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
        rivals = against(tuple(PEERS), LOOSE, graph=graph, heads=1)
        out.append(Target("cpu", f"{graph}: faster than every installed peer", rivals, 1))
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
    rows = [("glt-learned", "gat", learned), ("glt-fixed", "gcn" if bench == "cpu" else "gat", fixed)]
    graphs = ("pubmed",) if bench == "cpu" else ("cora", "pubmed")
    return [
        Target(
            bench,
            f"{graph}: training step of {model} over that of {other}",
            field(f"over_{other}", kind="step", graph=graph, contestant=model),
            at_most=bar,
        )
        for graph in graphs
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
    return [*out, *_steps("gpu", 1.2, 1.2), *_scaling("gpu")]


TARGETS = (*_cpu(), *_gpu())


def verdicts(records: list[Record], bench: str) -> list[tuple[Target, str, float | None]]:
    return [(t, *t.verdict(records)) for t in TARGETS if t.bench == bench]


def summary(records: list[Record], bench: str) -> str:
    rows = verdicts(records, bench)
    lines = [
        f"  {verdict:<12} {target.name} ({'-' if worst is None else f'{worst:.3g}'}; {target.bound})"
        for target, verdict, worst in rows
        if verdict != NOT_MEASURED
    ]
    count = {kind: sum(verdict == kind for _, verdict, _ in rows) for kind in (MET, MISSED, NOT_MEASURED)}
    closing = f"{count[MET]} targets met, {count[MISSED]} missed"
    return "\n".join([*lines, closing + (f", {count[NOT_MEASURED]} not measured" if count[NOT_MEASURED] else "")])
