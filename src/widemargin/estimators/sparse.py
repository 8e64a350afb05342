"""SparseSVC: the 1-norm linear SVM, solved to a certified gap."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from widemargin.estimators._formulas import hinge, intercept
from widemargin.estimators._linear import LinearClassifier
from widemargin.estimators._types import ClassWeight, Folder
from widemargin.estimators.registry import Array, Descriptor, Each, Formula, Symbol, register
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.column_generation import ColumnGeneration
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.strategies.protocol import Rows


class SparseSVC(LinearClassifier):
    """Certified linear SVM with a 1-norm penalty: few coefficients are nonzero, all others are exactly zero.

    Solves, with the hinge loss averaged over rows and an intercept that is not penalised,

    .. math:: \\min_{\\beta,b} \\tfrac1n \\sum_i \\max(0, 1 - y_i (x_i \\cdot \\beta + b)) + \\alpha \\|\\beta\\|_1

    to a proven gap, by column generation. scikit-learn's ``LinearSVC(penalty="l1")`` solves another problem: the
    squared hinge loss, with the intercept penalised.

    Parameters
    ----------
    alpha : float > 0 or "auto", default="auto"
        Weight of the penalty; larger values give sparser models. ``"auto"`` is ``0.7 sqrt(log(n_features) / n)`` times
        the typical scale of the features, close to what cross-validation (:class:`SparseSVCCV`) selects.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    tol : float, default=1e-6
        Stop when the relative gap between the objective and its lower bound is at most ``tol``.
    max_iter : int, default=1000
        Maximum number of sweeps per class; each solves a linear program and searches for columns to add.
    max_time : float, default=None
        Maximum time in seconds per class, including the time to compute ``alpha_max_``; None is no limit.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    warm_start : bool, default=False
        Start from the columns of the previous ``fit``.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the fit runs: in this process (None), on this many threads (int), on the workers of a Dask cluster
        (client), or on MPI ranks that each call ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask
        collections. Rows stay on their ranks; columns of the working set are sent.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves its state every few sweeps. ``fit`` with the same folder and data resumes from it.
    verbose : int, default=0
        1 shows a progress line with the gap and ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        One row for two classes; with more, one for each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    alpha_ : float or ndarray of shape (n_classes,)
        The penalty that was used.
    alpha_max_ : float or ndarray of shape (n_classes,)
        Smallest penalty at which all coefficients are zero.
    support_ : ndarray of int
        Indices of the features with a nonzero coefficient for any class.
    n_features_selected_ : int
    n_working_ : int or ndarray of shape (n_classes,)
        Number of columns of the last linear program.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst class: the objective and its lower bound.
    stop_reason_ : str
        ``"gap"``, ``"max_iter"``, ``"max_time"``, ``"callback"``, ``"interrupted"``, or ``"precision"``: rounding keeps
        the gap open.
    history_, cost_, n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`NuMarginSVC`, with one part per class.

    See Also
    --------
    SparseSVCCV : Chooses alpha by cross-validation.
    sparse_svc_path : Models for a range of alpha.
    DebiasedSparseSVC : Coefficients with confidence intervals.

    Notes
    -----
    All features share one alpha: scale them (StandardScaler, or MaxAbsScaler for sparse rows) if their units differ.
    Do not use it to select among strongly correlated features, of which it keeps an arbitrary one. If all features
    matter, an l2 penalty (``KernelSVC(kernel="linear")``) predicts better. ``SelectFromModel`` drops features with
    coefficients below 1e-5 unless ``threshold`` is set.

    References
    ----------
    J. Zhu, S. Rosset, T. Hastie, R. Tibshirani: 1-norm Support Vector Machines, NIPS 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import SparseSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SparseSVC().fit(scale(X), y)
    >>> model.n_features_selected_, model.certificate_.relative <= 1e-6
    (9, True)
    """

    penalty: ClassVar[str] = "l1"  # SelectFromModel then keeps coefficients above 1e-5

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LinearClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
    }
    del _parameter_constraints["random_state"]  # nothing is random

    def __init__(
        self,
        *,
        alpha: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        warm_start: bool = False,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _problem(self) -> HingeL1:
        return HingeL1(self.alpha if self.alpha == "auto" else float(self.alpha), bool(self.fit_intercept))

    def _solver(self) -> AnySolver:
        return ColumnGeneration(finds_alpha_max=True)

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        return getattr(self, "coef_", None) if self.warm_start else None

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        attributes = super()._model_attributes(classes, models)
        support = np.flatnonzero(attributes["coef_"].any(axis=0))
        return {**attributes, "support_": support, "n_features_selected_": len(support)}

    def _remedies(self) -> list[str]:
        largest = np.max(self.alpha_max_)
        if largest == 0:
            return ["other features: with these no alpha gives a coefficient"]
        return [f"{self._smaller_alpha()}, below {largest:.3g}", *super()._remedies()]

    def _smaller_alpha(self) -> str:
        return f"a smaller alpha (it is {np.min(self.alpha_):.3g})"

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason}, or raise alpha: sparser models are found sooner."


def formula(model: SparseSVC, rule: str = "by its rule for alpha='auto'") -> Formula:
    """The 1-norm SVM; ``rule`` says how alpha was chosen if it was not given."""
    given = getattr(model, "alpha", "auto")
    alpha = getattr(model, "alpha_", given)
    return Formula(
        "A linear classifier of few features: the penalty makes all other coefficients zero exactly.",
        f"minimise (1/<var>n</var>) Σ<sub>i</sub> {hinge('<var>x</var><sub>i</sub>·β' + intercept(model))} + α‖β‖₁",
        [] if isinstance(alpha, str) else [Symbol("α", alpha, rule if given == "auto" else "")],
    )


register(
    Descriptor(
        SparseSVC,
        command="sparse",
        problem=formula,
        fitted={
            **dict.fromkeys(("alpha_", "alpha_max_"), Each("f")),
            "n_working_": Each("iu"),
            "support_": Array("iu", "S", least=0),
            "n_features_selected_": int,
        },
    )
)
