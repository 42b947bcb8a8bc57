"""GaBP with a loaded diagonal: every positive definite J, and indefinite ones by name."""

import pytest
import torch

import walksum as ws
from gallery import complete, random_graph
from reference import true_residual

double = torch.double
LOADED = ws.GaBP(loading="auto")


def random_systems(count):
    """Positive definite, not walk-summable: rho(|R|) > 1. Also an indefinite one on the same graph."""
    seed = 0
    while count:
        seed += 1
        generator = torch.Generator().manual_seed(seed)
        n = 5 + seed % 25
        graph = random_graph(n, 3 * n, seed)
        off = torch.randn(graph.num_edges, generator=generator, dtype=double)
        lowest = -float(torch.linalg.eigvalsh(ws.Precision(graph, torch.zeros(n, dtype=double), off).to_dense()).min())
        J, K = (ws.Precision(graph, torch.full((n,), s * lowest, dtype=double), off) for s in (1.05, 0.9))
        if J.walk_summability()[0] > 1:
            count -= 1
            yield J, K, torch.randn(1, n, 2, generator=generator, dtype=double)


@pytest.mark.parametrize("coupling", [0.52, 0.6, 0.7, 0.8, 0.9, 0.95])
def test_triangles(coupling):
    J, h = (
        ws.Precision(complete(3), torch.ones(3, dtype=double), torch.full((3,), coupling, dtype=double)),
        torch.randn(1, 3, 2, dtype=double),
    )
    assert ws.GaBP().prepare(J)(h).status is ws.Status.diverged
    found = LOADED.prepare(J)(h).check()
    torch.testing.assert_close(found.value, torch.linalg.solve(J.to_dense(), h), rtol=1e-6, atol=1e-6)


def test_200_random_systems():
    diverged = 0
    for J, indefinite, h in random_systems(200):
        plain, found = ws.GaBP().prepare(J)(h), LOADED.prepare(J)(h)
        # messages may settle beyond walk-summability; then they are right, and otherwise they say so
        diverged += plain.status is ws.Status.diverged
        assert plain.status is ws.Status.diverged or (plain.converged and true_residual(J, plain.value, h) <= 1e-6)
        assert found.converged
        assert true_residual(J, found.value, h) <= 1e-6
        assert LOADED.prepare(indefinite)(h).status is ws.Status.not_positive_definite
    assert diverged > 100


def test_gradients_heads_and_what_needs_no_loading():
    J, _, h = next(random_systems(1))
    both = (
        ws.Precision(J.graph, torch.cat([J.diag, 2 * J.diag]), torch.cat([J.off, J.off])),
        h.expand(2, -1, -1).contiguous(),
    )
    tight = ws.GaBP(loading="auto", tol=1e-13)
    torch.testing.assert_close(
        ws.solve(*both, tight), torch.linalg.solve(both[0].to_dense(), both[1]), rtol=1e-6, atol=1e-6
    )
    diag = J.diag.clone().requires_grad_()

    def solved(diag):
        return ws.solve(ws.Precision(J.graph, diag, J.off), h, tight)

    assert torch.autograd.gradcheck(solved, diag, atol=1e-4, rtol=1e-3)
    dominant = ws.FixedDiagonallyDominant()(J.graph, torch.empty(0, dtype=double))
    assert LOADED.prepare(dominant).loading == 0
    torch.testing.assert_close(LOADED.prepare(dominant)(h).value, ws.GaBP().prepare(dominant)(h).value)


def test_bad_input():
    with pytest.raises(ValueError, match="loading='much'; known: 'auto'"):
        ws.GaBP(loading="much")
    with pytest.raises(ValueError, match="outer loop watches the residual"):
        ws.GaBP(loading="auto", stop="messages")
    graph, h = complete(3), torch.ones(1, 3, 1)
    bad = ws.Precision(graph, torch.ones(3), torch.full((3,), torch.nan))
    assert LOADED.prepare(bad)(h).status is ws.Status.nonfinite
    negative = ws.Precision(graph, -torch.ones(3), torch.zeros(3))
    assert LOADED.prepare(negative)(h).status is ws.Status.not_positive_definite
