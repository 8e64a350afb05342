"""Classifiers with a kernel: what they have in common as scikit-learn sees them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Tags, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from widemargin.engines.select import is_dask, is_mpi
from widemargin.estimators._base import FORM, MarginClassifier, common_attributes, linear_scores
from widemargin.kernels import devices
from widemargin.kernels.devices import as_tensor, library_of, like, on_host
from widemargin.kernels.functions import NAMES, Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.solvers.models import KernelModel, Separator
from widemargin.strategies.task import Outcome, Rows, Task, checked_labels

_AUTO = {"auto": "float16"}  # of fits


class KernelClassifier(MarginClassifier):
    """One model for each class against the rest: sums over support vectors, or coefficients for linear kernels."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
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
    # Of parameters that not every estimator has.
    device: Any = "cpu"
    precision: Any = "auto"

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

    def _device(self) -> str:
        """Where the kernel is computed: "cpu", or a device of torch."""
        return devices.resolved(self.device)

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

    def _task(self, rows: Rows, *, are_rows_checked: bool) -> Task:
        if is_dask(rows.X) and self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' needs rows that are numbered as the columns are, and those of a Dask collection "
                "are not: give X as an array, or the features and a kernel by name."
            )
        task = super()._task(rows, are_rows_checked=are_rows_checked)
        if self._device() == "cpu":
            return task
        if self.cluster is not None or is_dask(rows.X):
            raise ValueError(
                f"device={self.device!r} computes on one GPU of this machine: cluster must be None, and X no Dask "
                "collection."
            )
        return replace(task, device=self._device(), precision=_AUTO.get(self.precision, self.precision))

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Rows for a device are not read here: whether they are finite is found out there."""
        if library_of(X) == "host":
            y, sample_weight = on_host(y), on_host(sample_weight)
            if self._device() == "cpu":
                return super()._validate(X, y, sample_weight)
            X, y = validate_data(self, X, y, **FORM, ensure_all_finite=False)
            return checked_labels(Rows(X, y, sample_weight), X.shape[0])
        X = self._checked_tensor(X)
        y = column_or_1d(on_host(y))
        check_consistent_length(y, np.empty(X.shape[0]))
        self.n_features_in_ = X.shape[1]
        return checked_labels(Rows(X, y, on_host(sample_weight)), X.shape[0])

    def _checked_tensor(self, X: Any) -> Any:
        """Rows in an array of torch or CuPy, as a tensor."""
        there = as_tensor(X)
        if self._device() == "cpu":
            raise ValueError(
                f"X is an array of {library_of(X)} on {there.device}, and device={self.device!r} computes on the CPU: "
                "use device='cuda', or give X as a NumPy array."
            )
        if there.ndim != 2 or 0 in there.shape or not there.dtype.is_floating_point:
            raise ValueError(
                f"X has the shape {tuple(there.shape)} and the type {there.dtype}: it must have two dimensions, rows "
                "and features, and be of float32 or float64."
            )
        return there if there.element_size() >= 4 else there.float()

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Coefficients of the last fit: of features, or of rows if those that had one are still the same."""
        if self._is_linear():
            return getattr(self, "coef_", None) if self.warm_start else None
        support, X = getattr(self, "support_", None), rows.X
        if not self.warm_start or support is None or self.kernel == "precomputed" or not hasattr(X, "shape"):
            return None
        if library_of(X) != "host":
            return None if X.shape[1] != self.n_features_in_ else self._warm_there(X)
        if is_dask(X) or X.shape[1] != self.n_features_in_ or support.max(initial=-1) >= X.shape[0]:
            return None
        difference = X[support] - self.support_vectors_
        if (difference.nnz if sp.issparse(difference) else difference.any()) != 0:
            return None
        warm = np.zeros((len(self.dual_coef_), X.shape[0]))
        warm[:, support] = self.dual_coef_
        return warm

    def _warm_there(self, X: Any) -> np.ndarray | None:
        """The same for rows that are a tensor."""
        support = self.support_
        if support.max(initial=-1) >= X.shape[0] or sp.issparse(self.support_vectors_):
            return None
        if (X[as_tensor(support).to(X.device)].cpu().numpy() != self.support_vectors_).any():
            return None
        warm = np.zeros((len(self.dual_coef_), X.shape[0]))
        warm[:, support] = self.dual_coef_
        return warm

    def _unpack(self, outcome: Outcome, rows: Rows) -> None:
        super()._unpack(outcome, rows)
        self.device_ = "cpu" if self._device() == "cpu" else "cuda"
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
        elif self.dual_coef_.shape[1] == 0:
            scores = np.tile(self.intercept_, (X.shape[0], 1))
        else:
            rows = RowsOnCPU(self.kernel_, X) if self._device() == "cpu" else self._rows_there(X)
            is_exact = X.dtype == np.float64
            scores = rows.times(self._support_points(), self.dual_coef_.T, exact=is_exact) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _support_points(self) -> Points:
        n_support = self.dual_coef_.shape[1]
        X = self.support_vectors_ if self.support_vectors_.shape[0] else np.empty((n_support, 0))
        return Points(X, getattr(self, "support_", np.arange(n_support)))

    def _rows_there(self, X: Any) -> Any:
        from widemargin.kernels.on_torch import RowsOnTorch

        precision = "float32" if self.precision == "auto" else self.precision
        return RowsOnTorch(self.kernel_, X, device=self._device(), precision=precision)

    def decision_function(self, X: Any) -> Any:
        """Signed scores of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, positive for the second. With more, one column for each class, the highest being the
            class that :meth:`predict` gives. For an array of torch or CuPy, one of the same library and device.
        """
        if library_of(X) == "host" or self._device() == "cpu":
            return super().decision_function(X if library_of(X) == "host" else on_host(X))
        check_is_fitted(self)
        there = self._checked_tensor(X)
        if there.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {there.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        rows = self._rows_there(there)
        coef, intercept = rows.vector(self.dual_coef_.T), rows.vector(self.intercept_)
        scores = rows.times(self._support_points(), coef, exact=there.element_size() == 8) + intercept
        return like(scores[:, 0] if len(self.classes_) == 2 else scores, X)

    def predict(self, X: Any) -> Any:
        """Class labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Of NumPy, also for arrays of torch or CuPy: labels may be strings.
        """
        if library_of(X) == "host":
            return super().predict(X)
        return self._labels(on_host(self.decision_function(X)))

    def __sklearn_tags__(self) -> Tags:
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
    is_in_order = len(first) == len(everything) and bool((np.diff(first) == 1).all())
    return {
        "support_": support,
        "support_vectors_": everything.X if is_in_order else everything.X[first],
        "dual_coef_": coef,
        "n_support_": np.array([len(model.coef) for model in models]),
    }
