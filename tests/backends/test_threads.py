"""Nothing that a thread writes to may be freed before the thread has ended, whatever ends the call."""

import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from walksum.backends.cpu import threads

# Solves in a loop; every interrupt frees what the solve owned, and new memory takes its place.
INTERRUPTED = """
import sys, time, torch, walksum as ws
wanted = int(sys.argv[1])
torch.set_num_threads(2)
index = torch.arange(100 * 100).view(100, 100)
pairs = [(index[:, :-1], index[:, 1:]), (index[:-1], index[1:])]
graph = ws.Graph.from_edge_index(torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1))
h = torch.randn(graph.num_nodes, 256)
J = ws.Precision(graph, 1.0 + graph.degree, -torch.ones(graph.num_edges))
for name in sys.argv[2:]:
    expected = ws.solve(J, h, name)
    seen = 0
    while seen < wanted:
        try:
            print("ready", flush=True)
            while True:
                ws.solve(J, h.clone(), name)
        except KeyboardInterrupt:
            seen += 1
        junk = [torch.full((512, 512), float("nan")) for _ in range(8)]
    assert torch.equal(ws.solve(J, h, name), expected), name
print("done", flush=True)
"""


def test_interrupts_during_threaded_solves():
    solvers, each = ("direct", "hybrid", "cg"), 6
    command = [sys.executable, "-c", INTERRUPTED, str(each), *solvers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            for moment in range(each * len(solvers)):
                assert child.stdout.readline() == "ready\n"
                time.sleep(0.02 + 0.1 * random.Random(moment).random())
                child.send_signal(signal.SIGINT)
            rest, errors = child.communicate(timeout=120)
        finally:
            child.kill()
    assert child.returncode == 0, errors
    assert rest == "done\n"


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_one_block_leaves_after_the_others_have_ended():
    running = threading.Event()

    def kernel(start, stop):
        if start == 0:
            running.wait()
            raise ZeroDivisionError
        running.set()
        time.sleep(0.2)
        running.clear()

    with pytest.raises(ZeroDivisionError):
        threads.over_columns(kernel, 2, 1e9, width=1)
    assert not running.is_set()


@pytest.mark.usefixtures("two_threads")
def test_a_second_interrupt_does_not_cut_the_waiting_short():
    running, main = threading.Event(), threading.main_thread().ident

    def kernel(start, stop):
        running.set()
        if start == 0:
            for pause in (0.05, 0.05, 0.05):
                time.sleep(pause)
                signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.3)
        running.clear()

    with pytest.raises(KeyboardInterrupt):
        threads.over_columns(kernel, 2, 1e9, width=1)
    assert not running.is_set()
