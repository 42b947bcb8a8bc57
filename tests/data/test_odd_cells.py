"""Tables with one thing wrong: what would change the answer unseen is refused or said."""

import numpy as np
import pandas as pd
import pytest
import torch

from walksum.data.edges import EdgeColumns
from walksum.data.encoding import fit
from walksum.data.user_files import Columns, read_tables

EDGES = "source,target\na,b\nb,c\n"


@pytest.fixture
def read(tmp_path):
    def call(nodes, edges=EDGES, **columns):
        (tmp_path / "nodes.csv").write_text(nodes)
        (tmp_path / "edges.csv").write_text(edges)
        return read_tables(tmp_path / "nodes.csv", tmp_path / "edges.csv", Columns("y", **columns))

    return call


ROWS = "id,x,y\na,1,u\nb,2,v\nc,3,u\n"
MANY = "".join(f"n{k},{k},{k / 2}\n" for k in range(20))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("id,y,y\na,1,u\nb,2,v\nc,3,u\n", EDGES, "nodes.csv has several columns called 'y'"),
        (ROWS, "a,b\nb,c\n", "edges.csv seems to have no header line: its first names the nodes 'a' and 'b'"),
        ("id,x,y\na,1,1\nb,2,1.0\nc,3,2\n", EDGES, "the target holds '1' and '1.0'; write one class in one way"),
        ("id,x,y\na,1,u\nb,2,u \nc,3,v\n", EDGES, "the target holds 'u' and 'u '"),
        (f"id,x,y\n{MANY}a,1,?\nb,2,3\nc,3,4\n", EDGES, "line 22: the target is '\\?', where most are numbers"),
        (f"id,x,y\n{MANY}a,1,-\nb,2,-\nc,3,-\n", EDGES, "line 22: the target is '-', where most are numbers"),
    ],
)
def test_what_would_change_the_answer_unseen_is_refused(read, nodes, edges, message):
    with pytest.raises(ValueError, match=message):
        read(nodes, edges)


def test_a_word_among_numbers_is_a_class_where_that_is_asked_for(read):
    found = read(f"id,x,y\n{MANY}a,1,?\nb,2,30\nc,3,40\n", task="classification")
    assert len(found.classes) == 23


def test_codes_for_missing_numbers_are_said():
    draw = np.random.default_rng(0)
    sizes, edges = draw.normal(size=20), pd.DataFrame({"source": [0], "target": [1]})
    nodes = pd.DataFrame({"y": sizes, "size": sizes, "rooms": np.where(sizes > 1, 99999, 3 + np.arange(20) % 5)})
    nodes["flag"], nodes["tail"], nodes["gift"] = sizes > 0, np.exp(4 * sizes), np.where(sizes > 0.5, 500 + sizes, 0)
    found = read_tables(nodes.assign(size=nodes["size"].where(nodes.index % 5 > 0, -9999)), edges, Columns("y"))
    said = "numbers far from all others of their column: -9999 of 'size' (4 rows), 99999 of 'rooms' (2 rows); if they"
    assert [note.startswith(said) for note in found.notes if "far from" in note] == [True]
    assert not any("far from" in note for note in read_tables(nodes.drop(columns="rooms"), edges, Columns("y")).notes)


def test_classes_that_only_capital_letters_tell_apart_are_said():
    nodes = pd.DataFrame({"id": list("abcd"), "x": range(4), "kind": ["Oak", "oak", "elm", "ELM"]})
    found = read_tables(nodes, pd.DataFrame({"source": ["a"], "target": ["b"]}), Columns("kind"))
    said = "classes that differ in capital letters alone are taken for different ones: 'ELM' and 'elm', 'Oak' and 'oak'"
    assert found.notes == [said]


def test_a_word_that_makes_text_of_a_column_is_said(read):
    found = read("id,x,y\n" + "".join(f"n{k},{k},{'uv'[k % 2]}\n" for k in range(20)) + "a,?,u\nb,2,v\nc,3,u\n")
    assert found.notes == [
        "'x' is read as text: nodes.csv, line 22 holds '?' where most cells hold numbers; leave such cells empty to "
        "learn from the numbers"
    ]


