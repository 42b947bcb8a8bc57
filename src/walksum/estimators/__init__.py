"""scikit-learn estimators on graphs."""

from walksum.estimators.auto import AutoClassifier, AutoRegressor
from walksum.estimators.features import GraphFeatures
from walksum.estimators.field import FieldClassifier, FieldRegressor
from walksum.estimators.folds import TransductiveKFold
from walksum.estimators.glt import GLTClassifier, GLTRegressor

__all__ = ["AutoClassifier", "AutoRegressor", "GraphFeatures", "FieldClassifier", "FieldRegressor"]
__all__ += ["GLTClassifier", "GLTRegressor", "TransductiveKFold"]
