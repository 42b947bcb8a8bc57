import math

import pytest
import torch

import walksum as ws
from gallery import path
from walksum.cli.train import Designs
from walksum.designs import DESIGNS, NAMES, check_design, make_design, scale_for_reach

VARIANTS = [(name, learned) for name in NAMES for learned in (False, True)]


@pytest.mark.parametrize(("name", "learned"), VARIANTS)
def test_a_design_is_made_with_its_settings(name, learned):
    values = {"scale": 0.5, "epsilon": 0.5, "similarity": "gaussian", "margin": 0.25}
    known = DESIGNS[name].settings(learned)
    given = {key: value for key, value in values.items() if key in known}
    design = make_design(name, learned, 6, 4, 2, "repulsive", **given)
    assert type(design) is DESIGNS[name].variant(learned)
    assert design.coupling == "repulsive"
    again = type(design)(**design.arguments())
    assert again.arguments() == design.arguments()
    for key, value in given.items():
        assert design.arguments()[key] == (design.similarity if key == "similarity" else value)
    assert make_design(name, learned, 6, 4, 2).coupling == DESIGNS[name].default_coupling(learned)


@pytest.mark.parametrize("reach", [0.5, 1, 3, 10])
def test_influence_falls_to_one_over_e_at_the_reach(reach):
    count = 401
    J = ws.FixedLaplacian(scale_for_reach(reach))(path(count), torch.empty(count, 1, dtype=torch.double))
    column = torch.linalg.inv(J.to_dense()[0])[count // 2]
    steps = 20
    rate = (column[count // 2 + steps] / column[count // 2]).log() / steps
    assert float(rate) == pytest.approx(-1 / reach, rel=1e-9)


def test_settings_reach_the_design_of_every_layer():
    for layer in (ws.GLTConv(4, 3, reach=2, learned=False), ws.GLTBlock(4, 1, reach=2).mix):
        assert layer.design.scale == scale_for_reach(2)
    model = ws.GLT(4, 8, 2, 3, design="pairwise-normal", epsilon=0.5, similarity="dot")
    assert [mixer.design.epsilon for mixer in model.mixers] == [0.5, 0.5]
    assert model.mixers[0].design.similarity == model.mixers[1].design.similarity != ws.FixedPairwiseNormal().similarity


@pytest.mark.parametrize("name", [name for name in DESIGNS if name not in NAMES])
def test_fields_are_layers_by_name_that_learn_and_are_saved(name, tmp_path):
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    model = ws.GLT(5, 8, 1, 3, design=name, heads=2).eval()
    out = model(x, path(9))
    out.square().sum().backward()
    design = model.mixers[0].design
    assert design.heads == 2
    assert all(parameter.grad.abs().max() > 0 for parameter in design.parameters())
    model.save(tmp_path / "model")
    assert torch.equal(ws.load(tmp_path / "model").eval()(x, path(9)), out)


def test_the_help_text_names_every_design():
    assert all(name in Designs for name in NAMES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_design("laplace"), r"design='laplace'; known: 'pairwise-normal', .*, or a Design object"),
        (lambda: check_design("laplacian", True, "none"), r"coupling='none'; known: 'repulsive', 'attractive'"),
        (lambda: check_design("laplacian", False, margin=1), r"margin=1; the fixed design 'laplacian' has only these"),
        (lambda: check_design("diagonally-dominant", False, reach=2), r"reach=2; .* has no settings but the coupling"),
        (lambda: check_design("laplacian", reach=2, scale=0.5), r"reach=2 and scale=0.5; give one"),
        (lambda: check_design("laplacian", reach=0), r"reach=0; expected a positive"),
        (
            lambda: check_design("car", True, "repulsive"),
            r"coupling='repulsive'; the design 'car' has no choice of sign",
        ),
        (lambda: check_design("car", False), r"learned=False; design='car' has only the other variant"),
        (lambda: check_design("sar", scale=0.5), r"scale=0.5; the learned design 'sar' has only these settings: rho"),
        (lambda: scale_for_reach(1e9), r"reach=1000000000.0; .* rounds to 1"),
        (lambda: scale_for_reach(math.inf), r"reach=inf"),
        (lambda: ws.GLTConv(4, 3, scale=1.0), r"scale=1.0; expected a number strictly between 0 and 1"),
        (lambda: ws.GLTConv(4, 3, design="pairwise-normal", scale=0.5), r"scale=0.5; the learned design"),
        (lambda: ws.GLT(4, 8, 2, 3, bias=False), r"bias=False; the learned design 'laplacian' has only these settings"),
        (lambda: ws.GLTConv(4, 3, design=ws.FixedLaplacian(), scale=0.5), r"scale=0.5 was given beside a Design"),
        (lambda: ws.GLTConv(4, 3, 2, design=ws.LearnedLaplacian(4, 3)), r"design has 3 heads for a layer of heads=2"),
    ],
)
def test_bad_input_says_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
