"""Metrics by name equal scikit-learn's; intervals hold what they should."""

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from walksum.training.scoring import (
    METRICS,
    bootstrap,
    expected_calibration_error,
    metric_for,
    names_for,
    paired_difference,
    scored,
)


@pytest.fixture(params=[2, 4])
def classes(request):
    draw, C = np.random.default_rng(1), request.param
    y = draw.choice(C, 300, p=np.arange(1, C + 1) / sum(range(1, C + 1)))
    shares = draw.dirichlet(np.ones(C), 300) + 0.4 * np.eye(C)[y]
    return np.round(shares / shares.sum(1, keepdims=True), 2), y  # rounded, so that there are ties


def test_metrics_of_classes_are_scikit_learns(classes):
    shares, y = classes
    guess, C = shares.argmax(1), shares.shape[1]
    one_hot = np.eye(C)[y]
    expected = {
        "accuracy": sk.accuracy_score(y, guess),
        "balanced_accuracy": sk.balanced_accuracy_score(y, guess),
        "macro_f1": sk.f1_score(y, guess, average="macro"),
        "roc_auc": np.mean([sk.roc_auc_score(one_hot[:, c], shares[:, c]) for c in (range(C) if C > 2 else (1,))]),
        "average_precision": np.mean(  # of two classes the rarer, which is the first here
            [sk.average_precision_score(one_hot[:, c], shares[:, c]) for c in (range(C) if C > 2 else (0,))]
        ),
        "log_loss": -np.log(np.maximum(shares[np.arange(300), y], 1e-12)).mean(),
    }
    assert {name: METRICS[name].of(shares, y) for name in names_for("classification")} == pytest.approx(expected)
    assert METRICS["log_loss"].gain(shares, y) == -METRICS["log_loss"].of(shares, y)


def test_metrics_of_numbers_are_scikit_learns():
    y, guess = np.random.default_rng(0).normal(size=(2, 50))
    expected = {"r2": sk.r2_score(y, guess), "rmse": sk.root_mean_squared_error(y, guess)}
    expected["mae"] = sk.mean_absolute_error(y, guess)
    assert {name: METRICS[name].of(guess, y) for name in names_for("regression")} == pytest.approx(expected)


def test_a_metric_of_another_task_is_refused():
    assert metric_for(None, "regression").name == "r2"
    with pytest.raises(ValueError, match="metric='rmse' does not fit a classification; known for it: accuracy, "):
        metric_for("rmse", "classification")


def test_calibration_error_counts_overconfidence():
    shares = np.tile([0.9, 0.1], (100, 1))
    y = (np.arange(100) >= 60).astype(int)  # right in 60 of 100, sure of 90
    assert expected_calibration_error(shares, y) == pytest.approx(0.3)
    assert expected_calibration_error(np.tile([0.6, 0.4], (100, 1)), y) == pytest.approx(0)


def test_a_paired_interval_is_narrower_than_those_of_the_two_scores():
    draw = np.random.default_rng(0)
    y = draw.normal(size=400)
    shared = draw.normal(size=400)
    mine, theirs = (y + shared + 0.1 * s * draw.normal(size=400) for s in (1, 3))
    difference = paired_difference(METRICS["rmse"], mine, theirs, y)
    assert 0 < difference.low < difference.value < difference.high
    apart = [scored(METRICS["rmse"], each, y) for each in (mine, theirs)]
    assert apart[0].high > apart[1].low  # alone they would not tell
    assert len(bootstrap(lambda rows: np.nan, 5)) == 0


@pytest.mark.parametrize("y", [np.array([3.0]), np.full(7, 0.1)])
def test_r2_of_equal_numbers_is_zero_unless_perfect(y):
    from walksum.training.data import r_squared

    for guess, expected in ((y + 1, 0.0), (y, 1.0)):
        assert METRICS["r2"].of(guess, y) == expected
        assert r_squared(torch.from_numpy(guess)[:, None], torch.from_numpy(y)) == expected


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e29])
def test_numbers_of_any_size_in_float32_are_scored(size):
    y = (size * np.arange(6.0)).astype(np.float32)
    guess = np.full(6, y.mean(), np.float32)
    assert METRICS["r2"].of(guess, y) == pytest.approx(0, abs=1e-6)
    assert METRICS["rmse"].of(guess, y) == pytest.approx(size * np.std(np.arange(6.0)), rel=1e-6)


@pytest.mark.parametrize(("positive", "told"), [(4, False), (5, True)])
def test_ranks_of_hardly_any_node_of_a_class_are_not_compared(positive, told):
    y = (np.arange(200) < positive).astype(int)
    mine, theirs = (np.stack([1 - p, p], 1) for p in np.random.default_rng(0).random((2, 200)))
    found = paired_difference(METRICS["average_precision"], mine, theirs, y)
    assert np.isfinite([found.low, found.high]).tolist() == [told, told]
