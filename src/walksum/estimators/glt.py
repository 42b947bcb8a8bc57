"""GLTClassifier and GLTRegressor: scikit-learn estimators in the transductive style of sklearn.semi_supervised."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from walksum._checks import check_unmasked
from walksum._torch import cpu_by_default
from walksum.data.splits import Split
from walksum.estimators.inputs import (
    GraphLike,
    RandomState,
    TableLike,
    as_features,
    as_graph_of,
    knn_graph,
    warn_of_order,
)
from walksum.estimators.labels import (
    NodeClassifier,
    NodeRegressor,
    class_labels,
    columns_of_words_named,
    mean_of_same,
    number_targets,
    same_rows,
)
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.portfolio.blend import softmax
from walksum.solvers import Solver
from walksum.training import Data, Recipe, fit


class _GLTEstimator(BaseEstimator):
    """What both estimators share: the graph, the training, and rows they have not seen."""

    task = "classification"

    def __init__(
        self,
        design: str = "diagonally-dominant",
        learned: bool = False,
        coupling: str | None = None,
        n_neighbors: int = 8,
        hidden_channels: int = 64,
        num_layers: int = 2,
        heads: int | Sequence[int] = 1,
        dropout: float = 0.6,
        lr: float = 3e-3,
        weight_decay: float = 5e-4,
        max_epochs: int = 200,
        validation_fraction: float = 0.0,
        patience: int = 50,
        solver: Solver | str = "auto",
        random_state: RandomState = None,
        device: str = "auto",
    ):
        self.design = design
        self.learned = learned
        self.coupling = coupling
        self.n_neighbors = n_neighbors
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.heads = heads
        self.dropout = dropout
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.solver = solver
        self.random_state = random_state
        self.device = device

    @cpu_by_default
    def _fit(self, X: np.ndarray, y: Tensor, outputs: int, graph: GraphLike | None, weight: np.ndarray | None) -> None:
        """Train on the rows whose ``y`` is known, each by its weight; keep X, the graph and the model."""
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction={self.validation_fraction!r}; expected a share in [0, 1)")
        self.X_ = X
        self._own_graph = graph is not None
        self.graph_ = knn_graph(X, self.n_neighbors) if graph is None else as_graph_of(graph, len(X))
        random = check_random_state(self.random_state)
        gpus = [torch.cuda.current_device()] if self.device != "cpu" and torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=gpus):  # the caller's random numbers are not ours to spend
            torch.manual_seed(int(random.randint(2**31 - 1)))
            self.model_ = GLT(
                X.shape[1],
                self.hidden_channels,
                self.num_layers,
                outputs,
                heads=self.heads,
                design=self.design,
                learned=self.learned,
                coupling=self.coupling,
                dropout=self.dropout,
                solver=self.solver,
            )
            recipe = Recipe(self.lr, self.weight_decay, self.patience, self.max_epochs)
            given = None if weight is None else torch.from_numpy(weight).float()
            data = Data(as_features(X), self.graph_, y, self._split(y, random), self.task, weight=given)
            outcome = fit(self.model_, data, recipe, device=self.device)
        self.n_iter_ = len(outcome.history)
        self.output_ = self._forward(X, self.graph_)
        if not np.isfinite(self.output_).all():
            raise ValueError(
                f"the network's outputs are not finite: X holds a value of size {np.abs(X).max():g}, lr={self.lr}; "
                "standardise the columns, for example by StandardScaler in a Pipeline, or lower lr"
            )

    def _split(self, y: Tensor, random: np.random.RandomState) -> Split:
        known = (~y.isnan() if y.is_floating_point() else y >= 0).nonzero().view(-1)
        order = known[torch.from_numpy(random.permutation(len(known)))]
        held = int(self.validation_fraction * len(known))
        nothing = known[:0]
        return Split(order[held:].sort().values, order[:held].sort().values, nothing)

    @torch.no_grad()
    @cpu_by_default
    def _forward(self, X: np.ndarray, graph: Graph) -> np.ndarray:
        return self.model_(as_features(X), graph).double().numpy()

    def _outputs(self, X: TableLike, graph: GraphLike | None) -> np.ndarray:
        """The model's outputs for rows of X: looked up for rows of fit, else computed on the graph joined to them."""
        check_is_fitted(self)
        with columns_of_words_named(X):
            asked = validate_data(self, X, reset=False, dtype=np.float64)
        if graph is not None:
            return self._forward(asked, as_graph_of(graph, len(asked)))
        same = same_rows(self.X_, asked)
        found, new = mean_of_same(same, self.output_, self._own_graph), np.diff(same.indptr) == 0
        if new.any():
            found[new] = self._of_new(asked[new])
        return found

    @cpu_by_default
    def _of_new(self, X: np.ndarray) -> np.ndarray:
        """Every new row is joined to its nearest rows of fit; then one forward pass over all."""
        known = len(self.X_)
        neighbours = min(self.n_neighbors, known)
        near = NearestNeighbors(n_neighbors=neighbours).fit(self.X_).kneighbors(X, return_distance=False)
        ends = torch.stack(
            [torch.from_numpy(near.reshape(-1)), known + torch.arange(len(X)).repeat_interleave(neighbours)]
        )
        edges = torch.cat([self.graph_.edges, ends], 1)
        weight = self.graph_.edge_weight
        if weight is not None:
            weight = torch.cat([weight, weight.mean().expand(ends.size(1))])
        joined = Graph.from_edge_index(edges, known + len(X), weight)
        return self._forward(np.concatenate([self.X_, X]), joined)[known:]


