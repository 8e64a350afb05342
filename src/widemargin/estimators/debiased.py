"""DebiasedSparseSVC: which features matter, and how surely."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from widemargin.estimators._coefficients import CoefficientTable
from widemargin.estimators._linear import LinearClassifier
from widemargin.estimators._types import ClassWeight
from widemargin.exceptions import warn_user
from widemargin.problems.debiasing import inference
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.solvers.debiased import DebiasedRounds
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Result
from widemargin.strategies.task import Rows, Task

_INTERVALS = ("standard_error_", "coef_interval_", "pvalue_", "intercept_standard_error_")


class DebiasedSparseSVC(LinearClassifier):
    """Coefficients of a linear SVM with confidence intervals, from data on one machine or on many.

    Estimates the minimiser of the expected hinge loss,

    .. math:: \\beta, b = \\arg\\min E \\max(0, 1 - y (x \\cdot \\beta + b)),

    of which few coefficients are not zero: every machine solves a 1-norm SVM of its own rows (:class:`SparseSVC`),
    takes the bias of the penalty back by a Newton step, and the results are averaged and thresholded. A second round
    begins there with the score of all rows; what it gives does not depend on how the rows are divided. Machines are the
    ranks of ``cluster``; vectors of the number of features travel between them, and, for s features that were kept,
    matrices of s x s.

    Parameters
    ----------
    alpha : float over 0 or "auto", default="auto"
        Penalty of the 1-norm SVM of each machine. ``"auto"`` is ``0.7 sqrt(log(n_features) / n)`` times the typical
        scale of the features, with n the rows of that machine.
    rounds : int, default=2
        1 is the method of the paper. On several machines it leaves a bias that no interval covers, and there are none.
    threshold : {"z", "paper"} or None, default="z"
        Which debiased coefficients are kept: ``"z"`` those over ``sqrt(2 log(n_features))`` standard errors,
        ``"paper"`` as many as the largest 1-norm SVM of a machine has, None all.
    confidence : float in (0, 1), default=0.95
        Probability with which each interval holds its coefficient.
    inverse : {"scio", "clime"}, default="scio"
        How rows of the inverse Hessian are found: by coordinate descent, or by the linear programs of the paper, which
        are for a few hundred features at most.
    constraint : float over 0, default=0.8
        How far an approximate inverse may be from one, in units of the error of the Hessian, ``sqrt(log(p) / n)`` for
        the n rows near the margin. Less is slower, and less biased.
    share_inverse : bool, default=False
        Whether each machine makes a part of the rows of the inverse, for all machines. Faster by the number of
        machines, and less sure, as each row is then known from one machine alone.
    fit_intercept : bool, default=True
        Whether there is an intercept, which is not penalised.
    if_lost : {"leave out", "raise"}, default="leave out"
        What happens when a machine of a Dask cluster is lost: the others go on without its rows, with a warning that
        says what is left; or an error.
    tol : float, default=1e-6
        Relative gap to which each 1-norm SVM is solved.
    max_iter : int, default=1000
        Largest number of sweeps of each.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the weight of the rows of each class. Weights count as rows in N.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        The machines: None is one, an integer that many in this process, a client the workers of a Dask cluster; with a
        communicator every MPI rank calls ``fit`` with its own rows. ``X`` and ``y`` may be Dask collections.
    verbose : int, default=0
        1 shows a line at the end.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Debiased and thresholded. One row for two classes; with more, one for each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The one that belongs to ``coef_``.
    coef_debiased_, coef_naive_ : ndarray of the shape of ``coef_``
        Before thresholding; and the average of the 1-norm SVMs of all machines.
    standard_error_, pvalue_ : ndarray of the shape of ``coef_``
        Of the debiased coefficients; the p-value is two-sided, of a coefficient that is zero.
    coef_interval_ : ndarray of shape (n_rows_of_coef, n_features, 2)
        Lower and upper ends. None of these three exists after one round on several machines.
    intercept_standard_error_ : ndarray of shape (1,) or (n_classes,)
        Where there is an intercept, and the inverse is not shared out.
    selected_ : ndarray of bool, of the shape of ``coef_``
        Which coefficients are kept.
    alpha_ : float or ndarray of shape (n_classes,)
        The penalty, averaged over machines.
    n_machines_, n_rows_ : int, float
        How many took part, and the weight of their rows: the N of the standard errors.
    certificate_ : Certificate
        Of the 1-norm SVM with the largest gap.
    stop_reason_, history_, cost_, n_iter_, parts_, n_features_in_, feature_names_in_
        As of :class:`SparseSVC`; ``n_iter_`` counts rounds.

    See Also
    --------
    SparseSVC : The 1-norm SVM itself; on one machine it takes all rows in about a second.

    Notes
    -----
    Dividing is for data that cannot be put together, not for speed. Intervals are for coefficients of the expected
    hinge loss as such, not for those of a true model of the labels. They hold for many rows: of fewer rows near the
    margin than features with an effect they know too little. Not for features that are nearly copies of each other.

    References
    ----------
    H. Lian, Z. Fan: Divide-and-Conquer for Debiased l1-norm Support Vector Machine in Ultra-high Dimensions, JMLR 2018.

    Examples
    --------
    >>> from widemargin import DebiasedSparseSVC
    >>> from widemargin.data import make_sparse_gaussians
    >>> X, y, beta = make_sparse_gaussians(n_samples=16000, n_features=50, random_state=0)
    >>> model = DebiasedSparseSVC(cluster=4).fit(X, y)
    >>> model.selected_[0].nonzero()[0].tolist(), beta.nonzero()[0].tolist()
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    penalty: ClassVar[str] = "l1"  # for SelectFromModel, which then keeps coefficients over 1e-5

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{name: LinearClassifier._parameter_constraints[name] for name in ("tol", "max_iter", "cluster", "verbose")},
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "rounds": [Interval(Integral, 1, None, closed="left")],
        "threshold": [StrOptions({"z", "paper"}), None],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "inverse": [StrOptions({"scio", "clime"})],
        "constraint": [Interval(Real, 0, None, closed="neither")],
        "share_inverse": ["boolean"],
        "fit_intercept": ["boolean"],
        "if_lost": [StrOptions({"leave out", "raise"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    def __init__(
        self,
        *,
        alpha: float | Literal["auto"] = "auto",
        rounds: int = 2,
        threshold: Literal["z", "paper"] | None = "z",
        confidence: float = 0.95,
        inverse: Literal["scio", "clime"] = "scio",
        constraint: float = 0.8,
        share_inverse: bool = False,
        fit_intercept: bool = True,
        if_lost: Literal["leave out", "raise"] = "leave out",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: ClassWeight = None,
        cluster: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.rounds = rounds
        self.threshold = threshold
        self.confidence = confidence
        self.inverse = inverse
        self.constraint = constraint
        self.share_inverse = share_inverse
        self.fit_intercept = fit_intercept
        self.if_lost = if_lost
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.cluster = cluster
        self.verbose = verbose

    def _problem(self) -> HingeL1:
        return HingeL1(self.alpha if self.alpha == "auto" else float(self.alpha), bool(self.fit_intercept))

    def _solver(self) -> DebiasedRounds:
        return DebiasedRounds(
            rounds=self.rounds,
            threshold=self.threshold,
            inverse=self.inverse,
            constraint=self.constraint,
            shares_inverse=bool(self.share_inverse),
            tol=self.tol,
            max_iter=self.max_iter,
        )

    def _task(self, rows: Rows, *, are_rows_checked: bool) -> Task:
        task = super()._task(rows, are_rows_checked=are_rows_checked)
        # Sweeps are rounds here.
        return replace(task, if_lost=self.if_lost, limits=replace(task.limits, max_iter=self.rounds))

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        plain = [model._replace(report={"alpha": model.report["alpha"]}) for model in models]
        attributes = super()._model_attributes(classes, plain)
        reports = [model.report for model in models]
        coef, debiased = attributes["coef_"], np.array([report["coef_debiased"] for report in reports])
        attributes |= {
            "coef_debiased_": debiased,
            "coef_naive_": np.array([report["coef_naive"] for report in reports]),
            "selected_": coef != 0,
            "n_machines_": reports[0]["n_machines"],
            "n_rows_": reports[0]["n_rows"],
        }
        if min(report["n_rounds"] for report in reports) > 1 or reports[0]["n_machines"] == 1:
            errors = np.array([report["standard_error"] for report in reports])
            found = inference(debiased, errors[:, : debiased.shape[1]], self.confidence)
            attributes |= {
                "standard_error_": found.standard_error,
                "coef_interval_": np.stack([found.lower, found.upper], axis=-1),
                "pvalue_": found.p_value,
            }
            if errors.shape[1] > debiased.shape[1]:
                attributes["intercept_standard_error_"] = errors[:, -1]
        return attributes

    def __getattr__(self, name: str) -> Any:
        if name in _INTERVALS and "coef_" in vars(self) and "standard_error_" not in vars(self):
            raise AttributeError(
                f"There is no {name} after rounds=1 on {self.n_machines_} machines: the bias that each machine's own "
                "estimate leaves does not average out, and intervals would not cover. Use rounds=2."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason}, or alpha."

    def _remarks(self) -> dict[str, tuple[type[Warning], str]]:
        blind = (
            "Nothing could be debiased in the last round: no feature was kept before it, or a machine has too few rows "
            "near the margin. Coefficients are those from before that round, and standard errors infinite. Use a "
            "smaller alpha, or more rows on each machine."
        )
        return {**super()._remarks(), "blind": (UserWarning, blind)}

    def _warn(self) -> None:
        """Say also when no error could be estimated: nothing is selected then, however well the classes part."""
        super()._warn()
        errors = vars(self).get("standard_error_")
        if self.stop_reason_ == "blind" or errors is None or np.isfinite(errors).any(axis=1).all():
            return
        warn_user(
            "No standard error could be estimated, so that all of them are infinite and no feature is selected "
            "(coef_ is 0): the classes can be separated, or too few rows lie near the margin. Take HardMarginSVC or "
            "SparseSVC where the classes are separable, or more rows.",
            UserWarning,
        )

    def summary(self) -> CoefficientTable | list[CoefficientTable]:
        """The table of coefficients: debiased estimate, standard error, z, p-value, interval, and what is kept.

        Returns
        -------
        table : CoefficientTable, or a list of them for more than two classes
            ``print(table)`` is text, ``table.frame()`` a pandas DataFrame; Jupyter shows it as HTML.
        """
        check_is_fitted(self)
        tables = [self._table(k) for k in range(len(self.coef_))]
        return tables[0] if len(tables) == 1 else tables

    def _table(self, k: int) -> CoefficientTable:
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]
        columns = {"coef": self.coef_[k], "debiased": self.coef_debiased_[k]}
        if hasattr(self, "standard_error_"):
            error = self.standard_error_[k]
            lower, upper = self.coef_interval_[k].T
            columns |= {
                "std err": error,
                "z": self.coef_debiased_[k] / error,
                "p-value": self.pvalue_[k],
                f"[{(1 - self.confidence) / 2:.3f}": lower,
                f"{(1 + self.confidence) / 2:.3f}]": upper,
            }
        columns["selected"] = self.selected_[k]
        versus = f"class {self.classes_[k]} against the rest" if len(self.coef_) > 1 else f"class {self.classes_[1]}"
        notes = [
            f"N = {self.n_rows_:g} on {self.n_machines_} machine(s), {self.n_features_in_} features, "
            f"{int(self.selected_[k].sum())} selected, intercept {self.intercept_[k]:.4f}",
            "Debiased coefficients of the expected hinge loss; standard errors are of the sandwich form.",
        ]
        if not hasattr(self, "standard_error_"):
            notes.append("No intervals: one round on several machines leaves a bias that they would not cover.")
        return CoefficientTable(f"DebiasedSparseSVC, {versus}", names, columns, notes)
