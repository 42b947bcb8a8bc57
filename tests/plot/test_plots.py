"""Every picture in both themes, on graphs with and without trouble."""

import dataclasses
import functools
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch
from looks import check_drawn, pixels, texts

import walksum as ws
from gallery import GALLERY, cycle, grid, islands, path, problem, random_graph
from walksum.analysis.convergence import Curve, residual_curves
from walksum.analysis.correlation import ordered
from walksum.analysis.hops import Hops
from walksum.analysis.spectrum import response

BOTH = pytest.mark.parametrize("theme", ["light", "dark"])
J, h = problem(grid(4, 5), "learned diagonally dominant", heads=2)
FIXED = problem(grid(4, 5), "fixed laplacian", heads=1)[0]


def epochs(count, **steps):
    return [
        SimpleNamespace(number=k, train_loss=1 / k, val_loss=1.1 / k, val_score=1 - 1 / (k + 1), **steps)
        for k in range(1, count + 1)
    ]


def shares(*rows):
    return Hops(torch.tensor(rows, dtype=torch.double), torch.arange(len(rows)))


@functools.cache
def curves(whole):
    """Of every solver, forward and perhaps backward: the slowest to compute of what is drawn here."""
    return residual_curves(J, h, h) if whole else residual_curves(FIXED, h[:1])


PICTURES = {
    "graphical model": lambda theme: ws.plot.graphical_model(J, theme=theme),
    "part of one": lambda theme: ws.plot.graphical_model(J, 3, most=9, shade="precision", theme=theme),
    "two beside their graph": lambda theme: ws.plot.graphical_model(
        {"a": J, "b": FIXED}, beside_graph=True, theme=theme
    ),
    "correlation": lambda theme: ws.plot.correlations(J, theme=theme),
    "correlations": lambda theme: ws.plot.correlations({"a": J, "b": ordered(FIXED)}, scale="linear", theme=theme),
    "heads": lambda theme: ws.plot.heads(J, theme=theme),
    "response": lambda theme: ws.plot.responses(FIXED, theme=theme),
    "responses": lambda theme: ws.plot.responses({"a": J, "b": response(FIXED)}, {"a": FIXED}, theme=theme),
    "hops": lambda theme: ws.plot.hops(shares([0.5, 0.3, 0.2, 0.0]), theme=theme),
    "hops of two": lambda theme: ws.plot.hops({"a": shares([0.5, 0.5, 0]), "b": shares([0.2, 0.3, 0.5])}, theme=theme),
    "residuals": lambda theme: ws.plot.residuals(curves(True), theme=theme),
    "residuals of two": lambda theme: ws.plot.residuals(dict.fromkeys("ab", curves(False)), theme=theme),
    "steps": lambda theme: ws.plot.steps({"a": epochs(9, forward_steps=30, backward_steps=20)}, theme=theme),
    "many steps": lambda theme: ws.plot.steps({"a": epochs(3, forward_steps=999, backward_steps=2)}, theme=theme),
    "learning": lambda theme: ws.plot.learning(epochs(12), theme=theme),
    "walk sums": lambda theme: ws.plot.walk_sums(J, 7, theme=theme),
}


@BOTH
@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_shows_something_and_changes_no_setting(name, theme):
    before = dict(matplotlib.rcParams)
    check_drawn(PICTURES[name](theme), theme)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["one node", "no edges", "islands", "weighted", "star"])
@pytest.mark.parametrize("draw", [ws.plot.graphical_model, ws.plot.correlations, ws.plot.responses, ws.plot.walk_sums])
def test_small_and_broken_graphs_are_drawn(name, draw):
    check_drawn(draw(problem(GALLERY[name], "learned laplacian", heads=2)[0]), "light")


def test_ticks_follow_the_theme_when_the_figure_is_drawn_later():
    image = pixels(ws.plot.learning(epochs(5), theme="dark"))
    left = image[:, :12]  # tick labels of the left axis: light on dark
    assert left.max() > 180


def test_positive_is_red_and_negative_is_blue():
    pull, push = (ws.FixedLaplacian(coupling=sign)(path(2)) for sign in ("attractive", "repulsive"))
    colours = []
    for J in (pull, push):
        figure = ws.plot.correlations(J)
        image = figure.axes[0].images[0]
        colours.append(image.cmap(image.norm(float(ordered(J).matrix[0, 1]))))
    (red, _, blue, _), (red2, _, blue2, _) = colours
    assert red > blue
    assert blue2 > red2


