"""The state of the page and the matrices behind it, without a browser."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from village import ODD, trained_on, village

import walksum as ws
from walksum.explore.answer import Session, as_csv, as_json, file_name
from walksum.explore.matrices import LRUCache, precision_of
from walksum.explore.view import View, changed, first_view, from_query, refused_solvers, to_query

FULL = View("house-9", 1, 3, "laplacian", "repulsive", 0.7, "cg")


def test_a_view_survives_its_link(small):
    for view in (first_view(small), FULL, View(node=ODD, layer=2), View(layer=2), replace(FULL, colour="error")):
        assert from_query(small, to_query(small, view)) == (view, [])
    assert to_query(small, first_view(small)) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"node": "castle"}, "No node has the id 'castle'. There are 60 nodes, from 'house-0' to 'house-59'."),
        ({"layer": "3"}, "There is no layer 3; choose 1 to 2."),
        ({"head": "9"}, "There is no head 9; choose 1 to 8."),
        ({"head": "x"}, "There is no head x; choose 1 to 8."),
        ({"design": "magic"}, "The design 'magic' is not known; choose trained, pairwise-normal"),
        ({"coupling": "none"}, "The coupling 'none' is not known; choose usual, repulsive, attractive."),
        ({"scale": "1"}, "The scale 1 is not between 0.5 and 0.999."),
        ({"scale": "nan"}, "The scale nan is not between 0.5 and 0.999."),
        ({"scale": "wide"}, "The scale wide is not between 0.5 and 0.999."),
        ({"solver": "oracle"}, "The solver 'oracle' is not known"),
        ({"colour": "deviation"}, "The colour 'deviation' is not known; choose influence, prediction, truth, error."),
    ],
)
def test_what_cannot_be_is_left_as_it_was_with_a_message(small, given, message):
    view, messages = changed(small, FULL, given)
    assert view == FULL
    assert len(messages) == 1
    assert messages[0].startswith(message)


def test_a_layer_with_fewer_heads_starts_at_its_first(small):
    view, _ = changed(small, View(layer=1, head=6), {"layer": 2})
    assert (view.layer, view.head) == (2, 1)


def test_solvers_that_would_take_minutes_are_not_offered(small, large):
    assert "dense" not in refused_solvers(small)
    assert "direct" not in refused_solvers(large)
    edges = torch.randint(0, 4000, (2, 70_000))
    problem = replace(large.problem, edge_index=edges, ids=np.arange(4000).astype(str), y=torch.zeros(4000).long())
    huge = replace(large, problem=problem, x=torch.randn(4000, 4))
    assert {"dense", "direct"} <= set(refused_solvers(huge))
    assert "only offered up to" in changed(huge, View(), {"solver": "dense"})[1][0]


@pytest.mark.parametrize("coupling", ["usual", "attractive", "repulsive"])
@pytest.mark.parametrize("scale", [0.5, 0.73, 0.999])
def test_a_design_at_a_scale_is_the_librarys_own(small, coupling, scale):
    sign = {} if coupling == "usual" else {"coupling": coupling}
    none = torch.empty(0, dtype=torch.float64)
    expected = {
        "laplacian": ws.FixedLaplacian(scale, **sign)(small.graph, h=none),
        "pairwise-normal": ws.FixedPairwiseNormal(scale, **sign)(small.graph, small.x.double(), none),
    }
    full = ws.FixedDiagonallyDominant(**sign)(small.graph, h=none)
    expected["diagonally-dominant"] = ws.Precision(full.graph, full.diag, scale * full.off)
    for design, J in expected.items():
        found = precision_of(small, View(design=design, coupling=coupling, scale=scale))
        assert torch.allclose(found.to_dense(), J.to_dense(), rtol=1e-14, atol=0)
        assert found.is_walk_summable


def test_the_trained_view_is_the_models_own_head(small):
    J = small.model.precisions(small.x, small.graph)[0]
    found = precision_of(small, View(layer=1, head=4))
    assert torch.equal(found.off[0], J.off[3].double())


@pytest.mark.parametrize("solver", ["auto", "direct", "cg", "gabp", "hybrid", "chebyshev", "dense"])
def test_every_solver_gives_the_row_of_the_inverse(small, solver):
    answer = Session(small).answer(replace(FULL, solver=solver))
    exact = torch.linalg.inv(precision_of(small, FULL).to_dense()[0])[9]
    assert np.allclose(answer.influence.value, exact, atol=1e-9)
    assert sum(share for _, share in answer.by_label) == pytest.approx(1)


def test_answers_are_kept_and_shared(small):
    session = Session(small)
    assert session.answer(FULL) is session.answer(FULL)
    assert session.matrix(FULL) is session.matrix(replace(FULL, node="house-1", solver="direct"))
    assert session.answer(View()) is None


def test_recent_forgets_the_oldest():
    made = []
    recent = LRUCache(2)
    for key in (1, 2, 1, 3, 1, 2):
        recent.get(key, lambda key=key: made.append(key))
    assert made == [1, 2, 3, 2]


def test_a_value_that_fails_is_asked_again():
    recent = LRUCache(2)
    with pytest.raises(ZeroDivisionError):
        recent.get("a", lambda: 1 / 0)
    assert recent.get("a", lambda: 5) == 5


def test_a_node_without_edges_and_one_without_a_label_are_explained(small):
    from walksum.explore.answer_panel import answer_panel, spoken

    session = Session(small)
    alone = session.answer(View("house-59", 2))
    assert alone.paths == []
    assert alone.influence.ranked(1).tolist() == [59]
    assert answer_panel(small, alone)
    assert "label unknown" in spoken(small, session.answer(View("house-5", 2)))


def test_exports_hold_every_node(small):
    answer = Session(small).answer(replace(FULL, node=ODD))
    assert len(as_csv(small, answer).splitlines()) == 61
    record = json.loads(as_json(small, answer))
    assert record["view"] == asdict(replace(FULL, node=ODD))
    assert len(record["sources"]) == 60
    assert file_name(small, answer, "csv") == "influence-village--b-odd----id---b-.csv"


def test_ids_that_look_like_formulas_are_text_in_the_csv(small):
    ids = small.problem.ids.copy()
    ids[7] = "=1+1"
    named = replace(small, problem=replace(small.problem, ids=ids))
    text = as_csv(named, Session(named).answer(replace(FULL, node="=1+1")))
    assert ",'=1+1," in text
    assert ",=1+1" not in text


def test_numbers_as_targets_are_explored_too():
    from walksum.explore.answer_panel import answer_panel, nothing_yet, spoken
    from walksum.explore.drawing import draw
    from walksum.explore.whatif import ALL, Changes, WhatIf
    from walksum.explore.whatif_panel import before_and_after

    problem = village()
    y = problem.features.sum(1)
    y[5] = torch.nan
    trained = trained_on(replace(problem, y=y, task="regression", classes=[]), epochs=3)
    answer = Session(trained).answer(View("house-5", 2))
    assert answer.by_label == []
    assert answer_panel(trained, answer)
    assert nothing_yet(trained)
    assert "probability" not in spoken(trained, answer)
    assert len(draw(trained, answer).elements) == 60 + trained.graph.num_edges
    changes = Changes().with_features(trained, "house-5", ALL)
    after = WhatIf(trained).output(changes)
    assert f"→ {float(after[5]):.4g}" in str(before_and_after(trained, 5, changes, trained.output, after))
    assert trained.suggestions[0][0] == "largest error"
    assert "true value unknown" in spoken(trained, answer)


def test_nodes_that_reach_nothing_are_not_listed(small):
    answer = Session(small).answer(View("house-59", 2))  # it stands alone
    assert answer.listed.tolist() == [59]


def test_the_first_look_is_at_a_node_with_neighbours(small):
    output = small.output.clone()
    output[59] = 0  # the house without neighbours is surest and wrong
    output[59, 1 - int(small.problem.y[59] == 1)] = 1
    changed = replace(small)
    changed.__dict__["output"] = output
    words, node = changed.suggestions[0]
    assert words == "surest of the wrong ones"
    assert node != 59
    assert int(small.graph.degree[node]) > 1


def test_class_weights_of_a_run_decide_here_too(small):
    """As in its table of predictions."""
    count = small.output.size(1)
    weights = [1e6] + [1.0] * (count - 1)
    weighed = replace(small, encoding=replace(small.encoding, class_weight=weights))
    node = int(np.flatnonzero(small.prediction != 0)[0])
    assert not weighed.prediction.any()
    assert weighed.probability(node) == pytest.approx(float(small.output[node, 0]))
    assert weighed.decided(small.output[[node]]).tolist() == [0]
