"""The Gaussian of a precision matrix: log-determinant, variances, samples, conditioning, evidence."""

from __future__ import annotations

from walksum.field.distribution import GaussianField
from walksum.field.estimate import Estimate
from walksum.field.fit import FieldFit, fit_residual_field, maximise
from walksum.field.log_determinant import logdet
from walksum.field.report import EstimateWarning, Report
from walksum.field.sampling import sample
from walksum.field.variances import SelectedInverse, marginals, selected_inverse

__all__ = ["GaussianField", "Estimate", "logdet", "marginals", "selected_inverse", "SelectedInverse", "sample"]
__all__ += ["Report", "EstimateWarning", "fit_residual_field", "FieldFit", "maximise"]
