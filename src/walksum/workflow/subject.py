"""What figures are drawn of: a trained model with what it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor, nn

from walksum.analysis.convergence import Curve, layer_systems, residual_curves
from walksum.analysis.hops import Hops, hop_shares
from walksum.analysis.part import ball, restrict, typical_node
from walksum.data.problem import Problem
from walksum.designs import DESIGNS
from walksum.nn import GLT
from walksum.precision import Precision
from walksum.training.loop import TASKS
from walksum.workflow.fit import Job, Material, OnEpoch, edges_for, fit_model, make_model, material_of

COMPARED = ("gcn", "gat", "appnp")
SMALL = 25  # nodes that can be looked at one by one


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn in any theme: ``draw("dark")``."""

    name: str
    draw: Callable[[str], Figure]


def nothing(text: str) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Listener:
    """Who is told what is being done, what is left out and why, and how trainings go."""

    doing: Callable[[str], None] = nothing
    note: Callable[[str], None] = nothing
    on_epoch: OnEpoch | None = None

    def named(self, name: str) -> OnEpoch | None:
        """``on_epoch`` under another name than the model's."""
        if self.on_epoch is None:
            return None
        tell = self.on_epoch
        return lambda _, epoch, best, recipe: tell(name, epoch, best, recipe)


@dataclass(frozen=True)
class Subject:
    """A trained model with everything it was trained on."""

    job: Job
    problem: Problem
    model: nn.Module
    x: Tensor
    material: Material | None  # None where the nodes have no labels

    @property
    def edges(self) -> Any:
        return edges_for(self.model, self.problem)

    def precision(self, layer: int = 0) -> Precision:
        assert isinstance(self.model, GLT)
        return self.model.precisions(self.x, self.problem.graph)[layer].detach()

    def untrained(self, layer: int = 0) -> Precision | None:
        """J of the same layer with the weights training began with; None where they are not known."""
        if not self.job.learned or self.material is None:
            return None
        fresh = make_model(self.job, self.problem, self.material.encoding).eval()
        assert isinstance(fresh, GLT)
        return fresh.precisions(self.x, self.problem.graph)[layer].detach()

    def loss(self, output: Tensor) -> Tensor:
        """What training descended; without labels the size of the output, for something to differentiate."""
        if self.material is None:
            return output.square().mean()
        known = self.material.split.train
        return TASKS[self.problem.task].loss(output[known], self.material.y[known])

    def hops(self) -> Hops:
        return hop_shares(self.model, self.x, self.edges, self.problem.graph)

    def curves(self, layer: int = 0) -> list[Curve]:
        """Residuals of every solver on the systems of one training pass."""
        system = layer_systems(self.model, self.x, self.edges, self.loss)[layer]
        return residual_curves(system.J, system.h, system.grad)

    @property
    def design(self) -> str:
        return f"{'learned' if self.job.learned else 'fixed'} {DESIGNS[self.job.design].title}"


def compared_hops(
    names: Sequence[str], like: Subject, make_job: Callable[[str], Job], listener: Listener
) -> dict[str, Hops]:
    """Influence by hop of other models, trained on the same nodes."""
    found = {}
    for name in names:
        if name == like.job.model:
            continue
        listener.doing(f"training {name}")
        job = make_job(name)
        material = material_of(job, like.problem)
        model, outcome = fit_model(job, material, listener.on_epoch)
        if outcome.interrupted:
            raise KeyboardInterrupt
        found[name.upper()] = Subject(job, like.problem, model, material.x, material).hops()
    return found


def small_part(J: Precision) -> tuple[Precision, int]:
    """A part of the graph small enough to see each node, and its best connected node."""
    if J.num_nodes > SMALL:
        J = restrict(J, ball(J.graph, typical_node(J.graph), SMALL, fanout=3))
    return J, int(J.graph.degree.argmax())
