"""Machine code on disk: renewed when a helper changes, done without where nothing can be written."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import walksum as ws
from walksum.backends.cpu import compile as compiling
from walksum.backends.cpu.ldl import sweeps, symbolic
from walksum.backends.cpu.ldl.partial_order import low_degree_first

KERNEL = """
from walksum.backends.cpu.compile import jit
from walksum.backends.cpu.middle import twice

@jit
def kernel(x):
    return twice(x) + 1
"""
MIDDLE = """
from walksum.backends.cpu.compile import jit
from walksum.backends.cpu import helper

factor = jit(helper.factor)

@jit
def twice(x):
    return factor(x) * x
"""
HELPER = """
def factor(x):
    return 2
"""
RUN = "from walksum.backends.cpu.kernel import kernel; print(kernel(10), sum(kernel.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path):
    """A small package of the same layout, with this compile.py."""
    folder = tmp_path / "walksum" / "backends" / "cpu"
    folder.mkdir(parents=True)
    for each in (folder, *list(folder.parents)[:2]):
        (each / "__init__.py").write_text("")
    for name in ("compile.py", "numba_api.py"):
        shutil.copy(Path(compiling.__file__).with_name(name), folder)
    for name, text in (("kernel", KERNEL), ("middle", MIDDLE), ("helper", HELPER)):
        (folder / f"{name}.py").write_text(text)
    return folder


def lattice(n):
    i = torch.arange(n * n).view(n, n)
    pairs = [(i[:, :-1], i[:, 1:]), (i[:-1], i[1:])]
    return ws.Graph.from_edge_index(torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1))


def run(package, **environment):
    env = {**os.environ, "PYTHONPATH": str(package.parents[2]), **environment}
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_processes_that_start_together_compile_a_kernel_once(package):
    command, env = [sys.executable, "-c", RUN], {**os.environ, "PYTHONPATH": str(package.parents[2])}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)]
    assert sorted(process.communicate()[0] for process in started) == ["21 0\n", "21 1\n", "21 1\n"]


def test_a_process_that_was_stopped_while_compiling_holds_nobody_up_for_ever(monkeypatch, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(compiling, "LONGEST_WAIT", 0.05)
    with (tmp_path / "kernel").open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        with compiling._locked(tmp_path / "kernel", fcntl), compiling._locked(tmp_path / "kernel", fcntl):
            pass  # the second is inside the first: a process does not wait for itself
    with (tmp_path / "kernel").open("w") as other:
        assert compiling._taken(other, fcntl)  # both have let it go


def test_code_on_disk_is_used_until_a_helper_of_a_helper_changes(package):
    assert run(package) == ["21", "0"]
    assert run(package) == ["21", "1"]
    (package / "helper.py").write_text(HELPER.replace("2", "3"))
    assert run(package) == ["31", "0"]
    (package / "helper.py").write_text(HELPER)
    assert run(package) == ["21", "1"]


def test_a_folder_the_user_names_is_used(package, tmp_path):
    assert run(package, NUMBA_CACHE_DIR=str(tmp_path / "named")) == ["21", "0"]
    assert list((tmp_path / "named").rglob("*.nbi"))
    assert not (package / "__pycache__" / "numba").exists()


def test_no_folder_to_write_to(package, tmp_path):
    (tmp_path / "file").write_text("")  # no folder can be made below a file
    for _ in range(2):
        assert run(package, NUMBA_CACHE_DIR=str(tmp_path / "file" / "below")) == ["21", "0"]


def test_every_kernel_file_counts_its_own_helpers():
    root = Path(compiling.__file__).parent
    named = {path.name for path in compiling._imported(root / "dic.py")}
    assert {"simd.py", "packing.py", "compile.py"} <= named
    assert "gabp.py" not in named


def test_an_interrupt_comes_out_of_a_kernel_as_itself():
    graph = lattice(200)
    lists = symbolic._lists(graph)

    def order():
        begun = time.perf_counter()
        low_degree_first(lists[0], lists[1], 8, 2**62)
        return time.perf_counter() - begun

    def orders():
        while True:  # one may be done before the alarm, on a machine that has become quicker
            order()

    def stop(*_):
        raise TimeoutError

    took = min(order() for _ in range(3))
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, took / 2)
            with pytest.raises(TimeoutError):
                orders()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_only_kernels_that_return_arrays_pay_for_it():
    graph = lattice(3)
    J = ws.Precision(graph, 1.0 + graph.degree, -torch.ones(graph.num_edges))
    ws.solve(J, torch.ones(9, 1), "direct")
    assert type(low_degree_first) is compiling._Interruptible
    assert type(sweeps.factorise_and_solve) is compiling.CPUDispatcher


WITHOUT = """
import sys, warnings
sys.modules["numba"] = sys.modules["triton"] = None  # cannot be imported
import torch, walksum as ws
index = torch.arange(36).view(6, 6)
graph = ws.Graph.from_edge_index(torch.cat([index[:, :-1].reshape(1, -1), index[:, 1:].reshape(1, -1)]))
J = ws.Precision(graph, 1.0 + graph.degree, -torch.ones(graph.num_edges))
h = torch.randn(graph.num_nodes, 3)
exact = torch.linalg.solve(J.to_dense()[0], h)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for solver in ("auto", "cg", "gabp", "dense", "inverse", "chebyshev", ws.GaBP(schedule="sequential")):
        assert torch.allclose(ws.solve(J, h, solver, on_nonconverged="raise"), exact, rtol=1e-4, atol=1e-5), solver
    x = torch.randn(graph.num_nodes, 5, requires_grad=True)
    ws.GLT(5, 8, 2, 3, dropout=0.5)(x, graph.edges).sum().backward()
assert x.grad.isfinite().all()
assert [str(w.message)[:23] for w in seen].count("kernels in plain torch,") == 1, [str(w.message) for w in seen]
assert "without numba" in str(ws.explain_solver(J, h))
try:
    ws.solve(J, h, "direct")
except ImportError as error:
    print(error)
"""


def test_everything_but_elimination_works_without_numba_and_triton():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "this solver needs numba" in done.stdout
