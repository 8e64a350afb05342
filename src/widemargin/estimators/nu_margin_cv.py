"""NuMarginSVCCV: the linear nu-SVM whose nu is chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from widemargin.comm.solo import Solo
from widemargin.data.shard import Shard
from widemargin.estimators._cross_validated import GRID, Axes, CrossValidated
from widemargin.estimators._grids import checked_grid, grid_of_Cs
from widemargin.estimators._selection import check_table
from widemargin.estimators._types import ClassWeight, Folder
from widemargin.estimators.nu_margin import NuMarginSVC, formula
from widemargin.estimators.registry import MARGIN, Descriptor, Formula, Symbol, register
from widemargin.kernels.functions import Kernel
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.polytope import NuMargin, largest_nu
from widemargin.solvers.auto import small_linear_csvm
from widemargin.solvers.hull_multipliers import is_best_cold
from widemargin.solvers.run import Limits, Start, Watched, end_of, sweeps
from widemargin.strategies.fold_paths import FoldPaths
from widemargin.strategies.protocol import Rows

_ROUGH = 1e-2  # relative gap of the C-SVM that tells the smallest nu
_CACHE_BYTES = 1 << 25  # of the inner products of a small problem
_SMALLEST, _LARGEST = 1e-3, 0.9  # of the smallest nu of a grid, relative to the largest


class NuMarginSVCCV(CrossValidated, NuMarginSVC):
    """Linear nu-SVM whose nu is chosen by cross-validation.

    Fits :class:`NuMarginSVC` to the training rows of every fold for a grid of nu, chooses the nu with the best mean
    score on held-out rows, and fits all rows with it. Folds run in parallel, each from the largest nu to the smallest,
    and a fit starts at the previous solution where that saves time. Every fit has a certificate.

    Parameters
    ----------
    nus : int or array-like, default=10
        Values of nu. An integer is the number of values, spaced logarithmically from the nu of the C-SVM at
        C = 1000 / (mean squared length of rows) to the largest nu that is feasible on all folds.
    cv : int, cross-validation generator or iterable, default=5
        How to split the rows; an integer is the number of stratified folds.
    scoring : str, callable, list, tuple or dict, default=None
        Score of held-out rows, as in ``GridSearchCV``; None is accuracy. The first of several decides. Sample weights
        also count in the score.
    refine : bool, default=True
        Whether to try more values around the best one of the grid, half a step away, and at most half a decade outside
        the grid.
    selection : {"best", "one-standard-error"}, default="best"
        ``"best"`` takes the highest mean score, and the widest margin among ties. ``"one-standard-error"`` takes the
        widest margin of all values whose mean score is within one standard error of the best.
    tol : float, default=1e-3
        Relative gap at which fits stop.
    max_iter : int, default=1000
        Maximum number of sweeps per fit and pair of classes.
    max_time : float, default=None
        Maximum time in seconds for the search, and again per pair of classes for the final fit; None is no limit.
        A value counts as tried once all its folds are done. If none is, the middle of the grid is fitted.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the search and the final fit run: in this process (None, or a number of threads for the final fit; the
        search always uses all cores), on the workers of a Dask cluster (client), or on MPI ranks that each call
        ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask collections. Ranks share the fits of the
        search, and each rank gets all rows; scores do not depend on the number of ranks.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves the values of the search as they end, and the state of the final fit. ``fit`` with
        the same folder, data, grids and folds resumes there.
    verbose : int, default=0
        1 shows a progress line: the number of finished values and the best score, then the gap and ``tol`` of the final
        fit.

    Attributes
    ----------
    best_params_ : dict
        The chosen ``nu``.
    best_score_ : float
        Its mean score over folds; nan if no value was tried.
    best_index_ : int
        Its index in ``cv_results_`` and ``scores_``.
    cv_results_ : dict of str to array
        Scores and times of all values, as in ``GridSearchCV``, and for each ``n_support`` (mean over folds), ``gap``
        (the largest certified relative gap over folds) and ``state``: ``"certified"`` if the gap is at most ``tol``,
        ``"estimated"`` if it is larger, ``"overlap"`` if the reduced hulls of a fold overlap, ``"undecided"`` if they
        may overlap, ``"infeasible"`` if nu is too large for a fold, or ``"not tried"``. If hulls overlap, the model is
        not unique and has no support vectors: such a value is chosen only if there is no other.
    scores_ : ndarray of shape (n_values, n_folds)
        Scores by which values are compared; nan for values without scores.
    n_splits_ : int
        Number of folds.
    spread_ : {"tasks", "none"}
        What ranks shared in the search: its fits (``"tasks"``), or nothing, in one process.
    classes_, coef_, intercept_, nu_, cap_, support_, dual_coef_, n_support_, certificate_, stop_reason_, history_, \