def test_row_numbers_that_pandas_writes_are_neither_learned_from_nor_ends(read):
    found = read(",id,x,y\n0,0,5,u\n1,1,6,v\n2,2,7,u\n", ",i,j\n0,1,2\n1,2,0\n")
    assert list(found.features) == ["x"]
    assert found.edge_index.tolist() == [[1, 2], [2, 0]]
    assert found.notes == [
        "nodes.csv: 1 column(s) without a name, often row numbers, are not learned from; name them",
        "'i' and 'j' of edges.csv are taken as the ends of edges; pass source= and destination= to choose others",
    ]


def test_columns_of_a_frame_may_be_numbered_like_nodes():
    nodes = pd.DataFrame({"x": [0.5, 2.5, 3.5], "y": ["u", "v", "u"]})
    assert read_tables(nodes, pd.DataFrame([[0, 1], [1, 2]]), Columns("y")).edge_index.tolist() == [[0, 1], [1, 2]]


def test_a_table_with_points_after_one_with_decimal_commas(read):
    nodes = "id;x;y\na;0.125;u\nb;0.5;v\nc;1.250;u\n"
    assert read(nodes, numerals={"x": ","}).features["x"].tolist() == [0.125, 0.5, 1.25]
    nodes = "id;x;y\na;0,125;u\nb;0,5;v\nc;1.250;u\n"
    assert read(nodes, numerals={"x": ","}).features["x"].tolist() == [0.125, 0.5, 1250]


def test_years_far_from_ours(read):
    found = read("id,x,y\na,9999-12-31,u\nb,2020-01-01,v\nc,1500-01-01,u\n")
    assert found.features["x: year"].tolist() == [9999, 2020, 1500]
    assert found.features["x: days"].tolist() == [2932896, 18262, -171664]


def test_whole_numbers_stay_so_in_parts_of_a_file_that_have_empty_cells(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("walksum.data.tables.CHUNK", 1)
    monkeypatch.setattr("walksum.data.tables.FEWEST", 2)
    frame = pd.DataFrame({"id": range(6), "x": range(6), "y": pd.array([1, 2, 1, None, 2, 1], dtype="Int64")})
    frame.to_parquet(tmp_path / "nodes.parquet")
    edges = pd.DataFrame({"source": [0], "target": [1]})
    assert read_tables(tmp_path / "nodes.parquet", edges, Columns("y")).classes == ["1", "2"]


def _frames(**columns):
    nodes = pd.DataFrame({"id": list("abc"), "x": [1.0, 2.0, 4.0], "y": list("uvu")} | columns)
    return nodes, pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})


def test_cells_of_white_space_are_empty():
    nodes, edges = _frames(x=["1", " ", "3"], y=["u", "  ", "v"])
    problem = read_tables(nodes, edges, Columns("y"))
    assert problem.classes == ["u", "v"]
    assert problem.y.tolist() == [0, -1, 1]
    assert problem.features["x"].isna().tolist() == [False, True, False]


def test_booleans_are_ones_and_zeros_in_text_files_too(read):
    for words in (("True", "False", "True"), ("TRUE", "", "FALSE"), ("true", "false", "NA")):
        a, b, c = words
        found = read(f"id,x,y\na,{a},u\nb,{b},v\nc,{c},u\n").features["x"]
        assert found.dtype == float
        assert found[0] == 1
    assert read("id,x,y\na,True,u\nb,False,v\nc,maybe,u\n").features["x"].tolist() == ["True", "False", "maybe"]


def test_an_index_in_a_parquet_file_is_a_column_by_its_name_and_row_numbers_without(tmp_path):
    pytest.importorskip("pyarrow")
    nodes, edges = _frames()
    nodes.iloc[[2, 0, 1]].to_parquet(tmp_path / "rows.parquet")  # pandas writes __index_level_0__
    problem = read_tables(tmp_path / "rows.parquet", edges, Columns("y"))
    assert list(problem.features) == ["x"]
    assert "1 column(s) without a name" in problem.notes[0]
    nodes.set_index("id").to_parquet(tmp_path / "ids.parquet")
    assert read_tables(tmp_path / "ids.parquet", edges, Columns("y")).ids.tolist() == ["a", "b", "c"]


