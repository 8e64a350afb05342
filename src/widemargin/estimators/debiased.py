"""DebiasedSparseSVC: linear SVM coefficients with standard errors and confidence intervals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from widemargin.estimators._base import StopWarnings
from widemargin.estimators._coefficients import (
    SELECTED,
    CoefficientTable,
    CoefficientTables,
    Lines,
    summarised,
)
from widemargin.estimators._formulas import intercept
from widemargin.estimators._linear import LinearClassifier
from widemargin.estimators._types import ClassWeight
from widemargin.estimators.registry import Array, Bracket, Descriptor, Each, Formula, Symbol, register
from widemargin.exceptions import warn_user
from widemargin.problems.debiasing import inference
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.problems.multiple_tests import benjamini_hochberg, holm
from widemargin.problems.protocol import Certificate, gap_as_text
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.debiased import DebiasedRounds
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Result
from widemargin.strategies.protocol import Plan, Rows
from widemargin.strategies.ranks import Ranks

_SHARED_PARAMETERS = ("tol", "max_iter", "class_weight", "cluster", "verbose")
_INTERVALS = ("standard_error_", "coef_interval_", "pvalue_", "intercept_standard_error_")


class DebiasedSparseSVC(LinearClassifier):
    """Linear SVM coefficients with confidence intervals, from data on one machine or on many.

    Estimates the minimiser of the expected hinge loss,

    .. math:: \\beta, b = \\arg\\min E \\max(0, 1 - y (x \\cdot \\beta + b)),

    under the assumption that few coefficients are nonzero. Every machine solves a 1-norm SVM on its own rows
    (:class:`SparseSVC`) and removes the bias of the penalty by a Newton step; the results are averaged and thresholded.
    A second round starts there, with the score of all rows; its result does not depend on how the rows are divided.
    If the coefficients over the threshold fit the rows worse than the 1-norm SVMs do, the model has the same features
    fitted anew without a penalty, or those of the 1-norm SVMs if they fit clearly better. If there can be no intervals,
    ``fit`` warns and says why.
    Machines are the ranks of ``cluster``. They exchange vectors of length ``n_features`` and, for s selected features,
    s x s matrices.

    Parameters
    ----------
    alpha : float > 0 or "auto", default="auto"
        Penalty of the 1-norm SVM of each machine. ``"auto"`` is ``0.7 sqrt(log(n_features) / n)`` times the typical
        scale of the features, with n the rows of that machine.
    rounds : int, default=2
        1 is the paper's method. On several machines it leaves a bias that intervals do not cover, so it gives none.
    threshold : {"z", "paper"} or None, default="z"
        Which debiased coefficients are selected: ``"z"`` those above ``sqrt(2 log(n_features))`` standard errors,
        ``"paper"`` as many as the largest 1-norm SVM of any machine has, None all.
    confidence : float in (0, 1), default=0.95
        Confidence level of the intervals.
    inverse : {"scio", "clime"}, default="scio"
        How rows of the inverse Hessian are computed: by coordinate descent, or by the paper's linear programs, which
        suit a few hundred features at most.
    constraint : float > 0, default=0.8
        Allowed error of the approximate inverse, in units of the error of the Hessian, ``sqrt(log(p) / n)`` for the n
        rows near the margin. Smaller values are slower and less biased.
    share_inverse : bool, default=False
        Whether each machine computes only some rows of the inverse, for all machines. Faster by the number of machines
        but less accurate, as each row is estimated from one machine's data alone.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    if_lost : {"leave out", "raise"}, default="leave out"
        What to do when a machine of a Dask cluster is lost: continue without its rows and warn, or raise an error.
    tol : float, default=1e-6
        Stop a 1-norm SVM when its relative gap is at most ``tol``.
    max_iter : int, default=1000
        Maximum number of sweeps per 1-norm SVM.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight. N is the
        sum of weights.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        The machines: one (None), that many in this process (int), the workers of a Dask cluster (client), or MPI ranks
        that each call ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask collections.
    verbose : int, default=0
        1 shows one line at the end.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Debiased and thresholded, or fitted anew where that fits the rows worse than ``coef_naive_``. One row for two
        classes; with more, one for each class against the rest.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercept for ``coef_``.
    coef_debiased_, coef_naive_ : ndarray of the shape of ``coef_``
        Coefficients before thresholding, and the average of the machines' 1-norm SVMs.
    standard_error_, pvalue_ : ndarray of the shape of ``coef_``
        Standard errors of the debiased coefficients, and two-sided p-values of the hypothesis that they are zero. An
        error is infinite, and its p-value 1, for a feature that is constant or equal to another one near the margin,
        and for all features if nothing can be debiased.
    coef_interval_ : ndarray of shape (n_rows_of_coef, n_features, 2)
        Lower and upper bounds. These three attributes do not exist after one round on several machines.
    intercept_standard_error_ : ndarray of shape (1,) or (n_classes,)
        Only with an intercept and ``share_inverse=False``.
    selected_ : ndarray of bool, of the shape of ``coef_``
        Which debiased coefficients are over the threshold.
    alpha_ : float or ndarray of shape (n_classes,)
        The penalty, averaged over machines.
    n_machines_, n_rows_ : int, float
        Number of machines that took part, and the total weight of their rows: the N of the standard errors.
    certificate_ : Certificate
        ``primal`` is the mean hinge loss of this model on all rows. ``dual`` is a lower bound of the mean hinge loss of
        every model of the same features whose 1-norm is at most ten times that of this one; it is 0 if the features
        separate the classes, or if there are over 500. With several classes, those of the class with the largest gap.
    pilot_certificate_ : Certificate
        Certificate of the 1-norm SVM with the largest gap, to which ``tol`` applies.
    stop_reason_ : str
        ``"rounds"``: all rounds were done. ``"blind"``: the last was not possible, and standard errors are infinite.
        ``"pilot"``: the gap of a 1-norm SVM is above ``tol``. ``"callback"``, ``"interrupted"``.
    history_, cost_, n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`SparseSVC`; ``n_iter_`` counts rounds.

    See Also
    --------
    SparseSVC : The 1-norm SVM itself; on one machine it solves all rows in about a second.

    Notes
    -----
    Divide rows among machines if they cannot be brought together, not for speed. Intervals are for the minimiser of the
    expected hinge loss, not for the coefficients of a true model of the labels. They are asymptotic, and not reliable
    with fewer rows near the margin than features with an effect. Do not use it with nearly identical features.

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

    penalty: ClassVar[str] = "l1"  # SelectFromModel then keeps coefficients above 1e-5

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{name: LinearClassifier._parameter_constraints[name] for name in _SHARED_PARAMETERS},
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "rounds": [Interval(Integral, 1, None, closed="left")],
        "threshold": [StrOptions({"z", "paper"}), None],
        "confidence": [Interval(Real, 0, 1, closed="neither")],
        "inverse": [StrOptions({"scio", "clime"})],
        "constraint": [Interval(Real, 0, None, closed="neither")],
        "share_inverse": ["boolean"],
        "fit_intercept": ["boolean"],
        "if_lost": [StrOptions({"leave out", "raise"})],
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

    def _plan(self) -> Plan:
        plan = super()._plan()
        return replace(plan, limits=replace(plan.limits, max_iter=self.rounds))  # a sweep is a round

    def _ranks(self, rows: Rows, **more: Any) -> Ranks:
        return super()._ranks(rows, if_lost=self.if_lost, **more)

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        plain = [model._replace(report={"alpha": model.report["alpha"]}) for model in models]
        attributes = super()._model_attributes(classes, plain)
        reports = [model.report for model in models]
        debiased = np.array([report["coef_debiased"] for report in reports])
        attributes |= {
            "coef_debiased_": debiased,
            "coef_naive_": np.array([report["coef_naive"] for report in reports]),
            "selected_": np.array([report["selected"] for report in reports]),
            "n_machines_": reports[0]["n_machines"],
            "n_rows_": reports[0]["n_rows"],
            "pilot_certificate_": max((report["pilot_certificate"] for report in reports), key=lambda c: c.relative),
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
                f"There is no {name} after rounds=1 on {self.n_machines_} machines: the bias of each machine's own "
                "estimate does not average out, so intervals would not cover. Use rounds=2."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _remedies(self) -> list[str]:
        return [f"a smaller alpha (it is {np.min(self.alpha_):.3g})", "SparseSVCCV", "more rows"]

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason} or alpha."

    def _stop_warnings(self) -> StopWarnings:
        """Warnings for 1-norm SVMs that were not solved, and for rounds that were not possible."""
        gap = gap_as_text(self.pilot_certificate_.relative)
        pilot = (
            f"A 1-norm SVM did not converge: its relative gap is {gap}, above tol={self.tol:g}, after at most "
            f"max_iter={self.max_iter} sweeps. Scale the features (StandardScaler), raise max_iter or alpha, or use a "
            "larger tol."
        )
        obstacles = sorted({part.model.report["obstacle"] for part in self.parts_} - {""})
        blind = (
            f"Nothing could be debiased in the last round: {'; '.join(obstacles)}. The coefficients are those of the "
            "round before, and standard errors are infinite. Use more rows, fewer features or a smaller alpha; if the "
            "classes are separable, use HardMarginSVC or SparseSVC, which need no rows within the margin."
        )
        return {
            **super()._stop_warnings(),
            "pilot": (ConvergenceWarning, pilot),
            "blind": (UserWarning, blind),
        }

    def _warn(self) -> None:
        super()._warn()
        replaced = [k for k, part in enumerate(self.parts_) if not part.model.report["has_threshold_held"]]
        if self.stop_reason_ != "blind" and replaced:
            k = replaced[0]
            warn_user(
                f"The {int(self.selected_[k].sum())} feature(s) over the threshold fit the rows worse than the 1-norm "
                f"SVM does, so coef_ has the {np.count_nonzero(self.coef_[k])} features of the 1-norm SVM, fitted anew "
                "without a penalty; selected_ has those over the threshold. Intervals are not affected. Use more rows, "
                "or leave out features that are nearly the same.",
                UserWarning,
            )

    def summary(
        self, feature_names: ArrayLike | None = None, *, sort: bool = True, level: float = 0.1
    ) -> CoefficientTable | CoefficientTables:
        """Return the table of coefficients, the largest absolute z first.

        It has estimates, standard errors, p-values, intervals, and which features are selected.

        Column ``Holm`` has p-values adjusted so that, of the features at or below a level, the probability of any false
        one is at most that level; ``BH`` those of Benjamini and Hochberg, for the expected share of false ones.

        Parameters
        ----------
        feature_names : array-like of str, default=None
            Names of the features, such as ``pipeline[:-1].get_feature_names_out()`` for the last step of a pipeline.
            None takes those of the columns that ``fit`` saw; without any they are x0, x1, ...
        sort : bool, default=True
            Whether to sort by the absolute z. False keeps the order of the features.
        level : float in (0, 1), default=0.1
            Level at which the notes below the table count features, by each adjustment.

        Returns
        -------
        table : CoefficientTable, or CoefficientTables with one for each class if there are more than two
            ``print(table)`` shows text, ``table.frame()`` returns a pandas DataFrame, Jupyter shows HTML.
        """
        check_is_fitted(self)
        if not 0 < level < 1:
            raise ValueError(f"level={level!r} is a probability, or a share of false features: it must lie in (0, 1).")
        return summarised(self, feature_names, sort, partial(self._lines, level))

    def _lines(self, level: float, k: int) -> Lines:
        debiased, notes = self.coef_debiased_[k], []
        columns, size = {"coef": self.coef_[k], "debiased": debiased}, np.abs(debiased)
        if hasattr(self, "standard_error_"):
            error, p_value = self.standard_error_[k], self.pvalue_[k]
            lower, upper = self.coef_interval_[k].T
            columns |= {
                "std err": error,
                "z": debiased / error,
                "p-value": p_value,
                "Holm": holm(p_value),
                "BH": benjamini_hochberg(p_value),
                f"[{(1 - self.confidence) / 2:.3f}": lower,
                f"{(1 + self.confidence) / 2:.3f}]": upper,
            }
            size = np.abs(columns["z"])
            n_holm, n_bh = (int(np.sum(columns[name] <= level)) for name in ("Holm", "BH"))
            notes.append(
                f"Holm and BH are p-values adjusted for {len(debiased):,} features. At level {level:g}: {n_bh} by "
                f"Benjamini-Hochberg (expected share of false ones at most {level:g}), {n_holm} by Holm (probability "
                f"of any false one at most {level:g})."
            )
        columns[SELECTED] = self.selected_[k]
        notes = [
            f"N = {self.n_rows_:g} on {self.n_machines_} machine(s), {self.n_features_in_} features, "
            f"{int(self.selected_[k].sum())} selected, intercept {self.intercept_[k]:.4f}",
            "Debiased coefficients of the expected hinge loss; sandwich standard errors.",
            *notes,
        ]
        report = self.parts_[k].model.report  # older files lack some of its entries
        if report.get("obstacle"):
            notes.append(f"No intervals: {report['obstacle']}.")
        if not report.get("has_threshold_held", True):
            notes.append("The features of the 1-norm SVM are kept: those over the threshold fit the rows worse.")
        if not hasattr(self, "standard_error_"):
            notes.append("No intervals: one round on several machines leaves a bias that they do not cover.")
        return Lines(columns, size, notes)