def test_the_colour_of_a_correlation_goes_by_its_root():
    image = ws.plot.correlations(FIXED).axes[0].images[0]
    assert float(image.norm(0.0)) == pytest.approx(0.5)
    assert float(image.norm(0.25)) == pytest.approx(0.75)
    assert float(image.norm(-1.0)) == pytest.approx(0.0)


def test_large_matrices_of_tiny_correlations_are_not_blank():
    from walksum.plot.correlation import fitting_limit

    assert fitting_limit(torch.full((401, 401), 2e-3)) == pytest.approx(0.01)
    assert fitting_limit(torch.full((401, 401), 0.5)) == 1
    assert fitting_limit(torch.full((30, 30), 2e-3)) == 1
    whole = ordered(problem(grid(21, 21), "fixed diagonally dominant", heads=1)[0])
    figure = ws.plot.correlations(dataclasses.replace(whole, matrix=0.01 * whole.matrix))
    assert len(figure.axes) == 4  # a bar for each: their colours end at different values
    check_drawn(figure, "light")


def test_edges_are_as_wide_as_their_couplings_and_coloured_by_sign():
    graph = path(3)
    J = ws.Precision(graph, torch.ones(1, 3), torch.tensor([[-0.4, 0.1]]))
    (lines,) = [c for c in ws.plot.graphical_model(J).axes[0].collections if hasattr(c, "get_segments")]
    wide, thin = lines.get_linewidths()
    assert wide == pytest.approx(0.3 + 3.2)
    assert thin == pytest.approx(0.3 + 3.2 / 4)
    (red, _, blue, _), (red2, _, blue2, _) = lines.get_colors()
    assert red > blue
    assert blue2 > red2


def test_names_of_nodes_are_no_formulas():
    figure = ws.plot.graphical_model(ws.FixedLaplacian()(path(3)), labels=["$5{$", "$x_1$", "plain"])
    check_drawn(figure, "light")


def test_what_is_left_out_is_said():
    assert "9 of 20 nodes, near node 3" in texts(ws.plot.graphical_model(J, 3, most=9))
    assert "(5 of 20 nodes, evenly spaced)" in texts(ws.plot.correlations(_sampled()))


def _sampled():
    whole = ordered(FIXED)
    return dataclasses.replace(
        whole, matrix=whole.matrix[:5, :5], coupling=whole.coupling[:5, :5], nodes=whole.nodes[:5]
    )


def test_responses_are_named_by_what_they_let_pass():
    assert "low-pass" in texts(ws.plot.responses({"mine": FIXED}))
    assert "high-pass" in texts(ws.plot.responses(ws.FixedLaplacian(coupling="repulsive")(cycle(8))))


def test_hops_end_where_the_influence_does():
    from walksum.plot.hops import hop_names

    assert hop_names(np.array([[0.5, 0.5, 0, 0]])) == ["0", "1"]
    assert hop_names(np.array([[0.5, 0.2, 0.1, 0.2]])) == ["0", "1", "2", "3+"]
    assert hop_names(np.array([[1.0, 0, 0]])) == ["0", "1"]


