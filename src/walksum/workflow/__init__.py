"""From tables to a run and its predictions: what the command does, as Python functions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walksum.workflow.run import Run, open_run
    from walksum.workflow.tables import fit_tables

__all__ = ["fit_tables", "open_run", "Run"]

_LATER = {"fit_tables": "tables", "open_run": "run", "Run": "run"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"walksum.workflow.{_LATER[name]}"), name)
    raise AttributeError(f"module 'walksum.workflow' has no attribute {name!r}")