def _formula(model: DebiasedSparseSVC) -> Formula:
    alpha, n_machines = getattr(model, "alpha_", model.alpha), getattr(model, "n_machines_", None)
    symbols: list[Symbol | str] = []
    if not isinstance(alpha, str):
        symbols.append(Symbol("α", alpha, "of the 1-norm SVM of each machine"))
    if n_machines is not None:
        symbols.append(f"{model.n_rows_:g} rows on {n_machines} machine{'s' if n_machines > 1 else ''}")
    symbols.append(f"{model.rounds} round{'s' if model.rounds > 1 else ''} of debiasing")
    return Formula(
        "The coefficients of the least expected hinge loss, with intervals: every machine solves a 1-norm SVM of its "
        "own rows, removes the bias of its penalty by a Newton step, and the results are averaged and thresholded.",
        f"minimise E max(0, 1 − <var>y</var>(<var>x</var>·β{intercept(model)}))",
        symbols,
    )


def _bracket(model: DebiasedSparseSVC) -> Bracket:
    if hasattr(model, "pilot_certificate_"):
        return Bracket(
            "The least mean hinge loss of a model of these features on these rows",
            "the loss of this model is within {} of it",
            quantity="mean hinge loss",
        )
    return Bracket(  # files written before there was a certificate of the model itself
        "The 1-norm SVM that every machine solves first was solved nearly exactly: for the one with the largest gap "
        "the optimum",
        "its objective is within {} of the best possible",
    )


register(
    Descriptor(
        DebiasedSparseSVC,
        command="debiased",
        problem=_formula,
        bracket=_bracket,
        fitted={
            **dict.fromkeys(("coef_debiased_", "coef_naive_", "standard_error_", "pvalue_"), Array("f", "PD")),
            "coef_interval_": Array("f", "PDE"),
            "intercept_standard_error_": Array("f", "P"),
            "selected_": Array("b", "PD"),
            "alpha_": Each("f"),
            "n_machines_": int,
            "n_rows_": float,
            "pilot_certificate_": Certificate,
        },
    )
)
