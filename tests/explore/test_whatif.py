"""Imagined changes against the model called directly."""

import json
from dataclasses import replace

import pytest
import torch
from village import trained_on, village

import walksum as ws
from walksum.explore.whatif import ALL, DROP, FLIP, Changes, WhatIf, describe, from_json, without_edges


@pytest.fixture(scope="module")
def edge(small):
    return small.graph.edges[:, 5].tolist()


def names(trained, edge):
    return [trained.name(node) for node in edge]


def direct(trained, x, graph):
    with torch.no_grad():
        return trained.model(x, graph).softmax(-1)


def test_no_change_is_the_prediction(small):
    assert torch.equal(WhatIf(small).output(Changes()), small.output)


def test_features_become_a_mean(small):
    changes = Changes().with_features(small, "house-4", "south")
    x = small.x.clone()
    x[4] = small.x[small.problem.y == 1].mean(0)
    assert torch.allclose(WhatIf(small).output(changes), direct(small, x, small.graph), atol=1e-6)
    changes = changes.with_features(small, "house-4", ALL)  # the later one counts
    assert changes.features == ((4, ALL),)


def test_a_dropped_edge_is_a_graph_without_it(small, edge):
    changes = Changes().with_edge(small, *names(small, edge), DROP)
    kept = torch.arange(small.graph.num_edges) != 5
    graph = ws.Graph(small.graph.edges[:, kept], small.num_nodes)
    assert torch.allclose(WhatIf(small).output(changes), direct(small, small.x, graph), atol=1e-6)


@pytest.mark.parametrize(("design", "learned"), [("laplacian", True), ("laplacian", False), ("pairwise-normal", True)])
def test_a_flipped_edge_changes_one_sign_of_every_J(design, learned):
    trained = trained_on(village(), design, learned, epochs=2)
    pair = trained.graph.edges[:, 5].tolist()
    seen = []
    layer = trained.model.mixers[0]
    before = layer.design(
        trained.graph,
        trained.x if layer.design.reads_input else torch.zeros(60, 16),
        torch.zeros(layer.heads, 60, layer.out_channels),
    )
    imagine = WhatIf(trained)
    solve = ws.nn.conv.solve
    try:
        ws.nn.conv.solve = lambda J, *args, **kwargs: (seen.append(J), solve(J, *args, **kwargs))[1]
        after = imagine.output(Changes().with_edge(trained, *names(trained, pair), FLIP))
        imagine.output(Changes().with_features(trained, "house-4", ALL))  # the hooks are gone again
    finally:
        ws.nn.conv.solve = solve
    turned, plain = seen[0], seen[2]
    assert before.off.shape == turned.off.shape
    same = torch.ones(trained.graph.num_edges, dtype=torch.bool)
    same[5] = False
    if not learned:
        assert torch.equal(turned.off[:, same], plain.off[:, same])
        assert torch.equal(turned.off[:, 5], -plain.off[:, 5])
    assert turned.is_walk_summable
    assert not torch.equal(after, trained.output)


def test_drop_and_flip_of_one_edge_replace_each_other_and_add_up_with_others(small, edge):
    other = small.graph.edges[:, 9].tolist()
    changes = Changes().with_edge(small, *names(small, edge), DROP).with_edge(small, *names(small, edge)[::-1], FLIP)
    assert (changes.dropped, changes.flipped) == ((), (tuple(edge),))
    both = changes.with_edge(small, *names(small, other), DROP)
    assert torch.isfinite(WhatIf(small).output(both)).all()
    assert len(describe(small, both)) == 2
    assert from_json(json.loads(json.dumps(both.to_json()))) == both
    assert not from_json(None)


def test_wrong_changes_are_refused(small):
    with pytest.raises(ValueError, match="No node has the id 'castle'"):
        Changes().with_features(small, "castle", "north")
    with pytest.raises(ValueError, match="There is no class 'west'"):
        Changes().with_features(small, "house-4", "west")
    with pytest.raises(ValueError, match="There is no edge between 'house-4' and 'house-59'"):
        Changes().with_edge(small, "house-4", "house-59", DROP)


def test_a_weighted_graph_keeps_its_other_weights():
    problem = village()
    weights = torch.rand(problem.edge_index.size(1)) + 0.5
    trained = trained_on(replace(problem, edge_weight=weights), "diagonally-dominant", False, epochs=2)
    pair = trained.graph.edges[:, 3].tolist()
    kept = torch.arange(trained.graph.num_edges) != 3
    graph = ws.Graph(trained.graph.edges[:, kept], 60, trained.graph.edge_weight[kept])
    found = WhatIf(trained).output(Changes().with_edge(trained, *names(trained, pair), DROP))
    assert torch.allclose(found, direct(trained, trained.x, graph), atol=1e-6)


def test_without_an_edge_all_others_keep_their_directions():
    arcs, weights = torch.tensor([[5, 2, 7, 0, 3], [0, 1, 3, 5, 3]]), torch.arange(5.0)
    found = without_edges(replace(village(), edge_index=arcs, edge_weight=weights), ((0, 5), (1, 4)))
    assert found.edge_index.tolist() == [[2, 7, 3], [1, 3, 3]]
    assert found.edge_weight.tolist() == [1, 2, 4]
