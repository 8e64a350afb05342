"""sparse_svc_path and SparseSVCCV: 1-norm SVMs for a range of penalties, and model selection by cross-validation."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_X_y

from widemargin.comm.clusters import is_dask, is_mpi
from widemargin.comm.solo import Solo
from widemargin.cores import one_blas_thread
from widemargin.data.shard import Shard
from widemargin.engines.select import engine_for
from widemargin.estimators._types import ClassWeight
from widemargin.estimators.registry import Array, Descriptor, register
from widemargin.estimators.sparse import SparseSVC, formula
from widemargin.exceptions import warn_user
from widemargin.pauses import Clock, TimeIsUp
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.problems.protocol import Certificate
from widemargin.sklearn_private import Interval, StrOptions, validate_parameters
from widemargin.solvers.column_generation import ColumnGeneration, alpha_max, largest_at_zero
from widemargin.solvers.run import Limits, Result, run
from widemargin.strategies.labels import FLOATS, checked_labels, weights_of_classes
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows


class SparsePath(NamedTuple):
    """Models for a range of penalties, in descending order."""

    alphas: np.ndarray  # (n_alphas,)
    coefs: np.ndarray  # (n_alphas, n_features)
    intercepts: np.ndarray  # (n_alphas,)
    certificates: list[Certificate]  # one per model

    @property
    def n_selected(self) -> np.ndarray:
        """Number of features with a nonzero coefficient in each model."""
        return np.asarray(np.count_nonzero(self.coefs, axis=1))


@one_blas_thread()
def sparse_svc_path(
    X: Any,
    y: Any,
    *,
    alphas: ArrayLike | None = None,
    n_alphas: int = 50,
    eps: float = 0.01,
    fit_intercept: bool = True,
    sample_weight: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> SparsePath:
    """Solve the 1-norm SVM for a range of penalties, each with a warm start from the one before.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels of two classes.
    alphas : array-like, default=None
        Penalties. None uses ``n_alphas`` values, evenly spaced on a logarithmic scale, from the smallest penalty at
        which all coefficients are zero down to ``eps`` times it.
    n_alphas : int, default=50
    eps : float, default=0.01
    fit_intercept : bool, default=True
    sample_weight : array-like of shape (n_samples,), default=None
        Multiplicity of each row.
    tol : float, default=1e-6
        Stop when the relative gap of a model is at most ``tol``.
    max_iter : int, default=1000
        Maximum number of sweeps per model.

    Returns
    -------
    path : SparsePath
        ``alphas`` in descending order, ``coefs``, ``intercepts``, ``certificates`` and ``n_selected``.

    See Also
    --------
    SparseSVCCV : Chooses the penalty by cross-validation.
    widemargin.reports.plot_sparse_path : Plots the path.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import sparse_svc_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = sparse_svc_path(scale(X), y, n_alphas=5)
    >>> path.n_selected.tolist()
    [0, 5, 9, 9, 15]
    """
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=FLOATS, order="C", accept_large_sparse=True)
    rows = checked_labels(Rows(X, y, sample_weight), X.shape[0])
    classes = np.unique(rows.y[rows.weight > 0])
    if len(classes) != 2:
        raise ValueError(f"sparse_svc_path needs 2 classes, and y has {len(classes)}: {classes.tolist()}.")
    shard = Shard(rows.X, np.where(rows.y == classes[1], 1.0, -1.0), rows.weight)
    if alphas is None:
        alphas = _alphas_below(_largest_alpha(shard, fit_intercept), n_alphas, eps)
    alphas = np.sort(np.asarray(alphas, dtype=np.float64))[::-1]
    return _path(shard, alphas, fit_intercept, Limits(tol, max_iter))


def _largest_alpha(shard: Shard, fit_intercept: bool, until: float = np.inf) -> float:
    """The smallest penalty with no coefficients; one above it if that is not found before ``until``."""
    problem, comm = HingeL1(1.0, fit_intercept), Solo()
    try:
        with Clock(comm, lambda: "max_time" if time.time() > until else "").running():
            return alpha_max(problem, shard, comm, np.random.default_rng(0))
    except TimeIsUp:
        return largest_at_zero(problem, shard, comm)


def _alphas_below(largest: float, n_alphas: int, eps: float) -> np.ndarray:
    if not largest > 0:
        raise ValueError("No feature separates the classes: every penalty gives zero coefficients: there is no path.")
    return largest * (1 + 1e-9) * np.geomspace(1.0, eps, n_alphas)  # at the largest itself zero is not the only optimum


def _path(shard: Shard, alphas: np.ndarray, fit_intercept: bool, limits: Limits, until: float = np.inf) -> SparsePath:
    """The models of all penalties, or of those solved before ``until``, in seconds since the epoch; at least one."""
    results: list[Result] = []
    for alpha in alphas:
        problem = HingeL1(float(alpha), bool(fit_intercept))
        warm = results[-1].model.coef if results and results[-1].model.coef.any() else None
        within = replace(limits, max_time=min(limits.max_time, max(until - time.time(), 0.0)))
        result = run(ColumnGeneration(), problem, shard, Solo(), within, np.random.default_rng(0), warm=warm)
        if results and result.stop_reason == "max_time" and until < np.inf:
            break
        results.append(result)
    alphas = alphas[: len(results)]
    coefs = np.array([result.model.coef for result in results])
    intercepts = np.array([result.model.intercept for result in results])
    return SparsePath(alphas, coefs, intercepts, [result.certificate for result in results])


class SparseSVCCV(SparseSVC):
    """1-norm SVM whose penalty is chosen by cross-validation: feature selection without a parameter to set.

    Solves :class:`SparseSVC` on the training rows of every fold for a range of penalties, chooses the penalty with the
    smallest mean error on the held-out rows, and solves it on all rows.

    Parameters
    ----------
    alphas : array-like, default=None
        Penalties to choose from. None uses ``n_alphas`` and ``eps`` as :func:`sparse_svc_path` does.
    n_alphas : int, default=50
    eps : float, default=0.01
    cv : int, cross-validation generator or iterable, default=5
        How to split the rows; an integer is the number of stratified folds.
    rule : {"best", "one-standard-error"}, default="best"
        ``"best"`` takes the smallest mean error, and the sparsest model among ties; ``"one-standard-error"`` takes the
        largest penalty whose mean error is within one standard error of the best: sparser and hardly worse.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    tol : float, default=1e-6
        Stop when the relative gap of a model is at most ``tol``.
    max_iter : int, default=1000
        Maximum number of sweeps per model.
    max_time : float, default=None
        Maximum time in seconds for the choice of the penalty, and again per class for the final model; None is no
        limit. Penalties that were not reached on all folds are left out, the smallest first.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cluster : int, dask.distributed.Client or None, default=None
        Where folds run in parallel: on that many threads of this process, or on the workers of a Dask cluster.
    verbose : int, default=0
        1 shows a progress line with the gap of the final model and ``tol``.

    Attributes
    ----------
    alpha_ : float or ndarray of shape (n_classes,)
        The chosen penalty.
    alphas_ : ndarray of shape (n_alphas,)
        The penalties that were tried, in descending order.
    error_path_ : ndarray of shape (n_alphas, n_folds)
        Weighted share of held-out rows that are misclassified.
    n_selected_path_ : ndarray of shape (n_alphas, n_folds)
        Number of features of each model.
    classes_, coef_, intercept_, alpha_max_, support_, n_features_selected_, certificate_, stop_reason_, history_, \
