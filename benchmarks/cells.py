"""One problem, every contestant on it, the yardstick in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from benchmarks import contestants, floors, timing
from benchmarks.problems import Problem
from benchmarks.records import Record
from benchmarks.truth import Truth
from benchmarks.yardstick import MAX_STEPS, TOL, Directed, directed, gabp


@dataclass(frozen=True)
class Effort:
    """How much time to give: seconds of timed rounds for a contestant and for the yardstick, number of rounds.

    A yardstick that takes longer than its seconds in a single run is extrapolated, from steps that are counted for
    at most ``counting`` seconds. A contestant that takes longer than ``patience`` is timed once, after a run to warm
    up.
    """

    budget: float = 1.0
    yardstick: float = 8.0
    rounds: int = 21
    patience: float = 3.0
    counting: float = 90.0


COUNTED = 2  # columns on which the steps of an unaffordable yardstick are counted
QUICK = Effort(budget=0.3, yardstick=2.0, rounds=3, counting=20.0)
CUT_OFF = "counting ended early"


@dataclass(frozen=True)
class Yard:
    """The yardstick on a problem: a way to take samples, and what it found."""

    sample: timing.Sample
    outcome: contestants.Outcome
    peak: int | None
    extrapolated: bool


def measure(
    problem: Problem,
    makes: dict[str, contestants.Make],
    effort: Effort,
    bandwidth: float,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Record]:
    """A record for the yardstick and one for each contestant, all timed in turn."""
    device = problem.graph.device.type
    tell("float64 reference")
    truth = Truth(problem)
    tell("yardstick")
    yard = prepare_yardstick(problem, effort, device)
    records, samples = [], {}
    if yard is not None:
        samples["yardstick"] = yard.sample
        records.append({**_describe(problem, "yardstick", yard.outcome, truth), "peak_bytes": yard.peak})
    for name, make in makes.items():
        tell(name)
        record, sample = prepare(problem, name, make, truth, device, effort.patience)
        records.append(record)
        if sample is not None:
            samples[name] = sample
    tell("timing")
    budget = {name: effort.yardstick if name == "yardstick" else effort.budget for name in samples}
    budget |= {name: 0.0 for name, sample in samples.items() if isinstance(sample, Once)}
    _fill(records, timing.interleaved(samples, budget, effort.rounds), yard, problem, bandwidth)
    return records


@dataclass(frozen=True)
class Once:
    """The sample of a run too slow to be repeated."""

    taken: float

    def __call__(self) -> float:
        return self.taken


def prepare(
    problem: Problem, name: str, make: contestants.Make, truth: Truth, device: str, patience: float = 3.0
) -> tuple:
    """Warm up, look at the answer, measure memory; a contestant that fails is a record of its failure."""
    try:
        run = make(problem)
        outcome = run()
        taken: list[float] = []
        peak = timing.peak_bytes(lambda: taken.append(timing.seconds(run, device)), device)
        sample = Once(taken[0]) if taken[0] > patience else timing.sampler(run, device)
        return {**_describe(problem, name, outcome, truth), "peak_bytes": peak}, sample
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as error:
        return {**identity(problem, name), "failure": f"{type(error).__name__}: {error}"[:200]}, None


def prepare_yardstick(problem: Problem, effort: Effort, device: str) -> Yard | None:
    """In full where that is affordable; else steps counted on few columns, times the cost of a step on all.

    The count on few columns is a lower bound, for it is the slowest column that decides, and so is a count that took
    too long and was ended: a ratio that rests on it errs against us. None where its messages do not fit into memory.
    """
    if 6 * 8 * problem.graph.num_edges * problem.heads * problem.columns > floors.available_bytes(device):
        return None
    graph = directed(problem.graph.edges)

    def steps(count: int) -> None:
        gabp(graph, problem.diag, problem.off, problem.h, tol=0.0, max_steps=count)

    def one_step() -> float:
        return (timing.seconds(lambda: steps(4), device) - timing.seconds(lambda: steps(1), device)) / 3

    peak = timing.peak_bytes(lambda: steps(1), device)
    cost = one_step()
    if cost * 2 * MAX_STEPS > effort.yardstick:
        outcome = count_steps(problem.take_columns(min(COUNTED, problem.columns)), graph, effort.counting, device)
        if outcome.status == CUT_OFF or cost * sum(outcome.steps) > effort.yardstick:
            return Yard(lambda: one_step() * sum(outcome.steps), outcome, peak, extrapolated=True)
    run = contestants.yardstick(problem)
    return Yard(lambda: timing.seconds(run, device), run(), peak, extrapolated=False)


def count_steps(few: Problem, graph: Directed, seconds: float, device: str) -> contestants.Outcome:
    """The yardstick's steps forward and backward, or as many as can be made in so many seconds."""

    def steps(h: Tensor, most: int, tol: float = TOL) -> tuple[Tensor, int]:
        return gabp(graph, few.diag, few.off, h, tol=tol, max_steps=most)

    cost = timing.seconds(lambda: steps(few.h, 4, tol=0.0), device) / 4
    most = max(1, min(MAX_STEPS, int(seconds / 2 / cost)))
    (mu, forward), (g, backward) = steps(few.h, most), steps(few.grad, most)
    return contestants.Outcome(
        mu, g, (forward, backward), CUT_OFF if max(forward, backward) == most < MAX_STEPS else ""
    )


def identity(problem: Problem, name: str) -> Record:
    return {
        "kind": "solve",
        "graph": problem.graph_name,
        "design": problem.design,
        "heads": problem.heads,
        "columns": problem.columns,
        "contestant": name,
        "nodes": problem.graph.num_nodes,
        "edges": problem.graph.num_edges,
    }


def _describe(problem: Problem, name: str, outcome: contestants.Outcome, truth: Truth) -> Record:
    # who was not allowed to finish has no error worth a record
    error_mu, error_g = (None, None) if outcome.status == CUT_OFF else truth.errors(outcome.mu, outcome.g)
    found = {"error_mu": error_mu, "error_g": error_g, "steps": list(outcome.steps), "status": outcome.status}
    return identity(problem, name) | found


def _fill(records: list[Record], taken: dict, yard: Yard | None, problem: Problem, bandwidth: float) -> None:
    """Add the times, the ratio to the yardstick and the share of the bandwidth floor."""
    medians = {name: statistics.median(values) for name, values in taken.items()}
    for record in (r for r in records if r["contestant"] in medians):
        name = record["contestant"]
        record |= {"seconds": medians[name], "samples": len(taken[name])}
        if yard is not None and record["error_g"] is not None:  # forward alone has no yardstick
            record["yardstick_seconds"] = medians["yardstick"]
            record["extrapolated"] = yard.extrapolated
            record["ratio"] = medians["yardstick"] / medians[name]
        step = floors.step_bytes(name, problem.graph, problem.heads, problem.columns)
        if step is not None:
            record["floor_share"] = step * sum(record["steps"]) / bandwidth / medians[name]
