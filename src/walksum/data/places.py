"""Places: nodes with positions (on a plane, on the globe or in the space of columns), joined to near ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

LONGITUDE = ("lon", "lng", "long", "longitude", "longitud")
LATITUDE = ("lat", "latitude")
DELAUNAY = "delaunay"
NEIGHBOURS = 8


@dataclass(frozen=True)
class Places:
    """How columns become positions, and positions edges; the same for training and for later tables.

    Edges join each node to its ``neighbours`` nearest, or as the Delaunay triangulation does; one of length d weighs
    ``1 / (1 + (d / h)^2)``.

    Attributes:
        columns: two coordinates, or the columns of a space.
        globe: whether the columns are longitude and latitude in degrees.
        centre, scale: what is subtracted from each column and what it is divided by; the globe has a scale alone.
        neighbours: how many, or "delaunay"; None: not chosen yet.
        bandwidth: h, in units of the scaled places; None: the median length of the edges.
        joins: whether the edges come from here; False: there is a table of edges.
    """

    columns: tuple[str, ...]
    globe: bool
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    neighbours: int | str | None = None
    bandwidth: float | None = None
    joins: bool = True

    @property
    def flat(self) -> bool:
        """Whether places are two coordinates of one unit, which can be triangulated."""
        return self.globe or (len(self.columns) == 2 and self.scale[0] == self.scale[1])

    def position(self, values: np.ndarray) -> np.ndarray:
        """Scaled places ``[N, d]`` of the columns' values; on the globe points of a sphere ``[N, 3]``."""
        if self.globe:
            return on_sphere(values) / self.scale[0]
        return (values - np.asarray(self.centre)) / np.asarray(self.scale)

    def pairs(self, position: np.ndarray) -> np.ndarray:
        """The edges ``[2, E]``, each once."""
        if self.neighbours == DELAUNAY:
            return _triangulated(self._flat(position))
        return nearest_pairs(position, NEIGHBOURS if self.neighbours is None else int(self.neighbours))

    def lengths(self, position: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Lengths of edges in units of the scaled positions; on the globe along the great circle."""
        chord = np.linalg.norm(position[pairs[0]] - position[pairs[1]], axis=1)
        if not self.globe:
            return chord
        radius = 1 / self.scale[0]
        return 2 * radius * np.arcsin(np.clip(chord / (2 * radius), 0, 1))

    def edges(self, position: np.ndarray) -> tuple[Tensor, Tensor, Places]:
        """Edges, their weights, and these places with the bandwidth that was used."""
        pairs = self.pairs(position)
        length = self.lengths(position, pairs)
        positive = length[length > 0]
        width = self.bandwidth or (float(np.median(positive)) if len(positive) else 1.0)
        weight = 1 / (1 + (length / width) ** 2)
        return torch.from_numpy(pairs), torch.from_numpy(weight.astype(np.float32)), replace(self, bandwidth=width)

    def described(self) -> str:
        """A description for a note."""
        where = "great-circle distance" if self.globe else f"distance in {', '.join(self.columns)}"
        if self.neighbours == DELAUNAY:
            return f"the Delaunay triangulation of {', '.join(self.columns)} makes the edges, weighted by {where}"
        return f"each node is joined to its {self.neighbours or NEIGHBOURS} nearest by {where}, which weighs the edges"

    def _flat(self, position: np.ndarray) -> np.ndarray:
        """Two coordinates; of the globe by stereographic projection, which keeps circles and so the triangulation."""
        if not self.globe:
            return position
        unit = position * self.scale[0]
        pole = unit.mean(0)
        pole = pole / max(float(np.linalg.norm(pole)), 1e-12)
        side = np.cross(pole, np.eye(3)[np.abs(pole).argmin()])
        side = side / np.linalg.norm(side)
        basis = np.stack([side, np.cross(pole, side)])
        return (unit @ basis.T) / (1 + unit @ pole)[:, None]


def make_places(
    columns: Sequence[str], values: np.ndarray, coordinates: bool, neighbours: int | str | None, joins: bool
) -> Places:
    """Fit places to the values of a training table.

    Args:
        columns: their names; longitude and latitude are known by them.
        values: ``[N, d]``, finite.
        coordinates: two columns of one unit; else columns of any units, each standardised.
        neighbours: how many each node is joined to, "delaunay", or None: chosen on validation nodes.
        joins: whether edges are to be made.
    """
    names = tuple(columns)
    check_neighbours(neighbours, coordinates)
    if not coordinates:
        spread = values.std(0)
        scale = np.where(spread > 0, spread, 1.0)
        return Places(names, False, tuple(values.mean(0)), tuple(scale), neighbours, joins=joins)
    if len(names) != 2:
        raise ValueError(f"coordinates={','.join(names)!r}; expected two columns, such as 'lon,lat' or 'x,y'")
    low = [name.strip().lower() for name in names]
    globe = low[0] in LONGITUDE + LATITUDE and low[1] in LONGITUDE + LATITUDE
    if globe:
        values, names = (values, names) if low[0] in LONGITUDE else (values[:, ::-1], names[::-1])
        spread = float(on_sphere(values).std(0).max()) or 1.0
        return Places(names, True, (), (spread,), neighbours, joins=joins)
    spread = float(values.std(0).max()) or 1.0  # one for both: a circle stays one
    return Places(names, False, tuple(values.mean(0)), (spread, spread), neighbours, joins=joins)


def check_neighbours(neighbours: int | str | None, coordinates: bool) -> None:
    """Raise a ValueError unless ``neighbours`` is a positive whole number, "delaunay" or None."""
    whole = isinstance(neighbours, int) and not isinstance(neighbours, bool) and neighbours >= 1
    if neighbours is None or whole:
        return
    if neighbours != DELAUNAY:
        raise ValueError(f"neighbours={neighbours!r}; expected a whole number from 1 on, or '{DELAUNAY}'")
    if not coordinates:
        raise ValueError(f"neighbours='{DELAUNAY}' is for coordinates= of two columns; knn= needs a number")


def on_sphere(degrees: np.ndarray) -> np.ndarray:
    """Longitude and latitude ``[N, 2]`` as points of the unit sphere ``[N, 3]``."""
    outside = np.abs(degrees) > np.array([360.0, 90.0])
    if outside.any():
        row, column = map(int, np.argwhere(outside)[0])
        name, limit = ("longitude", 360) if column == 0 else ("latitude", 90)
        raise ValueError(
            f"coordinates=: the {name} of row {row} is {degrees[row, column]:g}, beyond {limit} degrees; name the "
            "columns of a plane otherwise, for example x and y"
        )
    lon, lat = np.radians(degrees.T)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)


def nearest_pairs(position: np.ndarray, neighbours: int) -> np.ndarray:
    """Each row of ``position [N, d]`` with its nearest others, ``[2, E]``, every pair once."""
    from sklearn.neighbors import NearestNeighbors

    if len(position) < 2:
        return np.zeros((2, 0), np.int64)
    count = min(neighbours, len(position) - 1)
    near = NearestNeighbors(n_neighbors=count).fit(position).kneighbors(return_distance=False)
    return _each_once(np.stack([np.repeat(np.arange(len(position)), count), near.reshape(-1)]))


def _triangulated(flat: np.ndarray) -> np.ndarray:
    from scipy.spatial import Delaunay, QhullError

    try:
        found = Delaunay(flat)
    except (QhullError, ValueError) as error:
        raise ValueError(
            "neighbours='delaunay' needs three or more places that are not on one line; use a number, neighbours=8"
        ) from error
    corners = found.simplices
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]).T
    doubled = found.coplanar[:, [0, 2]].T  # places that others share are no corners: joined to the nearest that is
    return _each_once(np.concatenate([pairs, doubled], 1).astype(np.int64))


def _each_once(pairs: np.ndarray) -> np.ndarray:
    return np.unique(np.sort(pairs, axis=0), axis=1)