cost_, n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`SparseSVC`, for the final model.

    See Also
    --------
    SparseSVC : One penalty, given or set by a rule.
    sparse_svc_path : The models of all penalties.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import SparseSVCCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SparseSVCCV(n_alphas=10, rule="one-standard-error").fit(scale(X), y)
    >>> model.error_path_.shape
    (10, 5)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{k: v for k, v in SparseSVC._parameter_constraints.items() if k not in ("alpha", "warm_start", "checkpoint")},
        "alphas": ["array-like", None],
        "n_alphas": [Interval(Integral, 1, None, closed="left")],
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "cv": ["cv_object"],
        "rule": [StrOptions({"best", "one-standard-error"})],
    }

    def __init__(
        self,
        *,
        alphas: ArrayLike | None = None,
        n_alphas: int = 50,
        eps: float = 0.01,
        cv: Any = 5,
        rule: Literal["best", "one-standard-error"] = "best",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        cluster: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.rule = rule
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.cluster = cluster
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose the penalty and fit the model to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplicity of each row.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        validate_parameters(self)
        if is_dask(X) or is_mpi(self.cluster):
            raise ValueError(
                "SparseSVCCV needs all rows in one process to divide them into folds: pass arrays, and cluster=None, a "
                "number of threads or a Dask client; or use SparseSVC(alpha=...), which accepts distributed rows."
            )
        choice = self._choose(self._validate(X, y, sample_weight))
        self._chosen = float(choice["alphas_"][choice.pop("best")])
        super().fit(X, y, sample_weight)
        self.__dict__.update(choice)
        return self

    def _smaller_alpha(self) -> str:
        return f"smaller alphas (cross-validation chose {self._chosen:.3g})"

    def _problem_of_rows(self) -> None:
        return None

    def _problem(self) -> HingeL1:
        return HingeL1(self._chosen, bool(self.fit_intercept))

    @one_blas_thread()
    def _choose(self, rows: Rows) -> dict[str, Any]:
        """Errors of all penalties on all folds, and the index of the best penalty."""
        X, y, weight, _ = rows
        until = np.inf if self.max_time is None else time.time() + self.max_time
        classes = np.unique(y[weight > 0])
        if len(classes) < 2:
            raise ValueError(f"SparseSVCCV needs at least 2 classes, and got {len(classes)} class(es).")
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)  # rows of weight 0 may have other labels
        if self.class_weight is not None:
            weight = weight * weights_of_classes(self.class_weight, classes, np.bincount(codes, weight))[codes]
        alphas = self.alphas
        if alphas is None:
            problems = Parts(len(classes), "rest").all_labelled(Shard(X, codes, weight))
            largest = max(_largest_alpha(problem, self.fit_intercept, until) for problem in problems)
            alphas = _alphas_below(largest, self.n_alphas, self.eps) if largest > 0 else [1.0]
        alphas = np.sort(np.asarray(alphas, dtype=np.float64))[::-1]
        if not len(alphas) or not (alphas > 0).all() or not np.isfinite(alphas).all():
            raise ValueError(f"alphas={self.alphas!r} must be positive, finite numbers.")
        folds = list(check_cv(self.cv, codes, classifier=True).split(X, codes))
        for train, _ in folds:
            there = np.bincount(codes[train], weight[train], len(classes))
            if not (there > 0).all():
                lacking = classes[there == 0].tolist()
                raise ValueError(
                    f"A training fold of cv={self.cv!r} has no rows of {lacking}: use fewer folds, or more rows."
                )
        limits = Limits(self.tol, self.max_iter)
        work = partial(_fold_errors, alphas=alphas, fit_intercept=bool(self.fit_intercept), limits=limits, until=until)
        outcomes = engine_for(self.cluster).map_items(self.cluster, work, (X, codes, weight), folds)
        n_reached = min(len(errors) for errors, _ in outcomes)
        if n_reached < len(alphas):
            warn_user(
                f"max_time={self.max_time:g} ended the search of SparseSVCCV after {n_reached} of {len(alphas)} "
                "penalties, the largest: raise max_time, or use fewer penalties or folds.",
                ConvergenceWarning,
            )
        errors, selected = (np.array([each[:n_reached] for each in every]).T for every in zip(*outcomes, strict=True))
        choice = {"alphas_": alphas[:n_reached], "error_path_": errors, "n_selected_path_": selected}
        return {**choice, "best": self._best(errors)}

    def _best(self, errors: np.ndarray) -> int:
        """The index of the first, and so the sparsest, penalty that the rule accepts."""
        mean, allowance = errors.mean(axis=1), 0.0
        if self.rule == "one-standard-error" and errors.shape[1] > 1:
            allowance = float(errors[np.argmin(mean)].std(ddof=1)) / np.sqrt(errors.shape[1])
        return int(np.argmax(mean <= mean.min() + allowance + 1e-12))


