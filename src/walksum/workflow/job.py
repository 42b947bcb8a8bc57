"""Job: every setting that decides the result of a training; and the model it asks for: made, saved and loaded."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from walksum._checks import check_choice
from walksum._torch import cpu_by_default
from walksum.data.encoding import NONE, TRANSFORMS
from walksum.data.problem import Problem
from walksum.designs import check_design
from walksum.nn import GLT, Propagate, load
from walksum.nn.store import CONFIG, WEIGHTS
from walksum.portfolio.fit import Portfolio
from walksum.portfolio.store import FORMAT as PORTFOLIO_FORMAT
from walksum.portfolio.store import load_portfolio, save_portfolio
from walksum.solvers import resolve_name
from walksum.training import Recipe
from walksum.training.devices import available_device
from walksum.training.models import MODELS as REGISTRY
from walksum.training.models import model_by_name
from walksum.training.scoring import METRICS

GLT_NAME, AUTO_NAME = "glt", "auto"
DEMO_MODEL = GLT_NAME  # of the digits
MODELS = (AUTO_NAME, *REGISTRY)
FORMAT = "walksum.baseline/1"


def check_graph_size(name: str, trained: int, asked: int) -> None:
    """Refuse another graph for a model that has parameters for each node of its own."""
    if name != AUTO_NAME and model_by_name(name).per_node and trained != asked:
        raise ValueError(f"model {name} has parameters for each of its {trained} nodes and cannot read another graph")


def new_model(job: Job, in_channels: int, out_channels: int, num_nodes: int) -> nn.Module:
    """The model that a job asks for, with random weights."""
    if job.model != GLT_NAME:
        return _compared(**compared_config(job, in_channels, out_channels, num_nodes))
    return GLT(
        in_channels,
        job.hidden,
        job.layers,
        out_channels,
        design=job.design,
        learned=job.learned,
        coupling=job.coupling,
        dropout=job.dropout,
        solver=job.solver,
    )


class Smoothed(nn.Module):
    """A network whose probabilities are propagated over the graph: the logarithms of what comes out."""

    def __init__(self, model: nn.Module, scale: float):
        super().__init__()
        self.model, self.spread = model, Propagate(scale)

    def forward(self, x: Tensor, edges: Any) -> Tensor:
        return self.spread(self.model(x, edges).softmax(-1), edges).clamp_min(1e-12).log()


def smoothed(model: nn.Module, scale: float) -> nn.Module:
    """The network, its probabilities propagated by this scale; 0: the network itself."""
    return Smoothed(model, scale) if scale else model


def compared_config(job: Job, in_channels: int, out_channels: int, num_nodes: int) -> dict[str, Any]:
    """What a model that is not a GLT is made from; stored beside its weights."""
    return {
        "name": job.model,
        "in_channels": in_channels,
        "out_channels": out_channels,
        "num_nodes": num_nodes,
        "hidden_channels": job.hidden,
        "dropout": job.dropout,
        "as_listed": False,
    }


def save_model(model: nn.Module | Portfolio, folder: Path, config: dict[str, Any]) -> None:
    """Weights and arguments; ``config``: :func:`compared_config` of a network that is not a GLT."""
    if isinstance(model, Portfolio):
        save_portfolio(model, folder)
        return
    try:
        if isinstance(model, GLT):
            model.save(folder)
            return
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: value.detach().contiguous() for name, value in model.state_dict().items()}, folder / WEIGHTS)
    except SafetensorError as error:  # a full disk, in safetensors' words
        raise OSError(errno.EIO, str(error), str(folder)) from error
    (folder / CONFIG).write_text(json.dumps({"format": FORMAT, **config}, indent=2))


@cpu_by_default
def load_model(folder: Path) -> nn.Module | Portfolio:
    """The model of a run folder; a network is in evaluation mode."""
    file = folder / CONFIG
    if file.is_file() and PORTFOLIO_FORMAT in file.read_text():
        return load_portfolio(folder)
    if not file.is_file() or FORMAT not in file.read_text():
        return load(folder)
    try:
        config = json.loads(file.read_text())
        config.pop("format")
        model = _compared(**config)
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (ValueError, TypeError, KeyError, RuntimeError, OSError, SafetensorError) as error:
        raise ValueError(f"{folder} does not hold a complete walksum model: {error}") from error
    return model.eval()


def _compared(
    name: str, in_channels: int, out_channels: int, *, num_nodes: int, as_listed: bool = True, **options: Any
) -> nn.Module:
    """``as_listed``: whether it reads each edge in the direction that the table lists, as in runs of 0.1.0."""
    model = model_by_name(name).make(in_channels, out_channels, num_nodes=num_nodes, **options)
    model.as_listed = as_listed  # type: ignore[assignment]
    return model


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
        check_choice("model", self.model, MODELS)
        check_design(self.design, self.learned, self.coupling)
        resolve_name(self.solver)
        available_device(self.device)
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or self.seed < 0:
            raise ValueError(f"seed={self.seed!r}; expected a whole number from 0 on")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; expected a rate in [0, 1)")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr={self.lr}; expected a positive number")
        if isinstance(self.budget, bool) or not isinstance(self.budget, Real) or not self.budget > 0:
            raise ValueError(f"budget={self.budget!r}; expected a positive number of seconds")
        if self.metric is not None:
            check_choice("metric", self.metric, tuple(METRICS))
        check_choice("class_weight", self.class_weight, (NONE, "balanced"))
        check_choice("transform", self.transform, (AUTO, *TRANSFORMS))

    def recipe(self) -> Recipe:
        slow = self.model == GLT_NAME and self.design == "laplacian" and not self.learned
        return Recipe(
            lr=model_by_name(self.model).lr if self.lr is None else self.lr,
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
    """The paper's width; a larger one for the digits, where it scores higher."""
    return DIGITS_WIDTH if problem.name == "digits" else Job.hidden