def test_levels_of_an_index_without_a_name_are_not_learned_from():
    nodes, edges = _frames()
    nodes.index = pd.MultiIndex.from_arrays([nodes.pop("id"), [7, 8, 9]], names=["id", None])
    assert list(read_tables(nodes, edges, Columns("y")).features) == ["x"]
    with pytest.raises(ValueError, match=r"several columns called 'id' \(an index with a name counts as one\)"):
        read_tables(_frames()[0].set_index("id", drop=False), edges, Columns("y"))


def test_complex_numbers_keep_no_imaginary_part_and_are_refused():
    nodes, edges = _frames(x=[1j, 2, 3])
    with pytest.raises(ValueError, match="column 'x' holds complex numbers; give real and imaginary part"):
        read_tables(nodes, edges, Columns("y"))


def test_ids_may_be_digits_that_are_no_decimals(read):
    problem = read("key,x,y\n²,1,u\nb,2,v\nc,3,u\n", "source,target\n²,b\nb,c\n")
    assert problem.ids.tolist() == ["²", "b", "c"]


def test_edges_from_each_node_to_itself_join_none(read):
    assert any("joins no nodes" in note for note in read(ROWS, "source,target\na,a\nb,b\n").notes)


@pytest.mark.parametrize(("cell", "found"), [("1e300", "'1e300'"), ("", "empty"), ('"1,5,2"', "'1,5,2'")])
def test_a_weight_that_is_no_number_is_named_as_it_is_written(tmp_path, cell, found):
    edges, columns = tmp_path / "edges.csv", Columns("y", edges=EdgeColumns(weight="w"))
    edges.write_text(f"source,target,w\na,b,{cell}\nb,c,1\n")
    with pytest.raises(ValueError, match=f"line 2: w is {found}; expected a finite number such as 1.5"):
        read_tables(_frames()[0], edges, columns)


@pytest.mark.parametrize("rows", [("1,5", "2"), ("€ 1,5", "2,0"), (1.5, 2.0)])
def test_weights_are_read_as_people_write_them(rows):
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"], "w": rows})
    problem = read_tables(_frames()[0], edges, Columns("y", edges=EdgeColumns(weight="w")))
    assert problem.edge_weight.tolist() == [1.5, 2.0]
    written = isinstance(rows[0], str)
    assert any("'w' is written like" in note for note in problem.notes) == written
    assert problem.columns["decimal"] == ("," if written else None)
    later = edges.assign(w=["1.234", "0.5"])  # a point is meant, as 0.5 tells, also after a training of commas
    again = read_tables(_frames()[0], later, Columns("y", edges=EdgeColumns(weight="w", decimal=",")))
    assert again.edge_weight.tolist() == pytest.approx([1.234, 0.5])


def test_notes_show_the_beginning_of_a_long_cell():
    page, rows = "word " * 1000, torch.arange(30)
    _, notes = fit(pd.DataFrame({"own": [f"{page}{k}" for k in rows], "same": [page] * 30}), rows)
    assert len(notes) == 2
    assert all(len(note) < 200 and "word word ...'" in note for note in notes)


@pytest.mark.parametrize("cells", ["-,-,-,-", ".,.,.,."])
def test_one_word_in_many_cells_of_a_column_of_numbers_is_said(read, cells):
    rows = "".join(f"n{k},{k},u\n" for k in range(9)) + "".join(f"m{k},{x},v\n" for k, x in enumerate(cells.split(",")))
    notes = read(f"id,x,y\n{rows}a,1,u\nb,2,v\nc,3,u\n").notes
    assert "'x' is read as text: nodes.csv, line 11 holds" in notes[0]


