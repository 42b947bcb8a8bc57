"""A portfolio of small models on a graph, blended by validation."""

from walksum.estimators.auto.classifier import AutoClassifier
from walksum.estimators.auto.regressor import AutoRegressor

__all__ = ["AutoClassifier", "AutoRegressor"]
