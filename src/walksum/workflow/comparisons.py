"""The compared rows: simpler methods on the same nodes, with the same metric and a share of the time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from walksum.portfolio import clock
from walksum.portfolio.schedule import is_interrupt
from walksum.training.scoring import Score
from walksum.workflow.baselines import BOOSTING, PENALTIES, SCALES, boosting, constant, label_propagation, linear
from walksum.workflow.fit import OnEpoch, fit_model, predict, with_smoothing
from walksum.workflow.job import Job
from walksum.workflow.prepare import PreparedData

SHARE = 12  # a row's seconds are the budget over this: about what one kind of members of a portfolio gets
NEARLY = 0.9  # of its share, from which a row counts as stopped by the clock
TRIALS = 8  # settings of a row at most, unless the model itself was searched for longer
NARROW_DROPOUT, NARROW_LR = 0.2, 5e-3  # of networks; dropping most of a few columns leaves nothing to learn from
NARROW = 200  # columns


@dataclass
class Comparison:
    """Outputs by method on all nodes, the trained model's own first, and how they are judged.

    Attributes:
        outputs: probabilities ``[N, C]`` or numbers ``[N]``.
        ignoring: the methods that read no edge.
    """

    prepared: PreparedData
    model: str
    outputs: dict[str, Tensor]
    scores: dict[str, Score]
    ignoring: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, job: Job, prepared: PreparedData, output: Tensor) -> Comparison:
        """A comparison that holds the model alone."""
        found = cls(prepared, job.title, {}, {})
        found.add(job.title, output, job.model == "mlp")
        return found

    def add(self, name: str, output: Tensor, ignores_graph: bool) -> None:
        test, y = self.prepared.split.test, self.prepared.problem.y
        self.outputs[name] = output
        self.scores[name] = self.prepared.scorer.score(output[test], y[test])
        self.ignoring += [name] * ignores_graph

    def parts(self) -> dict[str, dict[str, Any]]:
        return self.prepared.scorer.parts(self.outputs, self.prepared.problem, self.prepared.split)

    def graph(self) -> dict[str, Any] | None:
        """Whether the graph helped: the model against the best method that reads no edge, paired over the test nodes.

        The best is the one with the best test score, which favours it; the model has to be better nevertheless.
        """
        others = [name for name in self.ignoring if name != self.model]
        if not others or self.model in self.ignoring or not self.prepared.problem.graph.num_edges:
            return None
        best = self._best(others)
        found = self._difference(best)
        verdict = "helped" if found["low"] > 0 else "hurt" if found["high"] < 0 else "made no clear difference"
        top = self._best(list(self.scores))
        better = None if top == self.model else {"method": top, **self._difference(top)}
        return {"verdict": verdict, "against": best, **found, "better": better}

    def _best(self, names: list[str]) -> str:
        sign = self.prepared.scorer.metric.sign
        return max(names, key=lambda name: sign * self.scores[name].value)

    def _difference(self, name: str) -> dict[str, float]:
        test, y = self.prepared.split.test, self.prepared.problem.y
        mine, theirs = self.outputs[self.model], self.outputs[name]
        found = self.prepared.scorer.difference(mine[test], theirs[test], y[test])
        return {"gain": found.value, "low": found.low, "high": found.high}


@dataclass
class RowBudget:
    """The budget of one compared row: a deadline and a number of settings."""

    data: PreparedData
    learn: Tensor  # the nodes to learn from in the end, the same as the model's own
    until: float
    trials: int

    def tuned(self, settings: list[dict[str, Any]], fit: Callable[..., Tensor]) -> Tensor:
        """Fit each setting, choose one by its validation score, and fit that one again on all nodes to learn from."""
        if min(len(settings), self.trials) == 1:
            return fit(self.data, self.learn, **settings[0])
        found: list[tuple[float, dict[str, Any], Tensor]] = []
        longest, train = 0.0, self.data.split.train
        for setting in settings[: self.trials]:
            began = clock.now()
            if found and began + 2 * longest > self.until:
                break
            output = fit(self.data, train, **setting)
            longest = max(longest, clock.now() - began)
            found.append((self._judge(output), setting, output))
        _, setting, output = max(found, key=lambda each: each[0])
        return output if self.learn is train else fit(self.data, self.learn, **setting)

    def _judge(self, output: Tensor) -> float:
        scorer, val = self.data.scorer, self.data.split.val
        return scorer.metric.sign * scorer.every(output[val], self.data.problem.y[val])[scorer.metric.name]

    def trained(self, jobs: list[Job], on_epoch: OnEpoch | None) -> Tensor:
        """Train networks, choose one by its validation score; they need the validation nodes to choose their epoch.

        A network that was stopped before it learned anything is refused: its score would be misleading.
        """
        best: tuple[float, Tensor] | None = None
        began, whole = clock.now(), False
        for k, job in enumerate(jobs[: self.trials]):
            now = clock.now()
            if k and now > self.until:
                break
            model, outcome = fit_model(job, self.data, on_epoch, now + max(0.0, self.until - now) / min(2, len(jobs)))
            if outcome.interrupted:
                raise KeyboardInterrupt
            whole |= outcome.ended != "deadline"
            own = with_smoothing(job, self.data, model).encoding
            output = predict(model, self.data.x, self.data.problem, own)
            if best is None or self._judge(output) > best[0]:
                best = self._judge(output), output
        assert best is not None
        if not whole and best[0] <= self._judge(constant(self.data, self.data.split.train)):
            raise ValueError(
                f"stopped after {clock.now() - began:.3g} s, before it did better than the same answer for all on the "
                "validation nodes; a larger budget lets it train"
            )
        return best[1]


Method = Callable[[RowBudget], Tensor]


def compare(
    job: Job,
    prepared: PreparedData,
    found: Comparison,
    on_epoch: OnEpoch | None = None,
    learn: Tensor | None = None,
    searched: tuple[int, float] = (0, 0.0),
) -> None:
    """Fit and add the compared rows. Each gets a share of the budget, or the model's own trials and seconds if more.

    Args:
        learn: the nodes to learn from, the same as the model's own; None: the training nodes. Validation nodes choose
            settings, and epochs of networks.
    """
    learn = prepared.split.train if learn is None else learn
    start, left_out, stopped = clock.now(), [], []
    share, trials = max(job.budget / SHARE, searched[1]), max(TRIALS, searched[0])
    for name, ignores_graph, method in _methods(job, prepared, on_epoch):
        began = clock.now()
        if began - start > max(job.budget, searched[1]):
            left_out.append(name)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a solver that stopped early is judged like any other
                output = method(RowBudget(prepared, learn, began + share, trials))
        except ValueError as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            found.notes.append(f"not compared: {name} ({error})")
            continue
        found.seconds[name] = clock.now() - began
        found.add(name, output, ignores_graph)
        stopped += [name] * (found.seconds[name] >= NEARLY * share)
    if stopped:
        found.notes.append(
            f"compared rows that a larger budget might improve, since they were stopped after {share:.3g} s each: "
            + ", ".join(stopped)
        )
    if left_out:
        found.notes.append(f"not compared, since the budget of {job.budget:g} s was spent: {', '.join(left_out)}")


def _methods(job: Job, prepared: PreparedData, on_epoch: OnEpoch | None) -> list[tuple[str, bool, Method]]:
    """The compared methods: name, whether it ignores the graph, and how it is fitted."""
    regression, edges = prepared.problem.regression, prepared.problem.graph.num_edges
    penalties = [{}] if regression else PENALTIES
    found: list[tuple[str, bool, Method]] = [
        ("mean" if regression else "majority class", True, lambda row: constant(row.data, row.learn)),
        ("ridge regression" if regression else "logistic regression", True, lambda row: row.tuned(penalties, linear)),
        ("gradient boosting", True, lambda row: row.tuned(_boosting("own", row), boosting)),
    ]
    if edges:
        found += [
            ("label propagation", False, lambda row: row.tuned(SCALES, label_propagation)),
            ("boosting on neighbour means", False, lambda row: row.tuned(_boosting("means", row), boosting)),
            (
                "boosting on neighbour means and targets",
                False,
                lambda row: row.tuned(_boosting("targets", row), boosting),
            ),
        ]
    if job.model != "mlp":
        found.append(("MLP", True, lambda row: row.trained(_jobs(job, "mlp", row.data), on_epoch)))
    if job.model != "glt" and edges:
        found.append(("GLT", False, lambda row: row.trained(_jobs(job, "glt", row.data), on_epoch)))
    return found


def _boosting(columns: str, row: RowBudget) -> list[dict[str, Any]]:
    seconds = (row.until - clock.now()) / 2  # one half to choose, one to learn again from all nodes it may
    return [{"columns": columns, "seconds": seconds, **setting} for setting in BOOSTING]


def _jobs(job: Job, model: str, data: PreparedData) -> list[Job]:
    """Settings of a network, the usual one first."""
    start = replace(job, model=model, lr=None, patience=None)
    if data.x.size(1) <= NARROW:
        start = replace(start, dropout=NARROW_DROPOUT, lr=NARROW_LR)
        more: list[dict[str, Any]] = [{"dropout": 0.0}, {"dropout": 0.5, "hidden": 128}, {"lr": 2e-2}, {"lr": 2e-3}]
    else:
        more = [{"dropout": 0.8}, {"dropout": 0.4}, {"lr": 1e-2}, {"hidden": 128}]
    if model == "glt":
        more = [{"learned": True, "coupling": "attractive"}, {"learned": True}, {"design": "laplacian"}, *more]
    return [start, *(replace(start, **each) for each in more)]
