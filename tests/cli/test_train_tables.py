"""Options of 'walksum train' for one's own tables: each run by the command, and what it says."""

import json

import numpy as np
import pandas as pd
import pytest
from customers import QUICK

COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Houses in two districts, as a spreadsheet of Europe writes them, and the streets between them."""
    folder, draw = tmp_path_factory.mktemp("houses"), np.random.default_rng(0)
    size = draw.uniform(50, 250, COUNT)
    place = draw.uniform(0, 1, (COUNT, 2))
    price = 1000 * size + 1e5 * place[:, 0] + draw.normal(size=COUNT)
    houses = pd.DataFrame(
        {
            "code": [f"h{k:03}" for k in range(COUNT)],
            "owner": [f"Family {k}" for k in range(COUNT)],
            "size": [f"{value:.1f}".replace(".", ",") for value in size],
            "yield": [f"{value:.1f}%".replace(".", ",") for value in draw.uniform(1, 5, COUNT)],
            "sold": pd.date_range("2020-01-01", periods=COUNT, freq="5D").strftime("%d.%m.%Y"),
            "district": [f"d{k // 10}" for k in range(COUNT)],
            "lon": 13 + place[:, 0],
            "lat": 52 + place[:, 1],
            "price": [f"{value:,.0f} €".replace(",", ".") for value in price],
        }
    )
    houses["lon"], houses["lat"] = (houses[name].map("{:.6f}".format).str.replace(".", ",") for name in ("lon", "lat"))
    houses.to_csv(folder / "houses.csv", sep=";", index=False)
    ends = draw.integers(0, COUNT, (2, 3 * COUNT))
    pd.DataFrame({"a": houses["code"].to_numpy()[ends[0]], "b": houses["code"].to_numpy()[ends[1]]}).to_csv(
        folder / "streets.csv", index=False
    )
    return folder


NODES = ("--nodes", "houses.csv", "--target", "price")
TABLES = (*NODES, "--edges", "streets.csv")


def trained(walksum, folder, *options, out, ok=True, model="mlp"):
    """Most ask how tables are read and cut: any model will do, and the page of this one has the fewest figures."""
    done = walksum("train", *options, "--out", out, "--model", model, *QUICK, cwd=folder)
    assert (done.returncode == 0) == ok, done.stderr
    return done, json.loads((folder / out / "config.json").read_text()) if ok else None


def split_of(folder, out):
    return pd.read_csv(folder / out / "predictions.csv", dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def first(walksum, folder):
    return trained(walksum, folder, *TABLES, "--name-column", "owner", out="first", model="glt")


def test_numbers_dates_and_ids_are_read_and_said(first, folder):
    done, config = first
    for told in (
        "note: 'code' is taken as the id column: streets.csv names its values; pass --id to choose another",
        "'size' is written like",
        "'yield' is written like",
        "'price' is written like",
        "'sold' holds dates: read as year, month, season, weekday and days",
    ):
        assert told in done.stdout
    assert "target: price (regression)" in done.stdout
    assert {"size", "yield", "sold: days", "lon"} <= set(config["encoding"]["numeric"])
    table = split_of(folder, "first")
    assert table["name"].tolist() == [f"Family {k}" for k in range(COUNT)]
    assert "owner" not in config["encoding"]["categories"]
    assert "h0" in (page := (folder / "first" / "report.html").read_text())
    assert page.count(", Family ") >= 5  # names stand beside the ids of nodes that were missed most


def test_predict_reads_the_same_columns_again(first, folder, walksum):
    done = walksum("predict", "first", "--nodes", "houses.csv", "--edges", "streets.csv", "--out", "p.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    again, before = (pd.read_csv(folder / name) for name in ("p.csv", "first/predictions.csv"))
    assert np.allclose(again["prediction"], before["prediction"], rtol=1e-4)
    assert again["name"].tolist() == before["name"].tolist()


def test_a_decimal_mark_can_be_named(walksum, folder):
    pd.DataFrame({"id": range(9), "x": ["1,234"] * 8 + ["2,345"], "y": np.arange(9) / 2}).to_csv(
        folder / "nine.csv", index=False
    )
    pd.DataFrame({"source": range(8), "target": range(1, 9)}).to_csv(folder / "row.csv", index=False)
    tables = ("--nodes", "nine.csv", "--edges", "row.csv", "--target", "y", "--split", "4,2,3")
    done, _ = trained(walksum, folder, *tables, out="thousands")
    assert "'x' is written like '1,234' and read as numbers: 1234; pass --decimal , if it means 1.234" in done.stdout
    done, _ = trained(walksum, folder, *tables, "--decimal", ",", out="commas")
    assert "'x' is written like '1,234' and read as numbers: 1.234\n" in done.stdout
    done, _ = trained(walksum, folder, *tables, "--thousands", "x", out="none", ok=False)
    assert "--thousands x; expected ',', '.', ' '" in done.stderr
    done, _ = trained(walksum, folder, *tables, "--decimal", ";", out="none", ok=False)
    assert "expected '.' or ','" in done.stderr


def test_the_past_is_learned_from(walksum, folder):
    done, config = trained(walksum, folder, *TABLES, "--time-column", "sold", out="time")
    part = split_of(folder, "time")["split"].tolist()
    assert part == ["train"] * 36 + ["val"] * 12 + ["test"] * 12
    assert config["columns"]["time"] == "sold"
    done, _ = trained(walksum, folder, *TABLES, "--time-column", "owner", out="none", ok=False)
    assert "houses.csv, line 2: owner is 'Family 0'; expected a date such as 2024-01-31" in done.stderr


def test_groups_stay_together(walksum, folder):
    trained(walksum, folder, *TABLES, "--group-column", "district", out="group")
    table = split_of(folder, "group").assign(district=[k // 10 for k in range(COUNT)])
    assert (table.groupby("district")["split"].nunique() == 1).all()
    assert set(table["split"]) == {"train", "val", "test"}
    done, _ = trained(
        walksum, folder, *TABLES, "--group-column", "district", "--time-column", "sold", out="none", ok=False
    )
    assert "--time-column and --group-column say different things about the split; give one of them" in done.stderr


def test_parts_of_the_graph_and_a_run_again(walksum, folder):
    _, config = trained(walksum, folder, *TABLES, "--split", "spatial", out="parts")
    assert config["job"]["split"] == "spatial"
    _, config = trained(walksum, folder, *TABLES, "--split", "parts", "--seed", "5", out="again")
    assert split_of(folder, "again")["split"].tolist() == split_of(folder, "parts")["split"].tolist()
    assert config["columns"]["split"] == "parts"
    done, _ = trained(walksum, folder, *TABLES, "--split", "nothing", out="none", ok=False)
    assert "houses.csv has no column 'nothing'" in done.stderr


def test_places_make_the_edges(walksum, folder):
    done, config = trained(walksum, folder, *NODES, "--coordinates", "lat,lon", out="globe")
    assert "nearest by great-circle distance" in done.stdout or "Delaunay triangulation of lon, lat" in done.stdout
    assert "chosen on the validation nodes among 4, 8, 16, delaunay" in done.stdout
    assert config["columns"]["places"]["columns"] == ["lon", "lat"]
    done = walksum("predict", "globe", "--nodes", "houses.csv", "--out", "g.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(folder / "g.csv")) == COUNT
    done, config = trained(walksum, folder, *NODES, "--knn", "size,yield", "--neighbours", "3", out="space")
    assert "each node is joined to its 3 nearest by distance in size, yield, which weighs the edges" in done.stdout
    done, _ = trained(walksum, folder, *NODES, out="none", ok=False)
    assert "--nodes and --edges belong together; give both tables, or join near rows by --coordinates" in done.stderr
    done, _ = trained(walksum, folder, *NODES, "--coordinates", "lon,lat", "--neighbours", "x", out="none", ok=False)
    assert "--neighbours x; expected a whole number from 1 on, or 'delaunay'" in done.stderr
    done, _ = trained(walksum, folder, *NODES, "--coordinates", "lon,size", "--neighbours", "2", out="plane")
    assert "distance in lon, size" in done.stdout


def test_nodes_that_edges_name_can_be_added(walksum, folder):
    (folder / "some.csv").write_text("id,kind\n" + "".join(f"h{k:03},{'ab'[k % 2]}\n" for k in range(30)))
    tables = ("--nodes", "some.csv", "--edges", "streets.csv", "--target", "kind")
    done, _ = trained(walksum, folder, *tables, out="none", ok=False)
    assert (
        "pass --drop-unknown to leave those edges out, or when training --add-unknown to add empty rows" in done.stderr
    )
    done, _ = trained(walksum, folder, *tables, "--add-unknown", out="added")
    assert "named by streets.csv alone" in done.stdout
    assert len(split_of(folder, "added")) > 50
    done = walksum("predict", "added", "--edges", "streets.csv", "--out", "e.csv", cwd=folder)
    assert done.returncode == 0, done.stderr  # the degree was all it learned from
    done = walksum("train", "--edges", "streets.csv", "--target", "kind", cwd=folder)
    assert done.returncode == 2
    assert "give a table with an id and the target of some nodes, and --add-unknown" in done.stderr


def test_a_run_is_overwritten_by_force_alone(first, walksum, folder):
    done, _ = trained(walksum, folder, *TABLES, out="first", ok=False)
    assert "first already exists; name a new folder, or pass --force to overwrite the run" in done.stderr
    assert "name" in split_of(folder, "first")
    trained(walksum, folder, *TABLES, "--force", "--name-column", "owner", "--seed", "3", out="first")
    assert json.loads((folder / "first" / "config.json").read_text())["job"]["seed"] == 3
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    (folder / "mine").mkdir()
    (folder / "mine" / "letter.txt").write_text("dear")
    done, _ = trained(walksum, folder, *TABLES, "--force", out="mine", ok=False)
    assert "mine is no run of 'walksum train', so --force does not overwrite it" in done.stderr
    assert (folder / "mine" / "letter.txt").read_text() == "dear"


def test_json_lines_are_a_table(walksum, folder):
    rows = pd.DataFrame({"id": range(20), "x": np.arange(20.0) / 3, "kind": ["a", "b"] * 10})
    rows.to_json(folder / "rows.jsonl", orient="records", lines=True)
    pd.DataFrame({"source": range(19), "target": range(1, 20)}).to_json(
        folder / "ends.jsonl", orient="records", lines=True
    )
    done, _ = trained(
        walksum, folder, "--nodes", "rows.jsonl", "--edges", "ends.jsonl", "--target", "kind", out="lines"
    )
    assert "rows: 20 nodes, 19 edges" in done.stdout
