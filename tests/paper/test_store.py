import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import AlreadyRecorded, Store, StoreError, read_records

HERE = Path(__file__).parent
SRC = str(HERE.parents[1] / "src")


def record(seed=0, outcome="ok", **values):
    return RunRecord(paper_spec("gcn", "texas", seed), outcome, **values)


@pytest.fixture
def three(store):
    for seed in range(3):
        store.append(record(seed))
    return store


def program(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *map(str, arguments)], env=environment, text=True, timeout=300, **options)


def test_records_come_back_whole(store):
    written = record(3, curve=((1, 2.0, 3.0, 0.5, 0.25),), message="é\r\u2028")
    store.append(written)
    assert [each.curve for each in read_records(store.folder)] == [written.curve]
    assert read_records(store.folder)[0].message == written.message
    assert store.path.read_bytes().count(b"\n") == 1


def test_a_run_is_never_there_twice(three):
    with pytest.raises(AlreadyRecorded, match="already holds run"):
        three.append(record(1))
    assert len(three.path.read_text().splitlines()) == 3


def test_what_others_append_is_seen(three):
    other = Store(three.folder)
    other.append(record(7))
    with pytest.raises(AlreadyRecorded):
        three.append(record(7))
    assert three.is_done(record(7).key)


def test_an_interrupted_run_is_done_again_and_the_newer_wins(store):
    store.append(record(0, "interrupted"))
    store.append(record(0, "interrupted"))
    store.append(record(0, test_accuracy=0.5))
    store.refresh()
    assert [each.outcome for each in store.latest()] == ["ok"]
    assert [each.outcome for each in read_records(store.folder)] == ["ok"]


@pytest.mark.parametrize("outcome", ["failed", "oom", "diverged"])
def test_a_failure_blocks_unless_it_is_older_than_the_retry(store, outcome):
    store.append(record(0, outcome))
    with pytest.raises(AlreadyRecorded):
        store.append(record(0))
    store.refresh()
    since = store.size
    assert store.missing([record(0).spec], since) == [record(0).spec]
    store.append(record(0, outcome), since)
    assert store.missing([record(0).spec], since) == []  # it was tried again, and failed again


def test_a_torn_line_is_cut_off_and_kept_aside(three):
    whole = three.path.read_bytes()
    three.path.write_bytes(whole + b'{"key":"12')
    assert len(read_records(three.folder)) == 3
    reader = Store(three.folder)
    reader.refresh()
    assert len(reader.latest()) == 3
    three.append(record(9))
    assert three.path.read_bytes().startswith(whole)
    assert len(read_records(three.folder)) == 4
    assert (three.folder / "torn").read_bytes() == b'{"key":"12\n'


def test_a_line_that_only_lacks_its_end_gets_it(three):
    three.path.write_bytes(three.path.read_bytes()[:-1])
    Store(three.folder).make()
    assert len(read_records(three.folder)) == 3
    assert not (three.folder / "torn").exists()


def test_a_file_that_is_one_torn_line(store):
    store.path.write_bytes(b"{" * 200_000)
    store.append(record())
    assert len(read_records(store.folder)) == 1
    assert (store.folder / "torn").stat().st_size == 200_001


def test_reading_needs_no_lock_and_writes_nothing(three):
    (three.folder / "lock").unlink()
    before = sorted(three.folder.iterdir())
    reader = Store(three.folder)
    reader.refresh()
    assert len(reader.latest()) == 3
    assert sorted(three.folder.iterdir()) == before


def test_a_file_put_in_place_of_the_old_one_is_read_anew(three):
    new = three.folder / "new"
    new.write_text(record(8).to_line() + "\n")
    new.replace(three.path)
    three.refresh()
    assert [each.spec.seed for each in three.latest()] == [8]


def test_a_corrupt_line_is_named(three):
    lines = three.path.read_text().splitlines()
    three.path.write_text("\n".join([lines[0], lines[1][:40], lines[2], ""]))
    with pytest.raises(StoreError, match=r"records.jsonl, line 2 is not a record that this walksum can read"):
        read_records(three.folder)
    with pytest.raises(StoreError, match="line 2"):
        Store(three.folder).refresh()
    with pytest.raises(StoreError, match="line 2"):
        Store(three.folder).append(record(9))


def test_records_of_a_newer_version_are_named(store):
    values = json.loads(record().to_line())
    values["spec"]["temperature"] = 1
    store.path.write_text(json.dumps(values) + "\n")
    with pytest.raises(
        StoreError, match=r"line 1 .*unknown fields \['temperature'\]; it was written by a newer walksum"
    ):
        store.refresh()


def test_bad_folders(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match="file is a file; name a folder"):
        Store(file).make()
    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        Store(file / "store").make()
    with pytest.raises(StoreError, match="cannot be written"):
        Store("/proc/store").make()
    with pytest.raises(StoreError, match=r"nothing/records.jsonl cannot be read: No such file"):
        read_records(tmp_path / "nothing")


def test_a_full_disk_leaves_whole_lines(three):
    # a limit on the size of files stands in for the disk: the write stops in the middle of the line
    resource = pytest.importorskip("resource")
    before = three.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(StoreError, match="cannot be appended to; what it holds is whole: File too large"):
            three.append(record(9))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert three.path.read_bytes() == before
    three.append(record(9))


def fight(folder, what):
    done = program(HERE / "forks.py", folder, what, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def fights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fights")
    return folder, fight(folder, "hammer")


@pytest.mark.slow
def test_kills_lose_at_most_the_record_in_flight(tmp_path):
    heard, folder = fight(tmp_path, "kills"), tmp_path / "killed"
    Store(folder).make()  # repairs what the last kill left
    records = read_records(folder)
    seeds = [each.spec.seed for each in records]
    assert len(heard["said"]) >= 50  # else nothing was tried
    assert seeds == list(range(len(seeds)))
    assert set(heard["said"]) <= set(seeds)
    # a kill between writing and saying leaves a run that nobody spoke of
    assert len(seeds) <= len(heard["said"]) + heard["kills"]
    assert len((folder / "torn").read_bytes().splitlines()) >= 10
    assert len(folder.joinpath("records.jsonl").read_bytes().splitlines()) == len(records)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_hammer_one_store_never_repeat_or_mix(fights, processes):
    folder = fights[0] / f"hammered-{processes}"
    lines = (folder / "records.jsonl").read_text().splitlines()
    assert sorted(RunRecord.from_line(line).spec.seed for line in lines) == list(range(40))
    assert not (folder / "torn").exists()


def test_locks_are_let_go_when_their_process_is_killed(fights):
    assert fights[1]["locks"] == [1, 4]
