"""KernelSVCCV: the kernel C-SVM whose C and gamma are chosen by cross-validation."""

from __future__ import annotations

import os
import time
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import indexable

from widemargin.callbacks import first_interrupt_kept
from widemargin.comm.clusters import is_dask, is_mpi
from widemargin.comm.protocol import Communicator
from widemargin.comm.solo import Solo
from widemargin.cores import one_blas_thread
from widemargin.data.pieces import encoded
from widemargin.data.shard import Shard
from widemargin.engines.select import engine_for
from widemargin.estimators._base import data_of_fit, fitting
from widemargin.estimators._formulas import HALF_NORM, hinge, kernel_symbols, score
from widemargin.estimators._kernel import KernelClassifier
from widemargin.estimators._search import (
    Listener,
    Searched,
    SearchResume,
    SearchRun,
    Teller,
    hash_of_folds,
    known_fits,
    name_of,
    search_on,
)
from widemargin.estimators._selection import (
    Scorers,
    Search,
    check_table,
    folds_of,
    free_bytes,
    grid_of_Cs,
    grid_of_gammas,
    near_best,
    table,
)
from widemargin.estimators._types import ClassWeight
from widemargin.estimators.registry import Array, Descriptor, Each, Formula, Symbol, register
from widemargin.exceptions import InterruptedFitWarning, warn_user
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
from widemargin.strategies.all_rows import RowsElsewhere, ranks_on_machine
from widemargin.strategies.labels import check_classes
from widemargin.strategies.linear_folds import LinearFolds, are_wide
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.ranks import digest_of_values
from widemargin.strategies.search_crew import SharedCrew
from widemargin.strategies.search_files import SearchState
from widemargin.strategies.selection import Fold, Folds, beside_blocks
from widemargin.strategies.selection_by_rows import FoldsOfRanks, OwnRows

_MAX_COMPARED = 8  # rows, by which a kernel that is a function is known

Grids = tuple[list[float | None], list[float]]  # of gamma, or None where the kernel has none, and of C

_SHARE_OF_GPU = 0.5  # of its free memory, for kernel values


