"""The user's table of nodes as it came: names, values and places, for people to look at."""

from __future__ import annotations

import numpy as np
import pandas as pd

from walksum.data.problem import Problem
from walksum.data.tables import as_table
from walksum.workflow.problem import Source
from walksum.workflow.run import Run

# names of columns that hold places, in the order they are looked for; the first is drawn to the right
PLACES = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("easting", "northing"), ("x", "y"))


def read_node_table(run: Run, source: Source, problem: Problem) -> pd.DataFrame | None:
    """All columns of the nodes table, one row per node of the problem; None where there is no such table."""
    id_column = run.config["columns"].get("id")
    if source.nodes is None or id_column is None:
        return None
    table = as_table(source.nodes, "nodes", source.encoding)
    names = table.columns()
    if id_column not in names:
        return None
    frame = table.frame(names, text=[id_column], verbatim=id_column)
    frame.index = pd.Index(frame[id_column].astype(str))
    found = frame[~frame.index.duplicated()].reindex([str(name) for name in problem.ids])
    return found.drop(columns=[id_column]).reset_index(drop=True)


def places(table: pd.DataFrame | None) -> np.ndarray | None:
    """Positions ``[N, 2]`` in the unit square, y downwards as screens have it, if two columns are coordinates."""
    if table is None:
        return None
    called = {str(name).lower(): name for name in table.columns}
    for right, up in PLACES:
        if right in called and up in called:
            spots = (
                table[[called[right], called[up]]].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64, copy=True)
            )
            if np.isfinite(spots).all():
                if up in ("latitude", "lat"):  # a degree of longitude is shorter away from the equator
                    spots[:, 0] *= np.cos(np.radians(spots[:, 1].mean()))
                spots[:, 1] *= -1
                low, side = spots.min(0), np.ptp(spots, axis=0).max()
                return None if side == 0 else (spots - low) / side
    return None