class GLTClassifier(NodeClassifier, _GLTEstimator):
    """Node classification by a :class:`walksum.GLT`, as a scikit-learn estimator.

    Transductive: ``fit`` sees all rows and the labels of some; ``transduction_`` holds a label for each.
    ``predict`` looks rows of ``fit`` up and joins new ones to their nearest rows of ``fit``.

    Args:
        design, learned, coupling, solver: as in :class:`walksum.GLTConv`.
        n_neighbors: of the nearest-neighbour graph made from X when ``fit`` gets no graph, and of new rows.
        hidden_channels, num_layers, heads, dropout: of the model.
        lr, weight_decay, max_epochs: of the training.
        validation_fraction: share of the labelled rows that chooses the best epoch, with ``patience``; 0: train for
            ``max_epochs`` on all of them.
        random_state: seed of the weights, the dropout and the validation rows.
        device: where to train: "auto" (a GPU where it is quicker), "cpu" or "cuda". The fitted model is on the CPU.
        class_weight: how much a row of each class counts in the loss: None, "balanced" (one over the share of its
            class) or a dictionary.

    Example:
        >>> import numpy as np, walksum as ws
        >>> X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 10, axis=0) + np.random.default_rng(0).normal(size=(20, 2))
        >>> y = np.full(20, -1)
        >>> y[[0, 10]] = 0, 1
        >>> ws.GLTClassifier(n_neighbors=3, random_state=0).fit(X, y).transduction_.tolist() == [0] * 10 + [1] * 10
        True
    """

    def __init__(
        self,
        design: str = "diagonally-dominant",
        learned: bool = False,
        coupling: str | None = None,
        n_neighbors: int = 8,
        hidden_channels: int = 64,
        num_layers: int = 2,
        heads: int | Sequence[int] = 1,
        dropout: float = 0.6,
        lr: float = 3e-3,
        weight_decay: float = 5e-4,
        max_epochs: int = 200,
        validation_fraction: float = 0.0,
        patience: int = 50,
        solver: Solver | str = "auto",
        random_state: RandomState = None,
        device: str = "auto",
        class_weight: Mapping[Hashable, float] | str | None = None,
    ):
        super().__init__(
            design, learned, coupling, n_neighbors, hidden_channels, num_layers, heads, dropout, lr, weight_decay,
            max_epochs, validation_fraction, patience, solver, random_state, device,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(
        self, X: TableLike, y: ArrayLike, graph: GraphLike | None = None, sample_weight: ArrayLike | None = None
    ) -> GLTClassifier:
        """Learn from the rows whose label is not -1 (or NaN).

        Args:
            X: features ``[N, F]``.
            y: labels ``[N]``, numbers or texts; -1, NaN or None marks a row without one.
            graph: an adjacency matrix ``[N, N]`` (dense or sparse), an edge list ``[2, M]``, a :class:`walksum.Graph`
                or one of networkx; without one, the ``n_neighbors`` nearest rows of X are joined.
            sample_weight: how much each row counts in the loss ``[N]``; a factor of the class weights.
        """
        warn_of_order(graph, X)
        with columns_of_words_named(X):
            rows = validate_data(self, X, dtype=np.float64)
        labels, known = class_labels(y, len(rows))
        self.classes_, codes = np.unique(labels[known], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Classifier can't train when only one class is present: {self.classes_.tolist()}"
                + ("" if known.all() else "; -1, NaN and None mark rows without a label")
            )
        target = np.full(len(rows), -1, dtype=np.int64)
        target[known] = codes
        weight = row_weights(sample_weight, len(rows))
        if self.class_weight is not None:
            weight = np.ones(len(rows)) if weight is None else weight.copy()
            weight[known] *= compute_sample_weight(self.class_weight, labels[known])
        self._fit(rows, torch.from_numpy(target), len(self.classes_), graph, weight)
        self.label_distributions_ = softmax(self.output_)
        self.transduction_ = self.classes_[self.output_.argmax(1)]
        return self

    def predict(self, X: TableLike, graph: GraphLike | None = None) -> np.ndarray:
        """The class of each row; ``graph``: a graph of these rows, instead of the one they are joined to."""
        outputs = self._outputs(X, graph)
        return self.classes_[outputs.argmax(1)]

    def predict_proba(self, X: TableLike, graph: GraphLike | None = None) -> np.ndarray:
        """The probability of each class, ``[N, classes]``."""
        return softmax(self._outputs(X, graph))


class GLTRegressor(NodeRegressor, _GLTEstimator):
    """Node regression by a :class:`walksum.GLT`, as a scikit-learn estimator; arguments as :class:`GLTClassifier`.

    ``y`` is NaN for rows without a value; ``transduction_`` holds a value for each row.

    Example:
        >>> import numpy as np, walksum as ws
        >>> n = np.arange(60)
        >>> y = np.where(n % 3 == 0, np.nan, np.sin(n / 9))
        >>> path = np.stack([n[:-1], n[1:]])
        >>> model = ws.GLTRegressor(max_epochs=5, random_state=0).fit(n[:, None] / 60, y, graph=path)
        >>> model.transduction_.shape
        (60,)
    """

    task = "regression"

    def fit(
        self, X: TableLike, y: ArrayLike, graph: GraphLike | None = None, sample_weight: ArrayLike | None = None
    ) -> GLTRegressor:
        """Learn from the rows whose y is not NaN; ``graph``, ``sample_weight`` as in :meth:`GLTClassifier.fit`."""
        warn_of_order(graph, X)
        with columns_of_words_named(X):
            rows = validate_data(self, X, dtype=np.float64)
        targets = number_targets(y, len(rows))
        known = ~np.isnan(targets)
        if not known.any():
            raise ValueError("y is NaN in every row; at least one row needs a value")
        self.mean_ = float(targets[known].mean())
        self.scale_ = float(targets[known].std()) or 1.0
        weight = row_weights(sample_weight, len(rows))
        self._fit(rows, torch.from_numpy((targets - self.mean_) / self.scale_).float(), 1, graph, weight)
        self.transduction_ = self._numbers(self.output_)
        return self

    def predict(self, X: TableLike, graph: GraphLike | None = None) -> np.ndarray:
        """The value of each row; ``graph`` as in :meth:`GLTClassifier.predict`."""
        return self._numbers(self._outputs(X, graph))

    def _numbers(self, outputs: np.ndarray) -> np.ndarray:
        return outputs[:, 0] * self.scale_ + self.mean_


def row_weights(sample_weight: ArrayLike | None, num_rows: int) -> np.ndarray | None:
    """One weight of at least 0 per row, or None."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, str):
        raise ValueError(f"sample_weight={sample_weight!r}; expected one number of at least zero per row")
    check_unmasked("sample_weight", sample_weight)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (num_rows,) or not np.isfinite(weight).all() or weight.min() < 0 or not weight.any():
        raise ValueError(
            f"sample_weight of shape {weight.shape} for {num_rows} rows; expected one finite number of at least zero "
            "per row, not all of them zero"
        )
    return weight
