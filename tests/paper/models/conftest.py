"""Baselines are compared with dense twins, so everything is float64."""

import pytest
import torch
from toy_graph import Toy


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def toy() -> Toy:
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (3, 4), (4, 5), (6, 7), (7, 8)]
    edges = torch.tensor(pairs + [(j, i) for i, j in pairs]).T.contiguous()
    generator = torch.Generator().manual_seed(1)
    return Toy(torch.randn(10, 6, generator=generator), edges, torch.arange(10) % 3)
