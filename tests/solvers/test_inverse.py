import importlib

import problems
import pytest
import torch
from conformance import Conformance

import walksum as ws
from walksum.solvers import auto

solving = importlib.import_module("walksum.solving")  # the name in walksum is the function's


class TestInverse(Conformance):
    solver = ws.Inverse()


class TestHalf(Conformance):
    solver = ws.Inverse("half")


def test_half_precision_takes_a_few_products_more():
    J = problems.dominant(problems.sparse(), 2, torch.float32)
    h = problems.normal(J, 5)
    full, half = (ws.Inverse(storage).prepare(J)(h) for storage in ("full", "half"))
    assert full.steps == 1
    assert 2 <= half.steps <= 4
    assert half.residual <= 16 * torch.finfo(torch.float32).eps


def test_a_J_that_stays_is_inverted(monkeypatch):
    monkeypatch.setattr(solving, "kept_solver", lambda *shape: ws.Inverse())
    J = problems.dominant(problems.sparse(), 1, torch.float32)
    h, used = problems.normal(J, 5), []
    preparations = solving._Preparations(J.graph, J.prepared, ws.CG(), may_replace=True)
    call = solving._Call(preparations, solving.Reports(lambda solution: used.append(solution.solver), "raise"))
    for _ in range(auto.OFTEN + 2):
        call.run(J.diag, J.off, h)
    assert used == ["CG"] * auto.OFTEN + ["Inverse"] * 2
    J.diag.mul_(2)  # new values: the count begins again
    call.run(J.diag, J.off, h)
    assert used[-1] == "CG"


@pytest.mark.parametrize(
    ("nodes", "heads", "columns", "storage"),
    [
        (3000, 1, 64, "full"),
        (20_000, 1, 1920, "half"),
        (20_000, 1, 64, None),
        (30_000, 1, 1920, None),
        (90, 2, 8, None),
    ],
)
def test_what_is_inverted(nodes, heads, columns, storage):
    elsewhere = ws.Graph(torch.empty(2, 0, dtype=torch.int64, device="meta"), nodes)
    kept = auto.kept_solver(elsewhere, heads, columns, torch.float32)
    assert kept == (None if storage is None else ws.Inverse(storage))
    assert (
        auto.kept_solver(ws.Graph(torch.empty(2, 0, dtype=torch.int64), nodes), heads, columns, torch.float32) is None
    )
