"""Models on disk: safetensors for the weights, JSON for the rest, never pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from walksum.solvers import SOLVERS, Solver

if TYPE_CHECKING:
    from walksum.nn.model import GLT

FORMAT = "walksum.GLT/1"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save_model(model: GLT, path: Any) -> None:
    folder = Path(path)
    if not isinstance(model.config["design"], str):
        raise ValueError(f"design={model.config['design']!r} is an object, which cannot be saved; give GLT its name")
    config = {**model.config, "solver": _solver_to_json(model.config["solver"])}
    text = json.dumps({"format": FORMAT, **config}, indent=2)  # before any file is touched: it may refuse
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as scratch:
        save_file(weights, f"{scratch}/{WEIGHTS}")
        Path(scratch, CONFIG).write_text(text)
        for name in (WEIGHTS, CONFIG):  # the config last: a folder with a config is whole
            os.replace(f"{scratch}/{name}", folder / name)


def load(path: Any) -> GLT:
    """The model :meth:`walksum.GLT.save` wrote to ``path``, in evaluation mode."""
    from walksum.nn.model import GLT

    config = _read_config(Path(path))
    try:
        model = GLT(**{**config, "solver": _solver_from_json(config["solver"])})
        weights = load_file(Path(path) / WEIGHTS)
        model.to(weights["read.weight"].dtype).load_state_dict(weights)
    except (TypeError, KeyError, RuntimeError, OSError, SafetensorError) as error:
        raise ValueError(f"{path} does not hold a complete walksum model: {error}") from error
    return model.eval()


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG
    if not file.is_file():
        raise ValueError(f"{folder} holds no {CONFIG}; expected a folder written by model.save(...)")
    try:
        config = json.loads(file.read_text())
    except (ValueError, OSError) as error:
        raise ValueError(f"{file} is not readable JSON: {error}") from error
    if not isinstance(config, dict) or config.pop("format", None) != FORMAT:
        raise ValueError(f"{file} is not of the format {FORMAT}; it was written by something else or a newer version")
    return config


def _solver_to_json(solver: Solver | str) -> Any:
    if isinstance(solver, str):
        return solver
    name = next((name for name, kind in SOLVERS.items() if kind is type(solver)), None)
    if name is None:
        raise ValueError(f"{solver!r} is not one of walksum's solvers and cannot be saved; use a known one")
    return {"name": name, **dataclasses.asdict(solver)}


def _solver_from_json(solver: Any) -> Solver | str:
    if isinstance(solver, str):
        return solver
    knobs = dict(solver)
    return SOLVERS[knobs.pop("name")](**knobs)
