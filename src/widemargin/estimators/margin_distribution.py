"""MarginDistributionSVC: all margins near 1, not only the smallest ones large."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from widemargin.engines.select import is_dask, is_mpi
from widemargin.estimators._base import Launch
from widemargin.estimators._kernel import KernelClassifier
from widemargin.estimators._types import ClassWeight, Folder, RandomState
from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.margin_auto import MarginAuto
from widemargin.solvers.margin_descent import MarginDescent
from widemargin.solvers.margin_newton import MarginNewton
from widemargin.solvers.margin_primal import MarginPrimal
from widemargin.solvers.partition_merge import Tree
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.solvers.svrg import SVRG
from widemargin.strategies.task import Outcome, Rows, Task
from widemargin.strategies.tree import launch_tree

_OF_THE_TREE = {"n_partitions": "auto", "merge_factor": 2, "n_strata": 32, "partition": "stratified", "stop_level": 0}


class MarginDistributionSVC(KernelClassifier):
    """Optimal margin distribution machine (ODM), certified; SODM over parts of the rows, threads and Dask.

    Solves, for each class against the rest (once for two classes), with the margins
    :math:`F_i = y_i (w \\cdot \\phi(x_i) + b)`,

    .. math:: \\min_{w,b} \\tfrac12 (\\|w\\|^2 + b^2) + \\frac{C}{2 n (1-\\theta)^2}
       \\sum_i \\left[ (1 - \\theta - F_i)_+^2 + v (F_i - 1 - \\theta)_+^2 \\right]

    Margins that are short cost, and so do those that are long: their distribution is narrow around 1. The paper's
    names:

    ================== ============================
    here               paper
    ================== ============================
    C                  lambda
    deadband           theta
    overshoot_weight   v
    intercept          a constant feature, penalised
    ================== ============================

    The certificate brackets the optimum by both objectives, computed in float64.

    Parameters
    ----------
    C : float, default=10000.0
        Weight of the mean loss: it need not grow with the number of rows.
    deadband : float in [0, 1), default=0.2
        Margins from ``1 - deadband`` to ``1 + deadband`` cost nothing.
    overshoot_weight : float, default=0.5
        Price of margins that are too long, by that of those that are too short; 0 is the squared hinge.
    kernel : {"rbf", "linear", "poly", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        ``"linear"`` takes a road of its own, in linear time, and gives ``coef_``.
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, poly and laplacian; ``"scale"`` is 1 / (n_features * X.var()), ``"auto"`` is 1 / n_features.
    degree : int, default=3
        Of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly kernel.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    solver : {"auto", "dual-descent", "newton", "partition-merge", "svrg"}, default="auto"
        ``"dual-descent"`` takes blocks of coordinate steps on the dual; ``"newton"`` follows a few of them by Newton
        steps, for kernels on the dual's active set, for the linear one on the primal; ``"auto"`` changes from the first
        to the second where that pays, and is the second for the linear kernel. ``"partition-merge"`` is the paper's
        tree for kernels, ``"svrg"`` its variance-reduced gradients for the linear one.
    n_partitions : int or "auto", default="auto"
        Leaves of the tree; ``"auto"`` makes them of 2000 rows or more.
    merge_factor : int, default=2
        How many parts are merged into one.
    n_strata : int, default=32
        Landmarks around which rows are stratified.
    partition : {"stratified", "random"}, default="stratified"
        How rows are divided.
    stop_level : int, default=0
        Merges to leave out: 0 solves the problem of all rows; the levels before it are cheaper, and nearly as good.
    cache_size : float, default=2048
        MiB of kernel values that may be held. Beyond it they are computed when needed.
    tol : float, default=1e-3
        Stop when the relative gap is at most this.
    max_iter : int, default=100000
        Largest number of sweeps for each class; of a block or a Newton step each.
    max_time : float, default=None
        Largest number of seconds for each class.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the weight of the rows of each class.
    warm_start : bool, default=False
        Begin at the solution of the last fit, if it was on the same rows.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of rows, and of the parts.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where it runs: None is this process, an integer that many ranks on threads of it, a client the workers of a Dask
        cluster; with a communicator every MPI rank calls ``fit`` with its own rows. ``X`` and ``y`` may be Dask
        collections. The tree runs its parts side by side on threads or workers; it takes arrays.
    checkpoint : str, path or None, default=None
        Folder in which the state is kept every few sweeps. ``fit`` with the same folder and data goes on from there.
    verbose : int, default=0
        1 shows a line with the gap against ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    support_, support_vectors_, dual_coef_, n_support_, kernel_
        As of :class:`KernelSVC`; most rows have a coefficient here.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        With the linear kernel only.
    intercept_ : ndarray of shape (1 or n_classes,)
    levels_ : list of Level, or a list of them for each class
        Of the tree: parts, seconds, seconds of each part's task, the largest gap, and the model; see :meth:`at_level`.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst class.
    stop_reason_ : str
        ``"gap"``, ``"stop_level"``, ``"precision"`` (linear: rounding leaves no more to close), ``"max_iter"``,
        ``"max_time"``, ``"callback"`` or ``"interrupted"``.
    history_, cost_, n_iter_, parts_, n_features_in_, feature_names_in_
        As of :class:`KernelSVC`.

    See Also
    --------
    KernelSVC : The widest margin; sparser in its support vectors.

    Notes
    -----
    Not for accuracy alone: tuned alike, it and ``KernelSVC`` were equal to within the noise of five splits on each of
    four sets, and its fits took 1.6 to 30 times as long. Not without tuning ``C`` and ``gamma``: the defaults had .935
    on ijcnn1, tuned .991. Not for compact models: rows with long margins have coefficients too.

    In one process the tree took 2 to 3 times as long as ``solver="auto"`` to the problem of all rows, and that problem
    is one task, so that 32 workers are projected to be 1.5 times faster than one at best. It is for a model early: with
    ``stop_level=1`` accuracies were within .0015. For the linear kernel the default is hundreds of times faster.

    60,000 rows with the RBF kernel took .4 GiB of memory in all, the tree 1.2 GiB. docs/papers/sodm.md has the tables.

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

    def at_level(self, level: int) -> MarginDistributionSVC:
        """The model as it was after a level of the tree: 0 are the leaves, -1 is the last.

        Parameters
        ----------
        level : int
            Number of the level, counted from the leaves; from the last one if it is negative.

        Returns
        -------
        model : MarginDistributionSVC
            A fitted copy; its certificate, and what else is not of the model, is that of the last level.
        """
        check_is_fitted(self)
        if not hasattr(self, "levels_"):
            raise ValueError(f"solver={self.solver!r} has no levels: they are those of solver='partition-merge'.")
        every = [self.levels_] if len(self.classes_) == 2 else self.levels_
        n_levels = min(len(levels) for levels in every)
        if not -n_levels <= level < n_levels:
            raise ValueError(
                f"level={level} is not there: the tree has {n_levels} levels, and it must lie in "
                f"[{-n_levels}, {n_levels - 1}]."
            )
        twin = copy.copy(self)
        for name in ("support_labels_", "support_weight_"):  # of other rows
            if hasattr(twin, name):
                delattr(twin, name)
        for name, value in self._model_attributes(self.classes_, [levels[level].model for levels in every]).items():
            setattr(twin, name, value)
        return twin

    def _problem(self) -> MarginDistribution:
        return MarginDistribution(
            float(self.C), float(self.deadband), float(self.overshoot_weight), bool(self.fit_intercept)
        )

    def _is_linear(self) -> bool:
        return self.kernel == "linear" and self.solver in ("auto", "newton", "svrg")

    def _solver(self) -> AnySolver:
        if self.solver == "svrg" and self.kernel != "linear":
            raise ValueError(f"solver='svrg' is for kernel='linear', and kernel={self.kernel!r}: use 'auto'.")
        if self.solver != "partition-merge":
            for name, absent in _OF_THE_TREE.items():
                if getattr(self, name) != absent:
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} belongs to solver='partition-merge' and means nothing with "
                        f"solver={self.solver!r}: leave it {absent!r}."
                    )
        if self._is_linear():
            return SVRG() if self.solver == "svrg" else MarginPrimal()
        descent = MarginDescent(self._cache_bytes())
        if self.solver == "dual-descent":
            return descent
        kind = MarginNewton if self.solver == "newton" else MarginAuto
        return kind(cache_bytes=self._cache_bytes(), descent=descent)

    def _task(self, rows: Rows, *, are_rows_checked: bool) -> Task:
        if self.solver == "partition-merge":
            if is_dask(rows.X) or is_mpi(self.cluster):
                raise ValueError(
                    "solver='partition-merge' divides the rows itself: give X as an array, and cluster=None, a number "
                    "of threads or a Dask client. Other solvers take rows where they lie."
                )
            if self.checkpoint is not None or self.warm_start:
                raise ValueError(
                    "checkpoint and warm_start mean nothing with solver='partition-merge', which begins at its leaves: "
                    "leave them None and False."
                )
        return super()._task(rows, are_rows_checked=are_rows_checked)

    def _launch(self, launch: Launch, task: Task, rows: Any, X: Any, y: Any, sample_weight: Any) -> Outcome:
        if self.solver == "partition-merge":
            fan_in, is_stratified = int(self.merge_factor), self.partition == "stratified"
            n_parts = self.n_partitions if self.n_partitions == "auto" else int(self.n_partitions)
            tree = Tree(n_parts, fan_in, int(self.n_strata), is_stratified, fan_in ** int(self.stop_level))
            launch = partial(launch_tree, tree)
        return super()._launch(launch, task, rows, X, y, sample_weight)

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        levels = [model.report.get("levels") for model in models]
        attributes = super()._model_attributes(classes, [model._replace(report={}) for model in models])
        if levels[0] is not None:
            attributes["levels_"] = levels[0] if len(models) == 1 else levels
        return attributes

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason}, or lower C: the gap closes faster."
