"""One problem, every contestant on it, the paper's algorithm in the same run.

The rule, fixed here for everybody: a measurement is ``Effort.runs`` runs. In each run every contestant is made anew,
warmed up and timed in turn with all others for up to ``rounds`` rounds; the run's time is the median of its rounds, and
a ratio is one of times of the same run. A record shows the median of its runs and keeps all of them as its interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from benchmarks import floors, timing
from benchmarks.contestants import ALGORITHM_1, Contestant, Outcome, algorithm_1
from benchmarks.problems import Problem
from benchmarks.records import Record
from benchmarks.truth import Truth
from benchmarks.yardstick import MAX_STEPS, TOL, Directed, directed, gabp

KNOWN, NEW = "known", "new"  # graph


@dataclass(frozen=True)
class Effort:
    """How much time to give: seconds of timed rounds per run for a contestant and for the yardstick, and rounds.

    A yardstick that takes longer than its seconds in a single pass is extrapolated, from steps that are counted for
    at most ``counting`` seconds. A contestant that takes longer than ``patience`` is timed once per run.
    """

    budget: float = 0.4
    yardstick: float = 4.0
    rounds: int = 7
    runs: int = 3
    patience: float = 3.0
    counting: float = 90.0


COUNTED = 2  # columns on which the steps of an unaffordable yardstick are counted
QUICK = Effort(budget=0.1, yardstick=1.0, rounds=3, runs=3, counting=20.0)
CUT_OFF = "counting ended early"


@dataclass(frozen=True)
class Entrant:
    """A contestant on a problem: its record, and a way to make it anew and take samples by kind of graph."""

    record: Record
    samples: Callable[[], dict[str, timing.Sample]] | None  # None: it failed
    seconds: float  # to be spent on it in one run
    known_only: bool = False  # else, without samples on a new graph, it takes there what it takes on a known one

    @property
    def name(self) -> str:
        return self.record["contestant"]


def measure(
    problem: Problem,
    contestants: dict[str, Contestant],
    effort: Effort,
    bandwidth: float,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Record]:
    """One record for each form of the paper's algorithm and one for each contestant."""
    device = problem.graph.device.type
    tell("float64 reference")
    truth = Truth(problem)
    tell("yardstick")
    entrants = prepare_algorithm_1(problem, effort, truth, device)
    for name, contestant in contestants.items():
        tell(name)
        entrants.append(prepare(problem, name, contestant, effort, truth, device))
    runs = []
    for number in range(effort.runs):
        tell(f"timing, run {number + 1} of {effort.runs}")
        runs.append(_one_run([each for each in entrants if each.samples is not None], effort.rounds))
    for entrant in entrants:
        _fill(entrant, runs, problem, bandwidth)
    return [entrant.record for entrant in entrants]


def _one_run(entrants: list[Entrant], rounds: int) -> dict[tuple[str, str], float]:
    """Median seconds by contestant and kind of graph."""
    samples, budget = {}, {}
    for entrant in entrants:
        assert entrant.samples is not None
        for state, sample in entrant.samples().items():
            samples[entrant.name, state] = sample
            budget[entrant.name, state] = 0.0 if isinstance(sample, Once) else entrant.seconds
    return {key: statistics.median(taken) for key, taken in timing.interleaved(samples, budget, rounds).items()}


@dataclass(frozen=True)
class Once:
    """The sample of a pass too slow to be repeated."""

    taken: float

    def __call__(self) -> float:
        return self.taken


def prepare(problem: Problem, name: str, contestant: Contestant, effort: Effort, truth: Truth, device: str) -> Entrant:
    """Look at the answer, measure memory; a contestant that fails is a record of its failure."""
    try:
        run = contestant.known(problem)
        outcome = run()
        peak = timing.peak_bytes(run, device)
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as error:
        return Entrant({**identity(problem, name), "failure": f"{type(error).__name__}: {error}"[:200]}, None, 0.0)
    record = {**_describe(problem, name, outcome, truth), "peak_bytes": peak}
    samples = lambda: _samples(problem, contestant, effort.patience, device)  # noqa: E731
    return Entrant(record, samples, effort.budget, contestant.known_only)


def _samples(problem: Problem, contestant: Contestant, patience: float, device: str) -> dict[str, timing.Sample]:
    found: dict[str, timing.Sample] = {}
    for state, make in ((KNOWN, contestant.known), (NEW, contestant.new)):
        if make is not None:
            run = make(problem)
            run()
            taken = timing.seconds(run, device)
            found[state] = Once(taken) if taken > patience else timing.sampler(run, device, taken=taken)
    return found


