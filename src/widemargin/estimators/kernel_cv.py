"""KernelSVCCV: the kernel C-SVM whose C and gamma are chosen by cross-validation."""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np

from widemargin.data.shard import Shard
from widemargin.estimators._folds import encoded_rows
from widemargin.estimators._formulas import HALF_NORM, hinge, kernel_symbols, score
from widemargin.estimators._grids import free_bytes, grid_of_Cs, grid_of_gammas
from widemargin.estimators._kernel import KernelClassifier, check_square
from widemargin.estimators._search import (
    Searched,
    SearchRun,
    Teller,
    agreed_by,
    bytes_on_rank,
    fresh_state,
    known_fits,
    name_of,
)
from widemargin.estimators._searching import SearchClassifier
from widemargin.estimators._selection import Point, Search, check_table, near_best
from widemargin.estimators._types import ClassWeight
from widemargin.estimators.registry import Descriptor, Each, Formula, Symbol, register
from widemargin.kernels import devices
from widemargin.kernels.arrays import on_host
from widemargin.kernels.functions import Kernel
from widemargin.ledger import Ledger
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.sklearn_private import Interval, StrOptions
from widemargin.solvers.auto import kernel_csvm, small_linear_csvm
from widemargin.solvers.flat_dual import FlatDual
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Result
from widemargin.strategies.all_rows import RowsElsewhere
from widemargin.strategies.copies import without_copies
from widemargin.strategies.linear_folds import LinearFolds, are_wide
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.ranks import digest_of_values
from widemargin.strategies.search_crew import KeptFits, SharedCrew
from widemargin.strategies.search_files import SearchState
from widemargin.strategies.selection import Fold, Folds, beside_blocks
from widemargin.strategies.selection_by_rows import FoldsOfRanks, OwnRows

_MAX_COMPARED = 8  # rows, by which a kernel that is a function is known

Grids = tuple[list[float | None], list[float]]  # of gamma, or None where the kernel has none, and of C

_SHARE_OF_GPU = 0.5  # of its free memory, for kernel values


