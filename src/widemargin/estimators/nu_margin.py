"""NuMarginSVC: the linear nu-SVM."""

from __future__ import annotations

from itertools import combinations
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, column_or_1d

from widemargin.estimators._formulas import HALF_NORM, score
from widemargin.estimators._linear import HullClassifier
from widemargin.estimators._types import ClassWeight, Folder, RandomState
from widemargin.estimators.registry import MARGIN, Descriptor, Each, Formula, Symbol, register
from widemargin.estimators.words import NO_MARGIN
from widemargin.problems.polytope import NuMargin, largest_nu
from widemargin.sklearn_private import Interval, StrOptions, check_sample_weight
from widemargin.solvers.auto import Auto, Stalled
from widemargin.solvers.hull_multipliers import HullMultipliers
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.nu_of_c import NuOfC
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.saddle import SaddlePoint
from widemargin.solvers.separating import Separating

_PATIENCE = 30  # certificates that do not halve the gap, before another solver takes over


class NuMarginSVC(HullClassifier):
    """Certified linear nu-SVM: solves scikit-learn's ``NuSVC(kernel="linear")`` in near-linear time.

    Solves, for each pair of classes,

    .. math:: \\min_{w,b,\\rho,\\delta} \\tfrac12 \\|w\\|^2 - \\nu \\rho + \\tfrac1n \\sum_i \\delta_i
       \\quad\\text{subject to}\\quad y_i (w \\cdot x_i + b) \\ge \\rho - \\delta_i,\\;
       \\delta_i \\ge 0,\\; \\rho \\ge 0

    through its dual: the distance between the two reduced convex hulls, where the mass of each row is at most
    ``cap_ = 2 / (nu * n)``. The certificate brackets this distance: ``certificate_.primal`` is the distance between
    two points of the hulls, ``certificate_.dual`` the margin of the model, both rounded outwards by the largest error
    that rounding can have made. A negative margin is how far the hulls reach past each other along ``coef_``.

    Parameters
    ----------
    nu : float in (0, 1] or "auto", default="auto"
        Upper bound on the share of margin errors and lower bound on the share of support vectors; at most
        :func:`max_nu`. ``"auto"`` is the nu of the C-SVM at C = 1 on the same rows, for each pair of classes: the
        model is then that of ``SVC(kernel="linear")`` where each class has a support vector strictly within its bounds
        (see Notes). ``0.85 * max_nu(y)`` is the value of the paper.
    solver : {"auto", "multipliers", "newton", "saddle"}, default="auto"
        ``"multipliers"`` is the method of multipliers with semismooth Newton steps; ``"newton"`` is Newton's method on
        the entropic saddle point; ``"saddle"`` is the paper's Saddle-SVC. ``"auto"`` starts with the multipliers and
        switches to Newton, then to Saddle-SVC, if the gap stalls. With ``nu="auto"`` each starts at the solution of the
        C-SVM, which mostly leaves it nothing to do.
    block_size : int or "auto", default="auto"
        Coordinates updated per step of ``solver="saddle"``, and sent per round between ranks; 1 is the paper's method.
    tol : float, default=1e-3
        Stop when the relative gap, 1 - margin / distance, is at most ``tol``.
    max_iter : int, default=1000
        Maximum number of sweeps per pair of classes.
    max_time : float, default=None
        Maximum time in seconds per pair of classes; None is no limit.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    warm_start : bool, default=False
        Start from the solution of the previous ``fit``.
    random_state : int, RandomState instance or None, default=None
        Seed for the random rotation and blocks of ``solver="saddle"``.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the fit runs: in this process (None), on this many threads (int), on the workers of a Dask cluster
        (client), or on MPI ranks that each call ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask
        collections. The same seed and number of ranks give bit-identical results.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves its state every few sweeps. ``fit`` with the same folder and data resumes from it.
    verbose : int, default=0
        1 shows a progress line with the gap and ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_pairs, n_features)
        In LIBSVM's scale: rows on the margin score +1 and -1. Two classes form one pair; more classes form one pair
        for every two, in LIBSVM's order.
    intercept_ : ndarray of shape (n_pairs,)
        Equal to LIBSVM's.
    nu_ : float or ndarray of shape (n_pairs,)
        The nu that was used.
    cap_ : float or ndarray of shape (n_pairs,)
        Largest mass of a row of weight 1; the paper calls it nu.
    support_ : ndarray of shape (n_SV,)
        Row indices of the support vectors of all pairs: rows with mass. Absent for Dask collections, whose rows have no
        index, and where hulls overlap, since no rows make up the model then.
    dual_coef_ : ndarray of shape (n_pairs, n_SV)
        Masses of the support vectors times their labels, in LIBSVM's scale: ``coef_`` is ``dual_coef_ @ X[support_]``
        but for what the gap leaves open.
    n_support_ : ndarray of shape (n_pairs,)
        Number of support vectors of each pair; LIBSVM's is by class.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst pair.
    stop_reason_ : str
        ``"gap"``, ``"max_iter"``, ``"max_time"``, ``"callback"``, ``"interrupted"``, ``"precision"`` (rounding keeps
        the gap open), ``"overlap"`` (it is proved that no margin is over 1e-12 of the radius of the rows, with columns
        scaled to equal spread), or ``"undecided"`` (neither that nor a margin was proved). Without a margin the model
        is the best separator found.
    history_ : list of dict
        One entry per certified sweep: seconds, primal, dual and cost counters; for ``pandas.DataFrame(history_)``.
    cost_ : Ledger
        Rounds, messages, scalars, bytes and seconds per phase, summed over pairs and ranks.
    n_iter_ : int
        Sweeps of the worst pair.
    parts_ : list of Result
        The results of all pairs.
    training_ : TrainingCounts
        The training rows of each class by weight, those classified correctly, and those given each class; has
        ``accuracy`` and ``largest_class_share``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    See Also
    --------
    max_nu : The largest feasible nu for given labels.
    HardMarginSVC : For linearly separable classes.

    Notes
    -----
    Do not use it for nonlinear boundaries (see :class:`KernelSVC`), or with a nu so small that the reduced hulls
    overlap: the margin is then zero and the direction is not unique, in any library. ``fit`` warns; raise nu.

    The optimum of the C-SVM is that of the nu-SVM at one nu, :math:`\\nu(C) = \\sum_i \\alpha_i / (n C)`, which falls
    as C grows, to a limit below which the reduced hulls overlap; ``nu="auto"`` reports :math:`\\nu(1)` as ``nu_``.
    Rows of one class that are all at their bounds, or all without mass, leave the intercept and the scale of ``coef_``
    open: a level anywhere between two neighbouring scores is optimal, and the middle is taken.

    References
    ----------
    Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.

    D. Crisp, C. Burges: A Geometric Interpretation of nu-SVM Classifiers, NIPS 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import NuMarginSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = NuMarginSVC(nu=0.2).fit(scale(X), y)
    >>> model.stop_reason_, model.certificate_.relative <= 1e-3
    ('gap', True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **HullClassifier._parameter_constraints,
        "nu": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "solver": [StrOptions({"auto", "multipliers", "newton", "saddle"})],
    }
    _zero_margin_advice = "No positive margin was found yet: the reduced hulls may overlap. If so, raise nu."

    def __init__(
        self,
        *,
        nu: float | Literal["auto"] = "auto",
        solver: Literal["auto", "multipliers", "newton", "saddle"] = "auto",
        block_size: int | Literal["auto"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.nu = nu
        self.solver = solver
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _problem(self) -> NuMargin:
        return NuMargin(self.nu if self.nu == "auto" else float(self.nu))

    def _solver(self) -> AnySolver:
        solvers: dict[str, AnySolver] = {
            "multipliers": HullMultipliers(tol=float(self.tol)),
            "newton": EntropicNewton(),
            "saddle": SaddlePoint(block_size=self.block_size),
        }
        if self.solver == "auto":
            solver: AnySolver = Auto(tuple(solvers.values()), hand_over=Stalled(_PATIENCE))
        else:
            solver = solvers[self.solver]
        return NuOfC(Separating(solver), float(self.tol))

    def _remedies(self) -> list[str]:
        nu = f"another nu (it is {np.min(self.nu_):.3g}, and at most max_nu(y))"
        return [nu, *super()._remedies(), "KernelSVC if the boundary is curved"]

    def _overlap_text(self) -> str:
        return (
            f"The reduced convex hulls of the classes overlap at nu={np.min(self.nu_):.4g}: no margin is over "
            f"{NO_MARGIN}, which is proved, and the direction of the hyperplane is not unique. The model is the best "
            "separator found. Raise nu (at most max_nu(y)), which shrinks the hulls."
        )

    def _undecided_text(self) -> str:
        return (
            f"Rounding leaves undecided whether the reduced convex hulls overlap at nu={np.min(self.nu_):.4g}: no "
            f"positive margin was found, nor a proof that none is over {NO_MARGIN}; the hulls are at most "
            f"{self.certificate_.primal:.2g} apart. The model is the best separator found. Raise nu (at most "
            "max_nu(y)), which shrinks the hulls, or scale the features (StandardScaler)."
        )


def max_nu(y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Return the largest nu that is feasible for every pair of classes in ``y``.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels of two or more classes.
    sample_weight : array-like of shape (n_samples,), default=None
        Multiplicity of each row.

    Returns
    -------
    nu : float
        ``2 * min(W1, W2) / (W1 + W2)`` for the pair of classes with the most unequal weights W1 and W2.

    Examples
    --------
    >>> from widemargin import max_nu
    >>> max_nu([0, 0, 0, 1])
    0.5
    """
    labels: np.ndarray = column_or_1d(y)
    check_consistent_length(labels, sample_weight)
    weight = check_sample_weight(sample_weight, labels[:, None], dtype=np.float64, ensure_non_negative=True)
    classes, codes = np.unique(labels[weight > 0], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"max_nu needs at least 2 classes with positive weight, got {classes.tolist()}.")
    totals = np.bincount(codes, weight[weight > 0])
    return float(min(largest_nu(first, second) for first, second in combinations(totals, 2)))


def formula(model: NuMarginSVC) -> Formula:
    nu = getattr(model, "nu_", model.nu)
    rule = "that of the C-SVM at C = 1" if model.nu == "auto" else ""
    return Formula(
        "The hyperplane with the widest margin that leaves a share of the rows on its wrong side, found as the "
        "distance between the reduced convex hulls of the classes.",
        f"minimise {HALF_NORM} − νρ + (1/<var>n</var>) Σ<sub>i</sub> δ<sub>i</sub> subject to "
        f"<var>y</var><sub>i</sub>({score(model)}) ≥ ρ − δ<sub>i</sub>, δ<sub>i</sub> ≥ 0, ρ ≥ 0",
        [] if isinstance(nu, str) else [Symbol("ν", nu, rule)],
    )


register(
    Descriptor(
        NuMarginSVC, command="nu-margin", problem=formula, bracket=MARGIN, fitted={"nu_": Each("f"), "cap_": Each("f")}
    )
)