n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`NuMarginSVC`, for the final model.
    cost_ : Ledger
        Seconds per phase, of the search and the final fit.

    See Also
    --------
    NuMarginSVC : The same for one nu.
    KernelSVCCV : The C-SVM with kernels, or without, by cross-validation.

    Notes
    -----
    A certified gap bounds how far the margin of a fit is from the widest possible. It does not bound a score.

    The first Ctrl-C ends the search, and the best value so far is fitted to all rows. Callbacks see a task
    ``"search"`` with a task ``"point"`` for each value, and then the final fit. A callback that asks to stop at a value
    ends the search.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import NuMarginSVCCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = NuMarginSVCCV(nus=[0.05, 0.1, 0.3, 0.6], refine=False).fit(scale(X), y)
    >>> model.best_params_
    {'nu': 0.05}
    >>> model.scores_.shape
    (4, 5)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **CrossValidated._parameter_constraints,
        "nus": GRID,
        **{name: NuMarginSVC._parameter_constraints[name] for name in ("cluster", "checkpoint")},
    }
    _refined = ("nu",)
    block_size: Any = "auto"

    def __init__(
        self,
        *,
        nus: Any = 10,
        cv: Any = 5,
        scoring: Any = None,
        refine: bool = True,
        selection: Literal["best", "one-standard-error"] = "best",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.nus = nus
        self.cv = cv
        self.scoring = scoring
        self.refine = refine
        self.selection = selection
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def nu(self) -> float:  # type: ignore[override]
        """That of the final fit."""
        return self._chosen["nu"]

    def _problem_at(self, values: dict[str, float]) -> NuMargin:
        return NuMargin(values["nu"])

    def _problem(self) -> NuMargin:
        return self._problem_at(self._chosen)

    def _grids(self, rows: Rows, paths: FoldPaths) -> Axes:
        """The largest nu comes first: its hulls are the smallest, and overlap least."""
        if isinstance(self.nus, int | np.integer):
            largest = min(largest_nu(*weights) for weights in paths.weights())
            least = float(np.clip(_least_nu(rows, paths), _SMALLEST * largest, _LARGEST * largest))
            values = np.geomspace(least, largest, int(self.nus)) if self.nus > 1 else np.sqrt([least * largest])
        else:
            values = checked_grid("nus", self.nus)
            if values[-1] > 1:
                raise ValueError(f"nus={self.nus!r} must be a number of values, or a list of numbers in (0, 1].")
        return {"nu": values[::-1].tolist()}

    def _has_warm_starts(self, shard: Shard) -> bool:
        return not is_best_cold(shard.n_rows, shard.n_features)

    def _remedies(self) -> list[str]:
        return [f"other nus (cross-validation chose {self.nu:.3g})", *super()._remedies()[1:]]


def _least_nu(rows: Rows, paths: FoldPaths) -> float:
    """The nu of the C-SVM at a large C on all rows, of the pair of classes where it is largest.

    With alphas of sum S, and rows of weight W, it is ``S / (W C)``.
    """
    folds = paths.folds
    squares = Kernel("linear").diagonal(rows.X, np.arange(rows.X.shape[0]))
    C = float(grid_of_Cs(2, squares, rows.weight)[-1])
    present = np.flatnonzero(rows.weight)
    shard = Shard(folds.shard.X, folds.shard.y, folds.weights((present, present[:0]))).take(present)
    solver, limits = small_linear_csvm(_CACHE_BYTES, _ROUGH), Limits(_ROUGH, folds.limits.max_iter)
    ask: Callable[[Any], str | None] = lambda report: folds.ask() or None  # noqa: E731
    found: dict[int, float] = {}

    def solve(parts: Sequence[int]) -> None:
        for part in parts:
            labelled, rng = folds.parts.labelled(shard, part), np.random.default_rng(0)
            solved = end_of(sweeps(solver, HingeL2(C), labelled, Solo(), limits, rng, Start(), Watched(ask)))
            if solved.coefficients is not None:
                found[part] = float(np.abs(solved.coefficients).sum() / (labelled.weight.sum() * C))

    return float(max(folds.crew.shared(range(len(folds.parts)), solve, lambda part: found.get(part, 0.0))))


def _formula(model: NuMarginSVCCV) -> Formula:
    return formula(model)._replace(symbols=[Symbol("ν", model.nu, "chosen by cross-validation")])


register(Descriptor(NuMarginSVCCV, command=None, problem=_formula, bracket=MARGIN, check=check_table))
