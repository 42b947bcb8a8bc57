"""Without numba or triton the reference kernels serve, with one notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src"), "OMP_NUM_THREADS": "1"}
PROGRAM = """
import sys, warnings

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Blocked())
import torch
import walksum as ws

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    J = ws.FixedLaplacian()(graph)
    h = torch.randn(4, 3, dtype=J.dtype, requires_grad=True)
    for solver in ("auto", "cg", "dense", "gabp", "chebyshev"):
        mu = ws.solve(J, h, solver)
        exact = torch.linalg.solve(J.to_dense().double(), h.double())
        assert (mu - exact).abs().max() < 1e-3 * exact.abs().max(), solver
        mu.sum().backward()
    layer = ws.GLTConv(3, 4)
    layer(h.detach(), graph).sum().backward()
notices = [str(w.message) for w in caught if "kernels in plain torch" in str(w.message)]
assert not any(name in sys.modules for name in BLOCKED)
print("NOTICES", len(notices), notices[:1])
"""


def without(*packages):
    command = [sys.executable, "-c", PROGRAM, ",".join(packages)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_without_numba_reference_kernels_serve_with_one_notice():
    told = without("numba", "llvmlite")
    assert "NOTICES 1 " in told, told
    assert "numba" in told


@pytest.mark.slow
def test_without_triton_nothing_changes_on_a_cpu():
    assert "NOTICES 0 " in without("triton")
