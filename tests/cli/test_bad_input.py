"""Every kind of bad input: message, exit code, nothing left behind."""

import resource
import shutil

import pandas as pd
import pytest
from customers import QUICK, inside, run

TABLES = ("--nodes", "nodes.csv", "--edges", "edges.csv")
COLOUR = (*TABLES, "--target", "colour")


def rewrite(name, change):
    def spoil(folder):
        frame = pd.read_csv(folder / name, dtype=object, keep_default_na=False)
        change(frame).to_csv(folder / name, index=False)

    return spoil


def put(column, row, value):
    def change(frame):
        frame.loc[row, column] = value
        return frame

    return change


def write_bytes(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def more_edges(frame):
    strangers = pd.DataFrame({"source": [f"x{k}" for k in range(7)], "target": ["c1"] * 7})
    return pd.concat([frame, strangers])


def rare_class(frame):
    frame.loc[3, "colour"] = "green"
    return frame


def weights(frame):
    frame["weight"] = "1"
    frame.loc[4, "weight"] = "heavy"
    return frame


def nan_weights(frame):
    frame["weight"] = "1"
    frame.loc[5, "weight"] = "NaN"
    return frame


CASES = {
    "missing file": (None, ("--nodes", "nope.csv", "--edges", "edges.csv", "--target", "a"), "nope.csv does not exist"),
    "empty file": (write_bytes("nodes.csv", b""), COLOUR, "nodes.csv is empty; expected a header line"),
    "missing column": (
        None,
        (*TABLES, "--target", "color"),
        "nodes.csv has no column 'color'; did you mean 'colour'? it has 'id', 'income'",
    ),
    "duplicate ids": (
        rewrite("nodes.csv", lambda frame: pd.concat([frame, frame.head(7)])),
        COLOUR,
        "nodes.csv: 7 rows repeat an id: 'c0', 'c1', 'c2', 'c3', 'c4', ...; ids must be unique",
    ),
    "unknown ids": (
        rewrite("edges.csv", more_edges),
        COLOUR,
        "rows of edges.csv name unknown nodes: 'x0', 'x1', 'x2', 'x3', 'x4', ...; add them to the nodes, or pass "
        "--drop-unknown",
    ),
    "one class": (
        rewrite("nodes.csv", lambda frame: frame.assign(colour="red")),
        COLOUR,
        "every 'colour' is 'red'; a target needs at least two classes",
    ),
    "a class of one": (
        rewrite("nodes.csv", rare_class),
        COLOUR,
        "'colour' has 1 of 3 classes with fewer than two labelled nodes: 'green'",
    ),
    "word as weight": (
        rewrite("edges.csv", weights),
        (*COLOUR, "--weight", "weight"),
        "edges.csv, line 6: weight is 'heavy'; expected a finite number",
    ),
    "NaN as weight": (
        rewrite("edges.csv", nan_weights),
        (*COLOUR, "--weight", "weight"),
        "edges.csv, line 7: weight is 'NaN'; expected a finite number",
    ),
    "infinity": (
        rewrite("nodes.csv", put("income", 4, "inf")),
        COLOUR,
        "nodes.csv, line 6: income is infinite; expected a finite number",
    ),
    "wrong encoding": (
        write_bytes("nodes.csv", "id,town,colour\nc1,Zürich,red\n".encode("latin-1")),
        COLOUR,
        "nodes.csv is not utf-8 text (byte 0xfc); save it as UTF-8, or name its encoding, for example --encoding",
    ),
    "JSON under the name of CSV": (
        write_bytes("nodes.csv", b'{"id": "c1", "colour": "red"}\n'),
        COLOUR,
        "nodes.csv is not a text table: it begins like JSON lines; name it .jsonl",
    ),
    "Excel under the name of CSV": (
        write_bytes("nodes.csv", b"PK\x03\x04" + bytes(200)),
        COLOUR,
        "nodes.csv is not a text table: it begins like an Excel file or another zip archive; name it .xlsx",
    ),
    "a web page": (
        write_bytes("edges.csv", b"<!DOCTYPE html><html>404</html>"),
        COLOUR,
        "edges.csv is not a text table: it begins like a web page",
    ),
    "ids as target": (
        rewrite("nodes.csv", lambda frame: frame.rename(columns={"id": "number"})),
        (*TABLES, "--target", "number"),
        "--target number holds the ids by which edges.csv names the nodes; name another column to predict",
    ),
    "target twice": (None, (*TABLES, "--target", "colour,colour"), "--target colour,colour; name each column"),
    "target as group": (
        None,
        (*COLOUR, "--group-column", "colour"),
        "--target and --group-column both name the column 'colour'; use a column for one thing",
    ),
    "words as time": (
        rewrite("nodes.csv", lambda frame: frame.assign(sold="soon")),
        (*COLOUR, "--time-column", "sold"),
        "nodes.csv, line 2: sold is 'soon'; expected a date such as 2024-01-31, or a number, in the --time-column",
    ),
    "an end twice": (
        None,
        (*COLOUR, "--source", "source", "--destination", "source"),
        "edges.csv: --source and --destination both name the column 'source'; use a column for one thing",
    ),
    "negative fraction": (
        None,
        (*COLOUR, "--split", "0.6,-0.2,0.6"),
        "--split 0.6,-0.2,0.6; expected three counts like 87,59,37, three fractions like 0.6,0.2,0.2",
    ),
    "a folder that is no run": (None, (*COLOUR, "--split", "."), "--split . is a folder without predictions.csv"),
    "added and dropped": (
        None,
        (*COLOUR, "--add-unknown", "--drop-unknown"),
        "--add-unknown and --drop-unknown were both given",
    ),
    "unwritable": (
        write_bytes("taken", b"a file"),
        (*COLOUR, "--out", "taken/run"),
        "taken/run cannot be written (taken is a file); choose another place",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_ends_with_a_sentence_and_exit_code_2(case, shop, walksum, tmp_path):
    spoil, arguments, message = CASES[case]
    for name in ("nodes.csv", "edges.csv"):
        shutil.copy(shop / name, tmp_path)
    if spoil is not None:
        spoil(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = walksum("train", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_unknown_ids_can_be_dropped_and_missing_numbers_are_noted(shop, walksum, tmp_path):
    for name in ("nodes.csv", "edges.csv"):
        shutil.copy(shop / name, tmp_path)
    rewrite("edges.csv", more_edges)(tmp_path)
    done = walksum("train", *COLOUR, "--drop-unknown", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: 7 of" in done.stdout
    assert "those edges were left out" in done.stdout
    assert "missing numbers in 'income'" in done.stdout


def test_a_full_disk_leaves_nothing_behind(shop, tmp_path):
    def no_more_than_a_few_kilobytes():  # what a full disk does to a file, for one process
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    tables = ("--nodes", shop / "nodes.csv", "--edges", shop / "edges.csv", "--target", "colour")
    done = run("train", *tables, "--out", "run", *QUICK, cwd=tmp_path, preexec_fn=no_more_than_a_few_kilobytes)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nothing half-written was left behind" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("graph.pt", b"junk", "graph.pt"),
        ("graph.graphml", b"<xml", "graph.graphml is not a readable GraphML file"),
        ("graph.txt", b"1 2", "graph.txt is neither .graphml nor .pt"),
    ],
)
def test_files_of_another_kind_are_refused(name, content, message, tmp_path):
    from walksum.data.user_files import Columns, read_graph

    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_graph(tmp_path / name, Columns())


def test_json_errors_are_json_and_debug_shows_where(tmp_path):
    """As a process: nothing but JSON may come out of it."""
    done = run("train", "--dataset", "corra", "--json", "--debug", cwd=tmp_path)
    assert done.returncode == 2
    assert '"exit_code": 2' in done.stdout
    assert "name='corra' is not a dataset; choose one of" in done.stdout
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--design", "spectral"), "--design spectral; known: 'pairwise-normal'"),
        (("train", "--coupling", "none"), "--coupling none; known: 'repulsive', 'attractive'"),
        (("train", "--model", "gnn"), "--model gnn; known: 'auto', 'glt'"),
        (("train", "--solver", "lu"), "--solver lu; known: 'auto'"),
        (("train", "--split", "1,2,3,4"), "--split 1,2,3,4; expected three counts"),
        (("train", "--nodes", "a.csv", "--edges", "b.csv"), "--target is missing; name the column to predict"),
        (("train", "--out", "."), "--out . already exists"),
        (("train", "--nodes", "a.csv"), "--nodes and --edges belong together"),
        (("train", "--dataset", "cora", "--graph", "g.pt"), "--dataset and --graph were given"),
        (("train", "--dataset", "cora", "--target", "label"), "--target label is for tables and GraphML"),
        (("train", "--graph", "g.pt", "--task", "regression"), "--task regression is for tables and GraphML"),
        (("train", "--dropout", "1"), "--dropout 1.0; expected a rate in [0, 1)"),
        (
            ("train", *COLOUR, "--task", "ranking"),
            "--task ranking; known: 'classification'",
        ),
        (("train", "--lr", "0"), "--lr 0.0; expected a positive number"),
        (("train", "--device", "tpu"), "--device tpu; known: 'auto', 'cpu', 'cuda'"),
        (("predict", "."), "is not a run of 'walksum train': it holds no config.json"),
        (("info", "nowhere"), "is not a run of 'walksum train'"),
    ],
)
def test_wrong_use_is_refused_with_a_remedy(arguments, message, tmp_path):
    done = inside(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []
