"""MarginDistributionSVCCV: the optimal margin distribution machine, with parameters chosen by cross-validation."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from widemargin.comm.protocol import Communicator
from widemargin.estimators._cross_validated import GRID, Axes, CrossValidated
from widemargin.estimators._grids import free_bytes, grid_of_Cs, grid_of_gammas
from widemargin.estimators._kernel import KernelClassifier, check_square
from widemargin.estimators._search import bytes_on_rank
from widemargin.estimators._selection import check_table
from widemargin.estimators._types import ClassWeight, Folder
from widemargin.estimators.margin_distribution import MarginDistributionSVC, formula
from widemargin.estimators.registry import Descriptor, Formula, Symbol, register
from widemargin.kernels.functions import Kernel
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.auto import Auto, SlowDescent, always_first, kernel_margin
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_primal import MarginPrimal
from widemargin.solvers.protocol import AnySolver
from widemargin.strategies.fold_paths import FoldPaths
from widemargin.strategies.protocol import Rows

_MEAN_LOSS = 1000.0  # a C that weighs the mean loss, by one that weighs the sum


class MarginDistributionSVCCV(CrossValidated, MarginDistributionSVC):
    """Optimal margin distribution machine (ODM) whose parameters are chosen by cross-validation.

    Fits :class:`MarginDistributionSVC` to the training rows of every fold for a grid of its parameters, chooses the
    point with the best mean score on held-out rows, and fits all rows there. Folds of one gamma share kernel values and
    run in parallel, each from the smallest C to the largest. Every fit starts at the solution of the previous C, and
    has a certificate.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Values of C, the weight of the mean loss. An integer is the number of values, spaced logarithmically from 10 to
        1e6, divided by the mean of k(x, x).
    gammas : int or array-like, default=5
        Values of gamma. An integer is the number of values, spaced logarithmically over two decades around
        1 / (median squared distance between two rows). Kernels without gamma require the default.
    deadbands : float or array-like, default=0.2
        Value or values of ``deadband``, in [0, 1).
    overshoot_weights : float or array-like, default=0.5
        Value or values of ``overshoot_weight``, not negative.
    cv : int, cross-validation generator or iterable, default=5
        How to split the rows; an integer is the number of stratified folds.
    scoring : str, callable, list, tuple or dict, default=None
        Score of held-out rows, as in ``GridSearchCV``; None is accuracy. The first of several decides. Sample weights
        also count in the score.
    refine : bool, default=True
        Whether to try more values of C and gamma around the best ones of the grid, half a step away, and at most half a
        decade outside the grid.
    selection : {"best", "one-standard-error"}, default="best"
        ``"best"`` takes the highest mean score, and the smallest norm of w among ties. ``"one-standard-error"`` takes
        the smallest norm of w among all points whose mean score is within one standard error of the best.
    kernel : {"rbf", "linear", "poly", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        As in :class:`MarginDistributionSVC`.
    degree : int, default=3
        Degree of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly kernel.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    cache_size : float or "auto", default="auto"
        Memory for kernel values in MiB. If those between all rows fit, at eight bytes each, folds run in parallel.
        ``"auto"`` is half of the free memory.
    tol : float, default=1e-3
        Relative gap at which fits stop.
    max_iter : int, default=100000
        Maximum number of sweeps per fit and class.
    max_time : float, default=None
        Maximum time in seconds for the search, and again per class for the final fit; None is no limit. A point
        counts as tried once all its folds are done. If none is, the middle of the grid is fitted.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the search and the final fit run: in this process (None, or a number of threads for the final fit; the
        search always uses all cores), on the workers of a Dask cluster (client), or on MPI ranks that each call
        ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask collections. Ranks share the fits of the
        search, and each rank gets all rows; scores do not depend on the number of ranks.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves the points of the search as they end, and the state of the final fit. ``fit`` with
        the same folder, data, grids and folds resumes there.
    verbose : int, default=0
        1 shows a progress line: the number of finished points and the best score, then the gap and ``tol`` of the final
        fit.

    Attributes
    ----------
    best_params_ : dict
        The chosen ``C``, ``deadband``, ``overshoot_weight``, and ``gamma`` where the kernel has one.
    best_score_ : float
        Its mean score over folds; nan if no point was tried.
    best_index_ : int
        Its index in ``cv_results_`` and ``scores_``.
    cv_results_ : dict of str to array
        Scores and times of all points, as in ``GridSearchCV``, and for each point ``n_support`` (mean over folds; nan
        for the linear kernel), ``gap`` (the largest certified relative gap over folds) and ``state``: ``"certified"``
        if the gap is at most ``tol``, ``"estimated"`` if it is larger, or ``"not tried"``.
    scores_ : ndarray of shape (n_points, n_folds)
        Scores by which points are compared; nan for points without scores.
    n_splits_ : int
        Number of folds.
    spread_ : {"tasks", "none"}
        What ranks shared in the search: its fits (``"tasks"``), or nothing, in one process.
    classes_, support_, support_vectors_, dual_coef_, support_labels_, support_weight_, n_support_, coef_, intercept_, \
kernel_, certificate_, stop_reason_, history_, n_iter_, parts_, training_, device_, n_features_in_, feature_names_in_
        As in :class:`MarginDistributionSVC`, for the final model.
    cost_ : Ledger
        Kernel evaluations and seconds per phase, of the search and the final fit.

    See Also
    --------
    MarginDistributionSVC : The same for one point.
    KernelSVCCV : The C-SVM, which is faster and has fewer support vectors.

    Notes
    -----
    A certified gap bounds how far the objective of a fit is from the optimum. It does not bound a score.

    The first Ctrl-C ends the search, and the best point so far is fitted to all rows. Callbacks see a task
    ``"search"`` with a task ``"point"`` for each point, and then the final fit. A callback that asks to stop at a point
    ends the search.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import MarginDistributionSVCCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginDistributionSVCCV(Cs=[1e2, 1e3, 1e4], gammas=[0.003, 0.03], refine=False).fit(scale(X), y)
    >>> model.scores_.shape, model.best_score_ > 0.96
    ((6, 5), True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **CrossValidated._parameter_constraints,
        **{
            name: KernelClassifier._parameter_constraints[name]
            for name in ("kernel", "degree", "coef0", "fit_intercept", "cluster", "checkpoint")
        },
        "Cs": GRID,
        "gammas": GRID,
        "deadbands": [Real, "array-like"],
        "overshoot_weights": [Real, "array-like"],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }
    _refined = ("C", "gamma")

    def __init__(
        self,
        *,
        Cs: Any = 10,
        gammas: Any = 5,
        deadbands: Any = 0.2,
        overshoot_weights: Any = 0.5,
        cv: Any = 5,
        scoring: Any = None,
        refine: bool = True,
        selection: Literal["best", "one-standard-error"] = "best",
        kernel: Any = "rbf",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        cache_size: float | Literal["auto"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 100_000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.Cs = Cs
        self.gammas = gammas
        self.deadbands = deadbands
        self.overshoot_weights = overshoot_weights
        self.cv = cv
        self.scoring = scoring
        self.refine = refine
        self.selection = selection
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.cache_size = cache_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def C(self) -> float:  # type: ignore[override]
        """That of the final fit."""
        return self._chosen["C"]

    @property
    def gamma(self) -> Any:
        """That of the final fit."""
        return self._chosen.get("gamma", "scale")

    @property
    def deadband(self) -> float:  # type: ignore[override]
        """That of the final fit."""
        return self._chosen["deadband"]

    @property
    def overshoot_weight(self) -> float:  # type: ignore[override]
        """That of the final fit."""
        return self._chosen["overshoot_weight"]

    def _problem_at(self, values: dict[str, float]) -> MarginDistribution:
        return MarginDistribution(values["C"], values["deadband"], values["overshoot_weight"], bool(self.fit_intercept))

    def _problem(self) -> MarginDistribution:
        return self._problem_at(self._chosen)

    def _kernel_at(self, values: dict[str, float]) -> Kernel | None:
        if self._is_linear():
            return None
        if callable(self.kernel):
            return Kernel("callable", function=self.kernel)
        return Kernel(self.kernel, values.get("gamma", "scale"), int(self.degree), float(self.coef0))

    def _grids(self, rows: Rows, paths: FoldPaths) -> Axes:
        deadbands = _values("deadbands", self.deadbands, 1.0, "in [0, 1)")
        overshoot_weights = _values("overshoot_weights", self.overshoot_weights, np.inf, "that are finite, 0 or more")
        kernel, gammas = self._kernel_at({"gamma": 1.0}) or Kernel("linear"), {}
        if not kernel.is_positive:
            raise ValueError(
                f"kernel={self.kernel!r} with coef0={self.coef0:g} is no inner product, without which this problem may "
                "have no minimum: use 'rbf', 'laplacian', 'poly' with coef0 >= 0, 'linear' or 'cosine'."
            )
        check_square(kernel, rows.X)
        if kernel.needs_gamma:
            gammas = {"gamma": grid_of_gammas(self.gammas, self.kernel, rows.X, rows.weight).tolist()}
            kernel = self._kernel_at({"gamma": gammas["gamma"][len(gammas["gamma"]) // 2]}) or kernel
        else:
            self._refuse_unused({"gammas": 5}, "kernel", "rbf")
        Cs = grid_of_Cs(self.Cs, kernel.diagonal(rows.X, np.arange(rows.X.shape[0])), rows.weight)
        if isinstance(self.Cs, int | np.integer):
            Cs = _MEAN_LOSS * Cs
        return {"C": Cs.tolist(), **gammas, "deadband": deadbands, "overshoot_weight": overshoot_weights}

    def _check_place(self, rows: Rows) -> None:
        super()._check_place(rows)
        self._refuse_numbered_rows(rows)

    def _cache_bytes(self) -> int:
        return free_bytes() if self.cache_size == "auto" else super()._cache_bytes()

    def _search_bytes(self, comm: Communicator) -> int:
        if self._is_linear():
            return 0
        return bytes_on_rank(self._cache_bytes(), comm, is_shared=self.cache_size == "auto")

    def _solver(self) -> AnySolver:
        return MarginPrimal() if self._is_linear() else kernel_margin(MarginDescent(self._cache_bytes()))

    def _path_solver(self) -> AnySolver:
        """Coordinate steps from the last solution, until Newton steps from there pay."""
        solver = self._solver()
        return replace(solver, first=always_first) if isinstance(solver, Auto) else solver

    def _following(self, solver: AnySolver, n_iter: int, n_rows: int) -> AnySolver:
        """For larger C coordinate steps take longer, Newton steps do not."""
        is_slow = n_iter * MarginDescent.block_rows > SlowDescent.epochs * n_rows
        return self._solver() if is_slow else solver

    def _remedies(self) -> list[str]:
        return [f"larger Cs (cross-validation chose {self.C:.3g})", *super()._remedies()[1:]]


def _values(name: str, given: Any, below: float, words: str) -> list[float]:
    try:
        values = np.unique(np.asarray(given, dtype=np.float64).ravel())
    except (TypeError, ValueError):
        values = np.empty(0)
    if not len(values) or not ((values >= 0) & (values < below)).all():
        raise ValueError(f"{name}={given!r} must be a number or a list of numbers {words}.")
    found: list[float] = values.tolist()
    return found


def _formula(model: MarginDistributionSVCCV) -> Formula:
    found, C = formula(model), Symbol("<var>C</var>", model.C, "chosen by cross-validation")
    return found._replace(symbols=[C, *found.symbols[1:]])


register(Descriptor(MarginDistributionSVCCV, command=None, problem=_formula, check=check_table))
