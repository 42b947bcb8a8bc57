"""Graphs from where nodes lie."""

import numpy as np
import pandas as pd
import pytest

from walksum.data.places import Places, make_places, on_sphere
from walksum.data.user_files import Columns, read_tables

DRAW = np.random.default_rng(0)


def great_circle(a, b):
    """The haversine formula, in radians."""
    (lon1, lat1), (lon2, lat2) = np.radians(a), np.radians(b)
    inner = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * np.arcsin(np.sqrt(inner))


def test_neighbours_on_the_globe_cross_the_date_line():
    degrees = np.array([[179.9, 0.0], [-179.9, 0.0], [170.0, 0.0], [0.0, 89.0], [180.0, 89.0]])
    places = make_places(["lon", "lat"], degrees, True, 1, True)
    position = places.position(degrees)
    pairs = places.pairs(position)
    assert {tuple(pair) for pair in pairs.T} == {(0, 1), (0, 2), (3, 4)}
    lengths = places.lengths(position, pairs) * places.scale[0]
    for (i, j), length in zip(pairs.T, lengths, strict=True):
        assert length == pytest.approx(great_circle(degrees[i], degrees[j]), rel=1e-9)


def test_latitude_may_come_first():
    degrees = DRAW.uniform(-60, 60, (30, 2))
    one = make_places(["lon", "lat"], degrees, True, 4, True)
    other = make_places(["Latitude", "Longitude"], degrees[:, ::-1], True, 4, True)
    assert other.columns == ("Longitude", "Latitude")
    assert np.array_equal(one.pairs(one.position(degrees)), other.pairs(other.position(degrees)))


def test_a_plane_keeps_its_shape_and_columns_are_standardised():
    values = DRAW.normal(size=(200, 2)) * [1, 100]
    plane = make_places(["x", "y"], values, True, 3, True)
    assert plane.scale[0] == plane.scale[1]
    space = make_places(["x", "y"], values, False, 3, True)
    assert np.allclose(space.position(values).std(0), 1)
    assert not np.array_equal(plane.pairs(plane.position(values)), space.pairs(space.position(values)))


def test_near_edges_weigh_more_and_later_tables_weigh_alike():
    values = DRAW.uniform(size=(50, 2))
    places = make_places(["x", "y"], values, True, 5, True)
    index, weight, used = places.edges(places.position(values))
    length = places.lengths(places.position(values), index.numpy())
    assert np.allclose(weight.numpy(), 1 / (1 + (length / np.median(length)) ** 2), rtol=1e-6)
    # a table of half of the places, read with what training found: an edge that is in both weighs the same
    _, later, _ = used.edges(used.position(values[:25]))
    assert used.bandwidth == pytest.approx(np.median(length))
    assert later.max() <= 1


@pytest.mark.parametrize("globe", [False, True])
def test_a_delaunay_triangulation_joins_all_and_doubled_places(globe):
    values = DRAW.uniform(10, 20, (40, 2))
    values[7] = values[3]
    places = make_places(["lon", "lat"] if globe else ["x", "y"], values, True, "delaunay", True)
    pairs = places.pairs(places.position(values))
    assert set(np.unique(pairs)) == set(range(40))
    assert (3, 7) in {tuple(pair) for pair in pairs.T}
    assert pairs.shape[1] <= 3 * 40 - 6 + 1
    with pytest.raises(ValueError, match="three or more places that are not on one line; use a number"):
        places.pairs(places.position(np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]) if not globe else values[:2]))


def test_tables_of_places_need_no_edges():
    nodes = pd.DataFrame({"lon": DRAW.uniform(0, 1, 30), "lat": DRAW.uniform(0, 1, 30), "price": np.arange(30.0) / 4})
    problem = read_tables(nodes, None, Columns("price", coordinates=("lon", "lat")))
    assert problem.graph.num_edges >= 30 * 4
    assert list(problem.features.columns) == ["lon", "lat"]
    stored = problem.columns["places"]
    again = read_tables(nodes, None, Columns(places=Places(**stored), features=("lon",)))
    assert np.array_equal(again.edge_index.numpy(), problem.edge_index.numpy())
    assert np.array_equal(again.position, problem.position)


@pytest.mark.parametrize(
    ("change", "columns", "message"),
    [
        ({}, {"coordinates": ("lon",)}, "coordinates='lon'; expected two columns"),
        ({"lat": 95.0}, {"coordinates": ("lon", "lat")}, "the latitude of row 0 is 95, beyond 90 degrees"),
        ({"lat": "north"}, {"coordinates": ("lon", "lat")}, "lat is 'north'; expected a finite number"),
        ({"lat": None}, {"coordinates": ("lon", "lat")}, "lat is empty; expected a finite number"),
        ({}, {"knn": ("lon",), "coordinates": ("lon", "lat")}, "coordinates= and knn= were both given"),
        ({}, {"knn": ("lon", "lat"), "neighbours": "delaunay"}, "knn= needs a number"),
        ({}, {"knn": ("lon", "lat"), "neighbours": 0}, "neighbours=0; expected a whole number from 1 on"),
        ({}, {"knn": ("height",)}, "nodes has no column 'height'"),
    ],
)
def test_places_that_cannot_be_are_refused(change, columns, message):
    nodes = pd.DataFrame({"lon": [1.0, 2, 3], "lat": [1.0, 2, 4], "y": [1.5, 2, 3]}).assign(**change)
    with pytest.raises(ValueError, match=message):
        read_tables(nodes, None, Columns("y", **columns))


def test_the_sphere_is_right():
    assert np.allclose(on_sphere(np.array([[0.0, 0.0], [90.0, 0.0], [0.0, 90.0]])), np.eye(3), atol=1e-15)