@one_blas_thread()
def _fold_errors(
    rows: tuple[Any, np.ndarray, np.ndarray],
    fold: tuple[np.ndarray, np.ndarray],
    alphas: np.ndarray,
    fit_intercept: bool,
    limits: Limits,
    until: float,
) -> tuple[list[float], list[int]]:
    """For each penalty that was reached: the error on the held-out rows, and the number of features."""
    (X, codes, weight), (train, test) = rows, fold
    n_classes = int(codes.max()) + 1
    X_test, n_reached = X[test], len(alphas)
    scores, n_selected = [], np.zeros((len(alphas), X.shape[1]), dtype=bool)
    for problem in Parts(n_classes, "rest").all_labelled(Shard(X[train], codes[train], weight[train])):
        path = _path(problem, alphas, fit_intercept, limits, until)
        n_reached = min(n_reached, len(path.alphas))
        scores.append(safe_sparse_dot(X_test, path.coefs.T, dense_output=True) + path.intercepts)
        n_selected[: len(path.coefs)] |= path.coefs != 0
    scores, n_selected = [each[:, :n_reached] for each in scores], n_selected[:n_reached]
    predicted = scores[0] > 0 if n_classes == 2 else np.argmax(scores, axis=0)
    wrong = predicted != codes[test][:, None]
    return (weight[test] @ wrong / (weight[test].sum() or 1.0)).tolist(), n_selected.sum(axis=1).tolist()


register(
    Descriptor(
        SparseSVCCV,
        command=None,
        problem=lambda model: formula(model, "chosen by cross-validation"),
        fitted={
            "_chosen": float,
            "alphas_": Array("f", "A"),
            "error_path_": Array("f", "AF"),
            "n_selected_path_": Array("iu", "AF"),
        },
    )
)
