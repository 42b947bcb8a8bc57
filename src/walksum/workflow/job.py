"""Job: how to train; every setting that decides the result."""

from __future__ import annotations

from dataclasses import dataclass

from walksum._checks import check_choice
from walksum.data.problem import Problem
from walksum.data.target import NONE, TRANSFORMS
from walksum.designs import check_design
from walksum.solvers import resolve_name
from walksum.training import Recipe
from walksum.training.devices import available_device
from walksum.training.scoring import METRICS
from walksum.workflow.models import AUTO_NAME, GLT_NAME, check_model, default_lr

AUTO = "auto"  # a choice that validation nodes make
TITLES = {GLT_NAME: "GLT", "mlp": "MLP"}
SLOW_PATIENCE, PATIENCE = 200, 100  # the paper's, for the fixed Laplacian and for all else
# what only a network has; whoever sets one of them and names no model means a GLT
NETWORK_SETTINGS = ["design", "learned", "coupling", "solver", "hidden", "layers", "dropout", "lr", "patience"]
NETWORK_SETTINGS += ["max_epochs"]
DIGITS_WIDTH = 128  # over five splits 0.2 points above 64, on validation and on test nodes


@dataclass(frozen=True)
class Job:
    """How to train. Every setting that decides the result is here.

    Args:
        model: "auto", a portfolio blended by validation; "glt"; or a compared model such as "gcn" or "mlp".
        budget: seconds for the members of a portfolio, and again for the rows compared with any model.
        design, learned, coupling: how J is made from the graph; coupling None: the paper's.
        solver: how mu is found.
        hidden, layers, dropout: of the model.
        lr, patience: of the training; None: what the paper uses for the model.
        max_epochs: epochs at most.
        split: counts ("87,59,37"), fractions ("0.6,0.2,0.2") or a protocol; None: see
            :func:`walksum.data.problem_split.split_problem`.
        seed: decides the split and the initial weights.
        device: "auto", "cpu" or "cuda".
        metric: what chooses epochs, members and settings and sorts the comparison: a name in
            ``walksum.training.scoring.METRICS``; None: accuracy or R^2.
        class_weight: "none", or "balanced": the predicted class is the one whose probability is largest in relation
            to its share of the training nodes. Probabilities stay as they are.
        transform: of a number to learn: "none", "log", "quantile", or "auto": validation nodes choose if it is skewed.
    """

    model: str = GLT_NAME
    design: str = "diagonally-dominant"
    learned: bool = False
    coupling: str | None = None
    solver: str = "auto"
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.6
    lr: float | None = None
    patience: int | None = None
    max_epochs: int = 2000
    split: str | None = None
    seed: int = 0
    device: str = "auto"
    budget: float = 60.0
    metric: str | None = None
    class_weight: str = NONE
    transform: str = AUTO

    def check(self) -> None:
        """Refuse what cannot work, before a large file is read."""
        check_model(self.model)
        check_design(self.design, self.learned, self.coupling)
        resolve_name(self.solver)
        available_device(self.device)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; expected a rate in [0, 1)")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr={self.lr}; expected a positive number")
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | float) or not self.budget > 0:
            raise ValueError(f"budget={self.budget!r}; expected a positive number of seconds")
        if self.metric is not None:
            check_choice("metric", self.metric, tuple(METRICS))
        check_choice("class_weight", self.class_weight, (NONE, "balanced"))
        check_choice("transform", self.transform, (AUTO, *TRANSFORMS))

    def recipe(self) -> Recipe:
        slow = self.model == GLT_NAME and self.design == "laplacian" and not self.learned
        return Recipe(
            lr=default_lr(self.model) if self.lr is None else self.lr,
            patience=(SLOW_PATIENCE if slow else PATIENCE) if self.patience is None else self.patience,
            max_epochs=self.max_epochs,
        )

    @property
    def title(self) -> str:
        return TITLES.get(self.model, self.model)

    @property
    def settings(self) -> str:
        """What a search varies, in words; of a portfolio its budget."""
        if self.model == AUTO_NAME:
            return f"budget {self.budget:g} s"
        common = f"width {self.hidden}, dropout {self.dropout:g}, lr {self.recipe().lr:.2g}"
        if self.model != GLT_NAME:
            return common
        design = f"{'learned' if self.learned else 'fixed'} {self.design}"
        return f"{design}, {self.coupling or 'default'} coupling, {common}"


def default_width(problem: Problem) -> int:
    """The paper's width; a larger one for the digits, where it pays."""
    return DIGITS_WIDTH if problem.name == "digits" else Job.hidden
