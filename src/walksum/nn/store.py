"""Models on disk: safetensors for the weights, JSON for the rest, never pickle."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from walksum._files import write_file
from walksum.designs import DESIGNS, Design
from walksum.designs.similarity import SIMILARITIES, Similarity
from walksum.solvers import SOLVERS, Solver

if TYPE_CHECKING:
    from walksum.nn.model import GLT

FORMAT = "walksum.GLT/1"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
# what arguments from a file that somebody changed can end in
BROKEN = (TypeError, KeyError, AttributeError, OverflowError, RecursionError, RuntimeError, OSError, SafetensorError)


def save_model(model: GLT, path: str | os.PathLike[str]) -> None:
    """Write the two files of a model into the folder ``path``."""
    folder = Path(path)
    if isinstance(model.embed, torch.nn.LazyLinear):
        raise ValueError("in_channels=-1: the first input tells the width; call the model once before it is saved")
    config = {name: to_json(name, value) for name, value in model.config.items()}
    text = json.dumps({"format": FORMAT, **config}, indent=2, allow_nan=False)
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    _refuse_changed(model, config)
    write_file(folder / WEIGHTS, lambda scratch: save_file(weights, scratch))
    write_file(folder / CONFIG, text)  # last: a folder with a config is whole


def load(path: str | os.PathLike[str]) -> GLT:
    """The model :meth:`walksum.GLT.save` wrote to ``path``, in evaluation mode.

    Example:
        >>> import torch, walksum as ws
        >>> import tempfile
        >>> model = ws.GLT(4, 8, 2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     again = ws.load(folder)
        >>> x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> torch.equal(again(x, edge_index), model.eval()(x, edge_index))
        True
    """
    config = _read_config(Path(path))
    try:
        model = _made(config)
        weights = load_file(Path(path) / WEIGHTS)
        model.to(weights["read.weight"].dtype).load_state_dict(weights)
    except BROKEN as error:
        raise ValueError(f"{path} does not hold a complete walksum model: {error}") from error
    return model.eval()


def _made(config: dict[str, Any]) -> GLT:
    from walksum.nn.model import GLT

    parts = {"solver": solver_from_json(config["solver"]), "design": design_from_json(config["design"])}
    return GLT(**{**config, **parts})


def _refuse_changed(model: GLT, config: dict[str, Any]) -> None:
    """A model that was changed after it was made would come back as it was made, or not at all."""
    with torch.device("meta"):
        made = _made(config)
    found, wanted = ({name: value.shape for name, value in each.state_dict().items()} for each in (model, made))
    odd = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    odd += [
        f"blocks.{k}.mix.design"
        for k, (mixer, other) in enumerate(zip(model.mixers, made.mixers, strict=False))
        if not odd and design_to_json(mixer.design) != design_to_json(other.design)
    ]
    if odd:
        raise ValueError(
            f"the model was changed after it was made, at {', '.join(odd[:3])}, and load makes it anew by its "
            "arguments; take back what was changed (parametrizations by remove_parametrizations), or use torch.save"
        )


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG
    if not file.is_file():
        raise ValueError(f"{folder} holds no {CONFIG}; expected a folder written by model.save(...)")
    try:
        config = json.loads(file.read_text(), parse_constant=_refuse_constant)
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{file} is not readable JSON: {error}") from error
    if not isinstance(config, dict) or config.pop("format", None) != FORMAT:
        raise ValueError(f"{file} is not of the format {FORMAT}; it was written by something else or a newer version")
    return config


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}, which is not JSON")


def to_json(name: str, value: Any) -> Any:
    """An argument of a model as JSON holds it; a ValueError where it has no name."""
    if isinstance(value, Solver):
        kind = next((key for key, solver in SOLVERS.items() if solver is type(value)), None)
        if kind is None:
            raise ValueError(f"{value!r} is not one of walksum's solvers and cannot be saved; use a known one")
        return {"name": kind, **dataclasses.asdict(value)}
    if isinstance(value, Design):
        return design_to_json(value)
    if isinstance(value, Similarity):
        value = next((key for key, known in SIMILARITIES.items() if known == value), value)
    if value is not None and not isinstance(value, str | int | float | list):
        raise ValueError(f"{name}={value!r} is an object, which cannot be saved; use one that has a name")
    return value


def design_to_json(design: Design) -> dict[str, Any]:
    """Name and arguments of a design in the registry."""
    for entry in DESIGNS.values():
        if type(design) in (entry.fixed, entry.learned):
            arguments = {name: to_json(name, value) for name, value in design.arguments().items()}
            return {"name": entry.name, "learned": type(design) is entry.learned, **arguments}
    raise ValueError(
        f"design={design!r} is not one of walksum.designs.DESIGNS and cannot be saved; enter its class there"
    )


def solver_from_json(stored: Any) -> Solver | str:
    """What :func:`to_json` wrote of a solver."""
    if isinstance(stored, str):
        return stored
    arguments = _arguments("solver", stored)
    return SOLVERS[arguments.pop("name")](**arguments)


def design_from_json(stored: Any) -> Design | str:
    """What :func:`design_to_json` wrote."""
    if isinstance(stored, str):
        return stored
    arguments = _arguments("design", stored)
    return DESIGNS[arguments.pop("name")].variant(arguments.pop("learned"))(**arguments)


def _arguments(name: str, stored: Any) -> dict[str, Any]:
    if not isinstance(stored, dict):
        raise TypeError(f"{name} is a {type(stored).__name__}; expected a name or its arguments")
    return dict(stored)
