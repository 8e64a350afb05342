"""kernel_svc_path: kernel C-SVMs for a range of C."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from widemargin.callbacks import first_interrupt_kept
from widemargin.comm.clusters import is_dask
from widemargin.comm.solo import Solo
from widemargin.cores import one_blas_thread
from widemargin.data.shard import Shard
from widemargin.estimators._folds import encoded_rows
from widemargin.estimators._grids import free_bytes, grid_of_Cs
from widemargin.estimators._kernel import check_square
from widemargin.estimators._types import ClassWeight
from widemargin.estimators.kernel import KernelSVC
from widemargin.estimators.kernel_cv import KernelSVCCV
from widemargin.exceptions import InterruptedFitWarning, warn_user
from widemargin.kernels.functions import Kernel
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate, gap_as_text
from widemargin.sklearn_private import check_constraints
from widemargin.solvers.models import without_training_rows
from widemargin.solvers.run import Limits
from widemargin.strategies.labels import check_classes
from widemargin.strategies.linear_folds import LinearFolds
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Outcome, Rows, Support
from widemargin.strategies.selection import FoldFit, Folds
from widemargin.strategies.training import count_on_ranks

_NAME = "kernel_svc_path"


class KernelPath(NamedTuple):
    """Models for a range of C, in ascending order."""

    Cs: np.ndarray  # (n_Cs,)
    models: list[KernelSVC]  # fitted, one for each C
    seconds: np.ndarray  # (n_Cs,), for each model, without the kernel values that all of them share
    cost: Ledger  # of all models

    @property
    def certificates(self) -> list[Certificate]:
        """Certificate of each model, for the worst of its two-class problems."""
        return [model.certificate_ for model in self.models]

    @property
    def intercepts(self) -> np.ndarray:
        """Intercepts of shape (n_Cs, n_problems)."""
        return np.array([model.intercept_ for model in self.models])

    @property
    def support(self) -> list[np.ndarray]:
        """Ascending row numbers of the support vectors of each model."""
        return [model.support_ for model in self.models]

    @property
    def n_support(self) -> np.ndarray:
        """Number of support vectors of each model."""
        return np.array([len(numbers) for numbers in self.support], dtype=np.intp)


@one_blas_thread()
def kernel_svc_path(
    X: Any,
    y: Any,
    Cs: int | ArrayLike = 10,
    *,
    kernel: str | Callable[..., Any] = "rbf",
    gamma: float | Literal["scale", "auto"] = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    fit_intercept: bool = True,
    multi_class: Literal["pairs", "rest"] = "pairs",
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
    cache_size: float | Literal["auto"] = "auto",
    tol: float = 1e-3,
    max_iter: int = 10_000,
    max_time: float | None = None,
) -> KernelPath:
    """Solve the kernel C-SVM for a range of C at one gamma.

    All models share kernel values, and most fits start at the solution of the previous C.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels of two or more classes.
    Cs : int or array-like, default=10
        Values of C. An integer is the number of values, spaced logarithmically from 0.01 to 1000, divided by the mean
        of k(x, x), which is 1 for rbf.
    kernel, gamma, degree, coef0, fit_intercept, multi_class
        As in :class:`KernelSVC`.
    sample_weight : array-like of shape (n_samples,), default=None
        Multiplicity of each row: 2 counts the row twice, 0 leaves it out.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cache_size : float or "auto", default="auto"
        Memory for kernel values in MiB. If those between all rows fit, at six bytes each, they are computed once.
        ``"auto"`` is half of the free memory.
    tol : float, default=1e-3
        Stop when the relative gap of a model is at most ``tol``.
    max_iter : int, default=10000
        Maximum number of sweeps per model and two-class problem.
    max_time : float, default=None
        Maximum time in seconds for all models; None is no limit. Models that are not finished are left out.

    Returns
    -------
    path : KernelPath
        ``Cs`` in ascending order; ``models``, a fitted :class:`KernelSVC` for each C; ``certificates``, ``intercepts``,
        ``support`` (row numbers of support vectors), ``n_support`` and ``seconds`` of each model; and ``cost`` of all
        models.

    See Also
    --------
    KernelSVCCV : Chooses C and gamma by cross-validation.
    KernelSVC : One model.

    Notes
    -----
    The first Ctrl-C ends the path. It then has the finished models only.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import kernel_svc_path
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = kernel_svc_path(scale(X), y, [0.1, 1.0, 10.0])
    >>> all(each.relative <= 1e-3 for each in path.certificates)
    True
    >>> bool(path.n_support[0] > path.n_support[-1])  # a larger C has fewer rows inside the margin
    True
    >>> [round(model.score(scale(X), y), 2) for model in path.models]
    [0.96, 0.99, 0.99]
    """
    own: dict[str, Any] = {
        "kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0, "fit_intercept": fit_intercept,
        "multi_class": multi_class, "class_weight": class_weight, "tol": tol, "max_iter": max_iter,
    }  # fmt: skip
    _check({**own, "Cs": Cs, "cache_size": cache_size, "max_time": max_time})
    if is_dask(X):
        raise ValueError(f"{_NAME} needs all rows in one process: pass arrays.")
    model = KernelSVC(**own)
    rows = model._validate(X, y, sample_weight)
    classes = np.unique(rows.y[rows.weight > 0])
    check_classes(classes, _NAME)
    grid = _grid(model, rows, Cs)
    until = np.inf if max_time is None else time.monotonic() + max_time
    with first_interrupt_kept(True) as interruption:

        def ask() -> str:
            return "interrupted" if interruption else "max_time" if time.monotonic() > until else ""

        found, cost = _solved(model, rows, classes, grid, cache_size, ask)
        told = ask()
    path = _path(model, rows, grid, found, cost)
    _warn(path, len(grid), told, max_time)
    return path


def _check(values: dict[str, Any]) -> None:
    """Raise ValueError for a parameter that is not valid."""
    constraints = {**KernelSVC._parameter_constraints, **KernelSVCCV._parameter_constraints}
    check_constraints({name: constraints[name] for name in values}, values, _NAME)


class _Solved(NamedTuple):
    """What came out for one C."""

    outcome: Outcome
    seconds: float


_Found = tuple[list[_Solved | None], Ledger]  # one for each C, None if there was no time for it; and their cost


def _grid(model: KernelSVC, rows: Rows, Cs: Any) -> list[float]:
    kernel = _kernel_of(model).resolved(Shard(rows.X, rows.weight, rows.weight))
    check_square(kernel, rows.X)
    squares = kernel.diagonal(rows.X, np.arange(rows.X.shape[0]))
    values: list[float] = grid_of_Cs(Cs, squares, rows.weight).tolist()
    return values


def _kernel_of(model: KernelSVC) -> Kernel:
    return model._kernel() or Kernel("linear")


def _solved(
    model: KernelSVC, rows: Rows, classes: np.ndarray, Cs: list[float], cache_size: Any, ask: Callable[[], str]
) -> _Found:
    """One fold that trains on all rows and holds out none."""
    present = np.flatnonzero(rows.weight)
    fold = present, present[:0]
    in_folds = LinearFolds if model._is_linear() else Folds
    folds = in_folds(
        shard=encoded_rows(rows, classes),
        classes=classes,
        parts=Parts(len(classes), model.multi_class),
        folds=[fold],
        fit_intercept=bool(model.fit_intercept),
        class_weight=model.class_weight,
        limits=Limits(model.tol, model.max_iter),
        cache_bytes=free_bytes() if cache_size == "auto" else int(cache_size * (1 << 20)),
        ask=ask,
    )
    on = folds.with_kernel(_kernel_of(model))
    if on is None:
        return [None] * len(Cs), folds.ledger
    shard = replace(on.shard, weight=folds.weights(fold)).take(present)

    def solved(fit: FoldFit) -> _Solved:
        found = [part.result for part in fit.parts if part.result is not None]
        models = [each.model for each in found]
        known = [None if on.known is None else on.scores(each, present) for each in models]
        training = count_on_ranks(shard, folds.parts, models, known, Solo(), 0)
        copied = without_training_rows(models)
        results = [replace(result, model=each) for result, each in zip(found, copied, strict=True)]
        support = None
        if model._is_linear():
            support = [Support(part.model.points.numbers, part.model.coef) for part in fit.parts]
        return _Solved(Outcome(classes, results, shard.n_features, training=training, support=support), fit.seconds)

    fits = on.fits(Cs, [None] * len(Cs), may_settle=False)
    return [None if each is None else solved(each[0]) for each in fits], folds.ledger


def _path(model: KernelSVC, rows: Rows, Cs: list[float], found: list[_Solved | None], cost: Ledger) -> KernelPath:
    done = [(C, each) for C, each in zip(Cs, found, strict=True) if each is not None]
    models = []
    for C, each in done:
        models.append(copy.copy(model).set_params(C=C))
        models[-1]._unpack(each.outcome, rows)
    return KernelPath(np.array([C for C, _ in done]), models, np.array([each.seconds for _, each in done]), cost)


def _warn(path: KernelPath, n_Cs: int, told: str, max_time: float | None) -> None:
    """Of models that are left out, and of those whose gap is open."""
    missing = f"{n_Cs - len(path.Cs)} of {n_Cs} models are left out"
    if len(path.Cs) < n_Cs and told == "max_time":
        warn_user(f"max_time={max_time:g} ended {_NAME}, and {missing}: raise max_time.", ConvergenceWarning)
    elif len(path.Cs) < n_Cs:
        warn_user(f"{_NAME} was interrupted, and {missing}.", InterruptedFitWarning)
    open_at = [
        f"{model.C:.3g} ({model.stop_reason_}, {gap_as_text(model.certificate_.relative, 1)})"
        for model in path.models
        if model.stop_reason_ in ("max_iter", "precision") and model.certificate_.relative > model.tol
    ]
    if open_at:
        warn_user(
            f"The relative gap of {_NAME} is above tol={path.models[0].tol:g} for C = {', '.join(open_at)}: raise "
            "max_iter, or scale the features (StandardScaler) if their units differ much.",
            ConvergenceWarning,
        )
