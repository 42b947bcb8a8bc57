import pytest
import torch
from toy_cell import cell

from walksum.paper.runs import make_model
from walksum.paper.sparse_input import Sparse, SparseInput, _Product, use_sparse_input


def sparse_features(rows=30, columns=40):
    torch.manual_seed(0)
    return (torch.rand(rows, columns) < 0.2) * torch.rand(rows, columns)


@pytest.mark.parametrize("channels", [16, 64, 128])
def test_sparse_input_is_the_dense_layer(channels):
    x, dense = sparse_features(), torch.nn.Linear(40, channels)
    sparse = SparseInput(Sparse.of(x), dense, 0.5).eval()
    assert torch.allclose(sparse(x), dense(x), atol=1e-5)
    grad = torch.randn(30, channels)
    dense(x).backward(grad), sparse(x).backward(grad)
    assert torch.allclose(sparse.weight.grad.t(), dense.weight.grad, atol=1e-4)


def test_sparse_input_drops_the_right_share_and_differentiates_what_it_dropped():
    x = sparse_features(200, 64)
    features, seed = Sparse.of(x), torch.tensor([7])
    weight = torch.eye(64).unsqueeze(0).requires_grad_()
    dropped = _Product.apply(weight, seed, features, 0.6)[0]
    kept = dropped != 0
    assert torch.allclose(dropped[kept], x[kept] / 0.4)
    assert kept[x != 0].float().mean().item() == pytest.approx(0.4, abs=0.04)
    grad = torch.randn(200, 64)
    dropped.backward(grad)
    assert torch.allclose(weight.grad[0], dropped.detach().t() @ grad, atol=1e-4)


def test_dense_features_and_other_models_keep_their_first_layer():
    (spec,) = cell("glt-laplacian-fixed", runs=1)
    x = torch.rand(30, 40)
    assert isinstance(use_sparse_input(make_model(spec, 40, 3, 30), x).embed, torch.nn.Linear)
    (spec,) = cell("mlp", runs=1)
    assert isinstance(use_sparse_input(make_model(spec, 40, 3, 30), sparse_features()).first, torch.nn.Linear)