def prepare_algorithm_1(problem: Problem, effort: Effort, truth: Truth, device: str) -> list[Entrant]:
    """Plain and tuned; in full where the plain one is affordable, else steps counted on few columns times their cost.

    The count on few columns is a lower bound, for it is the slowest column that decides, and so is a count that took
    too long and was ended: a ratio that rests on it errs against us. Nothing where its messages do not fit into memory.
    """
    if 6 * 8 * problem.graph.num_edges * problem.heads * problem.columns > floors.available_bytes(device):
        return []
    cost = _cost_of_a_step(problem, "yardstick", device)
    counted = None
    if cost * 2 * MAX_STEPS > effort.yardstick:
        few = problem.take_columns(min(COUNTED, problem.columns))
        counted = count_steps(few, directed(problem.graph.edges), effort.counting, device)
        if counted.status != CUT_OFF and cost * sum(counted.steps) <= effort.yardstick:
            counted = None
    if counted is None:
        whole = Effort(budget=effort.yardstick, patience=effort.yardstick)
        return [
            prepare(problem, name, algorithm_1(step, structure), whole, truth, device)
            for name, (step, structure) in ALGORITHM_1.items()
        ]
    return [_extrapolated(problem, name, counted, effort, truth, device) for name in ALGORITHM_1]


def _extrapolated(problem: Problem, name: str, counted: Outcome, effort: Effort, truth: Truth, device: str) -> Entrant:
    step, structure = ALGORITHM_1[name]
    graph, total = structure(problem), sum(counted.steps)

    def known() -> float:
        return _cost_of_a_step(problem, name, device) * total

    def new() -> float:
        return known() + timing.seconds(lambda: structure(problem), device)

    once: Callable[[], object] = lambda: step(graph, problem.diag, problem.off, problem.h, tol=0.0, max_steps=1)  # noqa: E731
    record = {**_describe(problem, name, counted, truth), "peak_bytes": timing.peak_bytes(once, device)}
    return Entrant({**record, "extrapolated": True}, lambda: {KNOWN: known, NEW: new}, effort.yardstick)


def _cost_of_a_step(problem: Problem, name: str, device: str) -> float:
    step, structure = ALGORITHM_1[name]
    graph = structure(problem)

    def steps(count: int) -> float:
        values = (problem.diag, problem.off, problem.h)
        return timing.seconds(lambda: step(graph, *values, tol=0.0, max_steps=count), device)

    steps(1)
    one, count = min(steps(1), steps(1)), 4
    while (several := steps(count)) < 2 * one:  # else the difference could be noise, and even negative
        count *= 2
    return (several - one) / (count - 1)


def count_steps(few: Problem, graph: Directed, seconds: float, device: str) -> Outcome:
    """The yardstick's steps forward and backward, or as many as can be made in so many seconds."""

    def steps(h: Tensor, most: int, tol: float = TOL) -> tuple[Tensor, int]:
        return gabp(graph, few.diag, few.off, h, tol=tol, max_steps=most)

    cost = timing.seconds(lambda: steps(few.h, 4, tol=0.0), device) / 4
    most = max(1, min(MAX_STEPS, int(seconds / 2 / cost)))
    (mu, forward), (g, backward) = steps(few.h, most), steps(few.grad, most)
    return Outcome(mu, g, (forward, backward), CUT_OFF if max(forward, backward) == most < MAX_STEPS else "")


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


def _describe(problem: Problem, name: str, outcome: Outcome, truth: Truth) -> Record:
    # who was not allowed to finish has no error worth a record
    error_mu, error_g = (None, None) if outcome.status == CUT_OFF else truth.errors(outcome.mu, outcome.g)
    found = {"error_mu": error_mu, "error_g": error_g, "steps": list(outcome.steps), "status": outcome.status}
    return identity(problem, name) | found


# a ratio: the form of the paper's algorithm, and the kind of graph
RATIOS = {
    "ratio": ("yardstick", KNOWN),
    "tuned_ratio": ("yardstick-tuned", KNOWN),
    "new_ratio": ("yardstick", NEW),
    "new_tuned_ratio": ("yardstick-tuned", NEW),
}


def _fill(entrant: Entrant, runs: list[dict], problem: Problem, bandwidth: float) -> None:
    """Add the times and ratios of every run, their medians, and the share of the bandwidth floor."""
    record, name = entrant.record, entrant.name
    if entrant.samples is None:
        return
    both_ways = record["error_g"] is not None or record["status"] == CUT_OFF
    taken = []
    for run in runs:
        mine = {KNOWN: run[name, KNOWN]}
        found = {"seconds": mine[KNOWN]}
        if not entrant.known_only:
            mine[NEW] = found["new_seconds"] = run.get((name, NEW), run[name, KNOWN])
        if both_ways:  # forward alone has no yardstick
            found |= {
                field: run[rival, state] / mine[state]
                for field, (rival, state) in RATIOS.items()
                if (rival, state) in run and state in mine
            }
        taken.append(found)
    record |= medians(taken)
    record["extrapolated"] = record.get("extrapolated", False)
    step = floors.step_bytes(name, problem.graph, problem.heads, problem.columns)
    if step is not None:
        record["floor_share"] = step * sum(record["steps"]) / bandwidth / record["seconds"]


def medians(runs: list[dict[str, float]]) -> Record:
    """The runs, and for every field of theirs the median."""
    return {"runs": runs} | {field: statistics.median(run[field] for run in runs) for field in runs[0]}
