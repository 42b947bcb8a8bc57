"""Three ways to take a training step: as it is written, as one CUDA graph, or for the stacked weights of many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import stack_module_state, vmap

from walksum.nn import GLTConv
from walksum.solvers import Solution
from walksum.training.cuda_graph import TrainingStep
from walksum.training.data import Data, Subset
from walksum.training.history import LayerSolves, StepSolves
from walksum.training.recipe import Recipe, descend, make_optimiser


def make_step(models: Sequence[nn.Module], data: Data, recipe: Recipe, nodes: Subset, capture: bool) -> EagerStep:
    """The fastest kind of training step for these runs."""
    if len(models) > 1:
        return StackedStep(models, data, recipe, nodes)
    if capture and data.device.type == "cuda":
        return CapturedStep(models[0], data, recipe, nodes)
    return EagerStep(models[0], data, recipe, nodes)


class EagerStep:
    """One model, its operations one after another.

    Attributes:
        model: whose layers hold the reports of the last solves.
        captured, not_captured: whether the step runs as a CUDA graph, and why it does not.
    """

    captured = False
    not_captured: str | None = "the step runs on a CPU, or capture=False"

    def __init__(self, model: nn.Module, data: Data, recipe: Recipe, nodes: Subset):
        self.model, self.data, self.recipe, self.nodes = model, data, recipe, nodes
        self.optimiser = make_optimiser(model, recipe)

    def __call__(self) -> Tensor:
        """Train for one epoch; the losses of the S runs before it ``[S]``."""
        self.model.train()
        losses = self._descend()
        self._project()
        return losses

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """In evaluation mode ``[S, N, C]``."""
        self.model.eval()
        return self._forward()

    def weights(self, run: int) -> dict[str, Tensor]:
        """A copy of the state of this run's model."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def keep(self, runs: Tensor) -> None:
        """Continue with these runs only; here there is one."""

    def _descend(self) -> Tensor:
        return descend(self._losses, self.optimiser)

    def _losses(self) -> Tensor:
        return self.nodes.losses(self._forward())

    def _forward(self) -> Tensor:
        return self.model(self.data.x, self.data.edges).unsqueeze(0)

    def _project(self) -> None:
        """Some models move their weights back into a set after each step of the optimiser."""
        project = getattr(self.model, "after_step", None)
        if callable(project):
            project()


class CapturedStep(EagerStep):
    """One model on a GPU: the fourth step is captured as a CUDA graph and replayed from then on, where it can be."""

    def __init__(self, model: nn.Module, data: Data, recipe: Recipe, nodes: Subset):
        super().__init__(model, data, recipe, nodes)
        self.step = TrainingStep(self._losses, self.optimiser)

    @property
    def captured(self) -> bool:  # type: ignore[override]
        return self.step.captured

    @property
    def not_captured(self) -> str | None:  # type: ignore[override]
        return self.step.reason

    def _descend(self) -> Tensor:
        return torch.tensor([self.step()], device=self.data.device)


class StackedStep(EagerStep):
    """Several models of one kind as one computation on stacked weights ``[S, ...]``.

    The optimiser, weight decay and every layer act on each run alone, so runs train exactly as they would one after
    another; only the masks of dropout are drawn in another order. :func:`walksum.solve` takes the runs as heads of one
    J (learned) or as columns (fixed), so a solve of thirty runs costs little more than one.
    """

    not_captured = "stacked runs are not captured"

    def __init__(self, models: Sequence[nn.Module], data: Data, recipe: Recipe, nodes: Subset):
        self.data, self.recipe, self.nodes = data, recipe, nodes
        parameters, self.buffers = stack_module_state(list(models))
        self.model = models[0]
        self.parameters = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        self.places = _places(self.model, "_parameters", parameters) + _places(self.model, "_buffers", self.buffers)
        self.optimiser = make_optimiser(self.model, recipe, self.parameters)

    def _forward(self) -> Tensor:
        return self._vmapped(lambda: self.model(self.data.x, self.data.edges))

    @torch.no_grad()
    def _project(self) -> None:
        if hasattr(self.model, "after_step"):
            self._vmapped(super()._project)

    def _vmapped(self, call: Callable[[], Tensor | None]) -> Tensor:
        def one(values: list[Tensor]) -> Tensor:
            with _filled(self.places, values):
                out = call()
            return torch.zeros(()) if out is None else out  # vmap wants a tensor

        return vmap(one, randomness="different")([*self.parameters.values(), *self.buffers.values()])

    def weights(self, run: int) -> dict[str, Tensor]:
        state = self.parameters | self.buffers
        return {name: state[name][run].detach().clone() for name in self.model.state_dict()}

    def keep(self, runs: Tensor) -> None:
        kept = {name: value.detach()[runs].requires_grad_() for name, value in self.parameters.items()}
        optimiser = make_optimiser(self.model, self.recipe, kept)
        for name, value in kept.items():
            state = self.optimiser.state[self.parameters[name]]
            # the moments have the shape of the parameter; the count of steps is common to all
            optimiser.state[value] = {key: v[runs] if v.dim() else v for key, v in state.items()}
        self.parameters, self.optimiser = kept, optimiser
        self.buffers = {name: value[runs] for name, value in self.buffers.items()}
        self.nodes = self.nodes.select(runs)


def last_solves(layers: Iterable[GLTConv]) -> StepSolves:
    """How the solves of the last training step ended, forward and backward."""
    both = [(layer.last_solve, layer.last_backward_solve) for layer in layers]
    return _reports(forward for forward, _ in both), _reports(backward for _, backward in both)


def _reports(solutions: Iterable[Solution | None]) -> LayerSolves:
    return tuple((s.steps, s.residual, s.status.name) for s in solutions if s is not None)


Place = tuple[dict[str, Any], str]  # where a module keeps one of its tensors


def _places(model: nn.Module, kind: str, names: Iterable[str]) -> list[Place]:
    modules = dict(model.named_modules())
    paths = [name.rpartition(".") for name in names]
    return [(getattr(modules[path], kind), key) for path, _, key in paths]


@contextmanager
def _filled(places: list[Place], values: list[Tensor]) -> Iterator[None]:
    """``torch.func.functional_call`` in short: its search for tied weights takes longer than a small model."""
    own = [home[key] for home, key in places]
    try:
        for (home, key), value in zip(places, values, strict=True):
            home[key] = value
        yield
    finally:
        for (home, key), value in zip(places, own, strict=True):
            home[key] = value
