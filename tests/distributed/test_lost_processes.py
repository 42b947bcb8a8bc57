"""A process that is killed is named by the others, and a job that starts again goes on from its checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from distributed.test_processes import free_port

LOOP = """
import torch, torch.distributed as dist
from walksum.distributed import joined
with joined(timeout=15):
    total = torch.ones(4)
    dist.all_reduce(total)
    print("ready", flush=True)
    while True:
        dist.all_reduce(total)
"""


def start(rank, count, port):
    where = {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", LOOP], env=os.environ | where, **pipes)


CASES = [(signal.SIGKILL, 1)]  # the others take longer
CASES += [pytest.param(how, lost, marks=pytest.mark.slow) for how, lost in ((signal.SIGSTOP, 1), (signal.SIGKILL, 0))]


@pytest.mark.parametrize(("how", "lost"), CASES)
def test_the_others_name_a_lost_process(how, lost):
    port = free_port()
    processes = [start(rank, 3, port) for rank in range(3)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        processes[lost].send_signal(how)
        began = time.monotonic()
        others = [process for rank, process in enumerate(processes) if rank != lost]
        told = [process.communicate(timeout=60)[1] for process in others]
        assert time.monotonic() - began < 60
        assert all(process.returncode != 0 for process in others)
        assert all(f"process {lost} of 3" in text or f"process {lost}, which holds" in text for text in told), told
        assert all("training goes on from its last checkpoint" in text for text in told)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def train(out, *more):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *more,
            "-m", "walksum.distributed", "train", "--dataset", "digits", "--fixed", "--design", "diagonally-dominant",
            "--hidden", "8", "--layers", "1", "--max-epochs", "20", "--every", "5", "--out", str(out)]  # fmt: skip


@pytest.mark.slow
def test_torchrun_ends_and_continues_a_job(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(train(whole), check=True, capture_output=True, timeout=300)
    job = subprocess.Popen(train(cut), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not list((cut / "checkpoints").glob("epoch-*")):
            assert job.poll() is None, job.communicate()
            time.sleep(0.05)
        worker = children(job.pid)[-1]
        os.kill(worker, signal.SIGKILL)
        began = time.monotonic()
        told = job.communicate(timeout=60)[1]
        assert time.monotonic() - began < 60
        assert job.returncode != 0
        assert "rank" in told
        assert str(worker) in told
    finally:
        job.kill()
    assert not (cut / "result.json").exists()
    subprocess.run(train(cut), check=True, capture_output=True, timeout=300)
    same = [json.loads((folder / "result.json").read_text())["best"] for folder in (whole, cut)]
    assert same[0] == same[1]


def children(pid):
    """The processes that torchrun started, of the highest rank last."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid), "--sort", "pid"], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]
