"""The page of a run: a verdict first, numbers that are those of the run, names of the user's own, no empty boxes."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import walksum.workflow.page
from walksum.training import Epoch
from walksum.workflow import fit_tables
from walksum.workflow.metrics import in_own_units
from walksum.workflow.page_charts import residuals, ticks_of
from walksum.workflow.page_findings import (
    calibration_bins,
    heading,
    importance_title,
    most_wrong,
    node_to_explain,
    shown,
    target_name,
    verdict,
)

NASTY = '<b>odd & "id"</b>'


def tables():
    draw, count = np.random.default_rng(0), 160
    size, place = draw.normal(size=count), np.sin(np.arange(count) / 8)
    nodes = pd.DataFrame(
        {"id": [f"{NASTY} {k}" for k in range(count)], "size <m>": size, "age": draw.normal(size=count)}
    )
    nodes["town"] = [f"Town {k}" for k in range(count)]
    nodes["rent"] = 100 + 10 * (size + 2 * place) + draw.normal(size=count)
    nodes["dear"] = np.where(nodes["rent"] > 100, "yes & more", "<no>")
    ids = nodes["id"].to_numpy()
    return nodes, pd.DataFrame({"source": ids[:-1], "target": ids[1:]})


def fitted(target, **how):
    def enough(name, done, total, seconds):
        if done == 3:
            raise KeyboardInterrupt

    return fit_tables(*tables(), target, on_member=enough, budget=10, **how)  # the rows beside it share the seconds


class Reader(HTMLParser):
    """Text of a page, its tables as rows of cells, and whether every tag that is opened is closed."""

    VOID = frozenset({"meta", "img", "source", "br"})

    def __init__(self, page):
        super().__init__()
        self.rows, self.open, self.words = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def numbers():
    return fitted("rent", features=["size <m>", "age", "town"])


@pytest.fixture(scope="module")
def classes():
    return fitted("dear", features=["size <m>", "age"])


def test_the_first_line_is_the_verdict(numbers):
    own = numbers.metrics["test"]["auto"]
    page = numbers.report()
    first = re.search(r'<p class="verdict">(.*?)</p>', page)[1]
    assert first.startswith(f"rent is predicted with R² {own['mean']:.3f}: off by {own['mean_absolute_error']:.3g}")
    assert page.index("verdict") < page.index("<section>")
    assert "<h1>rent in the table " in page
    assert "160 nodes, 159 edges · a portfolio of models (auto)</h1>" in page


def test_the_graph_and_better_rows_are_told():
    parts = {"GLT": {"accuracy": 0.8}, "MLP": {"accuracy": 0.6}, "majority class": {"accuracy": 0.4}}
    graph = {"verdict": "helped", "against": "MLP", "gain": 0.2, "low": 0.1, "high": 0.3, "better": None}
    test = {"GLT": {"mean": 0.8}}
    metrics = {"model": "GLT", "score": "accuracy", "metric": "accuracy", "data": {"target": "kind"}, "graph": graph}
    metrics |= {"parts": {"test": parts}, "test": test}
    assert verdict(metrics)[0].endswith(
        "80.0 % of the test nodes; the most common class alone would be right for 40.0 %."
    )
    assert verdict(metrics)[1].startswith("The graph helped: +20.0 points over MLP, the best without edges")
    graph["against"] = "auto without edges"
    assert "+20.0 points over auto without edges, 95 %" in verdict(metrics)[1]
    graph["better"] = {"method": "ridge", "gain": -0.02, "low": -0.1, "high": 0.05}
    assert verdict(metrics)[1].endswith(
        "ridge scored higher, though not clearly: +2.0 points over GLT, 95 % interval -5.0 to +10.0."
    )
    graph["better"] |= {"low": None, "high": None}
    assert verdict(metrics)[1].endswith("ridge scored higher.")
    metrics["graph"] = None
    assert "is not known" in verdict(metrics)[1]


def test_the_page_is_whole_and_escaped(numbers, classes):
    for run in (numbers, classes):
        page = run.report()
        reader = Reader(page.removeprefix("<!doctype html>\n"))
        assert reader.open in ([], ["html"])
        assert "<b>odd" not in page
        assert "None" not in "".join(reader.words)
        assert "<section>\n</section>" not in page
        assert not any(word in page for word in ("http://", "https://", "<script", "<link"))


def test_residuals_names_and_intervals_of_a_regression(numbers):
    reader = Reader(numbers.report())
    frame = numbers.predictions.query("split == 'test'")
    worst = (frame["prediction"] - frame["truth"]).abs().idxmax()
    row = next(row for row in reader.rows if row and row[0].startswith(frame["id"][worst]))
    assert row[0] == f"{frame['id'][worst]}, Town {worst}"
    assert row[2] == f"{frame['prediction'][worst]:.4g}"
    assert row[3].startswith(f"{frame['low'][worst]:.4g} to ")
    assert row[4] in {f"{tables()[0][name][worst]:.5g}" for name in ("size <m>", "age")}
    page = numbers.report()
    assert page.count('class="dot"') >= 2 * len(frame)  # residuals, and intervals of up to 60
    assert "Mean error by size &lt;m&gt;" in page


def test_confusions_and_calibration_of_classes(classes):
    reader = Reader(classes.report())
    frame = classes.predictions.query("split == 'test'")
    for name in ("<no>", "yes & more"):
        row = next(row for row in reader.rows if row and row[0] == name and len(row) == 4)
        mine = frame[frame["truth"] == name]
        assert [int(cell) for cell in row[1:3]] == [
            (mine["prediction"] == other).sum() for other in sorted(classes.config["classes"])
        ]
    assert "true ↓ predicted →" in "".join(reader.words)
    assert 'class="confusion numbered"' in classes.report()  # names too long for the columns of a phone
    assert '<span class="number">2 </span>yes &amp; more</th>' in classes.report()
    drawn = calibration_bins(classes.result)
    off = sum(abs(said - right) * count for said, right, count in drawn) / len(frame)
    assert f"The mean distance from it is {100 * off:.1f} points" in classes.report()


def test_importance_is_drawn_where_it_was_measured(numbers):
    before, how = numbers.metrics["importance"], numbers.metrics["importance_by"]
    numbers.metrics["importance"] = None
    assert "Which columns it uses" not in numbers.report()
    numbers.metrics["importance"] = [
        {"column": "size <m>", "importance": 0.31, "standard_error": 0.02},
        {"column": "age", "importance": 0.0, "standard_error": 0.01},
    ]
    numbers.metrics["importance_by"] = {"on": "held-out nodes", "not_measured": ["town <t>"]}
    try:
        page = numbers.report()
    finally:
        numbers.metrics["importance"], numbers.metrics["importance_by"] = before, how
    assert "Not measured in the time: town &lt;t&gt;." in page
    assert "Which columns it uses" in page
    assert "falls on the test nodes" not in page  # they are looked at once, and not for this
    assert "0.310" in page


def test_the_heading_says_what_is_predicted_of_what():
    data = {"target": "y", "task": "classification", "name": "cora", "nodes": 2708, "edges": 5278}
    metrics = {"data": data, "model": "GLT", "portfolio": None}
    assert heading(metrics, table=False) == "Class in the dataset cora · 2,708 nodes, 5,278 edges · GLT"


def test_the_y_of_a_dataset_is_called_its_class():

    assert target_name({"data": {"target": "y", "task": "classification"}}) == "class"
    assert target_name({"data": {"target": "y", "task": "regression"}}) == "y"
    assert target_name({"data": {"target": "kind", "task": "classification"}}) == "kind"


def weighted():
    """Twenty test nodes whose rarer class is predicted, for its weight, with a probability of 0.4."""
    output = torch.tensor([[0.6, 0.4], [0.9, 0.1]]).repeat(10, 1)
    problem = SimpleNamespace(y=torch.tensor([1, 0]).repeat(10), regression=False, classes=["often", "rare"])
    split = SimpleNamespace(test=torch.arange(20))
    guess = torch.tensor([1, 0]).repeat(10)
    return SimpleNamespace(output=output, prediction=guess, problem=problem, prepared=SimpleNamespace(split=split))


def test_the_probability_is_that_of_the_predicted_class():
    result = weighted()
    assert calibration_bins(result) == [(pytest.approx(0.4), 1.0, 10), (pytest.approx(0.9), 1.0, 10)]
    assert node_to_explain(result) == 0  # the least sure that is right
    result.problem.y[2] = 0
    trained = SimpleNamespace(title_of=str, label=lambda node: "often")
    result.problem.features = None
    assert most_wrong(result, trained, {})[1] == [["2", "often", "rare", "40 %"]]


def test_scores_in_units_are_written_out():
    assert shown({"metric": "mae", "score": "mean absolute error"}, 12345.6) == "12346"
    assert shown({"metric": "rmse", "score": "RMSE"}, 0.0001234) == "0.0001234"
    assert shown({"metric": "r2", "score": "R^2"}, -0.0001) == "0.000"


def test_an_error_rises_where_a_score_falls(numbers):
    metrics = {"metric": "mae", "score": "mean absolute error", "higher_is_better": False}
    assert importance_title(metrics) == "Rise of mean absolute error when a column is shuffled"
    before = {name: numbers.metrics[name] for name in ("higher_is_better", "importance")}
    numbers.metrics["importance"] = [{"column": "age", "importance": 0.1, "standard_error": None}]
    try:
        assert "How much R² falls when" in numbers.report()
        assert "Less is better" not in numbers.report()
        numbers.metrics["higher_is_better"] = False
        assert "How much R² rises when" in numbers.report()
        assert "validation nodes). Less is better." in numbers.report()
    finally:
        numbers.metrics.update(before)


def test_an_axis_has_two_numbers_and_room_for_them():
    assert ticks_of(50.01, 50.98, 3) == [50.2, 50.4, 50.6, 50.8]
    drawn = residuals(np.array([1.0, 2.0]), np.array([-60000.0, 60000.0]), "income")
    label = float(re.search(r"translate\(([0-9.]+)", drawn)[1])
    words, end = max(
        ((text, float(x)) for x, text in re.findall(r'x="([0-9.]+)" y="[^"]*" class="end">([^<]*)', drawn)),
        key=lambda each: len(each[0]),
    )
    assert end - 8 * len(words) > label  # eight: a figure on a phone


def test_names_of_many_classes_stand_beside_the_rows_alone(classes, monkeypatch):
    assert "confusion numbered long" not in classes.report()
    monkeypatch.setattr(walksum.workflow.page, "MOST_LETTERS", 10)
    assert 'class="confusion numbered long"' in classes.report()


def test_of_several_seeds_the_page_says_which_is_shown(classes):
    assert "means over" not in classes.report()
    before = classes.metrics["seeds"]
    classes.metrics["seeds"] = [0, 1, 2]
    try:
        assert "These are means over 3 seeds; all else on this page is of seed 0" in classes.report()
    finally:
        classes.metrics["seeds"] = before


def test_epochs_show_an_error_as_it_is():
    epoch = Epoch.from_json({"number": 1, "train_loss": 1.0, "val_loss": 1.0, "val_score": -3.5, "test_score": 0.0})
    assert in_own_units([epoch], False)[0].val_score == 3.5
    assert in_own_units([epoch], True) == [epoch]
