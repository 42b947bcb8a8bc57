"""The picture of a run: whatever the classes and nodes are called, it says who is who."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from walksum.data.problem import CLASSIFICATION, REGRESSION, Problem
from walksum.workflow import page
from walksum.workflow import page_findings as findings
from walksum.workflow.fit import Job, fit_once
from walksum.workflow.trained_run import TrainedRun

COUNT = 90


@pytest.fixture(autouse=True)
def no_comparisons(monkeypatch):
    monkeypatch.setattr("walksum.workflow.comparisons.compare", lambda *_, **__: None)


def result_of(y, classes, task=CLASSIFICATION):
    ring = torch.stack([torch.arange(COUNT), (torch.arange(COUNT) + 1) % COUNT])
    frame = pd.DataFrame(torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(0)).double().numpy())
    ids = np.array([f"a node called ${k}" for k in range(COUNT)], dtype=object)
    frame.columns = ["a", "b", "c"]
    problem = Problem("ring", ids, frame, ring, y, task, classes, target="price")
    return fit_once(Job(max_epochs=3, hidden=8, layers=1), problem)


def drawn(result):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = TrainedRun.of_prepared(result.job, result.prepared, result.model)
        figure = page.overview_of(result, trained, findings.explain(result, trained))
        figure.canvas.draw()
    return figure


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_nodes_of_a_table_are_named_where_there_is_no_image():
    figure = drawn(result_of(torch.arange(COUNT) % 2, ["$5{ to $10", "more"]))
    tiles = figure.subfigs[1].axes
    assert len(tiles) == 1 + findings.SOURCES
    for tile in tiles:
        assert not tile.images
        assert texts(tile)[0].startswith("a node")
        assert texts(tile)[0][-1].isdigit()


def test_long_names_of_classes_stay_apart():
    classes = ["Department of Physics", "Department of History"]
    confusion = drawn(result_of(torch.arange(COUNT) % 2, classes)).subfigs[0].axes[2]
    names = [label.get_text() for label in confusion.get_yticklabels()]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 14


def test_names_of_many_classes_do_not_overlap():
    confusion = drawn(result_of(torch.arange(COUNT) % 30, [f"class{k}" for k in range(30)]))
    axes = next(axes for axes in confusion.axes if axes.get_title(loc="left").startswith("prediction"))
    boxes = sorted((label.get_window_extent() for label in axes.get_yticklabels()), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))


def test_a_score_below_zero_is_in_the_picture():
    result = result_of(torch.randn(COUNT, generator=torch.Generator().manual_seed(1)), [], REGRESSION)
    lowest = min(epoch.val_score for epoch in result.outcome.history)
    assert lowest < 0
    curve = drawn(result).subfigs[0].axes[0]
    assert curve.get_ylim()[0] < lowest
