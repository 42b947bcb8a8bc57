"""Reading one's own tables, and turning columns into features."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from walksum.data import encoding, tables
from walksum.data.edges import EdgeColumns
from walksum.data.problem_split import check_labels, split_problem
from walksum.data.tables import FileTable
from walksum.data.user_files import Columns, read_tables


def put(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def frame_of(path, verbatim=None):
    table = FileTable(path)
    return table.frame(table.columns(), [verbatim] if verbatim else [], verbatim)


def test_a_column_turns_to_text_however_late_a_word_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK", 4)
    monkeypatch.setattr(tables, "FEWEST", 2)
    path = put(tmp_path, "t.csv", "a,b\n1,1.0\n2,\n3,2\n4,NA\n5,3\nsix,4\n")
    frame = frame_of(path)
    assert frame["a"].tolist() == ["1", "2", "3", "4", "5", "six"]
    assert frame["b"].isna().tolist() == [False, True, False, True, False, False]
    assert frame["b"].dtype == np.float64


def test_many_columns_of_words_are_read_twice_and_no_more(tmp_path, monkeypatch):
    names = [f"c{k}" for k in range(30)]
    path = put(tmp_path, "t.csv", f"{','.join(names)}\n{','.join(['a'] * 30)}\n")
    passes, read = [], FileTable.pieces
    monkeypatch.setattr(FileTable, "pieces", lambda self, columns: passes.append(1) or read(self, columns))
    assert (frame_of(path) == "a").all(axis=None)
    assert len(passes) == 2


def test_empty_cells_of_many_columns_of_words_are_one_note():
    frame = pd.DataFrame({f"c{k}": ["a", "b", None, "a"] for k in range(30)})
    found, _ = encoding.fit(frame, torch.arange(4))
    assert [note for note in found.notes(frame) if "empty" in note] == [
        "30 empty cells in 'c0', 'c1', 'c2', 'c3', 'c4', ...: zeros were put in"
    ]


def test_a_node_may_be_called_na(tmp_path):
    path = put(tmp_path, "t.csv", "id,x\nNA,1\nnull,NA\n007,2\n")
    frame = frame_of(path, verbatim="id")
    assert frame["id"].tolist() == ["NA", "null", "007"]


def test_the_separator_is_seen_in_the_header(tmp_path):
    assert FileTable(put(tmp_path, "a.csv", "a;b;c\n1;2,5;3\n")).columns() == ["a", "b", "c"]
    assert FileTable(put(tmp_path, "b.tsv", "a,b\tc\n1\t2\n")).columns() == ["a,b", "c"]
    assert FileTable(put(tmp_path, "c.csv", "a|b\n1|2,5\n")).columns() == ["a", "b"]


def test_columns_are_encoded_by_what_the_training_rows_show():
    frame = pd.DataFrame(
        {
            "size": [1.0, 3.0, np.nan, 1e9],
            "yes": [0.0, 1.0, 1.0, 0.0],
            "words": [0.0, 0.0, 0.5, 7.0],
            "same": [4.0, 4.0, 4.0, 5.0],
            "town": ["Rome", "Oslo", None, "Lima"],
        }
    )
    frame["town"] = frame["town"].astype(object)
    found, notes = encoding.fit(frame, torch.tensor([0, 1, 2]))
    x = found.encode(frame)
    assert found.columns == ["size", "yes", "words", "town"]
    assert x[:, 0].tolist() == [-1, 1, 0, 10]  # standardised; the median put in; clipped
    assert x[:, 1].tolist() == [0, 1, 1, 0]
    assert x[:, 2].tolist() == [0, 0, 1, 10]  # zeros stay zeros
    assert x[:, 3:].tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]  # Oslo, Rome; never seen: zeros
    assert notes == ["left out: 'same' say the same of every training node"]
    assert len(found.notes(frame)) == 3
    again = encoding.Encoding(**found.to_json())
    assert torch.equal(again.encode(frame), x)


def test_a_skewed_column_also_gets_its_logarithm():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"staff": np.exp(draw.normal(3, 1.5, 200)), "age": draw.normal(40, 9, 200)})
    found, notes = encoding.fit(frame, torch.arange(100))
    x = found.encode(frame)
    assert (x.size(1), found.num_features, found.span("staff"), found.span("age")) == (3, 3, [0, 2], [1])
    assert found.feature_names == ["staff", "age", "log of staff"]
    assert np.corrcoef(x[:, 2], np.log(frame["staff"]))[0, 1] > 0.95
    assert notes == ["skewed columns, whose logarithms are learned from too: 'staff'"]
    again = encoding.Encoding(**found.to_json())
    assert torch.equal(again.encode(frame), x)
    assert encoding.fit(frame - 500, torch.arange(100))[0].logs.keys() == {"staff"}
    assert not encoding.fit((frame > 1.5).astype(float), torch.arange(200))[0].logs  # nearly all of them ones
    many = pd.DataFrame({f"c{k}": frame["staff"] for k in range(100)})
    assert encoding.fit(many, torch.arange(100))[0].num_features == 100  # with more it would count as words


def test_a_column_with_many_empty_cells_says_where_they_are():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"abroad": draw.normal(size=100), "twin": draw.normal(size=100), "few": np.arange(100.0)})
    frame.loc[::3, ["abroad", "twin"]] = np.nan
    frame.loc[:3, "few"] = np.nan
    found, _ = encoding.fit(frame, torch.arange(100))
    assert found.gaps == ["abroad"]  # that of its twin would be the same
    assert found.span("abroad") == [0, 3]
    assert found.encode(frame)[:, 3].tolist() == frame["abroad"].isna().tolist()


def test_names_are_left_out():
    frame = pd.DataFrame({"name": [f"p{k}" for k in range(50)], "x": np.arange(50.0)})
    found, notes = encoding.fit(frame, torch.arange(50))
    assert found.columns == ["x"]
    assert "column 'name' is left out: nearly every row has its own value" in notes[0]


def own(folder, nodes, edges="source,target\n1,2\n", **columns):
    columns = Columns(**{"target": "y", **columns})
    return read_tables(put(folder, "n.csv", nodes), put(folder, "e.csv", edges), columns)


def test_whole_numbers_are_classes_and_fractions_quantities(tmp_path):
    few = own(tmp_path, "id,y\n" + "".join(f"{k},{k % 11}\n" for k in range(44)))
    assert few.classes == [str(k) for k in range(11)]  # 2 before 10
    many = own(tmp_path, "id,y\n" + "".join(f"{k},{k}\n" for k in range(44)))
    assert many.regression
    assert own(tmp_path, "id,y\n1,1.5\n2,2\n").regression
    assert own(tmp_path, "id,y\n1,1.5\n2,2\n", task="classification").classes == ["1.5", "2"]
    with pytest.raises(ValueError, match="line 3: the target is 'b'; regression needs finite numbers"):
        own(tmp_path, "id,y\n1,1.5\n2,b\n", task="regression")


def test_without_features_the_degree_is_used(tmp_path):
    problem = own(tmp_path, "id,y\n1,a\n2,b\n3,a\n")
    assert problem.features["degree"].tolist() == pytest.approx([np.log(2), np.log(2), 0])
    assert "no feature columns: the logarithm of a node's degree is used" in problem.notes


def test_every_class_is_trained_and_tested(tmp_path):
    rows = "".join(f"{k},{'ab'[k % 2] if k > 1 else 'c'},{k}\n" for k in range(40))
    problem = own(tmp_path, "id,y,x\n" + rows)
    check_labels(problem)
    for seed in range(5):
        split = split_problem(problem, None, seed)
        assert set(problem.y[split.train].tolist()) == set(problem.y[split.test].tolist()) == {0, 1, 2}
        assert sum(split.counts) == 40
    assert split_problem(problem, "10,10,20", 0).counts == (10, 10, 20)
    assert split_problem(problem, "0.5,0.25,0.25", 0).counts == (20, 10, 10)
    with pytest.raises(ValueError, match="split='30,10,10'; 50 nodes are asked for and 40 have a target"):
        split_problem(problem, "30,10,10", 0)


def test_too_few_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="3 nodes have a value in 'y'; at least 6"):
        check_labels(own(tmp_path, "id,y\n1,a\n2,b\n3,a\n4,\n"))
    with pytest.raises(ValueError, match="every 'y' is the same number"):
        check_labels(own(tmp_path, "id,y\n" + "".join(f"{k},1.5\n" for k in range(9))))


def test_a_pickle_that_would_run_code_is_not_opened(tmp_path):
    from walksum.data.user_files import read_graph

    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "fired",)

    torch.save({"x": Bomb()}, tmp_path / "graph.pt", pickle_module=pickle)
    with pytest.raises(ValueError, match=r"graph.pt"):
        read_graph(tmp_path / "graph.pt", Columns())
    assert not (tmp_path / "fired").exists()


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
def test_columns_of_any_size_are_standardised(size):
    found, _ = encoding.fit(pd.DataFrame({"a": [size, 3 * size]}), torch.tensor([0, 1]))
    assert found.encode(pd.DataFrame({"a": [size, 3 * size]})).tolist() == [[-1], [1]]


def test_the_target_is_not_taken_for_the_id(tmp_path):
    found = own(tmp_path, "key,name\na,red\nb,blue\n", "source,target\n0,1\n", target="name")
    assert found.ids.tolist() == ["0", "1"]
    assert found.classes == ["blue", "red"]


@pytest.mark.parametrize(
    "options", [{"features": ("y", "a")}, {"id": "y"}, {"split": "y"}, {"id": "a", "features": ("a",)}]
)
def test_a_column_plays_one_part(tmp_path, options):
    with pytest.raises(ValueError, match=r"both name the column '[ya]'"):
        own(tmp_path, "key,a,y\n1,3,red\n2,4,blue\n", **options)


def test_a_target_too_large_for_its_square_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"n.csv, line 3: the target is '-1e60'; regression needs finite numbers"):
        own(tmp_path, "id,y\n1,1.5\n2,-1e60\n")


@pytest.mark.parametrize("values", [1e9 + np.arange(8.0), 1e-60 * np.arange(8.0)])
def test_a_target_of_which_float32_would_keep_little_is_refused(tmp_path, values):
    rows = "".join(f"{k},{value!r}\n" for k, value in enumerate(values.tolist()))
    with pytest.raises(ValueError, match="which float32 cannot tell apart; subtract one number"):
        own(tmp_path, f"id,y\n{rows}", task="regression")
    own(tmp_path, f"id,y\n{rows}", task="regression", dates={})  # a run reads known targets, and learns from none


def test_decimal_commas_are_read_and_said(tmp_path):
    found = own(tmp_path, "id;a;b;y\n1;1,5;x;red\n2;-2,25;3,5;blue\n", "source;target\n1;2\n")
    assert found.features["a"].tolist() == [1.5, -2.25]
    assert found.features["b"].tolist() == ["x", "3,5"]
    assert found.notes == ["'a' is written like '1,5' and read as numbers: 1.5"]


def test_what_was_left_out_is_said_where_nothing_is_left(tmp_path):
    from walksum.workflow.prepare import fit_encoding

    found = own(tmp_path, "id,a,y\n" + "".join(f"{k},word{k},{k % 2}\n" for k in range(60)))
    with pytest.raises(ValueError, match=r"no column is left to learn from.*column 'a' is left out: nearly every row"):
        fit_encoding(found, split_problem(found, None, 0))


def test_unknown_nodes_are_told_beside_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"unknown nodes: 'a', 'b'.*ids are '0', '1', ..."):
        own(tmp_path, "what,y\na,1\na,0\nc,1\n", "source,target\na,b\n")


def test_utf16_is_recognised(tmp_path):
    (tmp_path / "t.csv").write_text("id,y\n1,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match="encoding='utf-16'"):
        FileTable(tmp_path / "t.csv").columns()


PATH = {"source": [1, 2], "target": [2, 3]}


def frames(nodes, ends=None, weight=None):
    return read_tables(pd.DataFrame(nodes), pd.DataFrame(ends or PATH), Columns("y", edges=EdgeColumns(weight=weight)))


def test_a_named_index_is_a_column_and_floats_that_are_whole_are_ids():
    nodes = pd.DataFrame({"y": [1.0, 2.0, None]}, index=pd.Index([1.0, 2.0, 3.0], name="id"))
    found = frames(nodes)
    assert found.ids.tolist() == ["1", "2", "3"]
    assert found.classes == ["1", "2"]
    assert found.y.tolist() == [0, 1, -1]
    assert found.edge_index.tolist() == [[0, 1], [1, 2]]


def test_frames_of_any_dtype_are_read():
    nodes = pd.DataFrame(
        {
            "id": [1, 2, 3],
            "y": pd.Categorical(["a", "b", "a"]),
            "count": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
            "town": pd.array(["x", None, "y"], dtype="string"),
        }
    )
    found = frames(nodes)
    assert found.classes == ["a", "b"]
    assert found.features["count"].dtype == found.features["flag"].dtype == np.float64
    assert found.features["town"].tolist()[0] == "x"
    assert found.features["town"].isna().tolist() == [False, True, False]


def test_messages_on_frames_name_the_row():
    with pytest.raises(ValueError, match=r"nodes, row b: x is infinite"):
        frames(pd.DataFrame({"id": [1, 2], "y": [0, 1], "x": [1.0, np.inf]}, index=["a", "b"]))
    with pytest.raises(ValueError, match="nodes has several columns called 'x'; names must be unique"):
        frames(pd.DataFrame([[1, 2, 3]], columns=["y", "x", "x"]))
    with pytest.raises(ValueError, match="nodes has a header but no rows"):
        frames(pd.DataFrame({"id": [], "y": []}))


def weighted(*weights):
    return {"source": [1, 2], "target": [2, 3], "w": list(weights)}


def test_negative_and_zero_weights_are_noted():
    nodes = {"id": [1, 2, 3], "y": ["a", "b", "a"], "x": [1, 2, 3]}
    (note,) = frames(nodes, weighted(1.0, -2.0), "w").notes
    assert note.startswith("1 of 2 edges of edges have a negative w: their coupling has the opposite sign")
    (note,) = frames(nodes, weighted(0.0, 2.0), "w").notes
    assert note == "1 of 2 edges of edges have w 0: they carry nothing"
    with pytest.raises(ValueError, match="edges: every w is 0, so no edge would carry anything"):
        frames(nodes, weighted(0.0, 0.0), "w")
