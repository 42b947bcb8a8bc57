"""A portfolio in a folder: JSON and safetensors, never pickle; only members that some blend weighs are kept."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from walksum._files import finite_or_none, write_file
from walksum.graph import Graph
from walksum.portfolio.arrays import below
from walksum.portfolio.blend import Blend
from walksum.portfolio.fit import ELSEWHERE, WITHOUT_TARGETS, Portfolio
from walksum.portfolio.members import KINDS
from walksum.portfolio.problem import Problem
from walksum.portfolio.residual import ResidualField
from walksum.portfolio.schedule import Member, Model

FORMAT = "walksum.portfolio/1"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save_portfolio(portfolio: Portfolio, folder: Path) -> None:
    """Write what other tables need."""
    folder.mkdir(parents=True, exist_ok=True)
    blends = {name: b for name, b in portfolio.blends.items() if name in (ELSEWHERE, WITHOUT_TARGETS)}
    used = np.nonzero(sum((b.weights for b in blends.values()), np.zeros(len(portfolio.members))))[0]
    models, members, arrays = _models(portfolio, used)
    problem = portfolio.problem
    for name in ("basis", "smoothed_basis"):
        if (found := getattr(problem, name)) is not None:
            arrays[name] = found
    arrays |= {f"limits.{name}": values for name, values in portfolio.limits.items()}
    for name, values in portfolio.residuals.items():
        if name in blends:
            arrays[f"residuals.{name}"] = values
    config = {
        "format": FORMAT,
        "classes": problem.classes,
        "seed": problem.seed,
        "features": int(problem.X.shape[1]),
        "wide": problem.wide,
        "exact": problem.exact,
        "directed": problem.arcs is not None,
        "arc_targets": problem.arc_targets,
        "unit": problem.unit,
        "folds": len(problem.folds),
        "models": models,
        "members": members,
        "blends": {
            name: {"weights": blend.weights[used].tolist(), "powers": blend.powers[used].tolist()}
            for name, blend in blends.items()
        },
        "widths": {name: value for name, value in portfolio.widths.items() if name in blends},
        "disagreement": {name: value for name, value in portfolio.disagreement.items() if name in blends},
        "fields": {name: asdict(value) for name, value in portfolio.fields.items() if name in blends},
        "bound": portfolio.bound,
        "validation": finite_or_none(portfolio.validation),
    }
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    try:
        write_file(folder / WEIGHTS, lambda path: save_file(arrays, path))
    except SafetensorError as error:  # a full disk, in safetensors' words
        raise OSError(errno.EIO, str(error), str(folder)) from error
    write_file(folder / CONFIG, json.dumps(config, indent=2))


def _models(portfolio: Portfolio, used: np.ndarray) -> tuple[list[dict], list[dict], dict[str, np.ndarray]]:
    kinds = {kind: name for name, kind in KINDS.items()}
    groups: dict[int, list[int]] = {}
    for k in used:
        groups.setdefault(id(portfolio.members[k].model), []).append(int(k))
    models: list[dict] = []
    arrays: dict[str, np.ndarray] = {}
    place: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(groups.values()):
        model = portfolio.members[group[0]].model
        assert model is not None
        kept = model.keep([portfolio.members[k].index for k in group])
        how, found = kept.state()
        models.append({"kind": kinds[type(kept)], **how})
        arrays |= {f"model{number}/{name}": value for name, value in found.items()}
        place |= {k: (number, index) for index, k in enumerate(group)}
    members = []
    for k in used:
        member, (number, index) = portfolio.members[k], place[int(k)]
        uses = {"graph": member.uses_graph, "targets": member.uses_targets}
        members.append({"name": member.name, "model": number, "index": index, **uses})
    return models, members, arrays


def load_portfolio(folder: Path) -> Portfolio:
    """What :func:`save_portfolio` wrote; it can be asked about tables."""
    try:
        config = json.loads((folder / CONFIG).read_text())
        if config["format"] != FORMAT:
            raise ValueError(f"format {config['format']!r}; expected {FORMAT}")
        return _portfolio(config, load_file(folder / WEIGHTS))
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, OSError, SafetensorError) as error:
        raise ValueError(f"{folder} does not hold a complete walksum portfolio: {error}") from error


def _portfolio(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> Portfolio:
    models: list[Model] = [
        KINDS[how["kind"]].of_state(how, below(f"model{number}/", arrays))
        for number, how in enumerate(config["models"])
    ]
    nothing = np.zeros((config["folds"], 0, max(1, config["classes"])))
    members = [
        Member(m["name"], nothing, m["graph"], m["targets"], 0.0, models[m["model"]], m["index"])
        for m in config["members"]
    ]
    blends = {
        name: Blend(np.array(b["weights"]) > 0, np.array(b["weights"]), np.array(b["powers"]))
        for name, b in config["blends"].items()
    }
    empty = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 0)
    problem = Problem(
        np.zeros((0, config["features"])), empty, np.zeros(0), config["classes"], [], config["seed"],
        arcs=np.zeros((2, 0), np.int64) if config["directed"] else None, wide=config["wide"], exact=config["exact"],
        basis=arrays.get("basis"), smoothed_basis=arrays.get("smoothed_basis"), unit=config.get("unit"),
        arc_targets=config.get("arc_targets", False),
    )  # fmt: skip
    fields = {name: ResidualField(**value) for name, value in config["fields"].items()}
    residuals, limits = below("residuals.", arrays), below("limits.", arrays)  # older runs have no limits
    more = {name: config[name] for name in ("disagreement", "bound", "validation") if name in config}
    return Portfolio(problem, members, blends, config["widths"], residuals, fields, limits=limits, **more)
