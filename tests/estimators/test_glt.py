import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, make_regression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils.estimator_checks import estimator_checks_generator

import walksum as ws
from walksum.estimators.inputs import knn_graph

X, Y = load_digits(return_X_y=True)
X = X / 16

STILL_A_NODE = {
    "check_sample_weight_equivalence_on_dense_data": "a row of weight 0 is still a node that its neighbours see, and a "
    "repeated row would be one more"
}
EXEMPT = {
    ws.GLTClassifier: {
        "check_classifiers_classes": "trains on the classes -1 and 1; -1 marks a row without a label, as in "
        "sklearn.semi_supervised",
        **STILL_A_NODE,
    },
    ws.GLTRegressor: STILL_A_NODE,
}
QUICK = {"max_epochs": 40, "hidden_channels": 16, "lr": 0.02, "dropout": 0.2, "random_state": 0}
CHECKS = [
    (kind, check)
    for kind in EXEMPT
    for _, check in estimator_checks_generator(kind(**QUICK), expected_failed_checks=EXEMPT[kind], mark="skip")
]


def _name(check):
    return getattr(check, "func", check).__name__


@pytest.mark.parametrize(("kind", "check"), CHECKS, ids=lambda value: getattr(value, "__name__", None) or _name(value))
@pytest.mark.filterwarnings("ignore")
def test_sklearn_check(kind, check):
    check(kind(**QUICK))


def test_the_exemptions_are_needed():
    """An exemption that no longer fails must go."""
    from sklearn.utils import estimator_checks

    for kind, exempt in EXEMPT.items():
        for name in exempt:
            with pytest.raises((ValueError, AssertionError), match=r"only one class|not equivalent"):
                getattr(estimator_checks, name)(kind.__name__, kind(**QUICK))


def draw(seed, labels=10):
    """Digits with so many labels a class, the others hidden."""
    random = np.random.default_rng(seed)
    y = np.full(len(Y), -1)
    for digit in range(10):
        y[random.choice(np.nonzero(digit == Y)[0], labels, replace=False)] = digit
    return y


@pytest.mark.slow
def test_glt_beats_label_spreading_over_20_draws():
    graph, gains = knn_graph(X, 8), []
    for seed in range(20):
        y = draw(seed)
        hidden = y == -1
        glt = ws.GLTClassifier(random_state=seed, max_epochs=80).fit(X, y, graph=graph)
        spread = LabelSpreading(kernel="knn", n_neighbors=8).fit(X, y)
        right = [(model.transduction_ == Y)[hidden].mean() for model in (glt, spread)]
        gains.append(right[0] - right[1])
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / np.sqrt(len(gains))


@pytest.fixture(scope="module")
def fitted():
    return ws.GLTClassifier(random_state=0, max_epochs=60).fit(X[:1500], draw(0)[:1500])


def test_new_rows_are_joined_to_the_graph(fitted):
    assert fitted.score(X[1500:], Y[1500:]) > 0.85
    assert np.array_equal(fitted.predict(X[:1500]), fitted.transduction_)
    assert np.array_equal(fitted.predict(X[700:720]), fitted.transduction_[700:720])
    assert fitted.predict_proba(X[1490:1510]).sum(1) == pytest.approx(np.ones(20))


def test_a_pickle_and_a_clone_do_as_the_original(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X[1490:1510]), fitted.predict_proba(X[1490:1510]))
    twin = clone(fitted).fit(X[:1500], draw(0)[:1500])
    assert np.array_equal(twin.transduction_, fitted.transduction_)


def test_score_leaves_unlabelled_rows_out(fitted):
    y = np.where(np.arange(300) % 2, Y[:300], -1)
    assert fitted.score(X[:300], y) == fitted.score(X[1:300:2], Y[1:300:2])


def test_every_form_of_graph_gives_the_same(fitted):
    rows, y = X[:300], np.where(np.arange(300) < 100, Y[:300], -1)
    graph = knn_graph(rows, 8)
    i, j = graph.edges.numpy()
    matrix = sp.coo_matrix((np.ones(len(i)), (i, j)), shape=(300, 300))
    expected = ws.GLTClassifier(**QUICK).fit(rows, y).output_
    for form in (graph, graph.edges, graph.edges.numpy(), graph.edges.numpy().T, matrix, matrix.toarray()):
        assert np.array_equal(ws.GLTClassifier(**QUICK).fit(rows, y, graph=form).output_, expected)
    with pytest.raises(ValueError, match="graph has 300 nodes but X has 299 rows"):
        ws.GLTClassifier(**QUICK).fit(rows[:299], y[:299], graph=graph)
    with pytest.raises(ValueError, match="expected an adjacency matrix"):
        ws.GLTClassifier(**QUICK).fit(rows, y, graph=np.zeros((4, 7)))