@pytest.mark.parametrize("word", ["#N/A", "<NA>", "NaT", "n/a"])
def test_what_programs_write_into_empty_cells_is_empty(read, word):
    found = read(f"id,x,y\na,{word},u\nb,2,v\nc,3,u\nd,4,{word}\n")
    assert found.classes == ["u", "v"]
    assert found.features["x"].isna().tolist() == [True, False, False, False]


def test_numbers_of_arrow_and_durations_are_read():
    ages = pd.to_timedelta([12, 24, 36], unit="h")
    nodes = pd.DataFrame({"size": [0.5, None, 2.0], "age": ages, "y": ["u", "v", "u"]})
    found = read_tables(nodes.astype({"size": "double[pyarrow]"}), pd.DataFrame([[0, 1], [1, 2]]), Columns("y"))
    assert found.features["age"].tolist() == [0.5, 1, 1.5]
    assert found.features["size"].fillna(-1).tolist() == [0.5, -1, 2]


@pytest.mark.parametrize(
    "edges",
    [
        "edge_id,one,other\n0,0,2\n1,2,3\n",
        "weight,from_id,to_id\n1,0,2\n1,2,3\n",
        "kind,Source,Target\n1,0,2\n1,2,3\n",
        "id,neighbour,length\n0,2,1\n2,3,1\n",
    ],
)
def test_numbers_and_weights_of_edges_are_not_their_ends(read, edges):
    found = read("id,x,y\n0,1,u\n1,2,v\n2,3,u\n3,4,v\n", edges)
    assert found.edge_index.tolist() == [[0, 2], [2, 3]]


def test_different_weights_of_one_edge_are_said():
    nodes = pd.DataFrame({"id": ["a", "b", "c"], "x": [1, 2, 3], "y": ["u", "v", "u"]})
    edges = pd.DataFrame({"source": list("abbbc"), "target": list("baccc"), "w": [2, 4, 1, 1, 7]})
    found = read_tables(nodes, edges, Columns("y", edges=EdgeColumns(weight="w")))
    assert found.graph.edge_weight.tolist() == [3, 1]
    assert "1 rows of edges repeat an edge, or its other direction, with another w: the mean is taken" in found.notes[0]


def test_a_target_of_many_dates_and_a_column_that_counts_the_rows_are_said(read):
    rows = "".join(f"n{k},{k + 100},2024-01-{k + 1:02d}\n" for k in range(25))
    with pytest.raises(ValueError, match="the target holds 25 dates, such as '2024-01-01'; give them as numbers"):
        read(f"id,sensor,y\n{rows}", "source,target\nn1,n2\n")
    dates = read(f"id,sensor,y\n{rows}", "source,target\nn1,n2\n", task="classification")
    assert len(dates.classes) == 25
    assert dates.notes[-1].startswith("columns that count the rows are learned from: 'sensor'; if one names")
    assert not any("count the rows" in note for note in read(ROWS).notes)  # of three rows it is chance


def test_rows_that_hold_nothing_below_a_table_are_left_out(tmp_path):
    nodes, edges = tmp_path / "n.csv", tmp_path / "e.csv"
    nodes.write_text("code,size,y\n" + "".join(f"c{k},{k},{k % 2}\n" for k in range(8)) + ",,\n,,\n")
    edges.write_text("from,to,kg\nc0,c1,2\nc2,c3,3\n,,\n,,\n")
    found = read_tables(nodes, edges, Columns(target="y", edges=EdgeColumns(weight="kg")))
    assert found.ids.tolist() == [f"c{k}" for k in range(8)]
    assert found.edge_index.tolist() == [[0, 2], [1, 3]]
    assert "n.csv: 2 rows at its end hold nothing and are left out" in found.notes
    assert "2 rows of e.csv name no node and are left out" in found.notes
    nodes.write_text("code,size,y\nc0,1,0\n,,\nc1,2,1\n")
    edges.write_text("from,to\nc0,c1\n")
    with pytest.raises(ValueError, match="line 3: code is empty"):
        read_tables(nodes, edges, Columns(target="y", id="code"))
