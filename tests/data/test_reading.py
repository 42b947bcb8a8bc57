"""What a table of one's own may hold: dates, numbers as people write them, ids without a name, kinds of files."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from walksum.data.dates import date_columns, date_format
from walksum.data.numerals import find_numerals, written
from walksum.data.tables import FileTable
from walksum.data.user_files import Columns, read_tables

EDGES = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})


def cells(*texts):
    return pd.Series(texts, dtype=object)


def read(nodes, edges=EDGES, target="y", **columns):
    frame = pd.DataFrame(nodes)
    return read_tables(
        frame.assign(y=[1.5, 2.5, 3.5]) if "y" not in frame else frame, edges, Columns(target, **columns)
    )


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (("50,316", "1,200", "900"), ["50316", "1200", "900"]),
        (("1,5", "-2,25"), ["1.5", "-2.25"]),
        (("1.234,5", "12"), ["1234.5", "12"]),
        (("10.4%", "3 %"), ["10.4", "3"]),
        (("$1,234.50", "-$5", "$ 7"), ["1234.50", "-5", "7"]),
        (("5 €", "1.000,25 €"), ["5", "1000.25"]),
        (("1 234", "12\u202f000"), ["1234", "12000"]),
        (("1'234.5", "7"), ["1234.5", "7"]),
    ],
)
def test_written_numbers_are_read(texts, numbers):
    found = find_numerals({"a": cells(*texts)})
    assert found.plain("a", cells(*texts)).tolist() == numbers


@pytest.mark.parametrize("texts", [("1", "2.5"), ("x", "1,5"), ("2024-01-31",), ("12,34,56",), ("a%",), ("1,2,3",)])
def test_plain_numbers_and_words_are_left_alone(texts):
    assert not find_numerals({"a": cells(*texts)}).marks


def test_an_ambiguous_comma_follows_the_table_and_is_said():
    unsure = cells("1,234", "5,678")
    alone = find_numerals({"a": unsure})
    assert alone.notes() == [
        "'a' is written like '1,234' and read as numbers: 1234; pass decimal=',' if it means 1.234"
    ]
    assert find_numerals({"a": unsure}, semicolons=True).marks == {"a": ","}
    assert find_numerals({"a": unsure, "b": cells("1,5")}).marks["a"] == ","
    assert find_numerals({"a": unsure}, decimal=",").notes() == [
        "'a' is written like '1,234' and read as numbers: 1.234"
    ]
    # a thousand with a point in a table of decimal commas, but no measurement
    european = {"b": cells("1,5"), "people": cells("1.234", "20.000"), "share": cells("0.123", "0.456")}
    assert find_numerals(european).marks == {"b": ",", "people": ","}
    assert not find_numerals({"people": cells("1.234")}, semicolons=True).marks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decimal": ";"}, "decimal=';'; expected '.' or ','"),
        ({"thousands": "x"}, "thousands='x'; expected"),
        ({"decimal": ",", "thousands": ","}, "are the same"),
    ],
)
def test_marks_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        find_numerals({}, **options)


def test_a_target_written_with_separators_is_a_number():
    problem = read({"id": list("abc"), "y": ["50,316", "1,200", "999"]}, task="regression")
    assert problem.y.tolist() == [50316, 1200, 999]
    assert problem.columns["numerals"] == {"y": "."}


@pytest.mark.parametrize(
    ("texts", "how"),
    [
        (("2016-06-14", "2017-01-02"), ("ISO8601", False)),
        (("2016-06-14T12:00:00Z",), ("ISO8601", False)),
        (("14.06.2016", "1.2.2017"), ("%d.%m.%Y", False)),
        (("14/06/2016",), ("%d/%m/%Y", False)),
        (("06/14/2016",), ("%m/%d/%Y", False)),
        (("06/04/2016",), ("%d/%m/%Y", True)),
        (("06/14/2016 9:30", "06/15/2016 17:05"), ("%m/%d/%Y %H:%M", False)),
        (("14.06.2016 09:30:59",), ("%d.%m.%Y %H:%M:%S", False)),
        (("14 Jun 2016", "3 Jul 2016"), ("%d %b %Y", False)),
        (("2016-06-14", "soon"), None),
        (("2016-13-14",), None),
        (("Oslo",), None),
    ],
)
def test_dates_are_found_by_how_they_are_written(texts, how):
    assert date_format(cells(*texts)) == how


def test_a_date_becomes_columns_of_numbers():
    found = date_columns("d", pd.Series(pd.to_datetime(["1970-01-01", "2020-07-01", None])))
    assert {name: values[0] for name, values in found.items()} == {
        "d: year": 1970, "d: month": 1, "d: season sine": 0, "d: season cosine": 1, "d: weekday": 3, "d: days": 0,
    }  # fmt: skip
    assert found["d: season cosine"][1] == pytest.approx(-1, abs=0.01)
    assert all(np.isnan(values[2]) for values in found.values())


@pytest.mark.parametrize("kind", [str, pd.Timestamp])
def test_dates_are_features_and_said(kind):
    days = [kind(day) for day in ("2020-01-31", "2021-02-28", "2022-03-01")]
    problem = read({"id": list("abc"), "opened": days})
    assert problem.features["opened: year"].tolist() == [2020, 2021, 2022]
    assert "'opened' holds dates: read as year, month, season, weekday and days" in problem.notes
    later = Columns(features=("opened",), dates=problem.columns["dates"])
    again = read_tables(pd.DataFrame({"id": list("abc"), "opened": ["2020-01-31", None, "2020-01-31"]}), EDGES, later)
    assert np.isnan(again.features["opened: days"][1])
    with pytest.raises(ValueError, match="row 1: opened is 'x'; expected a date such as 2024-01-31"):
        read_tables(pd.DataFrame({"id": list("abc"), "opened": ["2020-01-31", "x", None]}), EDGES, later)


def test_the_id_column_is_the_one_that_edges_name():
    nodes = {"size": [5, 6, 7], "fips": list("abc"), "name": ["A town", "B town", "C town"]}
    problem = read(nodes)
    assert problem.ids.tolist() == ["a", "b", "c"]
    assert problem.notes[0].startswith("'fips' is taken as the id column: edges names its values; pass id= to")
    # numbers of rows fit as well as a column that is not the first
    numbered = pd.DataFrame({"source": [0, 1], "target": [1, 2]})
    problem = read({"x": [0.5, 1, 2], "rank": [2, 0, 1]}, numbered)
    assert problem.columns["id"] is None
    assert "nodes are numbered from 0" in problem.notes[0]


def test_ids_that_lost_their_zeros_are_named():
    edges = pd.DataFrame({"source": ["5001"], "target": ["5003"]})
    with pytest.raises(ValueError, match="'5001' and '05001' differ in zeros or spaces alone: write ids as text"):
        read({"id": ["05001", "05003", "05005"]}, edges)


def test_ids_that_look_the_same_are_told_apart():
    edges = pd.DataFrame({"source": ["e\u0301a"], "target": ["e\u0301b"]})
    with pytest.raises(ValueError, match=r"'e\\u0301a' and '\\xe9a' differ in how letters are encoded"):
        read({"id": ["\u00e9a", "\u00e9b", "\u00e9c"]}, edges)


def test_ids_that_differ_in_capital_letters_are_named():
    edges = pd.DataFrame({"source": ["TOWN1"], "target": ["TOWN2"]})
    with pytest.raises(ValueError, match="'TOWN1' and 'Town1' differ in capital letters alone"):
        read({"id": ["Town1", "Town2", "Town3"]}, edges)


def test_ends_of_edges_between_spaces_are_told_what_separates_them(tmp_path):
    (tmp_path / "edges.txt").write_text("source target\na b\n")
    with pytest.raises(ValueError, match=r"single column 'source target'.*with a comma, semicolon, tab or \|"):
        read({"id": list("abc")}, tmp_path / "edges.txt")


def test_an_empty_end_of_an_edge_is_said():
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", None]})
    with pytest.raises(ValueError, match="1 of 2 rows of edges have an empty end"):
        read({"id": list("abc")}, edges)


def test_nodes_that_only_edges_name_are_added_when_asked():
    edges = pd.DataFrame({"source": ["a", "x"], "target": ["z", "b"]})
    problem = read({"id": list("abc"), "size": [1, 2, 3]}, edges, add_unknown=True)
    assert problem.ids.tolist() == ["a", "b", "c", "z", "x"]
    assert problem.labelled.tolist() == [0, 1, 2]
    assert problem.features["size"].isna().tolist() == [False, False, False, True, True]
    assert "2 nodes are named by edges alone ('z', 'x'): added, with empty cells" in problem.notes
    with pytest.raises(ValueError, match=r"drop_unknown=True .* or when training add_unknown=True to add empty rows"):
        read({"id": list("abc")}, edges)


def test_a_column_of_split_words_is_not_learned_from():
    problem = read({"id": list("abc"), "size": [1, 2, 3], "split": ["Training", "testing", "DEV"]})
    assert list(problem.features.columns) == ["size"]
    assert "column 'split' says train and test: it is not learned from; pass split='split'" in problem.notes[0]
    chosen = read({"id": list("abc"), "split": ["Training", "testing", "DEV"]}, split="split")
    assert chosen.given_split.tolist() == ["train", "test", "val"]


def test_names_are_kept_and_not_learned_from():
    problem = read({"id": list("abc"), "town": ["Aa", None, "Cc"], "size": [1, 2, 3]}, name="town")
    assert problem.names.tolist() == ["Aa", "", "Cc"]
    assert list(problem.features.columns) == ["size"]
    with pytest.raises(ValueError, match="target= and name_column= both name the column 'y'"):
        read({"id": list("abc")}, name="y")


ROWS = [{"id": "007", "size": 1.5, "town": "Rome"}, {"id": "b", "size": None, "town": "Oslo"}]


@pytest.mark.parametrize("kind", ["jsonl", "json", "feather", "xlsx"])
def test_other_kinds_of_files_hold_the_same_table(tmp_path, kind):
    path, frame = tmp_path / f"t.{kind}", pd.DataFrame(ROWS)
    if kind == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    elif kind == "feather":
        pytest.importorskip("pyarrow")
        frame.to_feather(path)
    else:
        path.write_text("\n".join(map(json.dumps, ROWS)) if kind == "jsonl" else json.dumps(ROWS))
    found = FileTable(path).frame(["id", "size", "town"], text=["id"])
    assert found["id"].tolist() == ["007", "b"]
    assert found["size"].tolist()[0] == 1.5
    assert np.isnan(found["size"][1])
    assert FileTable(path).row(0) == f"t.{kind}, line 2"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"a,b\n1,2\n3,4,5,6\n", "t.csv is not a readable table"),
        ("t.csv", b"a,b\n1,2,3\n4,5,6\n", "t.csv: its rows have more cells than its header has names"),
        ("t.csv.gz", b"not gzip at all", "t.csv.gz is not a readable table"),
        ("t.csv", b"", "t.csv is empty"),
        ("t.parquet", b"not parquet", "t.parquet is not a readable Parquet file"),
        ("t.jsonl", b'{"a": 1}\n{"a"', "t.jsonl is not JSON with one object per line"),
        ("t.jsonl", b"[]", "t.jsonl holds no rows"),
        ("t.jsonl", b'{"a": [1, 2]}', "t.jsonl: 'a' holds lists or objects"),
        ("t.jsonl", '{"a": "ü"}'.encode("latin-1"), "t.jsonl is not utf-8 text"),
        ("t.feather", b"feathers", "t.feather is not a readable Feather file"),
        ("t.xlsx", b"no zip", "t.xlsx is not a readable Excel file"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    if name.endswith("xlsx"):
        pytest.importorskip("openpyxl")
    table = FileTable(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        table.frame(table.columns())


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"x")
    (tmp_path / "t.feather").write_bytes(b"x")
    (tmp_path / "t.parquet").write_bytes(b"x")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs openpyxl: pip install openpyxl"):
        FileTable(tmp_path / "t.xlsx").columns()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"Feather, which needs pyarrow: pip install 'walksum\[parquet\]'"):
        FileTable(tmp_path / "t.feather").columns()
    with pytest.raises(ValueError, match=r"Parquet, which needs pyarrow: pip install 'walksum\[parquet\]'"):
        FileTable(tmp_path / "t.parquet").columns()


@pytest.mark.data
def test_the_counties_need_no_id():
    folder = Path(os.environ["WALKSUM_DATA"]) / "counties"
    problem = read_tables(folder / "nodes.csv", folder / "edges.csv", Columns("unemployment_rate", name="county"))
    assert problem.columns["id"] == "fips"
    assert problem.ids[0] == "01001"
    assert "'fips' is taken as the id column" in problem.notes[0]


def test_numbers_for_readers_have_no_powers_of_ten_before_the_point():
    assert [written(each) for each in (51441.4, 3.14159, 1234.5, 1e-7, -98765432.1)] == [
        "51441", "3.142", "1234", "1e-07", "-98765432",
    ]  # fmt: skip
    assert written(29393.0, sign="+") == "+29393"
    assert written(4123.0, 3) == "4123"
    assert (written(1e20), written(float("nan"))) == ("1e+20", "nan")
