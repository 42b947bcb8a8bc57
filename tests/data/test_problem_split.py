"""Splits of one's own table: by words, fractions, time, group, and parts of the graph."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch

from walksum.data.problem_split import graph_parts, split_notes, split_problem
from walksum.data.user_files import Columns, read_tables
from walksum.graph import Graph
from walksum.portfolio.folds import cross_validation

COUNT = 60
PATH = pd.DataFrame({"source": range(COUNT - 1), "target": range(1, COUNT)})


def problem(target="y", **more):
    roles = {name: more.pop(name) for name in ("split", "time", "group") if name in more}
    nodes = pd.DataFrame({"id": range(COUNT), "x": np.arange(COUNT) * 0.5, "y": ["a", "b"] * 30, **more})
    return read_tables(nodes, PATH, Columns(target, **roles))


def parts(split):
    return [set(part.tolist()) for part in (split.train, split.val, split.test)]


def test_train_and_test_alone_suffice():
    words = np.where(np.arange(COUNT) < 40, "Training", "TESTING")
    found = problem(part=words, split="part")
    first, again, other = (split_problem(found, None, seed) for seed in (0, 0, 1))
    train, val, test = parts(first)
    assert test == set(range(40, 60))
    assert train | val == set(range(40))
    assert len(val) == 10
    assert found.y[first.val].unique().tolist() == [0, 1]
    assert parts(first) == parts(again)
    assert parts(first)[1] != parts(other)[1]


def test_two_numbers_are_training_and_test():
    assert split_problem(problem(), "0.8,0.2", 0).counts == (36, 12, 12)
    assert split_problem(problem(), "40,20", 0).counts == (30, 10, 20)


def test_the_past_trains_and_the_latest_are_the_test():
    days = pd.date_range("2020-01-01", periods=COUNT).astype(str)[::-1]
    split = split_problem(problem(day=days, time="day"), None, 0)
    train, val, test = parts(split)
    assert train == set(range(24, 60))
    assert val == set(range(12, 24))
    assert test == set(range(12))
    assert split.ordered


def test_nodes_of_one_time_are_not_parted():
    years = 2000 + np.arange(COUNT) // 7
    split = split_problem(problem(year=years, time="year"), "0.5,0.25,0.25", 3)
    counts = [set(years[list(part)]) for part in parts(split)]
    assert not counts[0] & counts[1]
    assert not counts[1] & counts[2]
    assert max(counts[0]) < min(counts[1]) <= max(counts[1]) < min(counts[2])
    with pytest.raises(ValueError, match="time_column= has 1 different times"):
        split_problem(problem(year=[2000] * COUNT, time="year"), None, 0)
    with pytest.raises(ValueError, match="the node '3' has a target and no time"):
        split_problem(problem(year=np.where(np.arange(COUNT) == 3, np.nan, years), time="year"), None, 0)


def test_groups_stay_together_and_take_turns_together():
    groups = np.arange(COUNT) // 5
    found = problem(state=[f"s{k}" for k in groups], group="state")
    assert "state" not in found.features
    split = split_problem(found, None, 0)
    owners = [set(groups[list(part)]) for part in parts(split)]
    assert sum(map(len, owners)) == 12
    assert not owners[0] & owners[1] | owners[1] & owners[2] | owners[0] & owners[2]
    assert split.counts == (35, 10, 15) or abs(split.counts[0] - 36) <= 5
    assert parts(split_problem(found, None, 1)) != parts(split)
    rows = np.sort(torch.cat([split.train, split.val]).numpy())
    for learn, judge in cross_validation(found.y.numpy(), rows, 2, 5, 0, split.groups):
        assert not set(split.groups[learn]) & set(split.groups[judge])
    states = [None, *"aabbccddee", *"fghij" * 9, *"aabb"]
    alone = problem(state=states[:COUNT], group="state")
    assert "1 nodes have no 'state': each is a group of its own" in alone.notes
    assert not any("group" in note for note in found.notes)
    with pytest.raises(ValueError, match="the labelled nodes are of 2 groups; a split into three parts needs three"):
        split_problem(problem(state=["a", "b"] * 30, group="state"), None, 0)


@pytest.mark.parametrize("metis", [True, False])
def test_a_spatial_split_keeps_parts_of_the_graph(monkeypatch, metis):
    if metis:
        pytest.importorskip("pymetis")
    else:
        monkeypatch.setitem(sys.modules, "pymetis", None)
    found = problem()
    split = split_problem(found, "spatial", 0)
    assert sum(split.counts) == COUNT
    assert min(split.counts) > 5
    part = np.zeros(COUNT, int)
    for k, nodes in enumerate(parts(split)):
        part[list(nodes)] = k
    # along a path, a random split would change sides at about 33 of 59 edges
    assert (np.diff(part) != 0).sum() <= 20


def test_parts_by_breadth_cover_graphs_of_several_components(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 3, 4, 6], [1, 2, 4, 5, 7]]), 12)
    found = graph_parts(graph, 3)
    assert np.bincount(found).tolist() == [4, 4, 4]


def test_words_that_say_nothing_are_refused():
    with pytest.raises(ValueError, match="the split column holds 'later'; expected train, val, test or nothing"):
        problem(part=["train", "later"] * 30, split="part")
    with pytest.raises(ValueError, match="a run folder, spatial"):
        split_problem(problem(), "a,b,c", 0)


@pytest.mark.parametrize("how", [None, "0.5,0.25,0.25"])
def test_parts_are_independent_of_numbers_drawn_by_the_same_seed(how):
    drawn = np.random.default_rng(0).random(COUNT)  # who makes a table often takes the seed 0 as well
    train, _, test = parts(split_problem(problem(y=drawn), how, 0))
    assert max(drawn[list(train)]) > min(drawn[list(test)])


def test_classes_of_hardly_any_test_node_are_said():
    found = problem(y=["rare" if k % 20 == 0 else "ab"[k % 2] for k in range(COUNT)])
    assert split_notes(found, None, split_problem(found, None, 0)) == [
        "hardly any test nodes are 'rare' (1): recall of such a class, and every mean over classes, hangs on chance"
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_class_of_two_is_known_to_every_fold(seed):
    y = np.where(np.arange(COUNT) < 2, 1.0, 0.0)
    for learn, _ in cross_validation(y, np.arange(COUNT), 2, 5, seed):
        assert y[learn].any()


def test_labelled_nodes_in_no_part_are_said():
    words = np.where(np.arange(COUNT) < 40, "train", np.where(np.arange(COUNT) < 50, "test", ""))
    found = problem(part=words, split="part")
    said = ["10 nodes have a target and are in no part of the given split: they are predicted, not learned from"]
    assert split_notes(found, None, split_problem(found, None, 0)) == said
    chosen = split_notes(found, "20,10,10", split_problem(found, "20,10,10", 0))
    assert not any("in no part" in note for note in chosen)  # who gives counts means it
