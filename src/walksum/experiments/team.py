"""Models that train together: the parameters of all seeds stacked, one forward for them all.

Adam, weight decay and every layer act on each seed alone, so a stack trains exactly as its members would one after
another; only the masks of dropout are drawn in another order. ``walksum.solve`` takes the seeds as heads of one J (learned)
or as columns (fixed), so a solve of thirty seeds costs little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from walksum.experiments.spec import RunSpec
from walksum.experiments.workbench import Workbench


class Team(Protocol):
    """What the training loop needs of the models it trains."""

    model: nn.Module  # whose layers hold the reports of the last solves

    def outputs(self, training: bool) -> Tensor:
        """``[S, N, C]`` of all members."""

    def step(self) -> None:
        """Descend along the gradients and clear them."""

    def keep(self, members: Tensor) -> None:
        """Go on with these members alone."""


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
        if hasattr(self.model, "after_step"):
            self.model.after_step()

    def keep(self, members: Tensor) -> None:
        pass


class Stack:
    """Several members with stacked parameters ``[S, ...]``."""

    def __init__(self, bench: Workbench, seeds: Sequence[int]):
        self.bench = bench
        models = [bench.model(seed) for seed in seeds]
        self.model = models[0]
        self.entry = _Entry(self.model)
        parameters, self.buffers = stack_module_state(models)
        self.parameters = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        self.optimiser = _adam(list(self.parameters.values()), bench.cell)
        torch.manual_seed(seeds[0])  # of the dropout of all

    def outputs(self, training: bool) -> Tensor:
        self.model.train(training)
        return self._call("forward", self.bench.x, self.bench.edges)

    def step(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()
        if hasattr(self.model, "after_step"):
            with torch.no_grad():
                self._call("after_step")

    def _call(self, method: str, *args: Any) -> Any:
        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Any:
            state = {f"model.{name}": value for name, value in (*parameters.items(), *buffers.items())}
            return functional_call(self.entry, state, (method, *args))

        return vmap(one, randomness="different")(self.parameters, self.buffers)

    def keep(self, members: Tensor) -> None:
        kept = {name: value.detach()[members].requires_grad_() for name, value in self.parameters.items()}
        optimiser = _adam(list(kept.values()), self.bench.cell)
        for name, value in kept.items():
            state = self.optimiser.state[self.parameters[name]]
            # the moments have the shape of the parameter; the count of steps is common to all
            optimiser.state[value] = {key: v[members] if v.dim() else v for key, v in state.items()}
        self.parameters, self.optimiser = kept, optimiser
        self.buffers = {name: value[members] for name, value in self.buffers.items()}


class _Entry(nn.Module):
    """``functional_call`` only knows ``forward``; this one leads to any method."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, method: str, *args: Any) -> Any:
        out = getattr(self.model, method)(*args)
        return torch.zeros(()) if out is None else out  # vmap wants a tensor


def _adam(parameters: list[Tensor], cell: RunSpec) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=cell.lr, weight_decay=cell.weight_decay, fused=True)
