import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from typer.testing import CliRunner

from walksum.cli import app


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A ring of 50 with a dominant diagonal, as MatrixMarket and npz, and two right-hand sides."""
    monkeypatch.chdir(tmp_path)
    A = sp.diags([2.5] * 50) - sp.diags([1.0] * 49, 1) - sp.diags([1.0] * 49, -1)
    A = A.tolil()
    A[0, 49] = A[49, 0] = -1
    A = A.tocsr()
    scipy.io.mmwrite("A.mtx", A)
    sp.save_npz("A.npz", A)
    b = np.random.default_rng(0).normal(size=(50, 2))
    np.save("b.npy", b)
    return A, b


def solve(*arguments):
    return CliRunner().invoke(app, ["solve", *arguments])


@pytest.mark.parametrize("matrix", ["A.mtx", "A.npz"])
def test_mu_solves_the_system(system, matrix):
    A, b = system
    done = solve("--matrix", matrix, "--rhs", "b.npy", "--out", "mu.npy", "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["status"] == "converged"
    assert np.allclose(A @ np.load("mu.npy"), b, atol=1e-12)
    low, high = record["radius"]
    assert low <= 0.8 <= high
    assert high - low < 1e-3


def test_all_applicable_solvers_are_compared(system):
    done = solve("--matrix", "A.mtx", "--rhs", "b.npy", "--compare", "--json")
    record = json.loads(done.stdout)
    found = {row["solver"]: row for row in record["compare"]}
    assert {"GaBP", "CG", "Dense", "Direct", "Hybrid", "Chebyshev"} <= set(found)
    assert all(row["status"] == "converged" and row["residual"] < 1e-6 for row in found.values())
    shown = solve("--matrix", "A.mtx", "--rhs", "b.npy", "--compare", "--solver", "cg").output
    assert "walk-summability radius in [" in shown
    assert "walk-summable" in shown
    assert "CG: converged in" in shown
    assert "Chebyshev" in shown


def test_an_asymmetric_matrix_is_refused_with_its_largest_asymmetry(system):
    A, _ = system
    A = A.tolil()
    A[2, 3] = -1.25
    scipy.io.mmwrite("B.mtx", A.tocsr())
    done = solve("--matrix", "B.mtx", "--rhs", "b.npy")
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert "B.mtx is not symmetric: the largest asymmetry is 0.25, between (3, 4) = -1.25 and (4, 3) = -1" in words


def test_what_is_no_system_is_refused(system, tmp_path):
    A, _ = system
    scipy.io.mmwrite("wide.mtx", A[:10])
    scipy.io.mmwrite("indefinite.mtx", A - 2.4 * sp.identity(50))
    np.save("short.npy", np.ones(3))
    np.save("nan.npy", np.full(50, np.nan))
    (tmp_path / "junk.mtx").write_text("hello")
    for arguments, message in (
        (("nowhere.mtx", "b.npy"), "nowhere.mtx does not exist"),
        (("junk.mtx", "b.npy"), "junk.mtx is neither MatrixMarket nor scipy's npz"),
        (("wide.mtx", "b.npy"), "wide.mtx has shape (10, 50); a precision matrix is square"),
        (("A.mtx", "short.npy"), "short.npy has 3 rows for a matrix of 50; they must agree"),
        (("A.mtx", "nan.npy"), "expected finite numbers"),
        (("indefinite.mtx", "b.npy"), "not positive definite"),
    ):
        done = solve("--matrix", arguments[0], "--rhs", arguments[1])
        assert done.exit_code == 2, (arguments, done.output)
        assert message in " ".join(done.output.split())


def test_doctor_finds_every_solver_right(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path))
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0, done.output
    for word in ("walksum 0.", "torch", "device: ", "kernels: ", "data root: ", "digits", "self-test GaBP: ok"):
        assert word in done.output
    record = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert all(check["ok"] for check in record["self_test"])
