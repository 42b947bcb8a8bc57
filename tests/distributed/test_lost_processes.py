"""A process that is killed is named by the others, and a job that starts again goes on from its checkpoint."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

from distributed.test_processes import PRELOADED, free_port
from walksum.distributed import joined

TIMEOUT = 8


def loop(rank, count, port, ready, told):
    """What every process does until one of them is lost."""
    os.dup2(os.open(told, os.O_CREAT | os.O_WRONLY), 2)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with joined(timeout=TIMEOUT):
        total = torch.ones(4)
        dist.all_reduce(total)
        ready.release()
        while True:
            dist.all_reduce(total)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "lost"), [(signal.SIGKILL, 1), (signal.SIGSTOP, 1), (signal.SIGKILL, 0)])
def test_the_others_name_a_lost_process(how, lost, tmp_path):
    multiprocessing.set_forkserver_preload(PRELOADED)
    start, port = multiprocessing.get_context("forkserver"), free_port()
    ready, others = start.Semaphore(0), [rank for rank in range(3) if rank != lost]
    processes = [start.Process(target=loop, args=(k, 3, port, ready, tmp_path / f"{k}")) for k in range(3)]
    try:
        for process in processes:
            process.start()
        for _ in processes:
            assert ready.acquire(timeout=120)
        os.kill(processes[lost].pid, how)
        for rank in others:
            processes[rank].join(60)
            assert processes[rank].exitcode not in (0, None)
        told = [(tmp_path / f"{rank}").read_text() for rank in others]
        assert all(f"process {lost} of 3" in text or f"process {lost}, which holds" in text for text in told), told
        assert all("training goes on from its last checkpoint" in text for text in told)
    finally:
        for process in processes:
            process.kill()
            process.join()


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
