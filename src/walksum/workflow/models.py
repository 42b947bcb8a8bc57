"""Models of a run: made from its settings, saved, loaded."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from walksum.nn import GLT, Propagate, load
from walksum.nn.store import CONFIG, WEIGHTS
from walksum.portfolio.fit import Portfolio
from walksum.portfolio.store import FORMAT as PORTFOLIO_FORMAT
from walksum.portfolio.store import load_portfolio, save_portfolio
from walksum.training.models import MODELS as REGISTRY
from walksum.training.models import model_by_name

if TYPE_CHECKING:
    from walksum.workflow.job import Job

GLT_NAME, AUTO_NAME = "glt", "auto"
DEMO_MODEL = GLT_NAME  # of the digits
MODELS = (AUTO_NAME, *REGISTRY)
FORMAT = "walksum.baseline/1"


def check_model(name: str) -> None:
    if name not in MODELS:
        raise ValueError(f"model={name!r}; known: {', '.join(MODELS)}")


def default_lr(name: str) -> float:
    """The paper's learning rate for a model."""
    return model_by_name(name).lr


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


def _compared(name: str, in_channels: int, out_channels: int, *, num_nodes: int, **options: Any) -> nn.Module:
    return model_by_name(name).make(in_channels, out_channels, num_nodes=num_nodes, **options)
