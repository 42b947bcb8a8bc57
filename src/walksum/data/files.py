"""Graphs that come as one file: GraphML, and PyG's Data saved by torch.save."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data

from walksum.data.frames import is_missing


def load_pt(path: Path) -> Data:
    """A Data, or a dict of tensors, without running anything the file might hold."""
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
    """Nodes with their id and attributes, edges with source, target and attributes; ``text`` stay text."""
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
