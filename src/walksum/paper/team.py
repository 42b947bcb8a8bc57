"""Models that train together: the parameters of all seeds stacked, one forward for them all.

Adam, weight decay and every layer act on each seed alone, so a stack trains exactly as its members would one after
another; only the masks of dropout are drawn in another order. ``walksum.solve`` takes the seeds as heads of one J
(learned) or as columns (fixed), so a solve of thirty seeds costs little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import stack_module_state, vmap

from walksum.paper.sweep.spec import RunSpec
from walksum.paper.workbench import Workbench


class Team(Protocol):
    """What the training loop needs of the models it trains."""

    model: nn.Module  # whose layers hold the reports of the last solves

    def outputs(self, training: bool) -> Tensor:
        """``[S, N, C]`` of all members."""

    def step(self) -> None:
        """Descend along the gradients and clear them."""

    def keep(self, members: Tensor) -> None:
        """Go on with these members alone."""


def after_step(model: nn.Module) -> None:
    """Some baselines project their weights back."""
    project = getattr(model, "after_step", None)
    if callable(project):
        project()


class Alone:
    """A team of one, without any transform."""

    def __init__(self, bench: Workbench, seed: int):
        self.bench = bench
        self.model = bench.model(seed)
        self.optimiser = _adam(list(self.model.parameters()), bench.cell)

    def outputs(self, training: bool) -> Tensor:
        self.model.train(training)
        return self.model(self.bench.x, self.bench.edges).unsqueeze(0)

    def step(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()
        after_step(self.model)

    def keep(self, members: Tensor) -> None:
        pass


class Stack:
    """Several members with stacked parameters ``[S, ...]``."""

    def __init__(self, bench: Workbench, seeds: Sequence[int]):
        self.bench = bench
        models = [bench.model(seed) for seed in seeds]
        parameters, buffers = stack_module_state(models)
        self.model = models[0].requires_grad_(False)
        self.parameters = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        self.buffers = buffers
        self.places = _places(self.model, "_parameters", parameters) + _places(self.model, "_buffers", buffers)
        self.optimiser = _adam(list(self.parameters.values()), bench.cell)
        torch.manual_seed(seeds[0])  # of the dropout of all

    def outputs(self, training: bool) -> Tensor:
        self.model.train(training)
        return self._vmapped(lambda: self.model(self.bench.x, self.bench.edges))

    def step(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()
        if hasattr(self.model, "after_step"):
            with torch.no_grad():
                self._vmapped(lambda: after_step(self.model))

    def _vmapped(self, call: Callable[[], Tensor | None]) -> Tensor:
        def one(values: list[Tensor]) -> Tensor:
            with _filled(self.places, values):
                out = call()
            return torch.zeros(()) if out is None else out  # vmap wants a tensor

        return vmap(one, randomness="different")([*self.parameters.values(), *self.buffers.values()])

    def keep(self, members: Tensor) -> None:
        kept = {name: value.detach()[members].requires_grad_() for name, value in self.parameters.items()}
        optimiser = _adam(list(kept.values()), self.bench.cell)
        for name, value in kept.items():
            state = self.optimiser.state[self.parameters[name]]
            # the moments have the shape of the parameter; the count of steps is common to all
            optimiser.state[value] = {key: v[members] if v.dim() else v for key, v in state.items()}
        self.parameters, self.optimiser = kept, optimiser
        self.buffers = {name: value[members] for name, value in self.buffers.items()}


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


def _adam(parameters: list[Tensor], cell: RunSpec) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=cell.lr, weight_decay=cell.weight_decay, fused=True)
