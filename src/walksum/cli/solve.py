"""walksum solve."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from walksum.cli import completion
from walksum.cli.console import Debug, Json, Quiet, Voice, speak

if TYPE_CHECKING:
    from torch import Tensor

    from walksum.precision import Precision
    from walksum.solvers import Solver

DENSE_LIMIT = 4000  # nodes up to which --compare runs the dense solver
SYMMETRIC = 1e-10  # asymmetry relative to the largest entry that counts as rounding


def solve(
    matrix: Annotated[Path, typer.Option(help="J: MatrixMarket (.mtx, .mtx.gz) or scipy's .npz.")],
    rhs: Annotated[Path, typer.Option(help="h: .npy, .npz (its first array), .mtx or .txt; [N] or [N, F].")],
    solver: Annotated[str, typer.Option(help="How mu is found.", autocompletion=completion.of_solvers)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write mu here, as .npy.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Run every solver that applies.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Solve J mu = h for a symmetric matrix from files, in float64.

    Example: walksum solve --matrix A.mtx --rhs b.npy --compare
    """
    voice = Voice(as_json, quiet, debug)
    speak(voice, lambda: _solve(voice, matrix, rhs, solver, out, compare))


def _solve(voice: Voice, matrix: Path, rhs: Path, name: str, out: Path | None, compare: bool) -> None:
    import numpy as np

    from walksum._files import write_file
    from walksum.solvers import resolve_name

    resolve_name(name)
    J, h = _as_precision(matrix), _read_rhs(rhs)
    if len(h) != J.num_nodes:
        raise ValueError(f"{rhs} has {len(h)} rows for a matrix of {J.num_nodes}; they must agree")
    low, high = J.walk_summability()
    verdict = "walk-summable" if high < 1 else "not walk-summable" if low >= 1 else "too near to 1 to decide"
    voice.say(f"{matrix.name}: {J.num_nodes} rows, {J.graph.num_edges} couplings, {h.size(1)} right-hand sides")
    voice.say(f"walk-summability radius in [{low:.6g}, {high:.6g}]: {verdict}")
    record = _run(name, J, h)
    voice.say(f"{record['solver']}: {record['status']} in {record['steps']} steps, residual {record['residual']:.1e}")
    mu = record.pop("value")
    if out is not None:
        write_file(out, lambda path: _save(np, path, mu))
        voice.say(f"mu written to {out}")
    shared: dict[str, Any] = {"radius": [low, high], **record, "out": None if out is None else str(out)}
    if compare:
        rows = [_run(each, J, h) for each in _applicable(J)]
        voice.table(_table(rows), always=True)
        shared["compare"] = [{k: v for k, v in row.items() if k != "value"} for row in rows]
    if record["status"] != "converged":
        raise ValueError(record["advice"])
    voice.result(shared)


def _save(np: Any, path: Path, mu: Tensor) -> None:
    with path.open("wb") as file:  # np.save would add its own ending to a temporary name
        np.save(file, mu.numpy())


def _as_precision(path: Path) -> Precision:
    import numpy as np
    import scipy.sparse as sp
    import torch

    from walksum.graph import Graph
    from walksum.precision import Precision

    A = _read_matrix(path)
    if A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise ValueError(f"{path} has shape {A.shape}; a precision matrix is square")
    if np.iscomplexobj(A.data):
        raise ValueError(f"{path} holds complex numbers; a precision matrix is real")
    A = A.astype(np.float64)
    if not np.isfinite(A.data).all():
        raise ValueError(f"{path} holds NaN or infinity; every entry must be finite")
    _refuse_asymmetry(path, A)
    upper = sp.triu((A + A.T) / 2, 1).tocsr()
    upper.sort_indices()
    pairs = upper.tocoo()
    edges = torch.from_numpy(np.stack(pairs.coords).astype(np.int64))
    graph = Graph(edges, A.shape[0])
    return Precision(graph, torch.from_numpy(A.diagonal()), torch.from_numpy(pairs.data))


def _read_matrix(path: Path) -> Any:
    import scipy.io
    import scipy.sparse as sp

    from walksum.data.tables import check_file

    check_file(path)
    try:
        found = sp.load_npz(path) if path.suffix == ".npz" else scipy.io.mmread(path)
    except Exception as error:  # two readers, many errors
        raise ValueError(f"{path} is neither MatrixMarket nor scipy's npz: {error}") from error
    matrix = sp.csr_matrix(found)
    matrix.sum_duplicates()
    return matrix


def _refuse_asymmetry(path: Path, A: Any) -> None:
    import numpy as np

    gap = abs(A - A.T).tocoo()
    largest = abs(A.data).max(initial=0.0)
    if gap.nnz and gap.data.max() > SYMMETRIC * largest:
        at = int(np.argmax(gap.data))
        i, j = int(gap.row[at]), int(gap.col[at])
        raise ValueError(
            f"{path} is not symmetric: the largest asymmetry is {gap.data[at]:.3g}, between ({i + 1}, {j + 1}) = "
            f"{A[i, j]:g} and ({j + 1}, {i + 1}) = {A[j, i]:g} (counted from 1); a precision matrix is symmetric"
        )


def _read_rhs(path: Path) -> Tensor:
    import numpy as np
    import scipy.io
    import torch

    from walksum.data.tables import check_file

    check_file(path)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                found = archive[archive.files[0]]
        elif path.suffix == ".npy":
            found = np.load(path, allow_pickle=False)
        elif path.suffix in (".mtx", ".gz"):
            found = scipy.io.mmread(path)
            found = found.toarray() if hasattr(found, "toarray") else found
        else:
            found = np.loadtxt(path)
        values = np.asarray(found, dtype=np.float64)
    except Exception as error:  # four readers, many errors
        raise ValueError(f"{path} holds no readable array: {error}") from error
    if values.ndim not in (1, 2) or not np.isfinite(values).all():
        raise ValueError(f"{path} has shape {values.shape}; expected finite numbers, [N] or [N, F]")
    return torch.from_numpy(np.ascontiguousarray(values.reshape(len(values), -1)))


def _run(name: str, J: Precision, h: Tensor) -> dict[str, Any]:
    from walksum.solvers import resolve

    solver: Solver = resolve(name, J, h.size(1))
    started = time.perf_counter()
    try:
        found = solver.prepare(J)(h)
    except ValueError as error:
        if name != "auto" and "max_operations" in str(error):
            return _not_run(solver.name, "too much fill")
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


def _not_run(solver: str, why: str) -> dict[str, Any]:
    return {"solver": solver, "status": why, "steps": None, "residual": None, "seconds": None, "advice": why}


def _applicable(J: Precision) -> list[str]:
    """Every solver but the one that only exists to be differentiated through, and those this machine cannot run."""
    from importlib.util import find_spec

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
