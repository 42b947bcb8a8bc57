"""How to train: every number that decides a training, apart from model and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from walksum._checks import check_choice, check_count

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
