"""Every model by name: the GLT and the compared ones, made, saved and loaded alike."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from walksum.nn import GLT, load
from walksum.nn.store import CONFIG, WEIGHTS
from walksum.paper.models import BASELINES, make_baseline

GLT_NAME = "glt"
MODELS = (GLT_NAME, *BASELINES)
FORMAT = "walksum.baseline/1"


def check_model(name: str) -> None:
    if name not in MODELS:
        raise ValueError(f"model={name!r}; known: {', '.join(MODELS)}")


def save_any(model: nn.Module, folder: Path, config: dict[str, Any]) -> None:
    """``config``: the arguments of :func:`make_baseline` for a model that is not a GLT."""
    try:
        if isinstance(model, GLT):
            model.save(folder)
            return
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: value.detach().contiguous() for name, value in model.state_dict().items()}, folder / WEIGHTS)
    except SafetensorError as error:  # a full disk, in safetensors' words
        raise OSError(errno.EIO, str(error), str(folder)) from error
    (folder / CONFIG).write_text(json.dumps({"format": FORMAT, **config}, indent=2))


def load_any(folder: Path) -> nn.Module:
    """The model of a run folder, in evaluation mode."""
    file = folder / CONFIG
    if not file.is_file() or FORMAT not in file.read_text():
        return load(folder)
    config = json.loads(file.read_text())
    config.pop("format")
    try:
        model = make_baseline(**config)
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (TypeError, KeyError, RuntimeError, OSError, SafetensorError) as error:
        raise ValueError(f"{folder} does not hold a complete walksum model: {error}") from error
    return model.eval()
