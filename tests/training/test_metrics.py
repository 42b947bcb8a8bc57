"""Scores of one run or many, and their intervals."""

import math

import pytest
import torch

from walksum.training.data import accuracy, r_squared
from walksum.training.scoring import wilson


def test_accuracy_of_many_runs_leaves_padding_out():
    outputs = torch.tensor([[[2.0, 1.0], [0.0, 1.0], [5.0, 0.0]], [[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]]])
    y = torch.tensor([[0, 0, 1], [0, 1, 0]])
    weight = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    assert accuracy(outputs, y, weight).tolist() == pytest.approx([1 / 2, 1 / 3])
    assert accuracy(outputs, y).tolist() == pytest.approx([1 / 3, 1 / 3])


def test_r_squared_of_many_runs_is_scikit_learns_of_each():
    from sklearn.metrics import r2_score

    torch.manual_seed(0)
    outputs, y, weight = torch.randn(2, 9, 1), torch.randn(2, 9), torch.ones(2, 9)
    weight[0, 6:] = 0
    found = r_squared(outputs, y, weight)
    assert float(found[0]) == pytest.approx(r2_score(y[0, :6], outputs[0, :6, 0]))
    assert float(found[1]) == pytest.approx(r2_score(y[1], outputs[1, :, 0]))


def test_wilson_is_the_interval_of_the_score_test():
    low, high = wilson(8, 10)
    z = 1.959963984540054
    for share in (low, high):  # it solves |p - share| = z sqrt(share (1 - share) / n)
        assert abs(0.8 - share) == pytest.approx(z * math.sqrt(share * (1 - share) / 10))
    assert wilson(0, 5)[0] == 0
    assert wilson(5, 5)[1] == 1


def test_the_mean_scores_zero():
    y = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert r_squared(torch.full((4, 1), 3.0), y) == pytest.approx(0)
