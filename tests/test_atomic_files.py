import json
import math
import resource

import pytest

from walksum._files import append_lines, to_json, whole_folder, write_file


@pytest.mark.parametrize("content", ["new", b"new", lambda path: path.write_text("new")])
def test_a_file_is_written_with_its_folder(tmp_path, content):
    write_file(tmp_path / "a" / "b.txt", content)
    assert (tmp_path / "a" / "b.txt").read_text() == "new"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_the_old_file_stays_when_writing_fails(tmp_path):
    (tmp_path / "file").write_text("old")

    def half(path):
        path.write_text("ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", half)
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_lines_for_which_there_is_no_room_are_an_error(tmp_path):
    """A write that ends early says so by its length alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            append_lines(tmp_path / "file", ["a" * 20])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_lines(tmp_path / "file", ["b"])
    assert (tmp_path / "file").read_text() == f"{'a' * 10}\nb\n"


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(ValueError, match=r"page\.md cannot be written \(.*is a file\); choose another place"):
        write_file(tmp_path / "file" / "page.md", "new")
    with pytest.raises(ValueError, match="it is a folder"):
        write_file(tmp_path, "new")
    with pytest.raises(ValueError, match="run cannot be written"), whole_folder(tmp_path / "file" / "run"):
        pass


def test_a_folder_appears_when_it_is_whole(tmp_path):
    with whole_folder(tmp_path / "runs" / "one") as scratch:
        (scratch / "a").write_text("a")
        assert not (tmp_path / "runs" / "one").exists()
    assert (tmp_path / "runs" / "one" / "a").read_text() == "a"
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "other" / "two") as scratch:
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_numbers_that_json_has_not_are_null():
    value = {"a": math.nan, "b": [1.5, math.inf, {"c": (-math.inf, 2)}], "d": "nan"}
    assert json.loads(to_json(value)) == {"a": None, "b": [1.5, None, {"c": [None, 2]}], "d": "nan"}


def test_a_folder_that_another_process_wrote_meanwhile_is_named(tmp_path):
    message = "run was written by another process meanwhile; name a new folder"
    with pytest.raises(ValueError, match=message), whole_folder(tmp_path / "run"):
        (tmp_path / "run").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["run"]