def test_nan_marks_unlabelled_too():
    rows, y = X[:200], np.where(np.arange(200) < 100, Y[:200], -1)
    expected = ws.GLTClassifier(**QUICK).fit(rows, y).output_
    assert np.array_equal(ws.GLTClassifier(**QUICK).fit(rows, np.where(y == -1, np.nan, y)).output_, expected)


def test_pipeline_and_grid_search_with_a_transductive_splitter():
    rows, y = X[:400], np.where(np.arange(400) < 200, Y[:400], -1)
    pipeline = make_pipeline(StandardScaler(), ws.GLTClassifier(**QUICK))
    folds = ws.TransductiveKFold(3)
    for train, test in folds.split(rows, y):
        assert set(np.nonzero(y == -1)[0]) <= set(train)
        assert (y[test] != -1).all()
        assert not set(train) & set(test)
    search = GridSearchCV(pipeline, {"gltclassifier__max_epochs": [1, 40]}, cv=folds).fit(rows, y)
    assert search.best_params_ == {"gltclassifier__max_epochs": 40}
    assert (search.best_estimator_[-1].transduction_ == Y[:400])[200:].mean() > 0.7
    graph = knn_graph(rows, 8)
    assert pipeline.fit(rows, y, gltclassifier__graph=graph)[-1].graph_ is graph


def test_weights_of_classes_and_rows_count_in_the_loss():
    draw = np.random.default_rng(0)
    y = (np.arange(200) % 10 == 0).astype(int)
    table = draw.normal(size=(200, 2)) + 0.8 * y[:, None]
    settings = {"n_neighbors": 3, "max_epochs": 60, "lr": 0.02, "dropout": 0.0, "random_state": 0}
    plain = ws.GLTClassifier(**settings).fit(table, y)
    balanced = ws.GLTClassifier(**settings, class_weight="balanced").fit(table, y)
    assert balanced.label_distributions_[:, 1].mean() > plain.label_distributions_[:, 1].mean() + 0.1
    by_row = ws.GLTClassifier(**settings).fit(table, y, sample_weight=np.where(y == 1, 5.0, 5 / 9))
    assert np.allclose(by_row.label_distributions_, balanced.label_distributions_, atol=1e-5)
    for weight in (np.ones(3), np.zeros(200), np.full(200, np.nan)):
        with pytest.raises(ValueError, match="sample_weight of shape"):
            ws.GLTRegressor(**settings).fit(table, y, sample_weight=weight)


def test_a_regressor_fills_in_what_is_nan():
    rows, y = make_regression(200, 5, noise=1.0, random_state=0)
    known = np.where(np.arange(200) < 150, y, np.nan)
    model = ws.GLTRegressor(max_epochs=300, lr=0.01, dropout=0.1, validation_fraction=0.2, random_state=0)
    model.fit(rows, known)
    assert model.score(rows[150:], y[150:]) > 0.3
    assert model.transduction_.shape == (200,)
    assert not np.isnan(model.transduction_).any()
    with pytest.raises(ValueError, match="y is NaN in every row"):
        model.fit(rows, np.full(200, np.nan))


@pytest.mark.parametrize(
    ("settings", "labels", "message"),
    [
        ({"validation_fraction": 1.0}, (0, 1), r"validation_fraction=1.0; expected a share in \[0, 1\)"),
        ({"validation_fraction": -0.5}, (0, 1), r"validation_fraction=-0.5"),
        ({"max_epochs": 0}, (0, 1), r"max_epochs=0"),
        ({"device": "abacus"}, (0, 1), r"device='abacus' cannot be used here; use 'cpu' or 'auto'"),
        ({}, (-1, 1), r"only one class is present: \[1\]; -1, NaN and None mark rows without a label"),
    ],
)
def test_bad_settings_say_what_to_do(settings, labels, message):
    with pytest.raises(ValueError, match=message):
        ws.GLTClassifier(**settings).fit(np.eye(6), np.repeat(labels, 3))


def test_settings_may_come_from_arrays():
    model = ws.GLTClassifier(learned=True, max_epochs=1, n_neighbors=2)
    model.set_params(heads=np.int64(2), hidden_channels=np.int64(8)).fit(np.eye(6), np.repeat((0, 1), 3))
    assert model.transduction_.shape == (6,)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [ws.GLTClassifier, ws.GLTRegressor])
def test_a_gpu_fits_a_model_that_predicts_on_the_cpu(kind):
    y = Y[:300].astype(float if kind is ws.GLTRegressor else int)
    model, twin = (kind(**QUICK | {"dropout": 0.0}, device=device).fit(X[:300], y) for device in ("cuda", "cpu"))
    assert model.score(X[:300], y) == pytest.approx(twin.score(X[:300], y), abs=0.05)
    assert model.predict(X[300:310]).shape == (10,)
