import pytest

from walksum.training.models import MODELS, model_by_name


def test_names_make_models_and_unknown_ones_are_told():
    for name in ("glt", "mlp"):
        model = model_by_name(name).make(5, 3, num_nodes=4, hidden_channels=8, dropout=0.0)
        assert any(parameter.size(0) == 3 for parameter in model.parameters())
    with pytest.raises(ValueError, match="model='gnc'; known: 'glt', 'gcn'"):
        model_by_name("gnc")


def test_every_entry_can_be_imported():
    assert all(callable(entry.model) for entry in MODELS.values())
