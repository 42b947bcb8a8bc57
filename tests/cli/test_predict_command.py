import json

import pandas as pd
import pytest
import torch
from customers import QUICK, Shop, answers
from torch_geometric.data import Data
from typer.testing import CliRunner

from walksum.cli import app
from walksum.data.user_files import Columns, read_tables
from walksum.workflow.fit import predict
from walksum.workflow.run import open_run


@pytest.fixture(scope="module")
def predicted(colour_run, shop, walksum, tmp_path_factory):
    """The run that learned from 72 customers, asked about all 80."""
    run, _ = colour_run
    folder = tmp_path_factory.mktemp("asked")
    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv")
    done = walksum("predict", run, *tables, "--out", "new/predictions.csv", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return run, folder / "new" / "predictions.csv", json.loads(done.stdout)


def test_new_nodes_get_what_a_full_forward_gives(predicted, shop):
    run, file, record = predicted
    assert record["nodes"] == 80
    stored = open_run(run)
    problem = read_tables(
        shop / "nodes.csv", shop / "edges.csv", Columns("colour", features=tuple(stored.encoding.columns))
    )
    output = predict(stored.model, stored.encoding.encode(problem.features), problem, stored.encoding)
    frame = pd.read_csv(file)
    written = torch.tensor(frame[["probability_blue", "probability_red"]].to_numpy())
    assert torch.allclose(written, output.double(), atol=2e-6)
    assert frame["id"].tolist() == [f"c{k}" for k in range(80)]
    new = frame["prediction"].to_numpy()[72:] == Shop().colour[72:]
    assert new.mean() > 0.5


def test_the_same_graph_gives_the_predictions_of_training(colour_run, walksum, tmp_path):
    run, _ = colour_run
    tables = ("--nodes", run.parent / "nodes.csv", "--edges", run.parent / "edges.csv")
    done = walksum("predict", run, *tables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "predictions.csv").read_text() == answers(run / "predictions.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["predictions.csv"]


def _ask(run, folder, nodes, edges="source,target\na,b\n"):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    tables = ["--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv")]
    return CliRunner().invoke(app, ["predict", str(run), *tables, "--out", str(folder / "out.csv")])


def test_an_edge_weight_that_training_left_alone_is_no_news(colour_run, tmp_path):
    run, _ = colour_run
    edges = tmp_path / "edges.csv"
    pd.read_csv(run.parent / "edges.csv").assign(weight=2.0).to_csv(edges, index=False)
    asked = ["predict", str(run), "--nodes", str(run.parent / "nodes.csv"), "--edges", str(edges)]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output
    assert "has a column" not in done.output + done.stderr


def test_a_town_never_seen_counts_as_none_with_a_note(colour_run, tmp_path):
    done = _ask(colour_run[0], tmp_path, "id,income,town\na,1000,Lima\nb,,Rome\n")
    assert done.exit_code == 0, done.output
    assert "note: 1 rows of 'town' hold categories not kept from the training nodes ('Lima'): zeros" in done.output
    assert "note: 1 missing numbers in 'income'" in done.output
    assert len(pd.read_csv(tmp_path / "out.csv")) == 2


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("id,incme,town\na,1,Rome\nb,2,Rome\n", "nodes.csv has no column 'income'; did you mean 'incme'?"),
        ("id,income,town\na,rich,Rome\nb,2,Rome\n", "nodes.csv, line 2: income is 'rich'; expected a finite number"),
        ("id,income,town\na,1,Rome\nc,2,Rome\n", "name unknown nodes: 'b'"),
    ],
)
def test_tables_that_do_not_fit_the_run_are_refused(nodes, message, colour_run, tmp_path):
    done = _ask(colour_run[0], tmp_path, nodes)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "out.csv").exists()


def invoke(*arguments):
    return CliRunner().invoke(app, [str(word) for word in arguments])


def test_folders_that_were_made_are_told(file_run, tmp_path):
    done = invoke(
        "predict", file_run / "run", "--graph", file_run / "new.pt", "--out", tmp_path / "new" / "a" / "p.csv"
    )
    assert f"(made the folder {tmp_path / 'new'}/)" in " ".join(done.output.split())


def test_the_name_of_the_file_says_its_format(file_run, tmp_path):
    out = tmp_path / "p.parquet"
    done = invoke("predict", file_run / "run", "--graph", file_run / "new.pt", "--out", out)
    assert done.exit_code == 0, done.output
    written = pd.read_csv(file_run / "run" / "predictions.csv", dtype={"id": str})
    assert pd.read_parquet(out)["id"].tolist() == written["id"].tolist()


def test_a_column_called_degree_is_read_and_not_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{k % 3},{'ab'[k % 2]}" for k in range(40)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,degree,y", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{k},{(k + 1) % 40}\n" for k in range(40)))
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv")
    done = invoke("train", *tables, "--target", "y", "--out", "run", *QUICK)
    assert done.exit_code == 0, done.output
    done = invoke("predict", "run", *tables, "--out", "again.csv")
    assert done.exit_code == 0, done.output
    assert "degree is used" not in done.output
    assert (tmp_path / "again.csv").read_text() == answers(tmp_path / "run" / "predictions.csv")


@pytest.fixture(scope="module", params=["classes", "numbers"])
def file_run(request, tmp_path_factory):
    """A run that learned from a PyG file, and that file without y."""
    folder = tmp_path_factory.mktemp("file")
    x, ring = torch.randn(40, 3), torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    y = torch.arange(40) % 2 if request.param == "classes" else x.sum(1)
    torch.save(Data(x=x, edge_index=ring, y=y), folder / "mine.pt")
    torch.save(Data(x=x, edge_index=ring), folder / "new.pt")
    done = invoke("train", "--graph", folder / "mine.pt", "--out", folder / "run", *QUICK)
    assert done.exit_code == 0, done.output
    return folder


def test_a_file_to_predict_for_needs_no_target(file_run, tmp_path):
    done = invoke("predict", file_run / "run", "--graph", file_run / "new.pt", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.csv").read_text() == answers(file_run / "run" / "predictions.csv")
    done = invoke("train", "--graph", file_run / "new.pt", "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert "0 nodes have a value in 'y'" in done.output


def test_a_run_on_a_file_asks_for_it(file_run):
    done = invoke("predict", file_run / "run")
    assert done.exit_code == 2
    assert "--graph is missing" in done.output


def test_a_folder_is_no_place_for_predictions(file_run):
    done = invoke("predict", file_run / "run", "--graph", file_run / "new.pt", "--out", file_run)
    assert done.exit_code == 2
    assert "cannot be written (it is a folder); choose another place" in " ".join(done.output.split())


def test_a_name_of_another_kind_of_file_is_refused(file_run, tmp_path):
    for name in ("p.xlsx", "p.csv.gz", "p.json"):
        done = invoke("predict", file_run / "run", "--graph", file_run / "new.pt", "--out", tmp_path / name)
        assert done.exit_code == 2
        assert f"{name} is neither .csv nor .parquet" in " ".join(done.output.split())
        assert not (tmp_path / name).exists()
