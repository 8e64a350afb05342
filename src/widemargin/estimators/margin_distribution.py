"""MarginDistributionSVC: the optimal margin distribution machine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from widemargin.codec import check_rows, conforms
from widemargin.comm.clusters import is_dask, is_mpi
from widemargin.estimators._formulas import kernel_symbols, score
from widemargin.estimators._kernel import KernelClassifier
from widemargin.estimators._types import ClassWeight, Folder, RandomState
from widemargin.estimators.registry import Descriptor, Formula, Symbol, register
from widemargin.exceptions import ModelFileError
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.auto import SlowDescent, kernel_margin
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_primal import MarginPrimal
from widemargin.solvers.partition_merge import Division, Level
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.solvers.svrg import SVRG
from widemargin.strategies.protocol import Outcome, Rows, Strategy
from widemargin.strategies.tree import Tree

_TREE_DEFAULTS = {"n_partitions": "auto", "merge_factor": 2, "n_strata": 32, "partition": "stratified", "stop_level": 0}

_OF_ROWS = ("support_", "support_vectors_", "dual_coef_", "n_support_")


class MarginDistributionSVC(KernelClassifier):
    """Certified optimal margin distribution machine (ODM), and SODM, its divide-and-conquer variant.

    Solves, for each class against the rest (once for two classes), with the margins
    :math:`F_i = y_i (w \\cdot \\phi(x_i) + b)`,

    .. math:: \\min_{w,b} \\tfrac12 (\\|w\\|^2 + b^2) + \\frac{C}{2 n (1-\\theta)^2}
       \\sum_i \\left[ (1 - \\theta - F_i)_+^2 + v (F_i - 1 - \\theta)_+^2 \\right]

    The loss penalises margins that are too short and margins that are too long, so that they concentrate around 1.
    Names in the paper:

    ================== ============================
    here               paper
    ================== ============================
    C                  lambda
    deadband           theta
    overshoot_weight   v
    intercept          a constant feature, penalised
    ================== ============================

    The certificate brackets the optimum by the primal and the dual objective, computed in float64.

    Parameters
    ----------
    C : float, default=10000.0
        Weight of the mean loss; it need not grow with the number of rows.
    deadband : float in [0, 1), default=0.2
        Margins from ``1 - deadband`` to ``1 + deadband`` cost nothing.
    overshoot_weight : float, default=0.5
        Weight of the loss of long margins relative to that of short ones; 0 gives a squared hinge loss.
    kernel : {"rbf", "linear", "poly", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        ``"linear"`` uses a dedicated linear-time solver and sets ``coef_``.
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, poly and laplacian; ``"scale"`` is 1 / (n_features * X.var()), ``"auto"`` is 1 / n_features.
    degree : int, default=3
        Degree of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly kernel.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    solver : {"auto", "dual-descent", "newton", "partition-merge", "svrg"}, default="auto"
        ``"dual-descent"`` is block coordinate descent on the dual. ``"newton"`` adds Newton steps after a few blocks:
        on the dual's active set for kernels, on the primal for the linear kernel. ``"auto"`` switches from descent to
        Newton when that pays, and is Newton for the linear kernel. ``"partition-merge"`` is the paper's tree (SODM)
        for kernels, ``"svrg"`` its variance-reduced gradient method for the linear kernel.
    n_partitions : int or "auto", default="auto"
        Number of leaves of the tree; ``"auto"`` gives each leaf at least 2000 rows.
    merge_factor : int, default=2
        Number of parts that are merged into one.
    n_strata : int, default=32
        Number of landmarks around which rows are stratified.
    partition : {"stratified", "random"}, default="stratified"
        How rows are divided among the leaves.
    stop_level : int, default=0
        Number of merges to skip. 0 solves the problem on all rows; stopping earlier is cheaper and nearly as good.
    cache_size : float, default=2048
        Size of the kernel cache in MiB. Kernel values that do not fit are recomputed when needed.
    tol : float, default=1e-3
        Stop when the relative gap is at most ``tol``.
    max_iter : int, default=100000
        Maximum number of sweeps per class; a sweep is one block or one Newton step.
    max_time : float, default=None
        Maximum time in seconds per class; None is no limit.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    warm_start : bool, default=False
        Start from the solution of the previous ``fit``, if it used the same rows.
    random_state : int, RandomState instance or None, default=None
        Seed for the order of rows and their division into parts.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the fit runs: in this process (None), on this many threads (int), on the workers of a Dask cluster
        (client), or on MPI ranks that each call ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask
        collections. ``solver="partition-merge"`` runs on threads or Dask workers and takes arrays only.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves its state every few sweeps. ``fit`` with the same folder and data resumes from it.
    verbose : int, default=0
        1 shows a progress line with the gap and ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    support_, support_vectors_, dual_coef_, n_support_, kernel_
        As in :class:`KernelSVC`; here most rows have a nonzero coefficient. With the linear kernel they are kept by
        ``solver="dual-descent"`` only.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Linear kernel only.
    intercept_ : ndarray of shape (1 or n_classes,)
    levels_ : list of Level, or a list of them for each class
        Levels of the tree: number of parts, seconds, seconds of each task, largest gap and model; see :meth:`at_level`.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst class.
    stop_reason_ : str
        ``"gap"``, ``"stop_level"``, ``"precision"`` (linear: rounding keeps the gap open), ``"max_iter"``,
        ``"max_time"``, ``"callback"`` or ``"interrupted"``.
    history_, cost_, n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`KernelSVC`.

    See Also
    --------
    KernelSVC : The C-SVM, which has fewer support vectors.

    Notes
    -----
    Do not use it for accuracy alone: with the same tuning its accuracy and that of ``KernelSVC`` agreed to within the
    noise of five splits on each of four sets, and its fits took 1.6 to 30 times as long. Tune ``C`` and ``gamma``: on
    ijcnn1 the defaults reached .935, tuned values .991. Models are not compact: rows with long margins have
    coefficients too.

    In one process the tree took 2 to 3 times as long as ``solver="auto"`` to solve the problem on all rows. That
    problem is one task, so 32 workers are projected to be at most 1.5 times faster than one. Use the tree to get a
    model early: with ``stop_level=1`` accuracies were within .0015. For the linear kernel the default is hundreds of
    times faster. On 60,000 rows, RBF, a fit took .4 GiB of memory, the tree 1.2 GiB; docs/papers/sodm.md has tables.

    References
    ----------
    Y. Wang, N. Cao, T. Zhang, X. Shi, H. Jin: Scalable Optimal Margin Distribution Machine, IJCAI 2023.

    T. Zhang, Z.-H. Zhou: Optimal Margin Distribution Machine, TKDE 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from widemargin import MarginDistributionSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MarginDistributionSVC().fit(minmax_scale(X), y)
    >>> model.stop_reason_, model.certificate_.relative <= 1e-3
    ('gap', True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelClassifier._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "deadband": [Interval(Real, 0, 1, closed="left")],
        "overshoot_weight": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions({"auto", "dual-descent", "newton", "partition-merge", "svrg"})],
        "n_partitions": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "merge_factor": [Interval(Integral, 2, None, closed="left")],
        "n_strata": [Interval(Integral, 1, None, closed="left")],
        "partition": [StrOptions({"stratified", "random"})],
        "stop_level": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        C: float = 1e4,
        deadband: float = 0.2,
        overshoot_weight: float = 0.5,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | Literal["scale", "auto"] = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        solver: Literal["auto", "dual-descent", "newton", "partition-merge", "svrg"] = "auto",
        n_partitions: int | Literal["auto"] = "auto",
        merge_factor: int = 2,
        n_strata: int = 32,
        partition: Literal["stratified", "random"] = "stratified",
        stop_level: int = 0,
        cache_size: float = 2048,
        tol: float = 1e-3,
        max_iter: int = 100_000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.deadband = deadband
        self.overshoot_weight = overshoot_weight
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.n_partitions = n_partitions
        self.merge_factor = merge_factor
        self.n_strata = n_strata
        self.partition = partition
        self.stop_level = stop_level
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

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ROWS and "coef_" in vars(self):
            raise AttributeError(
                f"There is no {name}: with kernel='linear' nearly every row would have a coefficient, and solvers keep "
                "coef_ only. MarginDistributionSVC(kernel='linear', solver='dual-descent') keeps both."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def at_level(self, level: int) -> MarginDistributionSVC:
        """Return the model of one level of the tree: 0 for the leaves, -1 for the last level.

        Parameters
        ----------
        level : int
            Index of the level, counted from the leaves, or from the last level if negative.

        Returns
        -------
        model : MarginDistributionSVC
            A fitted copy. Attributes that are not part of the model, such as the certificate, are of the last level.
        """
        check_is_fitted(self)
        if not hasattr(self, "levels_"):
            raise ValueError(f"solver={self.solver!r} has no levels: only solver='partition-merge' builds a tree.")
        every: Any = [self.levels_] if len(self.classes_) == 2 else self.levels_
        n_levels = min(len(levels) for levels in every)
        if not -n_levels <= level < n_levels:
            raise ValueError(
                f"level={level} is out of range: the tree has {n_levels} levels, so it must lie in "
                f"[{-n_levels}, {n_levels - 1}]."
            )
        model = copy.copy(self)
        for name in ("support_labels_", "support_weight_", "training_"):  # of the last level
            model.__dict__.pop(name, None)
        model.__dict__.update(self._model_attributes(self.classes_, [levels[level].model for levels in every]))
        return model

    def _problem(self) -> MarginDistribution:
        return MarginDistribution(
            float(self.C), float(self.deadband), float(self.overshoot_weight), bool(self.fit_intercept)
        )

    def _is_linear(self) -> bool:
        return self.kernel == "linear" and self.solver in ("auto", "newton", "svrg")

    def _solver(self) -> AnySolver:
        if self.solver == "svrg" and self.kernel != "linear":
            raise ValueError(f"solver='svrg' needs kernel='linear', got kernel={self.kernel!r}: use solver='auto'.")
        if self.solver != "partition-merge":
            self._refuse_unused(_TREE_DEFAULTS, "solver", "partition-merge")
        if self._is_linear():
            return SVRG() if self.solver == "svrg" else MarginPrimal()
        descent = MarginDescent(self._cache_bytes())
        if self.solver == "dual-descent":
            return descent
        rule = SlowDescent(epochs=2.0, slow=0.0) if self.solver == "newton" else SlowDescent()
        return kernel_margin(descent, rule)

    def _strategy(self, rows: Rows) -> Strategy:
        if self.solver != "partition-merge":
            return super()._strategy(rows)
        if is_dask(rows.X) or is_mpi(self.cluster):
            raise ValueError(
                "solver='partition-merge' divides the rows itself: pass X as an array, and cluster=None, a number of "
                "threads or a Dask client. Other solvers accept distributed rows."
            )
        if self.checkpoint is not None or self.warm_start:
            raise ValueError(
                "checkpoint and warm_start have no effect with solver='partition-merge', which starts at its leaves: "
                "leave them None and False."
            )
        n_parts = self.n_partitions if self.n_partitions == "auto" else int(self.n_partitions)
        fan_in = int(self.merge_factor)
        is_stratified, stop_at = self.partition == "stratified", fan_in ** int(self.stop_level)
        return Tree(self._ranks(rows), Division(n_parts, fan_in, int(self.n_strata), is_stratified, stop_at))

    def _unpack(self, outcome: Outcome, rows: Rows) -> None:
        super()._unpack(outcome, rows)
        if isinstance(outcome.extra, list):
            levels = outcome.extra
            self.levels_: list[Level] | list[list[Level]] = levels[0] if len(levels) == 1 else levels

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        return super()._model_attributes(classes, [model._replace(report={}) for model in models])

    def _remedies(self) -> list[str]:
        return [f"a larger C (it is {self.C:g})", *super()._remedies()]

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason}, or lower C, which makes the gap close faster."


def formula(model: MarginDistributionSVC) -> Formula:
    b = " + <var>b</var>²" if model.fit_intercept else ""
    return Formula(
        "The classifier whose margins are all near 1: margins that are too short cost, and so do those that are too "
        "long.",
        f"minimise ½(‖<var>w</var>‖²{b}) + <var>C</var>/(2<var>n</var>(1 − θ)²) Σ<sub>i</sub> "
        "[(1 − θ − <var>F</var><sub>i</sub>)₊² + <var>v</var>(<var>F</var><sub>i</sub> − 1 − θ)₊²], "
        f"<var>F</var><sub>i</sub> = <var>y</var><sub>i</sub>({score(model)})",
        [
            Symbol("<var>C</var>", model.C),
            Symbol("θ", model.deadband, "deadband"),
            Symbol("<var>v</var>", model.overshoot_weight, "overshoot_weight"),
            *kernel_symbols(model),
        ],
    )


def _check_levels(model: MarginDistributionSVC, sizes: dict[str, int]) -> None:
    """Raise ModelFileError unless there are levels for every problem, of rows with the features of the input."""
    if not hasattr(model, "levels_"):
        return
    problems: Any = [model.levels_] if sizes["K"] == 2 else model.levels_
    if len(problems) != sizes["P"] or not all(problems) or not all(conforms(each, list[Level]) for each in problems):
        raise ModelFileError("levels_ does not have levels for each problem")
    for level in [each for levels in problems for each in levels]:
        check_rows(level.among.X, sizes["I"])


register(
    Descriptor(
        MarginDistributionSVC,
        command="margin-distribution",
        problem=formula,
        fitted={"levels_": list[Level] | list[list[Level]]},
        check=_check_levels,
    )
)
