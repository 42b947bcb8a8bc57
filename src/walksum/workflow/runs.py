"""Several targets of the same tables: one run each, in one folder, with one table of predictions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from walksum._files import whole_folder
from walksum.data.problem import Problem
from walksum.workflow.predict import write_predictions
from walksum.workflow.problem import Source
from walksum.workflow.run import CONFIG, PREDICTIONS, SEVERAL, Run, free_folder, open_run

SHARED = ("id", "name")  # columns of predictions that do not depend on the target


def target_names(target: str | Sequence[str] | None, source: Source) -> list[str | None]:
    """Parse the names of targets from "a,b" or a list; a column whose name has a comma is kept whole."""
    one = isinstance(target, str) or not isinstance(target, Iterable)
    given = [target] if one else list(target)  # type: ignore[arg-type]
    found: list[str | None] = []
    for name in given:
        text = None if name is None else str(name)  # a DataFrame may have numbers for names
        if text is None or "," not in text or source.has_column(text):
            found.append(text)
        else:
            found += [part.strip() for part in text.split(",")]
    twice = [name for k, name in enumerate(found) if name in found[:k]]
    if twice or not found:
        raise ValueError(f"target={','.join(map(str, given))!r}; name each column to predict once")
    return found


def read_each(names: list[str | None], read: Callable[[str | None], Problem]) -> dict[str, Problem]:
    """Read the problem of each target; the other targets are no features, since they are to be predicted too."""
    problems = {}
    for name in names:
        problem = read(name)
        others = [each for each in names if each != name and each in getattr(problem.features, "columns", ())]
        if others:
            problem = replace(problem, features=problem.features.drop(columns=others))
        problems[name or problem.target] = problem
    return problems


class Runs(dict[str, Run]):
    """The runs of several targets, by the name of the target; made by :func:`walksum.workflow.fit_tables`."""

    @property
    def predictions(self) -> pd.DataFrame:
        """One row per node: the columns of every run's predictions, with the name of the target before them."""
        return joined({name: run.predictions for name, run in self.items()})

    @property
    def scores(self) -> pd.DataFrame:
        """Test scores of all runs, by target and method."""
        return pd.concat({name: run.scores for name, run in self.items()}, names=["target", "method"])

    def predict(self, *args: Any, **options: Any) -> pd.DataFrame:
        """As :meth:`Run.predict`, for all targets in one table."""
        return joined({name: run.predict(*args, **options) for name, run in self.items()})

    def save(self, path: str | PathLike[str], force: bool = False) -> Runs:
        """Write one folder: a run folder for each target, and their predictions together."""
        folder = free_folder(Path(path), "", force, "path")
        with whole_folder(folder, overwrite=force) as scratch:
            for name, run in self.items():
                run.write(place_of(scratch, name, list(self)))
            self.write_index(scratch)
        for name, run in self.items():
            run.folder = place_of(folder, name, list(self))
        return self

    def write_index(self, folder: Path) -> None:
        """Write the index and the joint predictions beside the folders of the runs."""
        places = {name: place_of(folder, name, list(self)).name for name in self}
        (folder / CONFIG).write_text(json.dumps({"format": SEVERAL, "targets": places}, indent=2))
        write_predictions(folder / PREDICTIONS, self.predictions)


def joined(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    first = next(iter(tables.values()))
    parts = [first[[name for name in SHARED if name in first]]]
    for target, table in tables.items():
        parts.append(table.drop(columns=[name for name in SHARED if name in table]).add_prefix(f"{target}."))
    return pd.concat(parts, axis=1)


def place_of(folder: Path, target: str, targets: list[str]) -> Path:
    """A new folder for the run of one target, named after it as far as file names allow."""
    names = [re.sub(r"[^\w-]+", "_", each).strip("_") or "target" for each in targets]
    place = targets.index(target)
    name = names[place]
    if names.count(name) > 1 or name in ("model", "tensorboard"):
        name = f"{name}-{place + 1}"
    (folder / name).mkdir(exist_ok=True)
    return folder / name


def open_runs(path: str | PathLike[str]) -> Runs:
    """Read the runs of a folder, by target."""
    folder = Path(path)
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        config = {}
    if not isinstance(config, dict) or config.get("format") != SEVERAL:
        run = open_run(folder)
        return Runs({run.config["target"]: run})
    return Runs({name: open_run(folder / place) for name, place in config["targets"].items()})
