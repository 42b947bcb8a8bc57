"""scikit-learn estimators on graphs."""

from walksum.estimators.folds import TransductiveKFold
from walksum.estimators.glt import GLTClassifier, GLTRegressor

__all__ = ["GLTClassifier", "GLTRegressor", "TransductiveKFold"]
