"""Estimators that choose parameters by cross-validation, and then fit all rows."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral
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
from widemargin.engines.select import engine_for
from widemargin.estimators._base import MarginClassifier, data_of_fit, fitting
from widemargin.estimators._folds import Scorers, folds_of
from widemargin.estimators._search import Listener, Searched, SearchResume, SearchRun, from_rank_0, search_on
from widemargin.estimators._selection import AnySearch, near_best
from widemargin.estimators.registry import Array
from widemargin.exceptions import InterruptedFitWarning, warn_user
from widemargin.ledger import Ledger
from widemargin.sklearn_private import StrOptions
from widemargin.strategies.labels import check_classes
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Rows
from widemargin.strategies.selection import Fold


class SearchClassifier(MarginClassifier):
    """A classifier that searches for its parameters; a subclass has the search."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{
            name: MarginClassifier._parameter_constraints[name]
            for name in ("tol", "max_iter", "max_time", "class_weight", "verbose")
        },
        "cv": ["cv_object"],
        "scoring": [str, callable, list, tuple, dict, None],
        "refine": ["boolean"],
        "selection": [StrOptions({"best", "one-standard-error"})],
    }
    _fitted_attributes: ClassVar[dict[str, Any]] = {
        "_chosen": dict[str, float],
        "best_params_": dict[str, float],
        "best_score_": float,
        "best_index_": int,
        "cv_results_": dict[str, Any],
        "scores_": Array("f", "AF"),
        "n_splits_": int,
        "spread_": Literal["none", "tasks", "rows"],
    }

    cv: Any
    scoring: Any
    refine: Any
    selection: Any
    _chosen: dict[str, float]
    _start: np.ndarray | None = None  # of the final fit, while it runs: coefficients of each problem

    @abstractmethod
    def _search(self, rows: Rows, is_weighted: bool, groups: Any, run: SearchRun) -> tuple[Searched, Ledger]:
        """The search on all rows, and its cost on this rank."""

    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose parameters, and fit the model to training data.

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

    def _checkpoint_folder(self) -> Any:
        """Each point that a search may choose has states of its own."""
        name = " ".join(f"{name}={value!r}" for name, value in self._chosen.items())
        return None if self.checkpoint is None else Path(self.checkpoint) / f"fit {name}"

    def _problem_of_rows(self) -> None:
        return None

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
                (result,), searched = search_on(self, rows, is_weighted, groups, resume, listener)
                searched, ledger = searched._replace(told=result.stop_reason), result.ledger
            else:
                run = SearchRun(Solo(), listener, resume, interruption=interruption, keeps=self.checkpoint is not None)
                searched, ledger = self._search(rows, is_weighted, groups, run)
            listener.end()
        self._warn_of_search(searched)
        return searched, ledger

    def _warn_of_search(self, searched: Searched) -> None:
        name, n_points = type(self).__name__, len(searched.attributes["scores_"])
        missing = f"{searched.n_missing} of {n_points} points were not tried on all folds"
        if searched.told == "max_time":
            warn_user(
                f"max_time={self.max_time:g} ended the search of {name}, and {missing}: raise max_time, or use smaller "
                "grids or fewer folds.",
                ConvergenceWarning,
            )
        elif searched.told == "interrupted":
            warn_user(f"The search of {name} was interrupted, and {missing}.", InterruptedFitWarning)
        table, scores = searched.attributes["cv_results_"], searched.attributes["scores_"]
        n_bad = np.count_nonzero(~np.isfinite(scores).all(axis=1) & ~np.isnan(table["gap"]))
        if n_bad:
            text = f"{n_bad} of {n_points} points have scores that are not finite: check scoring={self.scoring!r}."
            warn_user(text, UserWarning)

    # What subclasses need for a search.

    def _prepared(
        self, rows: Rows, is_weighted: bool, groups: Any, comm: Communicator
    ) -> tuple[np.ndarray, Scorers, list[Fold]]:
        """Classes, scorers and folds; raises ValueError for bad ones. Splitters may be random: rank 0 asks them."""
        X, y, weight, _ = rows
        classes = np.unique(y[weight > 0])
        check_classes(classes, type(self).__name__)
        scorers = Scorers(self, self.scoring, is_weighted=is_weighted)
        indexable(X, groups)
        folds = [(train, test) for train, test in from_rank_0(comm, lambda: folds_of(self.cv, X, y, weight, groups))]
        scorers.check(rows, folds, classes, Parts(len(classes), self.multi_class))
        return classes, scorers, folds

    def _look(self, run: SearchRun) -> Callable[[], str]:
        """A function that returns why the search shall end, or an empty text."""
        until = np.inf if self.max_time is None else time.monotonic() + self.max_time
        return lambda: "interrupted" if run.interruption else "max_time" if time.monotonic() > until else ""

    def _found(self, search: AnySearch, told: str, spread: Literal["none", "tasks", "rows"]) -> Searched:
        """The choice, and the fitted attributes of a search that is over."""
        best: Any = search.first
        if search.candidates:
            best = near_best(search.candidates, 0.0 if self.selection == "best" else 1.0)[0]
        table, index, name = search.table(self.tol), list(search.tried).index(best), search.scorers.names[0]
        n_folds = len(search.folds.folds)
        attributes = {
            "best_params_": best.parameters(),
            "best_score_": float(table[f"mean_test_{name}"][index]),
            "best_index_": index,
            "cv_results_": table,
            "scores_": np.stack([table[f"split{k}_test_{name}"] for k in range(n_folds)], axis=1),
            "n_splits_": n_folds,
        }
        return Searched(attributes, best.parameters(), None, told, search.n_missing, spread)