def test_a_residual_of_nothing_is_drawn():
    curve = Curve("x", "forward", [1, 2], [1e-3, 0.0], ws.Status.converged)
    check_drawn(ws.plot.residuals([curve]), "light")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ws.plot.correlations(J, theme="blue"), r"theme='blue'; known: 'light', 'dark'"),
        (lambda: ws.plot.correlations(J, scale="log"), r"scale='log'; known: 'root', 'linear'"),
        (lambda: ws.plot.correlations(J, limit=0), r"limit=0; expected the positive value"),
        (lambda: ws.plot.graphical_model(J, shade="x"), r"shade='x'; known"),
        (lambda: ws.plot.graphical_model(J, node=99, most=5), r"node=99; expected a node"),
        (lambda: ws.plot.graphical_model(ws.Precision(J.graph, J.diag, J.off * torch.nan)), r"holds NaN or infinity"),
        (lambda: ws.plot.walk_sums(J, 20), r"node=20; expected a node"),
        (lambda: ws.plot.walk_sums(problem(random_graph(151, 300), "fixed laplacian", 1)[0]), r"more than 150 nodes"),
        (lambda: ws.plot.steps({"a": epochs(3)}), r"trainings\['a'\] holds no solver steps"),
        (lambda: ws.plot.save(ws.plot.learning(epochs(3)), "a.gif"), r"path='a.gif' ends in '.gif'"),
    ],
)
def test_wrong_use_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("kind", ws.plot.FORMATS)
def test_saved_whole_and_the_same_every_time(kind, tmp_path):
    first, second = (ws.plot.save(ws.plot.learning(epochs(4)), tmp_path / name / f"a.{kind}") for name in "xy")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size > 1000
    assert [file.name for file in first.parent.iterdir()] == [f"a.{kind}"]


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    figure = ws.plot.learning(epochs(3))
    (tmp_path / "a.png").write_text("before")
    monkeypatch.setattr(figure, "savefig", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ws.plot.save(figure, tmp_path / "a.png")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
    assert (tmp_path / "a.png").read_text() == "before"


def test_pieces_stand_apart():
    from walksum.plot.layout import positions

    spots = positions(islands())
    assert spots.shape == (7, 2)
    assert np.abs(spots).max() == pytest.approx(1)
    assert len({tuple(np.round(spot, 6)) for spot in spots}) == 7
    np.testing.assert_array_equal(spots, positions(islands()))


def test_the_layout_of_many_equal_pieces_is_the_same_in_every_call():
    from walksum.plot.layout import spectral_start

    first = np.arange(0, 1500, 3)
    paths = np.concatenate([[first, first + 1], [first + 1, first + 2]], 1)
    graphs = [ws.Graph.from_edge_index(torch.from_numpy(paths), 1500) for _ in range(2)]
    np.testing.assert_array_equal(*map(spectral_start, graphs))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_layer_and_how_J_is_made_are_drawn(theme):
    check_drawn(ws.plot.layer(theme=theme), theme)
    figure = ws.plot.how_J_is_made(path(4), theme=theme)
    check_drawn(figure, theme)
    _, J, inverse = (axes.images[0].get_array() if axes.images else None for axes in figure.axes)
    exact = ws.FixedLaplacian()(path(4)).to_dense()[0].double()
    np.testing.assert_allclose(J, exact, atol=1e-6)
    np.testing.assert_allclose(inverse, torch.linalg.inv(exact), rtol=1e-4)  # a design of float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((path(13),), "expected 1 to 12 nodes"),
        ((path(3), "pairwise-normal"), "features=None"),
        ((path(3), "other"), "design='other'"),
    ],
)
def test_what_cannot_be_drawn_as_a_matrix_of_numbers_says_so(arguments, words):
    with pytest.raises(ValueError, match=words):
        ws.plot.how_J_is_made(*arguments)


def test_the_node_in_the_middle_is_named_by_its_label():
    long = [f"the county of a very long name {k}" for k in range(20)]
    for labels, name in ((None, "node 7;"), ([f"c{k}" for k in range(20)], "node c7;"), (long, "node the co… name 7;")):
        title = ws.plot.graphical_model(J, 7, most=9, labels=labels).legends[0].get_title().get_text()
        assert name in title


def test_the_validation_score_is_named():
    from walksum.plot.overview import overview

    y, scores = torch.tensor([0, 1]), {"a": 0.5}
    for score, title in ((None, "validation accuracy"), ("mean absolute error", "validation mean absolute error")):
        figure = overview(epochs(3), 1, scores, y, y, ["no", "yes"], score=score)
        assert figure.axes[0].get_title(loc="left") + figure.axes[0].get_title() == title
    assert figure.axes[0].get_ylim()[1] < 1  # not the range of an accuracy


def test_numbers_left_of_short_bars_stay_beside_the_names():
    from walksum.plot.overview import overview

    y = torch.linspace(0, 1, 5)
    for low in (-0.01, -0.29, -5.0):
        figure = overview(epochs(3), 1, {"a": 0.4, "gradient boosting": low}, y, y)
        figure.canvas.draw()
        axes = figure.axes[1]
        assert min(text.get_window_extent().x0 for text in axes.texts) > axes.get_window_extent().x0
