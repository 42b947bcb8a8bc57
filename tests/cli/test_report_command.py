import csv
import json
import os
import re

import pytest
import torch
from typer.testing import CliRunner

import walksum as ws
from synthetic import draw, run, write
from walksum.cli import app
from walksum.data.splits import Split
from walksum.paper import table2
from walksum.training import Data

HEADER = "model,dataset,protocol,runs,mean,std,paper_mean,paper_std"


def walksum(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    models = ("gcn", "glt-laplacian-fixed", "mlp")
    records = [r for m in models for d in ("texas", "cora") for r in draw(m, d, 5, full=True)]
    records += draw("gcn", "texas", 3, protocol="one-split")
    records += draw("gcn", "texas", 3, dropout=0.1)
    return write(tmp_path_factory.mktemp("store"), records)


def test_text_on_stdout(store):
    done = walksum("report", store)
    assert done.exit_code == 0, done.output
    assert "Table 1: test accuracy" in done.stdout
    assert "60.6 ± 5.3" in done.stdout


def test_csv_on_stdout_is_csv_alone(store):
    done = walksum("report", store, "--format", "csv")
    lines = done.stdout.splitlines()
    assert lines[0] == HEADER
    assert len(lines) == 1 + 6 + 1
    assert all(len(row) == 8 for row in csv.reader(lines))
    assert "1 cells with other settings than the paper's are not in the CSV" in done.stderr


def test_rows_columns_and_protocols_can_be_chosen(store):
    done = walksum(
        "report", store, "--format", "csv", "--models", "glt,gcn", "--datasets", "texas", "--protocol", "random"
    )
    found = [line.split(",")[:3] for line in done.stdout.splitlines()[1:]]
    assert found == [["gcn", "texas", "random"], ["glt-laplacian-fixed", "texas", "random"]]


def test_a_torn_last_line_is_no_trouble(store, tmp_path):
    text = (store / "records.jsonl").read_text()
    (tmp_path / "records.jsonl").write_text(text + text[:100])
    assert walksum("report", tmp_path, "--format", "csv").stdout == walksum("report", store, "--format", "csv").stdout


@pytest.mark.parametrize(("name", "sign"), [("a.md", "# Table 1"), ("a.html", "<!doctype html>")])
def test_the_files_name_says_the_format(store, tmp_path, name, sign):
    done = walksum("report", store, "--out", tmp_path / "new" / name)
    assert done.exit_code == 0, done.output
    assert sign in (tmp_path / "new" / name).read_text()
    assert f"written: {tmp_path / 'new' / name}" in done.stdout


def test_a_page_says_how_it_was_made(store, tmp_path):
    walksum("report", store, "--out", tmp_path / "a.md", "--models", "gcn")
    said = f"Made by `walksum report {store} --format md --out {tmp_path / 'a.md'} --models gcn`."
    assert said in (tmp_path / "a.md").read_text()


def test_plots_are_saved_and_linked(store, tmp_path):
    done = walksum("report", store, "--out", tmp_path / "a.md", "--plots", tmp_path / "images", "--protocol", "random")
    assert done.exit_code == 0, done.output
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert names == ["random-curves.svg", "random-homophily.svg", "random-seconds.svg", "random-steps.svg"]
    linked = re.findall(r"\]\((images/.*?)\)", (tmp_path / "a.md").read_text())
    assert sorted(linked) == [f"images/{name}" for name in names]


def test_json(store, tmp_path):
    done = walksum("report", store, "--json", "--out", tmp_path / "a.html")
    record = json.loads(done.stdout)
    assert (record["kind"], record["format"], record["out"]) == ("table1", "html", str(tmp_path / "a.html"))
    assert list(record["rows"][0]) == HEADER.split(",")
    assert record["rows"][0]["paper_mean"] == 60.6
    assert {(t["dataset"], t["a"], t["b"]) for t in record["tests"]} == {
        (dataset, "glt-laplacian-fixed", other) for dataset in ("texas", "cora") for other in ("gcn", "mlp")
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{empty}/nowhere",), "does not exist; name a folder with records.jsonl or solves.jsonl"),
        (("{empty}",), "holds neither records.jsonl nor solves.jsonl; fill one with 'walksum bench table1'"),
        (("{store}/records.jsonl",), "is a file, not a folder"),
        (("{store}", "--format", "pdf"), "--format pdf is unknown; choose among text, md, latex, csv, html"),
        (("{store}", "--models", "gnc"), "--models 'gnc' is unknown; choose of"),
        (("{store}", "--datasets", "tekas"), "--datasets 'tekas' is unknown; choose of"),
        (("{store}", "--protocol", "chance"), "--protocol chance is unknown; choose among random, one-split"),
        (("{store}", "--models", "gat"), "has nothing of what was asked for; it holds the models gcn, glt-laplacian"),
        (
            ("{store}", "--out", "{store}/records.jsonl/a.md"),
            "records.jsonl is a file); choose another place",
        ),
        (
            ("{store}", "--plots", "{store}/records.jsonl/p"),
            "cannot be written (Not a directory); choose another place",
        ),
    ],
)
def test_errors_say_what_to_do(store, tmp_path, arguments, words):
    done = walksum("report", *(a.format(store=store, empty=tmp_path) for a in arguments))
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())


