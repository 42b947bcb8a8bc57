import json
import subprocess
import sys

import pytest
import torch

import walksum as ws
from walksum import job as jobs
from walksum.data import load
from walksum.train import Recipe, train


def walksum(*arguments, cwd):
    command = [sys.executable, "-m", "walksum", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_train_on_digits_from_a_strangers_folder(tmp_path):
    done = walksum("train", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "digits"
    assert sorted(p.name for p in run.iterdir()) == ["metrics.json", "model", "picture.png"]
    metrics = json.loads((run / "metrics.json").read_text())
    accuracy = metrics["test_accuracy"]
    assert accuracy["GLT"] > 0.95
    assert accuracy["GLT"] > accuracy["MLP"]
    assert set(accuracy) == {"GLT", "MLP", "LabelSpreading"}
    assert f"{100 * accuracy['GLT']:.1f} %" in done.stdout
    assert (run / "picture.png").read_bytes().startswith(b"\x89PNG")
    data = load("digits")
    hit = ws.load(run / "model")(data.x, data.edge_index).argmax(1) == data.y
    split = jobs.split_of(jobs.Job(), data)
    assert float(hit[split.test].double().mean()) == pytest.approx(accuracy["GLT"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--dataset", "corra"), "name='corra' is not a dataset; choose one of"),
        (("train", "--design", "spectral"), "design='spectral'; known: 'pairwise-normal'"),
        (("train", "--coupling", "none"), "coupling='none'; known: 'repulsive', 'attractive'"),
        (("train", "--out", "."), "--out . already exists"),
    ],
)
def test_mistakes_end_with_a_sentence_and_exit_code_2(tmp_path, arguments, message):
    done = walksum(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_datasets_are_listed(tmp_path):
    assert "cora" in walksum("datasets", cwd=tmp_path).stdout.split()


def test_a_run_that_cannot_be_drawn_leaves_nothing(tmp_path):
    data = load("digits")
    result = jobs.run(jobs.Job(), data, on_epoch=_interrupt_at(3))
    assert result.outcome.interrupted
    assert set(result.accuracy) == {"GLT"}

    def broken(path):
        path.write_bytes(b"half a pict")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        jobs.save(result, tmp_path / "run", broken)
    assert list(tmp_path.iterdir()) == []


def _interrupt_at(number):
    def on_epoch(name, epoch, best):
        if epoch.number == number:
            raise KeyboardInterrupt

    return on_epoch


def test_training_keeps_the_best_weights_and_stops_by_patience():
    data = load("digits")
    split = jobs.split_of(jobs.Job(), data)
    graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
    model = ws.GLT(data.num_features, 16, 1, 10, design="diagonally-dominant", learned=False)
    outcome = train(model, data.x, graph, data.y, split, Recipe(lr=1e-2, patience=4, max_epochs=60))
    hit = model(data.x, graph).argmax(1) == data.y
    assert float(hit[split.val].float().mean()) == pytest.approx(outcome.best.val_accuracy)
    assert outcome.best.val_accuracy == max(e.val_accuracy for e in outcome.history)
    assert len(outcome.history) in (60, outcome.best.number + 4)


def test_training_twice_gives_the_same_numbers():
    data = load("digits")

    def once():
        torch.manual_seed(3)
        model = ws.GLT(data.num_features, 16, 1, 10, design="laplacian")
        split = jobs.split_of(jobs.Job(seed=3), data)
        return train(model, data.x, data.edge_index, data.y, split, Recipe(max_epochs=3)).history

    assert once() == once()
