"""What is drawn, where, and in which colour."""

import numpy as np
import pytest
import torch

import walksum as ws
from walksum.explore import drawing
from walksum.explore.answer import Session
from walksum.explore.colours import stylesheet
from walksum.explore.server import ASSETS
from walksum.explore.view import View, first_view
from walksum.plot.layout import around_layout, whole_layout
from walksum.plot.theme import GREY, THEMES


def parts(elements):
    nodes = [each["data"] for each in elements if "source" not in each["data"]]
    return nodes, [each["data"] for each in elements if "source" in each["data"]]


def test_a_small_graph_is_drawn_whole(small):
    nodes, edges = parts(drawing.draw(small, None).elements)
    assert [each["name"] for each in nodes] == [small.name(k) for k in range(60)]
    assert len(edges) == small.graph.num_edges
    assert not any("tone" in each for each in nodes)


def test_nodes_of_a_small_graph_are_as_large_as_those_around_one(small):
    elements = drawing.draw(small, Session(small).answer(View("house-4", 2))).elements
    assert all("around" in each["classes"].split() for each in elements)
    spots = np.array([list(each["position"].values()) for each in elements if "position" in each])
    assert np.ptp(spots, axis=0).max() <= 1.1 * drawing.AROUND_SIDE + 1  # into_square draws far nodes in that far


def test_tones_have_the_sign_and_the_order_of_the_influence(small):
    answer = Session(small).answer(View("house-4", design="laplacian", coupling="repulsive", scale=0.9))
    tone, value = drawing.tones(answer), answer.influence.value
    assert np.abs(np.delete(tone, 4)).max() == pytest.approx(1)
    assert ((tone == 0) | (np.sign(tone) == np.sign(value))).all()
    assert (np.diff(np.abs(tone)[np.argsort(np.abs(value))]) >= 0).all()
    assert (tone < 0).any()


def test_a_node_alone_colours_nothing_else(small):
    answer = Session(small).answer(View("house-59", 2))
    assert (drawing.tones(answer) == 0).all()


def test_a_large_graph_shows_the_strongest_and_the_edges_among_them(large):
    assert drawing.draw(large, None).elements == []
    answer = Session(large).answer(View("17", 2))
    found = drawing.draw(large, answer)
    nodes, edges = parts(found.elements)
    shown = {int(each["name"]) for each in nodes}
    assert shown == set(answer.influence.ranked(150).tolist())
    among = {frozenset(pair) for pair in large.graph.edges.t().tolist() if pair[0] in shown and pair[1] in shown}
    assert {frozenset((int(e["source"][1:]), int(e["target"][1:]))) for e in edges} == among
    assert "150 nodes" in found.note


def test_too_many_edges_are_thinned_but_the_asked_node_keeps_its_own(large, monkeypatch):
    monkeypatch.setattr(drawing, "MOST_AROUND", 120)
    answer = Session(large).answer(View("17", 2))
    found = drawing.draw(large, answer)
    _, edges = parts(found.elements)
    assert len(edges) == 120
    shown = set(answer.influence.ranked(150).tolist())
    own = [p for p in large.graph.edges.t().tolist() if 17 in p and set(p) <= shown]
    assert sum("n17" in (e["source"], e["target"]) for e in edges) == len(own)
    assert "120 of the" in found.note


def test_the_edges_of_the_strongest_paths_are_marked(small):
    answer = Session(small).answer(View("house-4", 2))
    marked = {each["data"]["id"] for each in drawing.draw(small, answer).elements if "path" in each.get("classes", "")}
    assert marked == set(drawing.recolour(small, answer)["paths"])
    assert marked


def test_of_a_dense_graph_some_edges_are_drawn_and_all_on_paths(small, monkeypatch):
    monkeypatch.setattr(drawing, "MOST_EDGES", 10)
    answer = Session(small).answer(View("house-4", 2))
    found = drawing.draw(small, answer)
    drawn = {each["id"] for each in parts(found.elements)[1]}
    assert set(drawing.recolour(small, answer)["paths"]) <= drawn
    assert 10 <= len(drawn) <= 10 + len(drawing.path_edges(answer))
    assert found.note.startswith(f"10 of {small.graph.num_edges} edges are drawn")


def test_layouts_are_finite_spread_and_the_same_twice(small):
    place = whole_layout(small.graph)
    again = whole_layout(ws.Graph(small.graph.edges, 60))
    assert np.array_equal(place, again)
    assert np.isfinite(place).all()
    assert len({tuple(p) for p in place.round(3).tolist()}) > 50
    assert place.std(0).min() > 0.1


def test_neighbours_are_drawn_nearer_than_strangers(small):
    place = whole_layout(small.graph)
    i, j = small.graph.edges.numpy()
    near = np.linalg.norm(place[i] - place[j], axis=1).mean()
    draw = np.random.default_rng(0).integers(0, 60, (2, 500))
    assert near < 0.8 * np.linalg.norm(place[draw[0]] - place[draw[1]], axis=1).mean()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_graphs_have_a_layout(count):
    edges = torch.tensor([[0], [1]]) if count > 1 else torch.empty(2, 0, dtype=torch.long)
    assert np.isfinite(whole_layout(ws.Graph.from_edge_index(edges, count))).all()
    assert np.isfinite(around_layout(edges.numpy(), np.arange(count))).all()


def test_drawing_and_page_have_the_colours_of_the_theme():
    page = (ASSETS / "style.css").read_text()
    for of in THEMES.values():
        for text in (str(stylesheet(of)), page):
            assert all(colour in text for colour in (of.positive, of.negative, of.neutral, of.edge, of.ink))
        assert of.background in page


def test_the_first_view_shows_a_node_worth_a_look(small):
    assert first_view(small).node == small.name(small.suggestions[0][1])
    assert Session(small).answer(View()) is None


@pytest.mark.parametrize("colour", ["prediction", "truth", "error"])
def test_colours_other_than_influence_are_the_same_drawn_and_redrawn(small, colour):
    answer = Session(small).answer(View("house-4", 2))
    nodes, _ = parts(drawing.draw(small, answer, colour).elements)
    assert not any("tone" in each for each in nodes)
    assert [each["hue"] for each in nodes] == drawing.recolour(small, answer, colour)["hues"]
    unknown = 5  # whose label nobody knows
    assert (nodes[unknown]["hue"] == GREY) == (colour != "prediction")
