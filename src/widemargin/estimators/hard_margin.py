"""HardMarginSVC: the hard-margin linear SVM."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from widemargin.estimators._formulas import HALF_NORM, score
from widemargin.estimators._linear import HullClassifier
from widemargin.estimators._types import Folder, RandomState
from widemargin.estimators.registry import MARGIN, Descriptor, Formula, register
from widemargin.estimators.words import NO_MARGIN
from widemargin.problems.polytope import HardMargin
from widemargin.sklearn_private import StrOptions
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.auto import Auto, Stalled
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.saddle import SaddlePoint
from widemargin.solvers.separating import Separating


class HardMarginSVC(HullClassifier):
    """Certified hard-margin linear SVM for separable classes.

    Solves, for each pair of classes,

    .. math:: \\min_{w,b} \\tfrac12 \\|w\\|^2 \\quad\\text{subject to}\\quad y_i (w \\cdot x_i + b) \\ge 1
       \\text{ for all } i,

    through its dual: the distance between the convex hulls of the two classes. The certificate brackets this distance:
    ``certificate_.primal`` is the distance between two points of the hulls, ``certificate_.dual`` the model's margin,
    both rounded outwards by the largest error that rounding can have made. A negative margin is how far the hulls reach
    past each other along ``coef_``.

    Parameters
    ----------
    solver : {"auto", "active-set", "newton", "saddle"}, default="auto"
        ``"active-set"`` grows a working set of rows and solves it exactly; ``"newton"`` is Newton's method on the
        entropic saddle point; ``"saddle"`` is the paper's Saddle-SVC. ``"auto"`` starts with the active set and
        switches to Newton if it stalls.
    block_size : int or "auto", default="auto"
        Coordinates updated per step of ``solver="saddle"``, and sent per round between ranks; 1 is the paper's method.
    tol : float, default=1e-3
        Stop when the relative gap, 1 - margin / distance, is at most ``tol``.
    max_iter : int, default=1000
        Maximum number of sweeps per pair of classes.
    max_time : float, default=None
        Maximum time in seconds per pair of classes; None is no limit.
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
    support_, dual_coef_, n_support_
        Support vectors as in :class:`NuMarginSVC`.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst pair.
    stop_reason_ : str
        ``"gap"``, ``"max_iter"``, ``"max_time"``, ``"callback"``, ``"interrupted"``, ``"precision"`` (rounding keeps
        the gap open), ``"overlap"`` (it is proved that no separator has a margin over 1e-12 of the radius of the rows,
        with columns scaled to equal spread), or ``"undecided"`` (neither that nor a margin was proved). Without a
        margin the model is the best separator found.
    history_, cost_, n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`NuMarginSVC`.

    See Also
    --------
    NuMarginSVC : For overlapping classes.

    Notes
    -----
    Use it only for data known to be separable: a single mislabelled row can change the model completely. A row with
    positive weight counts as present, whatever the weight, since repeating a vertex does not change a hull. There is no
    ``class_weight`` for the same reason.

    References
    ----------
    Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from widemargin import HardMarginSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = HardMarginSVC(tol=1e-6).fit(X, y == 0)
    >>> round(model.certificate_.primal, 5), model.stop_reason_
    (1.63511, 'gap')
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **HullClassifier._parameter_constraints,
        "solver": [StrOptions({"auto", "active-set", "newton", "saddle"})],
    }
    del _parameter_constraints["class_weight"]
    _counts_weight: ClassVar[bool] = False
    _zero_margin_advice = "No separating hyperplane was found yet: the classes may overlap. If so, use NuMarginSVC."

    def __init__(
        self,
        *,
        solver: Literal["auto", "active-set", "newton", "saddle"] = "auto",
        block_size: int | Literal["auto"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_time: float | None = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.solver = solver
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.warm_start = warm_start
        self.random_state = random_state
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _problem(self) -> HardMargin:
        return HardMargin()

    def _solver(self) -> AnySolver:
        if self.solver == "auto":
            return Separating(Auto((ActiveSet(), EntropicNewton()), hand_over=Stalled()))
        if self.solver == "saddle":
            return Separating(SaddlePoint(block_size=self.block_size))
        return Separating(ActiveSet() if self.solver == "active-set" else EntropicNewton())

    def _remedies(self) -> list[str]:
        return ["NuMarginSVC, which allows margin errors", "KernelSVC if the boundary is curved"]

    def _overlap_text(self) -> str:
        return (
            "The classes are not linearly separable: their convex hulls intersect, or no hyperplane has a margin over "
            f"{NO_MARGIN}, which is proved. The model is the best separator found. Use NuMarginSVC, which allows "
            "margin errors."
        )

    def _undecided_text(self) -> str:
        return (
            "Rounding leaves undecided whether the classes are linearly separable: no separating hyperplane was found, "
            f"nor a proof that none has a margin over {NO_MARGIN}; the convex hulls are at most "
            f"{self.certificate_.primal:.2g} apart. The model is the best separator found. Look for rows of different "
            "classes that hardly differ, scale the features (StandardScaler), or use NuMarginSVC."
        )


def _formula(model: HardMarginSVC) -> Formula:
    return Formula(
        "The hyperplane with the widest margin between classes that do not overlap, found as the distance between "
        "their convex hulls.",
        f"minimise {HALF_NORM} subject to <var>y</var><sub>i</sub>({score(model)}) ≥ 1 for all rows <var>i</var>",
        [],
    )


register(Descriptor(HardMarginSVC, command="hard-margin", problem=_formula, bracket=MARGIN))
