import subprocess
import sys

import pytest

from walksum.training.models import MODELS, model_by_name


def test_names_make_models_and_unknown_ones_are_told():
    for name in ("glt", "mlp"):
        model = model_by_name(name).make(5, 3, num_nodes=4, hidden_channels=8, dropout=0.0)
        assert any(parameter.size(0) == 3 for parameter in model.parameters())
    with pytest.raises(ValueError, match="model='gnc'; known: glt, gcn"):
        model_by_name("gnc")


def test_compared_models_are_imported_when_asked_for_and_need_no_extra_by_default():
    program = """
import sys
sys.modules["torchdiffeq"] = None  # cannot be imported
from walksum.training.models import model_by_name
assert not any(name.startswith("walksum.paper") for name in sys.modules)
model = model_by_name("gde").make(5, 3, num_nodes=4)
import torch
x, edges = torch.randn(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])
model(x, edges)
try:
    model_by_name("gde").make(5, 3, num_nodes=4, method="dopri5")(x, edges)
except ImportError as error:
    assert "pip install 'walksum[paper]'" in str(error), error
else:
    raise AssertionError
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_entry_can_be_imported():
    assert all(callable(entry.model) for entry in MODELS.values())
