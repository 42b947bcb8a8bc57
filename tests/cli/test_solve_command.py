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
    np.save("empty.npy", np.ones(0))
    A = A.tocsc()
    A.indices[0] = 99
    sp.save_npz("damaged.npz", A)
    (tmp_path / "junk.mtx").write_text("hello")
    for arguments, message in (
        (("nowhere.mtx", "b.npy"), "nowhere.mtx does not exist"),
        (("junk.mtx", "b.npy"), "junk.mtx is neither MatrixMarket nor scipy's npz"),
        (("wide.mtx", "b.npy"), "wide.mtx has shape (10, 50); a precision matrix is square"),
        (("A.mtx", "short.npy"), "short.npy has 3 rows for a matrix of 50; they must agree"),
        (("A.mtx", "nan.npy"), "expected finite numbers"),
        (("A.mtx", "empty.npy"), "empty.npy has 0 rows for a matrix of 50"),
        (("damaged.npz", "b.npy"), "damaged.npz is a damaged csc matrix"),
        (("indefinite.mtx", "b.npy"), "not positive definite"),
    ):
        done = solve("--matrix", arguments[0], "--rhs", arguments[1], "--out", "mu.npy")
        assert done.exit_code == 2, (arguments, done.output)
        assert message in " ".join(done.output.split())
        assert not (tmp_path / "mu.npy").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(50) + 1j, "b.npy holds complex numbers; a right-hand side is real"),
        (np.full(50, "1"), "b.npy holds values of dtype <U1; a right-hand side is numbers"),
    ],
)
def test_a_right_hand_side_is_real_numbers(system, values, message):
    np.save("b.npy", values)
    done = solve("--matrix", "A.mtx", "--rhs", "b.npy")
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())


def test_a_right_hand_side_may_be_a_sparse_matrix(system):
    A, b = system
    sp.save_npz("b.npz", sp.csr_matrix(b))
    assert solve("--matrix", "A.mtx", "--rhs", "b.npz", "--out", "mu.npy").exit_code == 0
    np.testing.assert_allclose(A @ np.load("mu.npy"), b, atol=1e-12)


def test_a_complex_right_hand_side_in_matrix_market_is_refused(system):
    scipy.io.mmwrite("c.mtx", np.ones((50, 1)) + 1j)
    done = solve("--matrix", "A.mtx", "--rhs", "c.mtx")
    assert done.exit_code == 2, done.output
    assert "c.mtx holds complex numbers" in " ".join(done.output.split())


def test_too_much_fill_is_told_with_a_remedy(system, monkeypatch):
    from walksum.solvers.direct import Direct

    def declines(self, J):
        raise ValueError("elimination needs 1e12 operations, more than max_operations=1e9")

    monkeypatch.setattr(Direct, "prepare", declines)
    done = solve("--matrix", "A.mtx", "--rhs", "b.npy", "--solver", "direct")
    assert done.exit_code == 2, done.output
    assert "Direct: elimination would fill in too much here; use --solver auto" in " ".join(done.output.split())
    record = json.loads(solve("--matrix", "A.mtx", "--rhs", "b.npy", "--solver", "cg", "--compare", "--json").stdout)
    assert {row["solver"]: row["status"] for row in record["compare"]}["Direct"] == "too much fill"


def test_a_short_file_that_declares_a_huge_matrix_is_refused_at_once(system, tmp_path, monkeypatch):
    (tmp_path / "huge.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n300000000 300000000 1\n1 1 2.0\n"
    )
    done = solve("--matrix", "huge.mtx", "--rhs", "b.npy")
    assert done.exit_code == 2, done.output
    assert "b.npy has 50 rows for a matrix of 300000000; they must agree" in " ".join(done.output.split())
    monkeypatch.setattr("walksum.data.files.read_rhs", lambda path: range(300_000_000))
    monkeypatch.setattr("walksum.data.files.free_memory", lambda: 8.0 * 2**30)
    done = solve("--matrix", "huge.mtx", "--rhs", "b.npy")
    assert done.exit_code == 2, done.output
    told = "huge.mtx declares 300000000 rows and 1 entries, about 28 GB of memory; 8 GB are free here"
    assert told in " ".join(done.output.split())


def test_a_right_hand_side_that_declares_too_much_is_refused(system, tmp_path):
    (tmp_path / "wide.mtx").write_text("%%MatrixMarket matrix coordinate real general\n50 9000000000000 1\n1 1 2.0\n")
    done = solve("--matrix", "A.mtx", "--rhs", "wide.mtx")
    assert done.exit_code == 2, done.output
    assert "wide.mtx declares 50 rows and 9000000000000 columns" in " ".join(done.output.split())


def test_a_folder_that_was_made_is_told(system):
    done = solve("--matrix", "A.mtx", "--rhs", "b.npy", "--out", "new/mu.npy")
    assert "mu written to new/mu.npy (made the folder " in " ".join(done.output.split())


def test_doctor_lists_every_extra(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path))
    record = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert {"pyamg", "optuna", "dash", "ray"} <= set(record["extras"])


def test_doctor_finds_every_solver_right(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path))
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0, done.output
    for word in ("walksum 0.", "torch", "device: ", "kernels: ", "data root: ", "digits", "self-test GaBP: ok"):
        assert word in done.output
    record = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert all(check["ok"] for check in record["self_test"])


def test_a_name_of_another_kind_of_file_is_refused(system, tmp_path):
    done = solve("--matrix", "A.mtx", "--rhs", "b.npy", "--out", "mu.csv")
    assert done.exit_code == 2, done.output
    assert "--out mu.csv is no name of a .npy file" in " ".join(done.output.split())
    assert not (tmp_path / "mu.csv").exists()
