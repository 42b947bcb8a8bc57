"""Run folders that were cut, places that cannot be written, folders that vanish: a sentence each."""

import errno
import io
import os
import random
import shutil

import pytest

import walksum as ws
from walksum._files import whole_folder, write_file
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import Store, StoreError, read_records
from walksum.workflow import open_run

READ = ("config.json", "metrics.json", "predictions.csv", "report.html", "model/config.json", "model/model.safetensors")
PLACES = 250  # of each of two folders


def everything(folder):
    """Read all that a run folder holds."""
    run = open_run(folder)
    return repr(run), run.scores, run.predictions, run.job, run.encoding, run.report(), run.model


def damage(folder):
    """What reading says is wrong; None if nothing is."""
    try:
        everything(folder)
    except ValueError as error:
        return str(error)
    return None


def test_a_page_cut_inside_a_letter_says_so(network, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(network, folder)
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").write_bytes(page[: page.index("\u00b7".encode()) + 1])
    with pytest.raises(ValueError, match=r"report\.html is damaged: it ends in the middle"):
        ws.open_run(folder).report()


@pytest.mark.parametrize("kind", ["network", "portfolio"])
def test_a_run_folder_cut_anywhere_says_so(kind, request, tmp_path):
    home, draw, silent = request.getfixturevalue(kind), random.Random(0), []
    everything(home)
    folder = tmp_path / "cut"
    shutil.copytree(home, folder)
    for number in range(PLACES):
        name = READ[number % len(READ)]
        whole = (home / name).read_bytes()
        rows = [0, 1, 2, len(whole) - 1, len(whole) - 2]
        rows += [k + 1 for k, byte in enumerate(whole[:-1]) if byte == 10] if name.endswith("csv") else []
        at = draw.choice(rows) if draw.random() < 0.3 else draw.randrange(len(whole))
        (folder / name).write_bytes(whole[:at])
        said = damage(folder)
        (folder / name).write_bytes(whole)
        if said is None:
            silent.append((name, at, len(whole)))
        else:
            assert str(folder) in said, (name, at, said)
    # a cut that takes nothing but the last line end of JSON or HTML leaves all there is
    assert [each for each in silent if each[1] < each[2] - 1] == []


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("kind", ["network", "portfolio"])
def test_a_run_folder_without_one_of_its_files_says_so(kind, name, request, tmp_path):
    folder = tmp_path / "less"
    shutil.copytree(request.getfixturevalue(kind), folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=r"\w"):
        everything(folder)


class FullDisk:
    """write(2) that fails after so many bytes, for files opened by Python."""

    def __init__(self, monkeypatch, room):
        self.room, self.open = room, io.open
        monkeypatch.setattr(io, "open", self)
        monkeypatch.setattr("pathlib.io.open", self)

    def __call__(self, *arguments, **options):
        file = self.open(*arguments, **options)
        write, disk = file.write, self

        class Short:
            def __getattr__(self, name):
                return getattr(file, name)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def write(self, content):
                if len(content) > disk.room:
                    write(content[: disk.room])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                disk.room -= len(content)
                return write(content)

        return Short()


@pytest.mark.parametrize("room", [0, 10, 500])
def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch, room):
    (tmp_path / "page.html").write_text("old")
    FullDisk(monkeypatch, room)
    with pytest.raises(ValueError, match="No space left on device"):
        write_file(tmp_path / "page.html", "new" * 1000)
    monkeypatch.undo()
    assert (tmp_path / "page.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="cannot be written"):
        write_file(tmp_path / "page.html", "new")
    with pytest.raises(ValueError, match="cannot be written"), whole_folder(tmp_path / "run"):
        pass
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "store").make()


def test_a_folder_removed_while_a_run_is_written_is_named(tmp_path):
    def remove_while_writing():
        with whole_folder(tmp_path / "runs" / "one") as scratch:
            (scratch / "a").write_text("a")
            shutil.rmtree(tmp_path / "runs")

    with pytest.raises(OSError, match="one") as caught:
        remove_while_writing()
    assert "runs" in str(caught.value)
    assert not (tmp_path / "runs" / "one").exists()


def test_a_store_removed_while_it_is_written_is_made_again_or_named(tmp_path):
    store = Store(tmp_path / "store")
    store.make()
    store.append(RunRecord(paper_spec("mlp", "texas", 0), "ok"))
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreError, match="cannot be appended to"):
        store.append(RunRecord(paper_spec("mlp", "texas", 1), "ok"))
    store.make()
    store.append(RunRecord(paper_spec("mlp", "texas", 1), "ok"))
    assert [record.spec.seed for record in read_records(tmp_path / "store")] == [1]


def test_two_objects_on_one_store_never_repeat_a_run(tmp_path):
    ours, theirs = Store(tmp_path / "store"), Store(tmp_path / "store")
    ours.make()
    for seed in range(4):
        (ours if seed % 2 else theirs).append(RunRecord(paper_spec("mlp", "texas", seed), "ok"))
    with pytest.raises(StoreError, match="already holds"):
        ours.append(RunRecord(paper_spec("mlp", "texas", 0), "ok"))
    assert sorted(record.spec.seed for record in read_records(tmp_path / "store")) == [0, 1, 2, 3]


def test_a_saved_model_cut_anywhere_says_so(tmp_path):
    ws.GLT(3, 4, 1, 2).save(tmp_path / "model")
    draw = random.Random(0)
    for name in ("config.json", "model.safetensors"):
        file = tmp_path / "model" / name
        whole = file.read_bytes()
        for at in [0, 1, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(40))]:
            file.write_bytes(whole[:at])
            with pytest.raises(ValueError, match=str(tmp_path / "model")):
                ws.load(tmp_path / "model")
        file.write_bytes(whole)