def test_a_run_has_its_page_already(tmp_path):
    (tmp_path / "report.html").touch()
    done = walksum("report", tmp_path)
    assert done.exit_code == 2
    assert "is a run, whose page is there already: open " in " ".join(done.stderr.split())


def test_an_empty_store(tmp_path):
    (tmp_path / "records.jsonl").touch()
    done = walksum("report", tmp_path, "--json")
    assert done.exit_code == 2
    assert "is empty; fill one with 'walksum bench table1'" in json.loads(done.stdout)["error"]


def test_a_store_of_lost_runs_alone(tmp_path):
    write(tmp_path, [run("sat", "pubmed", 0, 0.0, "oom")])
    done = walksum("report", tmp_path)
    assert done.exit_code == 0, done.output
    assert "OOM" in done.stdout


@pytest.fixture(scope="module")
def solves(tmp_path_factory):
    """A Table 2 of a small graph, measured through the command."""
    draw_edges = torch.Generator().manual_seed(0)
    graph = ws.Graph.from_edge_index(torch.randint(30, (2, 60), generator=draw_edges), 30)
    split = Split(torch.arange(10), torch.arange(0), torch.arange(0))
    toy = Data(torch.randn(30, 5), graph, torch.arange(30) % 2, split)
    folder = tmp_path_factory.mktemp("solves")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table2, "load_data", lambda *args: toy)
        done = walksum(
            *("bench", "table2", "--datasets", "texas", "--models", "glt-laplacian-learned", "--epochs", 2),
            *("--store", folder, "--json"),
        )
    return folder, done


def test_table2_is_measured(solves):
    folder, done = solves
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"store": str(folder), "new_records": 20}


def test_the_kind_of_store_is_seen(solves):
    done = walksum("report", solves[0])
    assert done.exit_code == 0, done.output
    assert "Table 2: GaBP iterations" in done.stdout
    assert "45 - 65" in done.stdout  # the paper's
    rows = json.loads(walksum("report", solves[0], "--json").stdout)["rows"]
    assert {(r["direction"], r["rule"]) for r in rows} == {
        *(("forward", "messages"), ("forward", "residual")),
        *(("backward", "messages"), ("backward", "residual"), ("backward", "rescaled")),
    }


def test_table2_has_no_plots(solves, tmp_path):
    done = walksum("report", solves[0], "--plots", tmp_path)
    assert done.exit_code == 2
    assert "has no plots; leave it out" in " ".join(done.stderr.split())


def test_bench_table2_interrupted_keeps_what_it_has(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(table2, "load_data", interrupt)
    done = walksum("bench", "table2", "--store", tmp_path / "new")
    assert done.exit_code == 130
    assert "the same command goes on there" in " ".join(done.stderr.split())


def test_bench_table2_says_at_once_that_it_cannot_write(tmp_path, monkeypatch):
    monkeypatch.setattr(table2, "load_data", lambda *args: pytest.fail("trained first"))
    (tmp_path / "file").touch()
    done = walksum("bench", "table2", "--store", tmp_path / "file" / "store")
    assert done.exit_code == 2
    assert "Not a directory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--probes", "0,x"), "--probes '0,x'; expected epoch numbers from 1 on, such as 1,10,100"),
        (("--models", "gcn"), "model='gcn' solves nothing; choose among glt-"),
        (("--device", "tpu"), "--device tpu; known"),
    ],
)
def test_bench_table2_says_what_to_do(tmp_path, arguments, words):
    done = walksum("bench", "table2", "--store", tmp_path / "new", *arguments)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())
    assert not os.path.exists(tmp_path / "new")
