"""walksum solve."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from walksum.cli import completion
from walksum.cli.console import Console, missing_folders

if TYPE_CHECKING:
    from torch import Tensor

    from walksum.precision import Precision
    from walksum.solvers import Solver

DENSE_LIMIT = 4000  # nodes up to which --compare runs the dense solver
TOO_MUCH_WORK = "max_operations"  # the argument that a solver by elimination names when it declines


class TooMuchFill(ValueError):
    """A solver by elimination declined a matrix."""


def solve(
    console: Console,
    matrix: Annotated[Path, typer.Option(help="J: MatrixMarket (.mtx, .mtx.gz) or scipy's .npz.")],
    rhs: Annotated[Path, typer.Option(help="h: .npy, .npz (its first array), .mtx or .txt; [N] or [N, F].")],
    solver: Annotated[str, typer.Option(help="How mu is found.", autocompletion=completion.of_solvers)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write mu here, as .npy.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Run every solver that applies.")] = False,
) -> None:
    """Solve J mu = h for a symmetric matrix from files, in float64.

    Example: walksum solve --matrix A.mtx --rhs b.npy --compare
    """
    from walksum._files import write_file
    from walksum.data.files import read_system
    from walksum.solvers import resolve_name

    resolve_name(solver)
    if out is not None and out.suffix not in ("", ".npy"):
        raise ValueError(f"out={out} is no name of a .npy file, which is what is written; end it in .npy")
    J, h = read_system(matrix, rhs)
    low, high = J.walk_summability()
    verdict = "walk-summable" if high < 1 else "not walk-summable" if low >= 1 else "too near to 1 to decide"
    console.say(f"{matrix.name}: {J.num_nodes} rows, {J.graph.num_edges} couplings, {h.size(1)} right-hand sides")
    console.say(f"walk-summability radius in [{low:.6g}, {high:.6g}]: {verdict}")
    record = _run(solver, J, h)
    console.say(f"{record['solver']}: {record['status']} in {record['steps']} steps, residual {record['residual']:.1e}")
    mu = record.pop("value")
    if out is not None and not mu.isfinite().all():
        console.say(f"{out} is not written: mu is not finite")
    elif out is not None:
        new = missing_folders(out)
        write_file(out, lambda path: _save(path, mu))
        console.say(f"mu written to {out}{f' (made the folder {new})' if new else ''}")
    shared: dict[str, Any] = {"radius": [low, high], **record, "out": None if out is None else str(out)}
    if compare:
        rows = [_run_if_it_fits(each, J, h) for each in _applicable(J)]
        console.table(_table(rows), always=True)
        shared["compare"] = [{k: v for k, v in row.items() if k != "value"} for row in rows]
    if record["status"] != "converged":
        raise ValueError(record["advice"])
    console.result(shared)


def _save(path: Path, mu: Tensor) -> None:
    import numpy as np

    with path.open("wb") as file:  # np.save would add its own ending to a temporary name
        np.save(file, mu.numpy())


def _run(name: str, J: Precision, h: Tensor) -> dict[str, Any]:
    from walksum.solvers import resolve

    solver: Solver = resolve(name, J, h.size(1))
    started = time.perf_counter()
    try:
        found = solver.prepare(J)(h)
    except ValueError as error:
        if TOO_MUCH_WORK in str(error):
            raise TooMuchFill(f"{solver.name}: elimination would fill in too much here; use solver='auto'") from error
        raise
    return {
        "solver": solver.name,
        "status": found.status.name,
        "steps": found.steps,
        "residual": found.residual,
        "seconds": time.perf_counter() - started,
        "advice": found.describe(),
        "value": found.value,
    }


def _run_if_it_fits(name: str, J: Precision, h: Tensor) -> dict[str, Any]:
    """For a comparison: a solver that cannot run here is a row without numbers."""
    from walksum.solvers import SOLVERS

    try:
        return _run(name, J, h)
    except TooMuchFill:
        why = "too much fill"
        nothing = dict.fromkeys(("steps", "residual", "seconds"))
        return {"solver": SOLVERS[name]().name, "status": why, **nothing, "advice": why}


def _applicable(J: Precision) -> list[str]:
    """Every solver but the one that only exists to be differentiated through, and those this machine cannot run."""
    from walksum.solvers import SOLVERS

    out = {"unrolled"}
    if J.num_nodes > DENSE_LIMIT:
        out |= {"dense", "inverse"}
    if find_spec("pyamg") is None:
        out.add("multigrid")
    return [name for name in SOLVERS if name not in out]


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table()
    for name in ("solver", "seconds", "steps", "residual", "status"):
        table.add_column(name, justify="left" if name in ("solver", "status") else "right")
    for row in sorted(rows, key=lambda row: (row["status"] != "converged", row["seconds"] or 0)):
        ran = row["seconds"] is not None
        numbers = (f"{row['seconds']:.4f}", str(row["steps"]), f"{row['residual']:.1e}") if ran else ("", "", "")
        table.add_row(row["solver"], *numbers, row["status"])
    return table
