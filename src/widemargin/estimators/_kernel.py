"""Classifiers with a kernel: what they have in common as scikit-learn sees them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from widemargin.engines._select import is_dask, is_mpi
from widemargin.estimators._base import MarginClassifier, common_attributes, linear_scores
from widemargin.estimators._task import Outcome, Rows, Task
from widemargin.kernels.functions import NAMES, Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.solvers._kernel_ranks import KernelModel
from widemargin.solvers._protocol import Separator


class KernelClassifier(MarginClassifier):
    """One model for each class against the rest: sums over support vectors, or coefficients for linear kernels."""

    _parameter_constraints: ClassVar[dict] = {
        **MarginClassifier._parameter_constraints,
        "kernel": [StrOptions(set(NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="neither")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }
    _one_vs_rest: ClassVar[bool] = True

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    cache_size: Any

    @abstractmethod
    def _is_linear(self) -> bool:
        """Whether the model has coefficients of features, and no kernel."""

    def _kernel(self) -> Kernel | None:
        if self._is_linear():
            return None
        if callable(self.kernel):
            return Kernel("callable", function=self.kernel)
        gamma = self.gamma if isinstance(self.gamma, str) else float(self.gamma)
        return Kernel(self.kernel, gamma, int(self.degree), float(self.coef0))

    def _cache_bytes(self) -> int:
        return int(self.cache_size * (1 << 20))

    def size_bytes(self) -> int:
        """Bytes of the arrays that a prediction needs."""
        check_is_fitted(self)
        if hasattr(self, "coef_"):
            return int(self.coef_.nbytes + self.intercept_.nbytes)
        X = self.support_vectors_
        vectors = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
        return int(vectors + self.dual_coef_.nbytes + self.intercept_.nbytes)

    def _plan(self, rows: Rows, *, are_rows_checked: bool) -> Task:
        if is_dask(rows.X) and self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' needs rows that are numbered as the columns are, and those of a Dask collection "
                "are not: give X as an array, or the features and a kernel by name."
            )
        return super()._plan(rows, are_rows_checked=are_rows_checked)

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Coefficients of the last fit: of features, or of rows if those that had one are still the same."""
        if self._is_linear():
            return getattr(self, "coef_", None) if self.warm_start else None
        support, X = getattr(self, "support_", None), rows.X
        if not self.warm_start or support is None or self.kernel == "precomputed" or not hasattr(X, "shape"):
            return None
        if is_dask(X) or X.shape[1] != self.n_features_in_ or support.max(initial=-1) >= X.shape[0]:
            return None
        difference = X[support] - self.support_vectors_
        if (difference.nnz if sp.issparse(difference) else difference.any()) != 0:
            return None
        warm = np.zeros((len(self.dual_coef_), X.shape[0]))
        warm[:, support] = self.dual_coef_
        return warm

    def _unpack(self, outcome: Outcome, rows: Rows) -> None:
        super()._unpack(outcome, rows)
        if not hasattr(self, "support_"):
            return
        if is_dask(rows.X):
            del self.support_  # the rows of a collection have no numbers
        elif not is_mpi(self.cluster):
            self.support_labels_ = np.asarray(rows.y)[self.support_]
            self.support_weight_ = np.asarray(rows.weight)[self.support_]

    def _silent(self, model: Any) -> Any:
        if isinstance(model, Separator):
            return model._replace(coef=np.zeros_like(model.coef), intercept=0.0)
        none = np.empty(0, dtype=np.intp)
        return model._replace(points=model.points[none], coef=np.empty(0), intercept=0.0)

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        attributes = common_attributes(classes, models)
        if isinstance(models[0], Separator):
            return {**attributes, "coef_": np.array([model.coef for model in models])}
        kernel = replace(models[0].kernel, function=self.kernel if callable(self.kernel) else None)
        expansion = _expansion_attributes(models)
        if kernel.name == "linear":
            coef = np.asarray(expansion["dual_coef_"] @ expansion["support_vectors_"])
            expansion["coef_"] = coef
        if kernel.name == "precomputed":
            expansion["support_vectors_"] = np.empty((0, 0))
        return {**attributes, "kernel_": kernel, **expansion}

    def _scores(self, X: Any) -> np.ndarray:
        """One column for each class, or a single one for two classes."""
        if hasattr(self, "coef_"):
            scores = linear_scores(X, self.coef_, self.intercept_)
        else:
            rows = RowsOnCPU(self.kernel_, X)
            n_support = self.dual_coef_.shape[1]
            if n_support == 0:
                return np.tile(self.intercept_, (X.shape[0], 1))[:, 0 if len(self.classes_) == 2 else slice(None)]
            X_points = self.support_vectors_ if self.support_vectors_.shape[0] else np.empty((n_support, 0))
            points = Points(X_points, getattr(self, "support_", np.arange(self.dual_coef_.shape[1])))
            scores = rows.times(points, self.dual_coef_.T, exact=X.dtype == np.float64) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _expansion_attributes(models: list[KernelModel]) -> dict[str, Any]:
    """Support vectors of all classes together, each once, and their coefficients in each of the models."""
    everything = Points.joined([model.points for model in models])
    support, first = np.unique(everything.numbers, return_index=True)
    coef = np.zeros((len(models), len(support)))
    for k, model in enumerate(models):
        coef[k, np.searchsorted(support, model.points.numbers)] = model.coef
    return {
        "support_": support,
        "support_vectors_": everything.X[first],
        "dual_coef_": coef,
        "n_support_": np.array([len(model.coef) for model in models]),
    }