class KernelSVCCV(SearchClassifier, KernelClassifier):
    """Kernel C-SVM whose C and gamma are chosen by cross-validation, in the time of a few fits.

    Fits :class:`KernelSVC` to the training rows of every fold for a grid of C and gamma, chooses the point with the
    best mean score on held-out rows, and fits all rows there. Folds of one gamma share kernel values, every fit starts
    at the solution of a neighbouring point, and scoring held-out rows needs no extra kernel values. A fit stops at a
    certified gap of ``tol``, or earlier, once its held-out predictions have not changed over three checks. Its score is
    then an estimate. Points within one standard error of the best are continued to ``tol``.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Values of C. An integer is the number of values, spaced logarithmically from 0.01 to 1000, divided by the mean
        of k(x, x), which is 1 for rbf.
    gammas : int or array-like, default=5
        Values of gamma. An integer is the number of values, spaced logarithmically over two decades around
        1 / (median squared distance between two rows). Kernels without gamma require the default.
    cv : int, cross-validation generator or iterable, default=5
        How to split the rows; an integer is the number of stratified folds.
    scoring : str, callable, list, tuple or dict, default=None
        Score of held-out rows, as in ``GridSearchCV``; None is accuracy. The first of several decides. Sample weights
        also count in the score.
    refine : bool, default=True
        Whether to try more points around the best one of the grid, half a step away, and at most half a decade outside
        the grid.
    skip : bool, default=True
        Whether to skip larger values of C, at each gamma, once scores have clearly fallen below the best so far.
    selection : {"best", "one-standard-error"}, default="best"
        ``"best"`` takes the highest mean score, and the widest margin among ties. ``"one-standard-error"`` takes the
        widest margin of all points whose mean score is within one standard error of the best.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        As in :class:`KernelSVC`. ``"linear"`` fits linear models, each to ``tol``, unless there are about as many
        features as rows: then kernel values are faster.
    degree : int, default=3
        Degree of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly and sigmoid kernels.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    multi_class : {"pairs", "rest"}, default="pairs"
        With more than two classes, solve one problem for each pair of classes, or one for each class against the rest.
    cache_size : float or "auto", default="auto"
        Memory for kernel values in MiB, on each rank. If those between all rows fit, at six bytes each, folds run in
        parallel. ``"auto"`` is half of the free memory, shared by the ranks of a machine; on a GPU, half of its free
        memory.
    tol : float, default=1e-3
        Relative gap at which fits stop.
    max_iter : int, default=10000
        Maximum number of sweeps per fit. In the search, fits on kept kernel values also end after about a second of
        work, or two milliseconds per row if that is more. Only extreme values, such as a huge C, need that long.
    max_time : float, default=None
        Maximum time in seconds for the search, and again per problem for the final fit; None is no limit. A point
        counts as tried once all its folds are done. If none is, the middle of the grid is fitted.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the search and the final fit run: in this process (None, or a number of threads for the final fit; the
        search always uses all cores), on the workers of a Dask cluster (client), or on MPI ranks that each call
        ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask collections. Ranks share the fits of the
        search, and each rank gets all rows; scores do not depend on the number of ranks. If a rank has no room for all
        rows, ranks share the rows instead, which takes longer, and every fit runs to ``tol``. In the final fit ranks
        always share the rows.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves the fits of the search as they end, and the state of the final fit. ``fit`` with the
        same folder, data, grids and folds resumes there.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where to compute, as in :class:`KernelSVC`. On a GPU all fits of one gamma run at once, each to ``tol``, if
        kernel values between all rows fit in ``cache_size`` there, at four bytes each. Otherwise fits run one after the
        other. Cannot be combined with ``cluster``.
    verbose : int, default=0
        1 shows a progress line: the number of finished points and the best score, then the gap and ``tol`` of the final
        fit.

    Attributes
    ----------
    best_params_ : dict
        The chosen ``C``, and ``gamma`` where the kernel has one.
    best_score_ : float
        Its mean score over folds; nan if no point was tried.
    best_index_ : int
        Its index in ``cv_results_`` and ``scores_``.
    cv_results_ : dict of str to array
        Scores and times of all points, as in ``GridSearchCV``, and for each point ``n_support`` (mean over folds; equal
        rows of a class count once), ``gap`` (the largest certified relative gap over folds) and ``state``:
        ``"certified"`` if the gap is at most ``tol``, ``"estimated"`` if it is larger, ``"skipped"`` (see ``skip``) or
        ``"not tried"``.
    scores_ : ndarray of shape (n_points, n_folds)
        Scores by which points are compared; nan for points without scores.
    n_splits_ : int
        Number of folds.
    spread_ : {"tasks", "rows", "none"}
        What ranks shared in the search: its fits (``"tasks"``), the rows of each fit, or nothing, in one process.
    classes_, support_, support_vectors_, dual_coef_, support_labels_, support_weight_, n_support_, coef_, intercept_, \
multi_class_, C_, slack_, violation_, kernel_, certificate_, stop_reason_, history_, n_iter_, parts_, training_, \
device_, n_features_in_, feature_names_in_
        As in :class:`KernelSVC`, for the final model.
    cost_ : Ledger
        Kernel evaluations and seconds per phase, of the search and the final fit.

    See Also
    --------
    KernelSVC : The same for one C and one gamma.
    SparseSVCCV : The 1-norm SVM with a penalty chosen by cross-validation.

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
    >>> from widemargin import KernelSVCCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = KernelSVCCV(Cs=[0.1, 1.0, 10.0], gammas=[0.001, 0.01, 0.1], refine=False).fit(scale(X), y)
    >>> model.best_params_
    {'C': 10.0, 'gamma': 0.01}
    >>> model.scores_.shape
    (9, 5)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SearchClassifier._parameter_constraints,
        **{
            name: KernelClassifier._parameter_constraints[name]
            for name in ("kernel", "degree", "coef0", "fit_intercept", "checkpoint", "cluster")
        },
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "gammas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "skip": ["boolean"],
        "multi_class": [StrOptions({"pairs", "rest"})],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "device": [StrOptions(set(devices.NAMES))],
    }

    def __init__(
        self,
        *,
        Cs: Any = 10,
        gammas: Any = 5,
        cv: Any = 5,
        scoring: Any = None,
        refine: bool = True,
        skip: bool = True,
        selection: Literal["best", "one-standard-error"] = "best",
        kernel: Any = "rbf",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        multi_class: Literal["pairs", "rest"] = "pairs",
        cache_size: float | Literal["auto"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 10_000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        cluster: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.Cs = Cs
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.refine = refine
        self.skip = skip
        self.selection = selection
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.cache_size = cache_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose

    def _check_place(self, rows: Rows) -> None:
        super()._check_place(rows)
        self._refuse_numbered_rows(rows)
        self._refuse_ranks_of_gpus(rows)

    def _search(self, rows: Rows, is_weighted: bool, groups: Any, run: SearchRun) -> tuple[Searched, Ledger]:
        given = rows
        if self._uses_gpu():  # grids, splitters and scorers see no tensors
            rows = rows._replace(X=on_host(rows.X))
        classes, scorers, folds = self._prepared(rows, is_weighted, groups, run.comm)
        if run.own is not None and scorers.need_rows:
            raise ValueError(
                f"scoring={self.scoring!r} sees the rows, and no rank has room for all of them: choose a scorer by "
                "name, or one of make_scorer."
            )
        gammas, Cs = self._grids(rows.X, rows.weight, run.own)
        look, shard, comm = self._look(run), encoded_rows(rows, classes), run.comm
        fresh = None if run.resume is None else self._fresh_state(shard, classes, folds, (gammas, Cs), run.own)
        known, paths = known_fits(run.resume, fresh, comm, KeptFits)
        known |= {each.name: each for each in run.fits}
        teller = Teller(run.watch, fresh)
        crew = SharedCrew(comm, look, teller.tell, known, paths, keeps=run.keeps)
        setting: dict[str, Any] = {
            "shard": replace(shard, X=given.X),
            "classes": classes,
            "parts": Parts(len(classes), self.multi_class),
            "folds": folds,
            "fit_intercept": bool(self.fit_intercept),
            "class_weight": self.class_weight,
            "limits": Limits(self.tol, self.max_iter),
            "cache_bytes": bytes_on_rank(self._cache_bytes(), comm, is_shared=self.cache_size == "auto"),
            "crew": crew,
        }
        in_folds: Folds | FoldsOfRanks
        if run.own is not None:
            in_folds = FoldsOfRanks(run.own, **setting, ask=crew.heard)
        elif self._is_linear() and not are_wide(shard, setting["cache_bytes"]):
            in_folds = LinearFolds(**setting, ask=crew.ask)
        else:
            if given.X is rows.X and self.kernel != "precomputed" and not callable(self.kernel):
                setting["shard"], setting["copies"] = without_copies(shard)
            in_folds = Folds(**setting, device=devices.resolved(self.device), ask=crew.ask)
        search = Search(
            in_folds,
            self._kernel_with,
            scorers,
            rows,
            bool(self.skip),
            agree=agreed_by(comm),
            are_values_late=comm.size > 1 or bool(known) or paths is not None,
        )
        teller.search = search
        search.try_all(gammas, Cs)
        if self.refine and search.candidates:
            search.refine(near_best(search.tried, 0.0)[0])
        search.forget_values()
        teller.tell([], None)
        spread: Any = "rows" if run.own is not None else "tasks" if comm.size > 1 else "none"
        found = self._found(search, crew.reason, spread)
        if not self._is_linear():
            found = found._replace(start=search.start_at(Point(found.chosen["C"], found.chosen.get("gamma"))))
        return found, search.folds.ledger

    def _fresh_state(
        self, shard: Shard, classes: np.ndarray, folds: list[Fold], grids: Grids, own: OwnRows | None
    ) -> SearchState:
        """What files of this search have in common: all that its fits depend on."""
        kernel, few = self._kernel_with(grids[0][0]), shard
        if own is not None:
            some = RowsElsewhere(own, shard.n_rows)[np.arange(min(shard.n_rows, _MAX_COMPARED))]
            few = Shard(some, np.empty(0), np.empty(0))
            shard = Shard(own.rows.X, shard.y[own.numbers], shard.weight[own.numbers])
        task = (
            f"{type(self).__name__} {kernel}{digest_of_values(kernel, few)} gammas={grids[0]} Cs={grids[1]} "
            f"skip={self.skip} fit_intercept={self.fit_intercept} tol={self.tol} max_iter={self.max_iter} "
            f"class_weight={self.class_weight} {self.multi_class} {classes.tolist()!r} scoring={name_of(self.scoring)}"
        )
        return fresh_state(task, shard, folds, own)

    def _grids(self, X: Any, weight: np.ndarray, own: OwnRows | None) -> Grids:
        """Values of gamma, or None where the kernel has none, and of C."""
        gammas: list[float | None] = [None]
        if self._kernel_with(1.0).needs_gamma:
            everything = X if own is None else RowsElsewhere(own, len(weight))
            gammas[:] = grid_of_gammas(self.gammas, self.kernel, everything, weight).tolist()
        else:
            self._refuse_unused({"gammas": 5}, "kernel", "rbf")
        kernel = self._kernel_with(gammas[len(gammas) // 2])
        if own is None:
            check_square(kernel, X)
            squares = kernel.diagonal(X, np.arange(X.shape[0]))
        else:
            here = [kernel.diagonal(block, own.numbers[where]) for block, where in own.shard.pieces()]
            squares = own.of_all(np.concatenate(here), len(weight))
        return gammas, grid_of_Cs(self.Cs, squares, weight).tolist()

    def _kernel_with(self, gamma: float | None) -> Kernel:
        if callable(self.kernel):
            return Kernel("callable", function=self.kernel)
        return Kernel(self.kernel, "scale" if gamma is None else gamma, int(self.degree), float(self.coef0))

    @property
    def gamma(self) -> Any:
        """gamma of the final fit."""
        return self._chosen.get("gamma", "scale")

    def _is_linear(self) -> bool:
        return bool(self.kernel == "linear") and not self._uses_gpu()

    def _cache_bytes(self) -> int:
        if self.cache_size != "auto":
            return super()._cache_bytes()
        return int(_SHARE_OF_GPU * devices.free_bytes(devices.GPU)) if self._uses_gpu() else free_bytes()

    def _problem(self) -> HingeL2:
        return HingeL2(self._chosen["C"], bool(self.fit_intercept))

    def _solver(self) -> AnySolver:
        if self._uses_gpu():
            return FlatDual(stationary=self.tol)
        make = small_linear_csvm if self._is_linear() else kernel_csvm
        return make(beside_blocks(self._cache_bytes()), self.tol)

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        return self._start

    def _advice(self, result: Result) -> str:
        return f"Raise {result.stop_reason}, or scale the features (StandardScaler) if their units differ much."

    def _remedies(self) -> list[str]:
        return [f"larger Cs (cross-validation chose {self._chosen['C']:.3g})", *super()._remedies()]

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        return {**super()._model_attributes(classes, models), "multi_class_": self.multi_class}


def _formula(model: KernelSVCCV) -> Formula:
    space = "linear in the features" if model.kernel == "linear" else "in the feature space φ of a kernel"
    how = "the middle of the grid" if np.isnan(model.best_score_) else "chosen by cross-validation"
    C = Symbol("<var>C</var>", model._chosen["C"], how)
    return Formula(
        f"The classifier with the best balance between a wide margin and a small hinge loss, {space}.",
        f"minimise {HALF_NORM} + <var>C</var> Σ<sub>i</sub> {hinge(score(model))}",
        [C, *kernel_symbols(model)],
    )


register(
    Descriptor(
        KernelSVCCV,
        command=None,
        problem=_formula,
        fitted={
            "multi_class_": Literal["pairs", "rest"],
            **dict.fromkeys(("C_", "slack_", "violation_"), Each("f")),
        },
        check=check_table,
    )
)
