import numpy as np
import pytest
import torch

import walksum as ws
from walksum.analysis import inverse


def graph():
    ring = torch.arange(12)
    return ws.Graph.from_edge_index(torch.stack([ring, ring.roll(-1)]), 12)


def test_confidence_falls_back_to_gabp_where_elimination_fills_in(monkeypatch):
    J = ws.FixedLaplacian(scale=0.5)(graph()).to(torch.float64)
    exact, by = inverse.marginal_variance(J)
    assert by == "exact (Direct)"
    assert exact == pytest.approx(np.linalg.inv(J.to_dense()[0].numpy()).diagonal())
    monkeypatch.setattr(inverse, "MOST_OPERATIONS", 1.0)
    approximate, by = inverse.marginal_variance(ws.FixedLaplacian(scale=0.5)(graph()).to(torch.float64))
    assert by.startswith("approximate")
    assert approximate == pytest.approx(exact.numpy(), rel=1e-3)
