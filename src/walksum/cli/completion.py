"""What the shell completes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any


def _names(module: str, found: Callable[[Any], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes names that a module holds, which is imported when the shell asks."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in found(import_module(f"walksum.{module}")) if name.startswith(incomplete)]

    return complete


of_datasets = _names("data.datasets", lambda module: module.names())
of_designs = _names("designs", lambda module: module.NAMES)
of_couplings = _names("designs", lambda module: module.COUPLINGS)
of_models = _names("workflow.job", lambda module: module.MODELS)
of_rows = _names("cli.bench_options", lambda module: (*module.GROUPS, *module.ROWS))
of_solvers = _names("solvers", lambda module: ("auto", *module.SOLVERS))
of_devices = _names("training.devices", lambda module: module.DEVICES)
of_tasks = _names("training.data", lambda module: module.TASKS)
of_metrics = _names("training.scoring", lambda module: module.METRICS)
