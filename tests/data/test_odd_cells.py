"""Tables with one thing wrong: what would change the answer unseen is refused or said."""

import pandas as pd
import pytest

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
    ],
)
def test_what_would_change_the_answer_unseen_is_refused(read, nodes, edges, message):
    with pytest.raises(ValueError, match=message):
        read(nodes, edges)


def test_a_word_among_numbers_is_a_class_where_that_is_asked_for(read):
    found = read(f"id,x,y\n{MANY}a,1,?\nb,2,30\nc,3,40\n", task="classification")
    assert len(found.classes) == 23


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
        "'i' and 'j', the first columns of edges.csv, are taken as the ends of edges; pass source= and destination= to "
        "choose others",
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