class KernelSVCCV(KernelClassifier):
    """Kernel C-SVM whose C and gamma are chosen by cross-validation, in the time of a few fits.

    Fits :class:`KernelSVC` to the training rows of every fold for a grid of C and gamma, chooses the point with the
    best mean score on held-out rows, and fits all rows there. Folds of one gamma share kernel values, every fit starts
    at the solution of a near one, and held-out rows are scored with the passes of the fits. A fit ends at a certified
    gap of ``tol``, or before it, when the predictions of held-out rows have not changed over three checks: its score is
    then an estimate, and is completed if the point is within one standard error of the best.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Values of C. A number takes so many on a logarithmic scale, from 0.01 to 1000 over the mean of k(x, x).
    gammas : int or array-like, default=5
        Values of gamma. A number takes so many on a logarithmic scale, over two decades around one over the median
        squared distance of two rows. Without effect, and to be left as it is, for kernels without a gamma.
    cv : int, cross-validation generator or iterable, default=5
        How to split the rows; an integer is the number of stratified folds.
    scoring : str, callable, list, tuple or dict, default=None
        How held-out rows are scored, as in ``GridSearchCV``; None is accuracy. The first of several decides. Sample
        weights count, also in the score.
    refine : bool, default=True
        Whether to try more points around the best one of the grid, half a step away.
    skip : bool, default=True
        Whether to leave out, at each gamma, larger values of C once scores have clearly fallen below the best so far.
    selection : {"best", "one-standard-error"}, default="best"
        ``"best"`` takes the highest mean score, and the widest margin among ties. ``"one-standard-error"`` takes the
        widest margin of all points whose mean score is within one standard error of the best.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        As in :class:`KernelSVC`. ``"linear"`` fits linear models, each to ``tol``, unless rows are as long as they are
        many: then kernel values are faster.
    degree : int, default=3
        Degree of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly and sigmoid kernels.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    multi_class : {"pairs", "rest"}, default="pairs"
        With more than two classes, solve one problem for each pair of classes, or one for each class against the rest.
    cache_size : float or "auto", default="auto"
        Memory for kernel values in MiB, on each rank. Where those between all rows fit, at six bytes each, folds run
        beside each other. ``"auto"`` is a quarter of the memory that is free, shared by the ranks of a machine, and
        half of that of a GPU.
    tol : float, default=1e-3
        Relative gap at which fits stop.
    max_iter : int, default=10000
        Maximum number of sweeps per fit.
    max_time : float, default=None
        Maximum time in seconds for the search, and again per problem for the final fit; None is no limit. Points that
        were not reached on all folds are not tried.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the search and the final fit run: in this process (None, or a number of threads for the final fit; the
        search uses all cores in any case), on the workers of a Dask cluster (client), or on MPI ranks that each call
        ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask collections. Ranks share the fits of the
        search, for which each of them gets all rows; scores do not depend on how many ranks there are. Where one has no
        room for all rows they share the rows, which takes longer, and every fit goes to ``tol``. They share the rows of
        the final fit in any case.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves the fits of the search as they end, and the state of the final fit. ``fit`` with the
        same folder, data, grids and folds goes on from there.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where to compute, as in :class:`KernelSVC`. On a GPU all folds and values of C of one gamma are fitted side by
        side, each to ``tol``, where kernel values between all rows fit in ``cache_size`` there, at four bytes each;
        else one after the other. Cannot be combined with ``cluster``.
    verbose : int, default=0
        1 shows a progress line: the points of the search that are done and the best score, then the gap and ``tol`` of
        the final fit.

    Attributes
    ----------
    best_params_ : dict
        The chosen ``C``, and ``gamma`` where the kernel has one.
    best_score_ : float
        Its mean score over folds; nan if no point was tried.
    best_index_ : int
        Its index in ``cv_results_`` and ``scores_``.
    cv_results_ : dict of str to array
        Scores and times of all points, as in ``GridSearchCV``, and for each point ``n_support`` (mean over folds),
        ``gap`` (the largest relative gap, which is certified) and ``state``: ``"certified"`` where that is at most
        ``tol``, ``"estimated"`` where it is not, ``"skipped"`` (see ``skip``) or ``"not tried"``.
    scores_ : ndarray of shape (n_points, n_folds)
        Scores that decide; nan where a point was not tried.
    n_splits_ : int
        Number of folds.
    spread_ : {"tasks", "rows", "none"}
        What ranks shared in the search: its fits, the rows of each fit, or nothing, in one process.
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
    A certified gap bounds how far the objective of a fit is from the optimum; it bounds no score.

    The first Ctrl-C ends the search, and the best point so far is fitted to all rows. Callbacks hear of a task
    ``"search"`` with a task ``"point"`` for each point, and then of the final fit; one that asks to stop at a point
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
        **{
            name: KernelClassifier._parameter_constraints[name]
            for name in (
                "kernel",
                "degree",
                "coef0",
                "fit_intercept",
                "tol",
                "max_iter",
                "max_time",
                "class_weight",
                "checkpoint",
                "cluster",
            )
        },
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "gammas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "cv": ["cv_object"],
        "scoring": [str, callable, list, tuple, dict, None],
        "refine": ["boolean"],
        "skip": ["boolean"],
        "selection": [StrOptions({"best", "one-standard-error"})],
        "multi_class": [StrOptions({"pairs", "rest"})],
        "cache_size": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "device": [StrOptions(set(devices.NAMES))],
        "verbose": ["verbose"],
    }

    _chosen: dict[str, float]  # C, and gamma where the kernel has one
    _start: np.ndarray | None = None  # of the final fit, while it runs: coefficients of each problem

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

    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose C and gamma, and fit the model to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows, in float32 or float64. CSR matrices are used without conversion.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplicity of each row: 2 counts the row twice, 0 leaves it out.
        groups : array-like of shape (n_samples,), default=None
            Group of each row, for splitters that keep groups together; on MPI ranks, of each rank's own rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows = Rows(X, y, sample_weight) if self._are_elsewhere(X) else self._validate(X, y, sample_weight)
        self._check_place(rows)
        data = data_of_fit(X, y, sample_weight)
        root = self._begun(data)
        with one_blas_thread():
            searched, ledger = self._searched(rows, sample_weight is not None, groups, root, data)
            self._chosen, self._start = searched.chosen, searched.start
            try:
                self._solve(self._strategy(rows), rows, data, root)
            finally:
                del self._start
        self.__dict__.update(searched.attributes, spread_=searched.spread)
        self.cost_ = Ledger.total([ledger, self.cost_])
        return self

    def _check_place(self, rows: Rows) -> None:
        """Raise ValueError for a place that the final fit would refuse."""
        if is_mpi(self.cluster):
            self._refuse_search()
        elif isinstance(self.cluster, Integral) and not is_dask(rows.X) and self.cluster > rows.X.shape[0]:
            raise ValueError(
                f"cluster={self.cluster} is more ranks than rows: with n_samples={rows.X.shape[0]} it must lie in "
                f"[1, {rows.X.shape[0]}]."
            )
        engine_for(self.cluster, rows.X)
        self._refuse_numbered_rows(rows)
        self._refuse_ranks_of_gpus(rows)

    def _searched(
        self, rows: Rows, is_weighted: bool, groups: Any, root: Any, data: dict[str, Any]
    ) -> tuple[Searched, Ledger]:
        """The outcome of the search, and its cost."""
        with first_interrupt_kept(not hasattr(self, "_parent_callback_ctx")) as interruption:
            listener, resume = Listener(self, root, data, interruption), None
            if self.checkpoint is not None and not (is_mpi(self.cluster) and self.cluster.Get_rank() > 0):
                resume = SearchResume.of(self.checkpoint)
            elif self.checkpoint is not None:
                resume = SearchResume([])
            if is_mpi(self.cluster) or is_dask(self.cluster) or is_dask(rows.X):
                (result,), searched = search_on(self, rows, groups, resume, listener)
                searched, ledger = searched._replace(told=result.stop_reason), result.ledger
            else:
                run = SearchRun(Solo(), listener, resume, interruption=interruption, keeps=self.checkpoint is not None)
                searched, ledger = self._search(rows, is_weighted, groups, run)
            listener.end()
        self._warn_of_search(searched.told, searched.n_missing, len(searched.attributes["scores_"]))
        return searched, ledger

    def _prepared(
        self, rows: Rows, is_weighted: bool, groups: Any, own: OwnRows | None
    ) -> tuple[np.ndarray, Scorers, list[Fold], Grids]:
        """Classes, scorers, folds and grids; raises ValueError for bad ones."""
        X, y, weight, _ = rows
        classes = np.unique(y[weight > 0])
        check_classes(classes, type(self).__name__)
        scorers = Scorers(self, self.scoring, is_weighted=is_weighted)
        indexable(X, groups)
        if own is not None and scorers.need_rows:
            raise ValueError(
                f"scoring={self.scoring!r} sees the rows, and no rank has room for all of them: choose a scorer by "
                "name, or one of make_scorer."
            )
        folds, grids = folds_of(self.cv, X, y, weight, groups), self._grids(X, weight, own)
        scorers.check(rows, folds, classes, Parts(len(classes), self.multi_class))
        return classes, scorers, folds, grids

    def _search(self, rows: Rows, is_weighted: bool, groups: Any, run: SearchRun) -> tuple[Searched, Ledger]:
        """The search on all rows, and its cost on this rank."""
        X, y, weight, _ = rows
        if self._uses_gpu():  # grids, splitters and scorers see no tensors
            rows = rows._replace(X=on_host(X))
        classes, scorers, folds, (gammas, Cs) = self._prepared(rows, is_weighted, groups, run.own)
        until = np.inf if self.max_time is None else time.monotonic() + self.max_time
        codes = encoded(np.where(weight > 0, y, classes[0]), classes)  # rows of weight 0 may have other labels
        shard, parts, comm = Shard(X, codes, weight), Parts(len(classes), self.multi_class), run.comm
        given = Shard(rows.X, codes, weight)
        fresh = None if run.resume is None else self._fresh_state(given, classes, folds, (gammas, Cs), run.own)
        known, paths = known_fits(run.resume, fresh, comm)
        known |= {each.name: each for each in run.fits}
        teller = Teller(run.watch, fresh)

        def look() -> str:
            return "interrupted" if run.interruption else "max_time" if time.monotonic() > until else ""

        crew = SharedCrew(comm, look, teller.tell, known, paths, keeps=run.keeps)
        setting: dict[str, Any] = {
            "shard": shard,
            "classes": classes,
            "parts": parts,
            "folds": folds,
            "fit_intercept": bool(self.fit_intercept),
            "class_weight": self.class_weight,
            "limits": Limits(self.tol, self.max_iter),
            "cache_bytes": self._search_bytes(comm),
            "crew": crew,
        }
        in_folds = LinearFolds if self._is_linear() and not are_wide(shard, setting["cache_bytes"]) else Folds
        search = Search(
            in_folds(**setting, device=devices.resolved(self.device), ask=crew.ask)
            if run.own is None
            else FoldsOfRanks(run.own, **setting, ask=crew.heard),
            self._kernel_with,
            scorers,
            rows,
            bool(self.skip),
            agree=lambda scores: comm.broadcast(scores.ravel()).reshape(scores.shape),
            are_values_late=comm.size > 1 or bool(known) or paths is not None,
        )
        teller.search = search
        search.try_all(gammas, Cs)
        if self.refine and search.n_tried:
            search.refine(near_best(search.tried, 0.0)[0])
        search.forget_values()
        teller.tell([], None)
        told = crew.reason
        best = next(iter(search.tried))
        if search.n_tried:
            best = near_best(search.tried, 0.0 if self.selection == "best" else 1.0)[0]
        found = table(search.tried, search.skipped, scorers.names, len(folds), self.tol)
        index, name = list(search.tried).index(best), scorers.names[0]
        attributes = {
            "best_params_": best.parameters(),
            "best_score_": float(found[f"mean_test_{name}"][index]),
            "best_index_": index,
            "cv_results_": found,
            "scores_": np.stack([found[f"split{k}_test_{name}"] for k in range(len(folds))], axis=1),
            "n_splits_": len(folds),
        }
        start = None if self._is_linear() else search.start_at(best)
        n_missing = len(search.tried) - search.n_tried - len(search.skipped)
        spread: Any = "rows" if run.own is not None else "tasks" if comm.size > 1 else "none"
        return Searched(attributes, best.parameters(), start, told, n_missing, spread), search.folds.ledger

    def _fresh_state(
        self, shard: Shard, classes: np.ndarray, folds: list[Fold], grids: Grids, own: OwnRows | None
    ) -> SearchState:
        """What files of this search have in common: all that its fits depend on."""
        kernel, numbers, few = self._kernel_with(grids[0][0]), np.arange(shard.n_rows), shard
        if own is not None:
            some = RowsElsewhere(own, shard.n_rows)[numbers[:_MAX_COMPARED]]
            few = Shard(some, np.empty(0), np.empty(0))
            shard, numbers = Shard(own.rows.X, shard.y[own.numbers], shard.weight[own.numbers]), own.numbers
        task = (
            f"{type(self).__name__} {kernel}{digest_of_values(kernel, few)} gammas={grids[0]} Cs={grids[1]} "
            f"skip={self.skip} fit_intercept={self.fit_intercept} tol={self.tol} max_iter={self.max_iter} "
            f"class_weight={self.class_weight} {self.multi_class} {classes.tolist()!r} scoring={name_of(self.scoring)}"
        )
        mine = np.array([shard.n_rows, shard.content_hash(numbers)], np.uint64)
        n_rows, content = mine if own is None else own.comm.allreduce(mine)
        data = np.array([n_rows, shard.n_features, content, hash_of_folds(folds)], np.uint64)
        return SearchState(task, data, [], None)

    def _search_bytes(self, comm: Communicator) -> int:
        """Memory for kernel values on each rank."""
        n_here = ranks_on_machine(comm) if self.cache_size == "auto" else 1
        return int(-comm.allreduce(np.array([-float(self._cache_bytes() // n_here)]), "max")[0])

    def _checkpoint_folder(self) -> Any:
        """Each point that a search may choose has states of its own."""
        name = " ".join(f"{name}={value!r}" for name, value in self._chosen.items())
        return None if self.checkpoint is None else Path(self.checkpoint) / f"fit {name}"

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
            squares = kernel.diagonal(X, np.arange(X.shape[0]))
        else:
            here = [kernel.diagonal(block, own.numbers[where]) for block, where in own.shard.pieces()]
            squares = own.of_all(np.concatenate(here), len(weight))
        return gammas, grid_of_Cs(self.Cs, squares, weight).tolist()

    def _warn_of_search(self, told: str, n_missing: int, n_points: int) -> None:
        missing = f"{n_missing} of {n_points} points were not tried on all folds"
        if told == "max_time":
            warn_user(
                f"max_time={self.max_time:g} ended the search of KernelSVCCV, and {missing}: raise max_time, or use "
                "smaller grids or fewer folds.",
                ConvergenceWarning,
            )
        elif told == "interrupted":
            warn_user(f"The search of KernelSVCCV was interrupted, and {missing}.", InterruptedFitWarning)

    def _kernel_with(self, gamma: float | None) -> Kernel:
        if callable(self.kernel):
            return Kernel("callable", function=self.kernel)
        return Kernel(self.kernel, "scale" if gamma is None else gamma, int(self.degree), float(self.coef0))

    @property
    def gamma(self) -> Any:
        """That of the final fit."""
        return self._chosen.get("gamma", "scale")

    def _is_linear(self) -> bool:
        return bool(self.kernel == "linear") and not self._uses_gpu()

    def _cache_bytes(self) -> int:
        if self.cache_size != "auto":
            return super()._cache_bytes()
        return int(_SHARE_OF_GPU * devices.free_bytes(devices.GPU)) if self._uses_gpu() else free_bytes()

    def _problem_of_rows(self) -> None:
        return None

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
    C = Symbol("<var>C</var>", model._chosen["C"], "chosen by cross-validation")
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
            "_chosen": dict[str, float],
            "best_params_": dict[str, float],
            "best_score_": float,
            "best_index_": int,
            "cv_results_": dict[str, Any],
            "scores_": Array("f", "AF"),
            "n_splits_": int,
            "spread_": Literal["none", "tasks", "rows"],
            "multi_class_": Literal["pairs", "rest"],
            **dict.fromkeys(("C_", "slack_", "violation_"), Each("f")),
        },
        check=check_table,
    )
)
