"""What 'walksum train' says about its scores: metrics, class weights, calibration, transforms, importance, targets."""

import numpy as np
import pandas as pd
import pytest
from customers import QUICK

from walksum.cli.console import Console
from walksum.cli.progress import say_end
from walksum.training.scoring import names_for
from walksum.workflow import open_run

TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")
FAST = (*QUICK, "--budget", "2")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A ring of 240 houses; few are damp, prices are log-normal, 'noise' means nothing; some ids look like formulas."""
    folder, draw, count = tmp_path_factory.mktemp("town"), np.random.default_rng(0), 240
    ids = np.array([f"h{k}" for k in range(count)], dtype=object)
    ids[:6] = ["=1+1", "+cmd", "-5", "@sum", "'quoted", "-x"]
    low = draw.normal(size=count)
    frame = pd.DataFrame({"id": ids, "low": low, "noise": draw.normal(size=count)})
    frame["damp"] = np.where(low + 0.4 * draw.normal(size=count) > 1.1, "yes", "no")
    frame["price"] = np.exp(2 * low + 0.3 * draw.normal(size=count)).round(4)
    frame["change"] = (low + 0.1 * draw.normal(size=count)).round(4)
    frame.loc[::12, ["damp", "price", "change"]] = None
    frame.to_csv(folder / "nodes.csv", index=False)
    pd.DataFrame({"source": ids, "target": np.roll(ids, 1)}).to_csv(folder / "edges.csv", index=False)
    return folder


def train(walksum, town, *options):
    done = walksum("train", *TABLES, *FAST, *options, cwd=town)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def damp(walksum, town):
    said = train(walksum, town, "--target", "damp", "--features", "low,noise", "--metric", "roc_auc",
                 "--class-weight", "balanced", "--out", "damp", "--budget", "12")  # fmt: skip
    return said, open_run(town / "damp")


def test_every_metric_of_every_part_and_row(damp):
    said, run = damp
    assert "test ROC AUC" in said
    assert list(run.metrics["parts"]) == ["train", "val", "test"]
    rows = set(run.metrics["test"])
    assert {"GLT", "MLP", "majority class", "logistic regression", "gradient boosting", "label propagation",
            "boosting on neighbour means", "boosting on neighbour means and targets"} == rows  # fmt: skip
    wanted = {*names_for("classification"), "rare_recall", "rare_precision", "calibration_error"}
    for part in run.metrics["parts"].values():
        assert set(part) == rows
        assert all(set(row) == wanted for row in part.values())
    test = run.metrics["parts"]["test"]
    assert run.scores["ROC AUC"].to_dict() == pytest.approx({name: row["roc_auc"] for name, row in test.items()})
    assert run.scores["ROC AUC"].is_monotonic_decreasing
    assert run.all_scores.loc[("test", "GLT"), "log_loss"] == test["GLT"]["log_loss"]


def test_balanced_weights_find_the_rare_class(damp):
    said, run = damp
    assert run.metrics["rare_class"] == "yes"
    assert "the rarest class, yes (" in said
    own = run.metrics["parts"]["test"]["GLT"]
    assert own["rare_recall"] > 0.5
    frame, weight = run.predictions, run.metrics["class_weight"]
    assert weight["yes"] > 2 * weight["no"]
    by_weight = weight["yes"] * frame["probability_yes"] > weight["no"] * frame["probability_no"]
    assert (by_weight == (frame["prediction"] == "yes")).all()
    plain = frame["probability_yes"] > 0.5  # probabilities are those of the population, so fewer pass a half
    assert plain.sum() < by_weight.sum()
    test = frame[frame["split"] == "test"]
    hits = ((test["prediction"] == "yes") & (test["truth"] == "yes")).sum()
    assert own["rare_recall"] == pytest.approx(hits / (test["truth"] == "yes").sum())


def test_probabilities_are_calibrated_and_the_error_is_told(damp):
    said, run = damp
    record = run.metrics["calibration"]
    assert f"expected calibration error {record['error']['after']:.3f} on the test nodes" in said
    assert record["temperature"] != 1
    assert record["log_loss"]["after"] < record["log_loss"]["before"] + 0.05
    assert sum(each["share"] for each in record["bins"]) == pytest.approx(1)
    assert record["spearman_with_right"] > 0
    again = run.predict(pd.read_csv(run.folder.parent / "nodes.csv"), pd.read_csv(run.folder.parent / "edges.csv"))
    assert np.allclose(again["probability_yes"], run.predictions["probability_yes"], atol=1e-5)
    assert (again["prediction"] == run.predictions["prediction"]).all()


def test_the_column_that_matters_is_named_first(damp):
    said, run = damp
    table = run.importance()
    assert table["column"].tolist() == ["low", "noise"]
    low, noise = table["importance"]
    assert low > 5 * table["standard_error"][0] > 0
    assert abs(noise) < 0.2 * low
    assert "columns that matter most, by the fall of ROC AUC when permuted: low " in said
    pd.testing.assert_frame_equal(pd.read_csv(run.folder / "importance.csv"), table)


def test_ids_that_look_like_formulas_are_written_as_text(damp):
    _, run = damp
    text = pd.read_csv(run.folder / "predictions.csv", dtype=str)["id"].tolist()
    assert text[:6] == ["'=1+1", "'+cmd", "-5", "'@sum", "''quoted", "'-x"]
    assert run.predictions["id"].tolist()[:6] == ["=1+1", "+cmd", "-5", "@sum", "'quoted", "-x"]


def test_a_skewed_number_is_learned_by_its_logarithm(walksum, town):
    said = train(walksum, town, "--target", "price", "--features", "low,noise", "--metric", "mae", "--out", "price")
    run = open_run(town / "price")
    assert run.metrics["transform"] in ("log", "quantile")
    assert f"learned by its {run.metrics['transform']}, by mean absolute error on validation nodes: none " in said
    assert "test mean absolute error" in said
    scores = run.scores["mean absolute error"]
    assert scores.is_monotonic_increasing  # the smaller the better
    assert scores["mean"] == scores.max()
    frame = run.predictions
    assert (frame["prediction"] >= 0).all()
    assert (frame["low"] <= frame["prediction"]).all()
    assert (frame["prediction"] <= frame["high"]).all()
    up, down = frame["high"] - frame["prediction"], frame["prediction"] - frame["low"]
    assert (up > down).mean() > 0.7  # intervals are as skewed as the target
    assert run.metrics["intervals"]["coverage"] > 0.8
    assert run.metrics["intervals"]["spearman_with_error"] > 0.2
    assert set(run.metrics["parts"]["test"]["ridge regression"]) == {"r2", "rmse", "mae"}


def test_several_targets_share_a_folder(walksum, town):
    said = train(walksum, town, "--target", "damp,change", "--out", "both")
    assert "target damp:" in said
    assert "target change:" in said
    frame = pd.read_csv(town / "both" / "predictions.csv")
    assert {"id", "damp.split", "damp.truth", "damp.prediction", "damp.probability_yes", "change.prediction",
            "change.low", "change.high"} <= set(frame)  # fmt: skip
    for target, other in (("damp", "change"), ("change", "damp")):
        used = open_run(town / "both" / target).encoding.columns
        assert other not in used
        assert "low" in used
    with pytest.raises(ValueError, match="holds the runs of several targets; open one of "):
        open_run(town / "both")
    done = walksum("predict", "both", *TABLES, "--out", "new.csv", cwd=town)
    assert done.returncode == 0, done.stderr
    assert "240 predictions of damp, change" in done.stdout
    new = pd.read_csv(town / "new.csv")
    assert np.allclose(new["change.prediction"], frame["change.prediction"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--target", "damp", "--metric", "rmse"),
            "--metric rmse does not fit a classification; known for it: accuracy",
        ),
        (("--target", "price", "--metric", "roc_auc"), "--metric roc_auc does not fit a regression; known for it: r2"),
        (("--target", "damp", "--metric", "auc"), "--metric auc"),
        (("--target", "price", "--class-weight", "balanced"), "--class-weight balanced is for classes; 'price' holds"),
        (("--target", "damp", "--class-weight", "heavy"), "--class-weight heavy"),
        (("--target", "damp", "--transform", "log"), "--transform log is for numbers; 'damp' holds classes"),
        (("--target", "change", "--transform", "log"), "--transform log needs targets of at least 0; the smallest"),
        (("--target", "change", "--transform", "square"), "--transform square"),
        (("--target", "damp,damp"), "name each column to predict once"),
        (("--target", "damp,price,colour"), "colour"),
    ],
)
def test_what_does_not_fit_is_said(options, message, walksum, town):
    done = walksum("train", *TABLES, *FAST, *options, "--out", "never", cwd=town)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (town / "never").exists()


@pytest.mark.parametrize(("fall", "said"), [(0.3, "low 0.3 ± 0.1"), (0.1, "none clearly")])
def test_columns_that_matter_are_those_beyond_chance(damp, capsys, fall, said):
    rows = [{"column": "low", "importance": fall, "standard_error": 0.1}]
    how = {"not_measured": ["noise"]}
    say_end(Console(), damp[1].metrics | {"importance": rows, "importance_by": how})
    assert f"when permuted: {said}; not measured in the time: 'noise'" in capsys.readouterr().out.replace("\n", " ")
