"""Classifiers with a kernel: what they have in common as scikit-learn sees them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from widemargin.comm.clusters import is_dask, is_mpi
from widemargin.estimators._base import FORM, MarginClassifier, common_attributes, linear_scores
from widemargin.estimators._linear import support_attributes
from widemargin.estimators.registry import LABELS, Array, Each
from widemargin.kernels import devices
from widemargin.kernels.arrays import as_tensor, is_on_host, library_of, like, on_host, taken
from widemargin.kernels.functions import NAMES, Kernel
from widemargin.kernels.on_cpu import times_few
from widemargin.kernels.points import Points
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.models import KernelModel, Separator, shared_points, shared_support
from widemargin.strategies.labels import checked_labels
from widemargin.strategies.protocol import Outcome, Rows
from widemargin.strategies.ranks import Ranks

_ASYMMETRY = 1e-5  # of given kernel values, relative to the largest: less may be rounding to float32


class KernelClassifier(MarginClassifier):
    """One model for each two-class problem: a sum over support vectors, or coefficients for linear kernels."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MarginClassifier._parameter_constraints,
        "kernel": [StrOptions(set(NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, 1e150, closed="right")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, -1e50, 1e50, closed="both")],
        "fit_intercept": ["boolean"],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
    }
    _fitted_attributes: ClassVar[dict[str, Any]] = {
        "coef_": Array("f", "PD", is_finite=True),
        "kernel_": Kernel,
        "support_": Array("iu", "N", least=0),
        "support_vectors_": object,
        "dual_coef_": Array("f", "PN", is_finite=True),
        "n_support_": Each("iu"),
        "support_labels_": Array(LABELS, "N"),
        "support_weight_": Array("f", "N"),
        "device_": str,
    }

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    cache_size: Any
    # Parameters that not every estimator has.
    device: Any = "cpu"
    precision: Any = "auto"
    multi_class: Any = "rest"

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

    def _uses_gpu(self) -> bool:
        return devices.is_gpu(devices.resolved(self.device))

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

    def _refuse_numbered_rows(self, rows: Rows) -> None:
        """Raise ValueError for a kernel that needs row numbers on rows that have none."""
        if is_dask(rows.X) and self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' needs numbered rows, and rows of a Dask collection have no numbers: pass X as an "
                "array, or pass the features and name a kernel."
            )

    def _ranks(self, rows: Rows, **more: Any) -> Ranks:
        self._refuse_numbered_rows(rows)
        self._refuse_ranks_of_gpus(rows)
        more |= {"device": devices.resolved(self.device), "precision": self.precision}
        return super()._ranks(rows, cache_bytes=self._cache_bytes(), **more)

    def _refuse_ranks_of_gpus(self, rows: Rows) -> None:
        if self._uses_gpu() and (self.cluster is not None or is_dask(rows.X)):
            raise ValueError(
                f"device={self.device!r} computes on one GPU of this machine: cluster must be None, and X must not be "
                "a Dask collection."
            )

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        y, sample_weight = on_host(y), on_host(sample_weight)
        if not is_on_host(X):
            X, y = self._checked_tensor(X), column_or_1d(y)
            check_consistent_length(y, np.empty(X.shape[0]))
            self.n_features_in_ = X.shape[1]
        elif self._uses_gpu():
            X, y = validate_data(self, X, y, **FORM, ensure_all_finite=False)  # the GPU checks this
        else:
            return super()._validate(X, y, sample_weight)
        return checked_labels(Rows(X, y, sample_weight), X.shape[0])

    def _checked_tensor(self, X: Any) -> Any:
        """A torch or CuPy array as a tensor of float32 or float64."""
        rows = as_tensor(X)
        if not self._uses_gpu():
            raise ValueError(
                f"X is an array of {library_of(X)} on {rows.device}, and device={self.device!r} computes on the CPU: "
                "use device='cuda', or pass X as a NumPy array."
            )
        if rows.ndim != 2 or 0 in rows.shape or not rows.dtype.is_floating_point:
            raise ValueError(
                f"X has the shape {tuple(rows.shape)} and the type {rows.dtype}: it must have two dimensions, rows "
                "and features, and hold float32 or float64."
            )
        return rows if rows.element_size() >= 4 else rows.float()

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """Coefficients of the last fit: of features, or of rows if the support vectors are the same rows as before."""
        if self._is_linear():
            return getattr(self, "coef_", None) if self.warm_start else None
        support, X = getattr(self, "support_", None), rows.X
        if not self.warm_start or support is None or self.kernel == "precomputed" or not hasattr(X, "shape"):
            return None
        if is_dask(X) or X.shape[1] != self.n_features_in_ or support.max(initial=-1) >= X.shape[0]:
            return None
        difference = on_host(taken(X, support)) - self.support_vectors_
        if (difference.nnz if sp.issparse(difference) else np.any(difference)) != 0:
            return None
        warm = np.zeros((len(self.dual_coef_), X.shape[0]))
        warm[:, support] = self.dual_coef_
        return warm

    def _unpack(self, outcome: Outcome, rows: Rows) -> None:
        super()._unpack(outcome, rows)
        self.device_ = "cuda" if self._uses_gpu() else "cpu"
        if self._is_linear():
            self.__dict__.update(support_attributes(outcome, rows))
            return
        if not hasattr(self, "support_"):
            return
        if is_dask(rows.X):
            del self.support_  # rows of a collection have no numbers
        elif not is_mpi(self.cluster):
            self.support_labels_ = np.asarray(rows.y)[self.support_]
            self.support_weight_ = np.asarray(rows.weight)[self.support_]

    def _zero_model(self, model: Any) -> Any:
        if isinstance(model, KernelModel):
            model = model._replace(points=model.points[np.empty(0, dtype=np.intp)], coef=np.empty(0))
        return super()._zero_model(model)

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        attributes = common_attributes(classes, models)
        if isinstance(models[0], Separator):
            return {**attributes, "coef_": np.array([model.coef for model in models])}
        kernel = models[0].kernel
        if callable(self.kernel):
            kernel = replace(kernel, function=self.kernel)
        expansion = _expansion_attributes(models)
        if kernel.name == "linear":
            expansion["coef_"] = np.asarray(expansion["dual_coef_"] @ expansion["support_vectors_"])
        if kernel.name == "precomputed":
            expansion["support_vectors_"] = np.empty((0, 0))
        return {**attributes, "kernel_": kernel, **expansion}

    def _remedies(self) -> list[str]:
        if self.kernel == "linear":
            return [*super()._remedies(), "kernel='rbf' if the boundary is curved"]
        kernel = getattr(self, "kernel_", None)
        if kernel is None or not kernel.needs_gamma:
            return super()._remedies()
        return [f"another gamma (it is {kernel.gamma:.3g})", *super()._remedies()]

    def _scores(self, X: Any) -> np.ndarray:
        if hasattr(self, "coef_") and is_on_host(X):
            scores = linear_scores(X, self.coef_, self.intercept_)
        elif self.dual_coef_.shape[1] == 0:
            scores = np.tile(self.intercept_, (X.shape[0], 1))
        else:
            few = None if self._uses_gpu() else times_few(self.kernel_, X, self.support_vectors_, self.dual_coef_)
            if few is not None:
                return self._parts.class_scores(few + self.intercept_)
            n_support = self.dual_coef_.shape[1]
            vectors = self.support_vectors_ if self.support_vectors_.shape[0] else np.empty((n_support, 0))
            precision = "float32" if self.precision == "auto" else self.precision
            device = devices.resolved(self.device)
            rows = devices.kernel_rows(self.kernel_, X, device=device, precision=precision, points=vectors)
            support = Points(vectors, getattr(self, "support_", np.arange(n_support)))
            scores = self._parts.kernel_sums(rows, support, self.dual_coef_, exact=X.dtype.itemsize == 8)
            scores = scores + rows.vector(self.intercept_)
            if self._parts.are_votes:
                votes = self._parts.class_scores(on_host(scores))
                return votes if is_on_host(X) else rows.vector(votes)
        return self._parts.class_scores(scores)

    def decision_function(self, X: Any) -> Any:
        if is_on_host(X):
            return on_host(super().decision_function(X))
        check_is_fitted(self)
        if not self._uses_gpu():
            return super().decision_function(on_host(X))
        rows = self._checked_tensor(X)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        return like(self._scores(rows), X)

    def _labels(self, scores: Any) -> np.ndarray:
        return super()._labels(on_host(scores))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def check_square(kernel: Kernel, X: Any) -> None:
    """Raise ValueError for given kernel values that are not those of all pairs of rows."""
    if kernel.name != "precomputed":
        return
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            f"kernel='precomputed' needs a square X, the values of all pairs of rows; X has {X.shape[0]} rows and "
            f"{X.shape[1]} columns."
        )
    apart = float(abs(X - X.T).max())
    if not apart <= _ASYMMETRY * float(abs(X).max()):
        raise ValueError(
            f"kernel='precomputed' needs a symmetric X, and two values of the same pair of rows differ by {apart:.2g}: "
            "use (X + X.T) / 2 if that is what you mean."
        )


def _expansion_attributes(models: list[KernelModel]) -> dict[str, Any]:
    """The support vectors of all problems, each once, and their coefficients in each model."""
    support, coef = shared_support(models)
    return {
        "support_": support,
        "support_vectors_": shared_points(models, support).X,
        "dual_coef_": coef,
        "n_support_": np.array([len(model.coef) for model in models]),
    }
