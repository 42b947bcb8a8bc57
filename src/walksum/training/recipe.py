"""How to train: every number that decides a training apart from model and data; its optimiser, and one step of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from walksum._checks import check_choice, check_count
from walksum.solvers.deferred import capturing

SELECT = ("score", "loss")


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's for graph linear transformations.

    Args:
        lr, weight_decay: of the optimiser.
        patience: stop after so many epochs without a better one on the validation nodes.
        max_epochs: stop here in any case.
        select: what makes an epoch better: "score" (the task's; ties: a lower loss) or "loss".
        optimiser: "adam" or "adamw".
        optimiser_options: further keyword arguments of the torch optimiser, such as ``betas``.
    """

    lr: float = 1e-3
    weight_decay: float = 5e-4
    patience: int = 100
    max_epochs: int = 2000
    select: str = "score"
    optimiser: str = "adam"
    optimiser_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count("max_epochs", self.max_epochs)
        check_choice("select", self.select, SELECT)
        check_choice("optimiser", self.optimiser, ("adam", "adamw"))


OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def descend(loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer) -> Tensor:
    """One step along the gradient of the loss; of the losses of several runs, each run follows its own."""
    optimiser.zero_grad()
    losses = loss()
    # a GPU's backward pass has a thread of its own, which takes longer to wake than a small step; recorded, none waits
    with torch.autograd.set_multithreading_enabled(capturing(losses)):
        losses.sum().backward()
    optimiser.step()
    return losses.detach()


def make_optimiser(
    model: nn.Module, recipe: Recipe, parameters: Mapping[str, Tensor] | None = None
) -> torch.optim.Optimizer:
    """The recipe's optimiser; on a GPU of the kind that a CUDA graph can capture.

    Args:
        model: may have ``parameter_groups(weight_decay)``, which returns torch's parameter groups; without it,
            all parameters have the recipe's weight decay.
        parameters: by name, in place of the model's own: those of several seeds stacked.
    """
    own = dict(model.named_parameters())
    values = own if parameters is None else parameters
    names = {id(value): name for name, value in own.items()}
    make_groups = getattr(model, "parameter_groups", None)
    groups = make_groups(recipe.weight_decay) if callable(make_groups) else [{"params": list(own.values())}]
    groups = [{**group, "params": [values[names[id(each)]] for each in group["params"]]} for group in groups]
    options: dict[str, Any] = {"fused": True, "weight_decay": recipe.weight_decay, **recipe.optimiser_options}
    if any(value.is_cuda for value in values.values()):
        options.setdefault("capturable", True)
    return OPTIMISERS[recipe.optimiser](groups, lr=recipe.lr, **options)  # type: ignore[call-arg]
