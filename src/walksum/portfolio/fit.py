"""Portfolio: members trained within a budget, blended by the rows that judge them, and asked about other tables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from walksum._torch import cpu_by_default
from walksum.field.fit import deviation_95
from walksum.portfolio import clock
from walksum.portfolio.arrays import Arrays
from walksum.portfolio.blend import Blend, Metric, even_blends, even_weights, fit_blends, held_out, paired_gain
from walksum.portfolio.columns import column_limits, cut_columns
from walksum.portfolio.members import tasks
from walksum.portfolio.problem import Problem
from walksum.portfolio.residual import MOST_OPERATIONS, ResidualField, affordable, residual_field
from walksum.portfolio.schedule import Member, run_tasks

TRAINING = 0.9  # of the budget; blending, the field and the paired interval take the rest
USUAL = 60.0  # seconds of a budget from which a field may take as long as it is allowed
BEYOND = 0.1  # of the range of the targets: how far a prediction for other tables may leave it
FEWEST = 20  # known residuals that a field is fitted to
HERE, ELSEWHERE, WITHOUT_TARGETS, WITHOUT_EDGES = "here", "elsewhere", "without targets", "without edges"


@dataclass
class Answer:
    """Probabilities ``[N, C]``, or standardised numbers ``[N]`` with deviations ``[N]``; notes; the blend asked."""

    value: np.ndarray
    std: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    blend: str = HERE


@dataclass
class Portfolio:
    """Blended members.

    Attributes:
        problem: what it learned from; of a portfolio read from a file only what other tables need.
        members: in the order they were trained.
        blends: "here" of all members, for the training graph; "elsewhere" of those that can be asked about other
            tables; "without targets" of those that then need no known target; "without edges" of those that read none.
        widths: of a regression and by blend, the deviation with which 95 % of the judged rows lie within 1.96.
        residuals: of a regression, truth minus blend of the judged rows, each out of fold ``[N]``, NaN elsewhere.
        fields: of a regression and by blend, the field of the residuals where it helps.
        complete: whether the clock cut nothing short.
        limits: least and largest values ``[2, F]`` that columns of other tables are read to, and numbers predicted.
        disagreement: of a regression and by blend, the mean square of its members' distance from it at judged rows.
        bound: names of the weighted members that know the training graph alone, so that other tables do without them.
        validation: where there are such, the score of the judged rows by blend; larger is better.
    """

    problem: Problem
    members: list[Member]
    blends: dict[str, Blend]
    widths: dict[str, float]
    residuals: dict[str, np.ndarray]
    fields: dict[str, ResidualField]
    complete: bool = True
    interrupted: bool = False
    limits: Arrays = field(default_factory=dict)
    disagreement: dict[str, float] = field(default_factory=dict)
    bound: list[str] = field(default_factory=list)
    validation: dict[str, float] = field(default_factory=dict)

    @cpu_by_default
    def here(self, which: str = HERE) -> Answer:
        """The answer for the graph it was trained on; for labelled rows too, by folds that did not learn from them."""
        return self._answer(self.problem, which, outputs_of(self.members), None)

    @cpu_by_default
    def refit(self, which: str = HERE) -> np.ndarray:
        """Probabilities ``[N, C]`` after the weighted members learned again, now from all labelled rows.

        Epochs, powers and weights stay as validation chose them. Rows with a label keep the answer of members that had
        not learned from them.
        """
        if len(self.problem.folds) > 1 or not self.problem.classes:
            raise ValueError("refit is for classes and given validation rows; folds have learned from all rows already")
        blend, outputs = self.blends[which], outputs_of(self.members)
        groups: dict[Any, list[int]] = {}
        for k in np.nonzero(blend.weights)[0]:
            groups.setdefault(self.members[k].refit, []).append(int(k))
        for again, group in groups.items():
            if again is not None:
                outputs[group, 0] = again([self.members[k].index for k in group])
        value = blend(outputs, self.problem.classes)[0]
        rows = self.problem.labelled
        value[rows] = self.here(which).value[rows]
        return value

    @cpu_by_default
    def ask(self, problem: Problem, residuals: np.ndarray | None = None) -> Answer:
        """The answer for another table, made by :meth:`Problem.other`.

        Args:
            problem: the table; its known targets are read where there are any.
            residuals: out-of-fold residuals of nodes that training knew ``[N]``, NaN elsewhere: what it would find
                for them now would be too small, since it learned from them.
        """
        which, notes = self._blend_for(problem)
        outside, near = cut_columns(problem, self.limits)
        uncut = outputs = self._outputs_for(problem, which)
        if "targets" in self.limits and outside.any():
            known = problem.y[problem.known]
            low, high = (np.append(end, known) for end in self.limits["targets"])
            outputs = np.where(outside[:, None], outputs.clip(low.min(), high.max()), outputs)
        answer = self._answer(problem, which, outputs, residuals, notes)
        if near.any():
            answer.notes.append(
                f"{near.sum()} of {len(near)} nodes have columns, their own or of their neighbours, beyond what "
                "training saw: these were cut at its range"
                + ("" if problem.classes else ", as numbers at that of its targets; intervals are wider there")
            )
        if answer.std is not None and which in self.disagreement:
            more = self.blends[which].disagreement(uncut) - self.disagreement[which]
            answer.std = np.sqrt(answer.std**2 + np.where(outside, np.maximum(more, 0), 0))
        return answer

    def _blend_for(self, problem: Problem) -> tuple[str, list[str]]:
        """The blend that is asked about another table; with a note where targets are lacking that it would read."""
        # a single class or number would be all that the nodes it reaches are told
        told = len(np.unique(problem.y[problem.known])) > (1 if WITHOUT_TARGETS in self.blends else 0)
        if told and ELSEWHERE in self.blends:
            return ELSEWHERE, []
        if WITHOUT_TARGETS not in self.blends:
            raise ValueError("no member of this portfolio can be asked about other tables without known targets")
        usual = self.blends[ELSEWHERE].weights if ELSEWHERE in self.blends else np.zeros(len(self.members))
        reads = any(member.uses_targets for member, weight in zip(self.members, usual, strict=True) if weight)
        if not reads and ELSEWHERE not in self.fields:
            return WITHOUT_TARGETS, []
        known = f"only one {'class' if problem.classes else 'number'}" if len(problem.known) else "no target"
        note = (
            f"{known} is known in these tables: members that read the targets of other nodes were left out, and "
            "the others weighted anew, by the validation nodes of training"
        )
        return WITHOUT_TARGETS, [note]

    def _outputs_for(self, problem: Problem, which: str) -> np.ndarray:
        """What the members of a blend say of another table ``[M, folds, N, C]``; NaN of those without weight."""
        folds = max(len(member.outputs) for member in self.members)
        outputs = np.full((len(self.members), folds, problem.num_nodes, problem.outputs), np.nan)
        found: dict[int, np.ndarray] = {}
        for k in np.nonzero(self.blends[which].weights)[0]:
            member = self.members[k]
            assert member.model is not None
            if id(member.model) not in found:
                found[id(member.model)] = member.model.outputs(problem)
            outputs[k] = found[id(member.model)][member.index]
        return outputs

    def _answer(
        self, problem: Problem, which: str, outputs: np.ndarray, residuals: np.ndarray | None, notes: Any = None
    ) -> Answer:
        # a fold's probabilities are averaged, not its logits, which differ in scale from member to member
        blended = self.blends[which](outputs, problem.classes)  # [folds, N, C]
        mine = problem is self.problem
        value = problem.out_of_fold(blended) if mine else blended.mean(0)
        if problem.classes:
            return Answer(value, None, notes or [], which)
        value, std = value[:, 0], np.full(len(value), self.widths[which])
        if residuals is not None:  # what was predicted for these nodes while nobody had learned from them
            value = np.where(np.isnan(residuals) | np.isnan(problem.y), value, problem.y - residuals)
        nodes = np.nonzero(~np.isnan(problem.y))[0]
        if which in self.fields and len(nodes):
            mean, std = self.fields[which].predict(problem.graph, nodes, (problem.y - value)[nodes])
            value = value + mean
        return Answer(value, std, notes or [], which)

    def score(self, which: str, metric: Metric) -> float:
        """The score of a blend on the judged rows, each answered by what did not learn from it."""
        value, rows = self.here(which).value, self.problem.judged
        outputs = np.log(value + 1e-12) if self.problem.classes else value[:, None]
        return metric(outputs[rows], self.problem.y[rows])

    def graph_gain(self, metric: Metric) -> tuple[float, float, float] | None:
        """Gain of the blend over that of the members without edges, each judged row by weights that it did not set."""
        alone = np.array([not member.uses_graph for member in self.members])
        if alone.all() or not alone.any() or self.problem.unjudged:
            return None
        outputs, y = judged(self.problem, self.members), self.problem.y[self.problem.judged]
        if len(y) < 4:
            return None
        classes = self.problem.classes
        even = even_weights([member.family for member in self.members])
        both = held_out(outputs, y, classes, metric, [np.ones_like(alone), alone], even)
        mine, theirs = (np.log(each + 1e-12) for each in both) if classes else both
        return paired_gain(lambda rows: metric(mine[rows], y[rows]) - metric(theirs[rows], y[rows]), len(y))

    def table(self, metric: Metric) -> list[dict[str, Any]]:
        """One entry per member, the heaviest first."""
        outputs, y = judged(self.problem, self.members), self.problem.y[self.problem.judged]
        weights = self.blends[HERE].weights
        return [
            {
                "member": self.members[k].name,
                "weight": float(weights[k]),
                "validation": np.nan if self.problem.unjudged else metric(outputs[k], y),
                "uses graph": self.members[k].uses_graph,
                "seconds": self.members[k].seconds,
            }
            for k in np.argsort(-weights, kind="stable")
        ]


def outputs_of(members: list[Member]) -> np.ndarray:
    """``[M, folds, N, C]``, on the training graph."""
    return np.stack([member.outputs for member in members])


def judged(problem: Problem, members: list[Member]) -> np.ndarray:
    """Outputs ``[M, n, C]`` of the judged rows, each by the fold that did not learn from it."""
    return np.stack([problem.out_of_fold(member.outputs)[problem.judged] for member in members])


def fit_portfolio(
    problem: Problem,
    metric: Metric,
    budget: float = 60.0,
    members: tuple[str, ...] | None = None,
    callback: Callable[..., None] | None = None,
) -> Portfolio:
    """Train members until the budget is spent, then blend them.

    Args:
        problem: table, graph, targets and folds.
        metric: what judges; larger is better.
        budget: seconds.
        members: prefixes of names to try; None: all.
        callback: called as ``callback(name, done, total, seconds)`` after each training.
    """
    if isinstance(budget, bool) or not isinstance(budget, Real) or not budget > 0:
        raise ValueError(f"budget={budget!r}; expected a positive number of seconds")
    problem.budget = budget
    start = clock.now()  # finding what can be tried takes a factorisation, so its time counts
    todo = tasks(problem, metric, members)
    if not todo:
        raise ValueError(f"members={members!r} names no member; leave it None for all")
    left = TRAINING * budget - (clock.now() - start)
    found, complete, interrupted = run_tasks(todo, problem, metric, left, callback)
    if not found:
        raise ValueError(f"budget={budget!r} seconds ended before the first member; raise it")
    with uninterrupted():
        return _blended(problem, metric, found, complete, interrupted, MOST_OPERATIONS * min(1.0, budget / USUAL))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C in these last seconds is not heard: it asks to keep what is trained, which is being made ready."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


def _blended(
    problem: Problem, metric: Metric, found: list[Member], complete: bool = True, interrupted: bool = False,
    operations: float = MOST_OPERATIONS,
) -> Portfolio:  # fmt: skip
    outputs, y = judged(problem, found), problem.y[problem.judged]
    can_ask = np.array([member.model is not None for member in found])
    targets = np.array([member.uses_targets for member in found])
    edges = np.array([member.uses_graph for member in found])
    sets = {HERE: np.ones_like(edges), ELSEWHERE: can_ask, WITHOUT_TARGETS: can_ask & ~targets, WITHOUT_EDGES: ~edges}
    rows, sets = problem.counted, {name: who for name, who in sets.items() if who.any()}
    counts = len(np.unique(rows))
    even = even_weights([member.family for member in found])
    if problem.unjudged:
        blended = even_blends(even, list(sets.values()))
    else:
        blended = fit_blends(outputs[:, rows], y[rows], problem.classes, metric, list(sets.values()), even, counts)
    blends = dict(zip(sets, blended, strict=True))
    portfolio = Portfolio(problem, found, blends, {}, {}, {}, complete, interrupted, column_limits(problem))
    if not problem.classes:
        low, high = problem.y[problem.labelled].min(), problem.y[problem.labelled].max()
        portfolio.limits["targets"] = np.array([[low], [high]]) + BEYOND * (high - low) * np.array([[-1], [1]])
        everywhere = outputs_of(found)
        for name, blend in blends.items():
            portfolio.disagreement[name] = float(blend.disagreement(everywhere)[problem.judged].mean())
            _fit_residuals(portfolio, name, y - blend(outputs, 0)[:, 0], operations)
    portfolio.bound = [found[k].name for k in np.nonzero((blends[HERE].weights > 0) & ~can_ask)[0]]
    if portfolio.bound and not problem.unjudged:
        portfolio.validation = {name: portfolio.score(name, metric) for name in blends if name != WITHOUT_EDGES}
    return portfolio


def _fit_residuals(portfolio: Portfolio, name: str, left: np.ndarray, operations: float) -> None:
    problem, rows = portfolio.problem, portfolio.problem.judged
    same = [other for other, known in portfolio.residuals.items() if np.array_equal(known[rows], left)]
    portfolio.widths[name] = deviation_95(left)
    portfolio.residuals[name] = np.full(problem.num_nodes, np.nan)
    portfolio.residuals[name][rows] = left
    if name in (WITHOUT_EDGES, WITHOUT_TARGETS) or not problem.graph.num_edges or len(rows) < FEWEST:
        return
    if same:  # two blends of the same members have one field
        portfolio.fields |= {name: portfolio.fields[same[0]]} if same[0] in portfolio.fields else {}
        return
    if not affordable(problem.graph, operations):
        return
    found = residual_field(problem.graph, rows, left)
    if found.gain > 0:
        portfolio.fields[name] = found
