"""Checkpoints of a training that spans processes, by torch.distributed.checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from walksum._files import to_json, write_file
from walksum.distributed.part import GraphPart
from walksum.training.history import Epoch
from walksum.training.loop import Batch

KEEP = 2  # the last ones: the newest may be the one that a crash interrupted


class Checkpoints:
    """A folder of checkpoints, one every so many epochs.

    Args:
        folder: where; on several machines, one that all of them share.
        part: the graph part of this process.
        about: what else must agree for a training to go on: the settings of model and recipe, as JSON values.
    """

    def __init__(self, folder: str | os.PathLike[str], part: GraphPart, about: dict[str, Any]):
        self.folder, self.rank = Path(folder), part.layout.part
        self.group = part.exchange.group
        self.about = json.loads(to_json({"graph": part.layout.fingerprint, **about}))

    def save(self, batch: Batch) -> None:
        """Write the state after the newest epoch; it counts only once it is whole."""
        run = batch.runs[0]
        number = len(run.epochs)
        target, scratch = self.folder / f"epoch-{number:06d}", self.folder / f".epoch-{number:06d}"
        if self.rank == 0:
            shutil.rmtree(scratch, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
        dist.barrier(self.group)
        with warnings.catch_warnings(action="ignore"):  # of its own deprecated parts
            dcp.save(self._state(batch), checkpoint_id=scratch, process_group=self.group)
        if self.rank == 0:
            history = [asdict(epoch) for epoch in run.epochs]
            best = None if run.best is None else run.best.number
            record = {"about": self.about, "epochs": history, "best": best, "seconds": run.seconds}
            write_file(scratch / "history.json", to_json({**record, "solves": batch.solves}))
            shutil.rmtree(target, ignore_errors=True)
            os.rename(scratch, target)
            for old in self._found()[:-KEEP]:
                shutil.rmtree(old, ignore_errors=True)
        dist.barrier(self.group)

    def restore(self, batch: Batch) -> int:
        """Load the newest checkpoint; returns the number of its epoch, or 0 without one."""
        found: list[Any] = [self._found()[-1].name if self.rank == 0 and self._found() else None]
        dist.broadcast_object_list(
            found, src=0 if self.group is None else dist.get_global_rank(self.group, 0), group=self.group
        )
        if found[0] is None:
            return 0
        path = self.folder / found[0]
        known = json.loads((path / "history.json").read_text())
        self._check(path, known["about"])
        self._load(path, batch, best=known["best"] is not None)
        run = batch.runs[0]
        run.epochs = [Epoch.from_json(each) for each in known["epochs"]]
        run.best = next((epoch for epoch in run.epochs if epoch.number == known["best"]), None)
        run.seconds = known["seconds"]
        batch.solves[:] = [tuple(tuple(map(tuple, each)) for each in both) for both in known["solves"]]  # type: ignore[misc]
        return len(run.epochs)

    def _check(self, path: Path, about: dict[str, Any]) -> None:
        for name, value in self.about.items():
            if about.get(name) != value:
                what = "another graph" if name == "graph" else f"{name}={about.get(name)!r}, not {value!r}"
                raise ValueError(f"checkpoint {path} is of {what}; choose another folder, or delete it to start anew")

    def _state(self, batch: Batch) -> dict[str, Any]:
        model, optimiser = get_state_dict(batch.step.model, batch.step.optimiser)
        best = batch.runs[0].weights or batch.step.weights(0)
        return {"model": model, "optimiser": optimiser, "best": best, f"random-{self.rank}": torch.get_rng_state()}

    def _load(self, path: Path, batch: Batch, best: bool) -> None:
        state = self._state(batch)
        before = state.pop(f"random-{self.rank}")
        with warnings.catch_warnings(action="ignore"):  # of its own deprecated parts
            stored = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
            if f"random-{self.rank}" in stored:  # else there are more processes than before: other masks of dropout
                state[f"random-{self.rank}"] = before
            dcp.load(state, checkpoint_id=path, process_group=self.group)
        set_state_dict(
            batch.step.model,
            batch.step.optimiser,
            model_state_dict=state["model"],
            optim_state_dict=state["optimiser"],
        )
        batch.runs[0].weights = state["best"] if best else None
        torch.set_rng_state(state.get(f"random-{self.rank}", before))

    def _found(self) -> list[Path]:
        return sorted(self.folder.glob("epoch-*")) if self.folder.is_dir() else []
