"""Graphs and linear systems that come as files: GraphML, PyG's Data, and a symmetric matrix with right-hand sides."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from walksum._checks import check_real_matrix
from walksum._torch import free_memory
from walksum.data.frames import check_file, is_missing
from walksum.precision import Precision


def load_pt(path: Path) -> Data:
    """Load a Data or a dict of tensors without executing code from the file."""
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import EdgeStorage, GlobalStorage, NodeStorage

    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
    # on leaving, safe_globals takes away all it was given: also what PyG has allowed for itself
    allowed = [kind for kind in allowed if kind not in torch.serialization.get_safe_globals()]
    try:
        with torch.serialization.safe_globals(allowed):
            found = torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, EOFError, zipfile.BadZipFile, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is not a file of torch.save ({reason}); write torch.save(data, path)") from error
    except Exception as error:  # UnpicklingError names classes that are not plain data
        # without torch's advice to trust the file
        reason = str(error).rpartition("WeightsUnpickler error:")[2].strip().partition("\n")[0].partition(". ")[0]
        raise ValueError(f"{path} holds more than tensors and a PyG Data, so it was not opened: {reason}") from error
    if isinstance(found, dict):
        found = Data.from_dict(found)
    if not isinstance(found, Data):
        raise ValueError(f"{path} holds a {type(found).__name__}; expected a PyG Data or a dict of tensors")
    return found


def read_graphml(path: Path, text: frozenset[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read nodes and edges with their attributes; attributes named in ``text`` stay text."""
    import networkx as nx

    try:
        graph = nx.read_graphml(path)
    except Exception as error:  # the parser's own errors are many
        raise ValueError(f"{path} is not a readable GraphML file: {error}") from error
    nodes = pd.DataFrame([{"id": node, **values} for node, values in graph.nodes(data=True)]).astype(object)
    if not len(nodes):
        raise ValueError(f"{path} holds no nodes")
    ends = [{**values, "source": i, "target": j} for i, j, values in graph.edges(data=True)]
    edges = pd.DataFrame(ends, columns=None if ends else ["source", "target"])
    return _numbers_as_numbers(nodes, text | {"id"}), edges


def _numbers_as_numbers(frame: pd.DataFrame, text: frozenset[str]) -> pd.DataFrame:
    for name in frame.columns:
        values = frame[name]
        parsed = pd.to_numeric(values.where(~is_missing(values)), errors="coerce").astype(np.float64)
        if name in text or bool((parsed.isna() & ~is_missing(values)).any()):
            frame[name] = values.map(str, na_action="ignore")
        else:
            frame[name] = parsed
    return frame


SYMMETRIC = 1e-10  # asymmetry relative to the largest entry that counts as rounding
# peak while a matrix becomes a Precision: 101 per row of a diagonal matrix, about 80 per entry of one with nine bands
BYTES_PER_ROW, BYTES_PER_ENTRY = 100, 80


def read_system(matrix: Path, rhs: Path) -> tuple[Precision, Tensor]:
    """Read J and h of J mu = h, in float64."""
    rows, columns, entries = _declared_size(matrix)
    if rows != columns or rows == 0:
        raise ValueError(f"{matrix} has shape ({rows}, {columns}); a precision matrix is square")
    h = read_rhs(rhs)
    if len(h) != rows:
        raise ValueError(f"{rhs} has {len(h)} rows for a matrix of {rows}; they must agree")
    check_memory(matrix, f"{rows} rows and {entries} entries", BYTES_PER_ROW * rows + BYTES_PER_ENTRY * entries)
    return read_precision(matrix), h


def read_precision(path: Path) -> Precision:
    """Read a symmetric real matrix from MatrixMarket (.mtx, .mtx.gz) or scipy's .npz."""
    A = _read_matrix(path).astype(np.float64)
    if not np.isfinite(A.data).all():
        raise ValueError(f"{path} holds NaN or infinity; every entry must be finite")
    _refuse_asymmetry(path, A)
    return Precision.from_scipy(A)


def read_rhs(path: Path) -> Tensor:
    """Read right-hand sides ``[N, F]`` from .npy, .npz (its first array, or scipy's), .mtx or text."""
    check_file(path)
    try:
        values = _read_array(path)
    except Exception as error:  # four readers, many errors
        raise ValueError(f"{path} holds no readable array: {error}") from error
    if values.dtype.kind == "c":
        raise ValueError(f"{path} holds complex numbers; a right-hand side is real")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{path} holds values of dtype {values.dtype}; a right-hand side is numbers")
    values = np.asarray(values, dtype=np.float64)
    if values.ndim not in (1, 2) or not np.isfinite(values).all():
        raise ValueError(f"{path} has shape {values.shape}; expected finite numbers, [N] or [N, F]")
    return torch.from_numpy(np.array(values if values.ndim == 2 else values[:, None], order="C"))


def check_memory(path: Path, size: str, needed: float) -> None:
    """Raise a ValueError if this machine has less free memory than needed."""
    free = free_memory()
    if needed > free:
        raise ValueError(
            f"{path} declares {size}, about {needed / 2**30:.0f} GB of memory; {free / 2**30:.0f} GB are free here"
        )


def _declared_size(path: Path) -> tuple[int, int, int]:
    """Rows, columns and stored entries, without reading the values."""
    check_file(path)
    try:
        if path.suffix != ".npz":
            return tuple(scipy.io.mminfo(path)[:3])
        with np.load(path, allow_pickle=False) as archive:
            rows, columns = archive["shape"].tolist()
        return rows, columns, path.stat().st_size // 12
    except Exception as error:  # two readers, many errors
        raise ValueError(f"{path} is neither MatrixMarket nor scipy's npz: {error}") from error


def _read_matrix(path: Path) -> Any:
    try:
        found = sp.load_npz(path) if path.suffix == ".npz" else scipy.io.mmread(path)
    except Exception as error:  # two readers, many errors
        raise ValueError(f"{path} is neither MatrixMarket nor scipy's npz: {error}") from error
    if np.iscomplexobj(found):
        raise ValueError(f"{path} holds complex numbers; a precision matrix is real")
    check_real_matrix(str(path), found)
    matrix = sp.csr_matrix(found)
    matrix.sum_duplicates()
    return matrix


def _read_array(path: Path) -> np.ndarray:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            if "format" not in archive.files:
                return archive[archive.files[0]]
        return _dense(path, _declared_size(path)[:2], _read_matrix)  # whose first array is not its values
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)  # a header that promises too much is refused
    if path.suffix in (".mtx", ".gz"):
        return _dense(path, scipy.io.mminfo(path)[:2], scipy.io.mmread)
    return np.loadtxt(path)


def _dense(path: Path, size: tuple[int, int], read: Callable[[Path], Any]) -> np.ndarray:
    rows, columns = size
    check_memory(path, f"{rows} rows and {columns} columns", 24.0 * rows * columns)
    found = read(path)
    return found.toarray() if hasattr(found, "toarray") else found


def _refuse_asymmetry(path: Path, A: Any) -> None:
    gap = abs(A - A.T).tocoo()
    largest = abs(A.data).max(initial=0.0)
    if gap.nnz and gap.data.max() > SYMMETRIC * largest:
        at = int(np.argmax(gap.data))
        i, j = int(gap.row[at]), int(gap.col[at])
        raise ValueError(
            f"{path} is not symmetric: the largest asymmetry is {gap.data[at]:.3g}, between ({i + 1}, {j + 1}) = "
            f"{A[i, j]:g} and ({j + 1}, {i + 1}) = {A[j, i]:g} (counted from 1); a precision matrix is symmetric"
        )
