"""KernelSVC: the kernel C-SVM, exact with a certified gap, or compact and early by the stochastic batch perceptron."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot

from widemargin.estimators._base import MarginClassifier
from widemargin.estimators._task import Rows
from widemargin.kernels.functions import NAMES, Kernel
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.kernels.points import Points
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.solvers._kernel_ranks import KernelModel
from widemargin.solvers._protocol import Separator, Solver
from widemargin.solvers._run import Result
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.dual_descent import DualDescent


class KernelSVC(MarginClassifier):
    _parameter_constraints: ClassVar[dict] = {
        **MarginClassifier._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "slack": [Interval(Real, 0, None, closed="left"), None],
        "kernel": [StrOptions(set(NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="neither")],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "solver": [StrOptions({"auto", "exact", "batch-perceptron"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "max_support": [Interval(Integral, 2, None, closed="left"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left"), None],
        "cache_size": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }
    _one_vs_rest: ClassVar[bool] = True

    def __init__(
        self,
        *,
        C=1.0,
        slack=None,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        fit_intercept=True,
        solver="auto",
        batch_size="auto",
        max_support=None,
        validation_fraction=None,
        cache_size=200,
        tol=1e-3,
        max_iter=10_000,
        max_time=None,
        class_weight=None,
        warm_start=False,
        random_state=None,
        cluster=None,
        checkpoint=None,
        verbose=0,
    ):
        self.C = C
        self.slack = slack
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.batch_size = batch_size
        self.max_support = max_support
        self.validation_fraction = validation_fraction
        self.cache_size = cache_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _problem(self) -> HingeL2 | SlackConstrained:
        if self.slack is not None:
            return SlackConstrained(slack=float(self.slack), fit_intercept=self.fit_intercept)
        return HingeL2(float(self.C), self.fit_intercept)

    def _is_linear(self) -> bool:
        return self.kernel == "linear" and self.solver != "batch-perceptron" and self.slack is None

    def _kernel(self) -> Kernel | None:
        if self._is_linear():
            return None
        if callable(self.kernel):
            return Kernel("callable", function=self.kernel)
        gamma = self.gamma if isinstance(self.gamma, str) else float(self.gamma)
        return Kernel(self.kernel, gamma, int(self.degree), float(self.coef0))

    def _cache_bytes(self) -> int:
        return int(self.cache_size * (1 << 20))

    def _solver(self) -> Solver:
        if self._is_linear():
            return DualDescent()
        return BlockDual(self._cache_bytes())

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason}, or scale the features (StandardScaler) if their units differ much."

    def _validate(self, X, y, sample_weight) -> Rows:
        rows = super()._validate(X, y, sample_weight)
        if self.kernel == "precomputed" and rows.X.shape[0] != rows.X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' needs the kernel values of all pairs of rows: X has shape {rows.X.shape} and "
                "must be square."
            )
        return rows

    def _silent(self, model: Any) -> Any:
        if isinstance(model, Separator):
            return model._replace(coef=np.zeros_like(model.coef), intercept=0.0)
        none = np.empty(0, dtype=np.intp)
        return model._replace(points=model.points[none], coef=np.empty(0), intercept=0.0)

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        reports = {f"{name}_": [model.report[name] for model in models] for name in models[0].report}
        attributes = {
            "classes_": classes,
            "intercept_": np.array([model.intercept for model in models]),
            **{name: values[0] if len(models) == 1 else np.array(values) for name, values in reports.items()},
        }
        if isinstance(models[0], Separator):
            return {**attributes, "coef_": np.array([model.coef for model in models])}
        kernel = replace(models[0].kernel, function=self.kernel if callable(self.kernel) else None)
        return {**attributes, "kernel_": kernel, **_expansion_attributes(models)}

    def _scores(self, X: Any) -> np.ndarray:
        """One column for each class, or a single one for two classes."""
        if hasattr(self, "coef_"):
            coef, intercept = self.coef_.astype(X.dtype, copy=False), self.intercept_.astype(X.dtype, copy=False)
            scores = safe_sparse_dot(X, coef.T, dense_output=True) + intercept
        else:
            rows = RowsOnCPU(self.kernel_, X)
            points = Points(self.support_vectors_, self.support_)
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
    return {"support_": support, "support_vectors_": everything.X[first], "dual_coef_": coef}
