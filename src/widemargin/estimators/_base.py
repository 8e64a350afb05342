"""The base of all estimators; a fit is: validate -> plan -> run a strategy -> unpack -> warn."""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache, partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state, estimator_html_repr
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from widemargin import checkpoint
from widemargin.callbacks import Interruption, display, first_interrupt_kept
from widemargin.checkpoint import FitState
from widemargin.comm.clusters import is_dask, is_mpi
from widemargin.cores import one_blas_thread
from widemargin.data.pieces import each_piece
from widemargin.data.shard import Shard
from widemargin.estimators._coefficients import (
    CoefficientTable,
    CoefficientTables,
    about_model,
    plain_lines,
    summarised,
)
from widemargin.estimators.registry import LABELS, Array
from widemargin.estimators.words import fit_as_html, useless_in_words
from widemargin.exceptions import DegenerateModelWarning, InterruptedFitWarning, PrecisionWarning, warn_user
from widemargin.kernels.arrays import is_on_host
from widemargin.kernels.functions import Kernel
from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate, Problem, gap_as_text
from widemargin.sklearn_private import (
    HasMethods,
    Interval,
    StrOptions,
    check_constraints,
    check_feature_names,
    clone_parametrized,
    fit_context,
)
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Result
from widemargin.strategies.labels import FLOATS, are_plain_labels, are_plain_rows, checked_labels, known_size
from widemargin.strategies.parts import Parts
from widemargin.strategies.protocol import Outcome, PartProgress, Plan, Rows, Strategy, Watch
from widemargin.strategies.ranks import Ranks, Resume
from widemargin.strategies.training import TrainingCounts

FORM: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS, "order": "C", "accept_large_sparse": True}
_SWEEPS_PER_CHECKPOINT = 5
_MAX_SEED = 2**31 - 1
_MANY_ROWS = 1 << 16  # whose scores are computed in pieces
_COMPLETE = ("gap", "rounds")  # stop reasons of a fit that did all it was to do

_PLAIN = (int, float, str, bool, type(None))
_names_of_parameters: dict[type, list[str]] = {}
StopWarnings = dict[str, tuple[type[Warning], str]]  # category and text of the warning for each stop reason
Method = TypeVar("Method", bound=Callable[..., Any])


def fitting(method: Method) -> Method:
    """scikit-learn's decorators of ``fit``, which would lose the types of the method."""
    decorated: Method = with_callbacks(fit_context(prefer_skip_nested_validation=True)(method))
    return decorated


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(_MAX_SEED))


_seed_of_number = lru_cache(maxsize=256)(_seed)  # to make a generator takes long for a fit on few rows


@lru_cache(maxsize=256, typed=True)
def _check_parameters(kind: type[MarginClassifier], *values: Any) -> None:
    """Raise ValueError for a value that the constraints of the class exclude."""
    check_constraints(
        kind._parameter_constraints, dict(zip(kind._get_param_names(), values, strict=True)), kind.__name__
    )


class MarginClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """A certified maximum-margin classifier; subclasses define the problem, the solver and the fitted attributes."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
        "cluster": [Interval(Integral, 1, None, closed="left"), None, *map(HasMethods, ("scheduler_info", "Get_rank"))],
        "verbose": ["verbose"],
    }

    # Fitted attributes of all estimators; descriptors list those that a class adds.
    _fitted_attributes: ClassVar[dict[str, Any]] = {
        "n_features_in_": int,
        "feature_names_in_": Array("O", "I"),
        "classes_": Array(LABELS, "K"),
        "intercept_": Array("f", "P", is_finite=True),
        "certificate_": Certificate,
        "stop_reason_": str,
        "n_iter_": int,
        "parts_": list[Result],
        "history_": list[dict[str, float]],
        "cost_": Ledger,
        "training_": TrainingCounts,
    }

    # Parameters that not every estimator has.
    cluster: Any = None
    max_time: Any = None
    class_weight: Any = None
    warm_start: Any = False
    random_state: Any = 0
    checkpoint: Any = None
    multi_class: Any = "pairs"  # or "rest"

    _counts_weight: ClassVar[bool] = True  # False: a row of positive weight counts once

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """As scikit-learn's, which reads the signature each time: long for a fit on few rows."""
        if cls not in _names_of_parameters:
            _names_of_parameters[cls] = super()._get_param_names()
        return list(_names_of_parameters[cls])

    def _validate_params(self) -> None:
        """As scikit-learn's, which makes objects of all constraints each time; plain values are valid once for all."""
        values = [getattr(self, name) for name in self._get_param_names()]
        if all(type(value) in _PLAIN for value in values):
            kind: Any = type(self)
            _check_parameters(kind, *values)
        else:
            super()._validate_params()

    @abstractmethod
    def _problem(self) -> Problem: ...

    def _problem_of_rows(self) -> Problem | None:
        """The problem, for checks of the rows; None where it depends on them."""
        return self._problem()

    @abstractmethod
    def _solver(self) -> AnySolver:
        """The solver, for strategies that run one on the rows."""

    def _kernel(self) -> Kernel | None:
        """The kernel on the rows; None for linear models."""
        return None

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """The warm state of each part, if ``warm_start`` is set and a previous fit left one."""
        return None

    @abstractmethod
    def _advice(self, result: Result) -> str:
        """The change most likely to close the gap of this result, for a warning."""

    @abstractmethod
    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        """Fitted attributes from the models: what ``decision_function`` needs, and what the problem reports."""

    def _zero_model(self, model: Any) -> Any:
        """A copy of this model whose scores are 0."""
        return model._replace(coef=np.zeros_like(model.coef), intercept=0.0)

    @abstractmethod
    def _scores(self, X: Any) -> np.ndarray:
        """Scores of validated rows."""

    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows, in float32 or float64. CSR matrices are used without conversion.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplicity of each row: 2 counts the row twice, 0 leaves it out.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        rows = Rows(X, y, sample_weight) if self._are_elsewhere(X) else self._validate(X, y, sample_weight)
        return self._fit(rows, X, y, sample_weight)

    @one_blas_thread()
    def _fit(self, rows: Any, X: Any, y: Any, sample_weight: Any = None, strategy: Strategy | None = None) -> Self:
        """``fit`` after validation; callbacks get ``X``, ``y`` and ``sample_weight`` as the caller passed them."""
        strategy = self._strategy(rows) if strategy is None else strategy
        data = data_of_fit(X, y, sample_weight)
        return self._solve(strategy, rows, data, self._begun(data))

    def _solve(self, strategy: Strategy, rows: Any, data: dict[str, Any], root: Any) -> Self:
        outcome = self._run(strategy, rows, data, root)
        self._unpack(outcome, rows)
        self._warn()
        return self

    def _are_elsewhere(self, X: Any) -> bool:
        """Whether other processes hold and check the rows."""
        return is_mpi(self.cluster) or is_dask(X)

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        size = known_size(X)
        if are_plain_rows(X, size) and are_plain_labels(y, X.shape[0]):
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        else:
            X, y = validate_data(self, X, y, ensure_all_finite=not math.isfinite(size), **FORM)
        return checked_labels(Rows(X, y, sample_weight), X.shape[0], self._problem_of_rows(), size=size)

    def _strategy(self, rows: Any) -> Strategy:
        return self._ranks(rows)

    def _ranks(self, rows: Rows, **more: Any) -> Ranks:
        if is_mpi(self.cluster):
            self._refuse_search()
        return Ranks(
            self._plan(),
            self._solver(),
            kernel=self._kernel(),
            counts_weight=self._counts_weight,
            warm=self._warm_state(rows),
            are_rows_checked=not self._are_elsewhere(rows.X),
            resume=self._read_checkpoint(),
            **more,
        )

    def _plan(self) -> Plan:
        return Plan(
            name=type(self).__name__,
            problem=self._problem(),
            limits=Limits(self.tol, self.max_iter, np.inf if self.max_time is None else self.max_time),
            seed=_seed_of_number(self.random_state) if type(self.random_state) is int else _seed(self.random_state),
            multi_class=self.multi_class,
            class_weight=self.class_weight,
            watch_model=bool(getattr(self, "_skl_callbacks", [])),
        )

    def _refuse_unused(self, defaults: dict[str, Any], owner: str, value: str) -> None:
        """Raise ValueError for parameters that differ from their defaults and have an effect only if owner=value."""
        for name, default in defaults.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} has no effect with {owner}={getattr(self, owner)!r}: leave it "
                    f"{default!r}, or use {owner}={value!r}."
                )

    def _refuse_search(self) -> None:
        """Raise ValueError inside a search: under MPI each rank would compare the scores of its own rows only."""
        context = getattr(self, "_parent_callback_ctx", None)
        while context is not None:
            if context.estimator_name.endswith("SearchCV"):
                raise ValueError(
                    f"{context.estimator_name} is not supported with an MPI communicator: each rank would choose by "
                    "the scores of its own rows. Search with threads (cluster=k) or a Dask client."
                )
            context = context.parent

    def _read_checkpoint(self) -> Resume | None:
        """The checkpoint, or the error that makes it unusable; under MPI rank 0 reads for all ranks."""
        if self.checkpoint is None:
            return None
        if not is_mpi(self.cluster):
            return Resume(self._checked_state())
        if self.cluster.Get_rank() > 0:
            return Resume(None)
        try:
            return Resume(self._checked_state())
        except ValueError as error:  # told to all ranks
            return Resume(None, str(error))

    def _checked_state(self) -> FitState | None:
        """The state in the folder; raises ValueError for one that is damaged, and for a folder that cannot be used."""
        checkpoint.check_folder(self._checkpoint_folder())
        return checkpoint.load(self._checkpoint_folder())

    def _checkpoint_folder(self) -> Any:
        """Where states of this fit are saved."""
        return self.checkpoint

    def _begun(self, data: dict[str, Any]) -> Any:
        """The context of callbacks, which have heard that the fit begins."""
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, **data)
        return root

    def _run(self, strategy: Strategy, rows: Any, data: dict[str, Any], root: Any) -> Outcome:
        # Inside a search or a pipeline Ctrl-C must end the search, not this fit alone.
        with first_interrupt_kept(not hasattr(self, "_parent_callback_ctx")) as interruption:
            contexts: dict[int, Any] = {}
            outcome = strategy.run(rows, self.cluster, self._watch(root, contexts, interruption, data))
        for context in contexts.values():
            context.call_on_fit_task_end(estimator=self, **data)
        models = [result.model for result in outcome.results]
        attributes = partial(self._model_attributes, outcome.classes, models)  # only callbacks need them here
        root.call_on_fit_task_end(estimator=self, **data, reconstruction_attributes=attributes)
        return outcome

    def _watch(self, root: Any, contexts: dict[int, Any], interruption: Interruption, data: Any) -> Watch:
        """The function that this process calls after each certified sweep: progress, callbacks, checkpoint, Ctrl-C."""
        line = display(type(self).__name__, self.tol, self.verbose)
        models: dict[int, Any] = {}
        state: FitState | None = None
        saver = None if self.checkpoint is None else checkpoint.Saver(self._checkpoint_folder(), checkpoint.save)

        def watch(report: PartProgress) -> str | None:
            nonlocal state
            part, classes, begun, progress = report
            if saver is not None and begun is not None and progress.warm_state is not None:
                state = (state or begun).with_part(part, progress.warm_state, progress.sweep)
                if progress.sweep % _SWEEPS_PER_CHECKPOINT == 0:
                    saver.save(state)
            if line is not None and progress.certificate is not None:
                is_last = progress.certificate.relative <= self.tol or progress.sweep >= self.max_iter
                line.show(progress.sweep, progress.certificate, progress.seconds, is_last=is_last)
            if progress.model is not None:
                if part not in contexts:
                    contexts[part] = root.subcontext(task_name="classes", max_subtasks=None)
                    contexts[part].call_on_fit_task_begin(estimator=self, **data)
                sweep = contexts[part].subcontext(task_name="sweep")
                sweep.call_on_fit_task_begin(estimator=self, **data)
                models[part] = progress.model
                zero = self._zero_model(progress.model)  # for parts that have not started
                so_far = [models.get(k, zero) for k in range(len(Parts(len(classes), self.multi_class)))]
                attributes = self._model_attributes(classes, so_far)
                if sweep.call_on_fit_task_end(estimator=self, **data, reconstruction_attributes=attributes):
                    return "callback"
            return "interrupted" if interruption else None

        return watch

    def _unpack(self, outcome: Outcome, rows: Any) -> None:
        results = outcome.results
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            if name not in ("n_features_in_", "feature_names_in_"):
                delattr(self, name)  # left by an earlier fit
        self.__dict__.update(self._model_attributes(outcome.classes, [result.model for result in results]))
        worst = max(results, key=lambda result: (result.stop_reason not in _COMPLETE, result.certificate.relative))
        self.certificate_: Certificate = worst.certificate
        self.stop_reason_: str = worst.stop_reason
        self.n_iter_: int = worst.n_iter
        self.parts_ = results
        self.history_ = [
            row if len(results) == 1 else {"part": k, **row} for k, part in enumerate(results) for row in part.history
        ]
        self.cost_ = Ledger.total([result.ledger for result in results])
        if outcome.training is not None:
            self.training_: TrainingCounts = outcome.training
        if isinstance(rows, Rows) and self._are_elsewhere(rows.X):
            # The column names of a Dask dataframe are those of its empty `_meta` frame.
            check_feature_names(self, getattr(rows.X, "_meta", rows.X), reset=True)
            self.n_features_in_ = outcome.n_features

    def _stop_warnings(self) -> StopWarnings:
        """Warnings for stop reasons other than the gap: what was not reached, and what to change."""
        name, relative, tol = type(self).__name__, self.certificate_.relative, f"tol={self.tol:g}"
        gap = gap_as_text(relative)
        text = f"{name} was interrupted at a relative gap of {gap}, {tol}; the model is the best found."
        warnings: StopWarnings = {"interrupted": (InterruptedFitWarning, text)}
        if relative > self.tol:
            text = (
                f"Rounding keeps the relative gap of {name} at {gap_as_text(relative, 1)}, above {tol}. Scale the "
                "features (StandardScaler), or use a larger tol."
            )
            warnings["precision"] = PrecisionWarning, text
        if self.stop_reason_ in ("max_iter", "max_time"):
            worst = max(self.parts_, key=lambda part: part.certificate.relative)
            limit = f"{self.stop_reason_}={getattr(self, self.stop_reason_):g}"
            text = (
                f"{name} did not converge: the relative gap is {gap}, above {tol}, and {limit} was reached. "
                f"{self._advice(worst)}"
            )
            warnings[self.stop_reason_] = ConvergenceWarning, text
        return warnings

    def _remedies(self) -> list[str]:
        """Changes that may help a model that is no better than a constant, the most likely first, for a warning."""
        return ["features on one scale (StandardScaler)"]

    def _warn(self) -> None:
        told = self._stop_warnings().get(self.stop_reason_)
        if told is not None:
            kind, text = told
            warn_user(text, kind)
        # Why the fit stopped is the nearer cause, and that warning has advice of its own.
        useless = useless_in_words(self, with_advice=told is None)
        if useless:
            warn_user(useless, DegenerateModelWarning)

    def decision_function(self, X: Any) -> Any:
        """Compute the decision scores of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, positive for the second class. With more, one column per class: its score against the
            rest, and :meth:`predict` returns the class with the highest; or, where every pair of classes has a problem
            of its own, its votes plus the sum of its scores mapped into (-1/3, 1/3), and :meth:`predict` returns the
            first of the classes with the most votes, as scikit-learn's ``SVC`` does. A classifier on a GPU returns
            torch or CuPy arrays for torch or CuPy rows.
        """
        check_is_fitted(self)
        if is_dask(X):
            return self._map_lazily("decision_function", X)
        size = known_size(X)
        is_as_fitted = are_plain_rows(X, size) and X.shape[1] == self.n_features_in_
        if not is_as_fitted or hasattr(self, "feature_names_in_"):
            form = {"accept_sparse": "csr", "dtype": FLOATS, "ensure_all_finite": not math.isfinite(size)}
            X = validate_data(self, X, reset=False, **form)
        with one_blas_thread():
            return self._scores(X)

    def predict(self, X: Any) -> Any:
        """Predict the class labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        if is_dask(X):
            return self._map_lazily("predict", X)
        return self._labels(self.decision_function(X))

    def summary(
        self, feature_names: ArrayLike | None = None, *, sort: bool = True
    ) -> CoefficientTable | CoefficientTables:
        """Return the coefficients as a table with names, the largest first.

        Parameters
        ----------
        feature_names : array-like of str, default=None
            Names of the features, such as ``pipeline[:-1].get_feature_names_out()`` for the last step of a pipeline.
            None takes those of the columns that ``fit`` saw; without any they are x0, x1, ...
        sort : bool, default=True
            Whether to sort by size. False keeps the order of the features.

        Returns
        -------
        table : CoefficientTable, or CoefficientTables with one for each problem if there are more than two classes
            ``print(table)`` shows text, ``table.frame()`` returns a pandas DataFrame, Jupyter shows HTML. Models that
            are not linear in their features have no coefficients: ValueError.
        """
        check_is_fitted(self)
        return summarised(self, feature_names, sort, partial(plain_lines, self), about_model)

    @property
    def _parts(self) -> Parts:
        """The problems of the fit; ``multi_class`` may have been set since."""
        return Parts(len(self.classes_), getattr(self, "multi_class_", self.multi_class))

    def _labels(self, scores: np.ndarray) -> np.ndarray:
        if len(scores) < _MANY_ROWS or not isinstance(scores, np.ndarray):
            return np.take(self.classes_, self._parts.winners(scores))
        labels = np.empty(len(scores), self.classes_.dtype)

        def do(rows: slice) -> None:
            labels[rows] = np.take(self.classes_, self._parts.winners(scores[rows]))

        each_piece(do, len(scores), 16.0)
        return labels

    def _map_lazily(self, method: str, X: Any) -> Any:
        from widemargin.engines.dask import map_rows

        model = copy.copy(self)
        model.cluster = None  # a client cannot be sent to its own workers
        if hasattr(model, "feature_names_in_") and hasattr(X, "columns"):
            X = X[list(model.feature_names_in_)]
            del model.feature_names_in_  # its parts are plain arrays
        few = getattr(model, method)(np.zeros((1, self.n_features_in_)))
        return map_rows(getattr(model, method), X, few.shape[1] if few.ndim == 2 else None, few.dtype)

    def _html_repr(self) -> str:
        """What notebooks show: scikit-learn's diagram, then the certificate and cost of a fitted model."""
        return str(estimator_html_repr(self)) + fit_as_html(self)

    def __sklearn_clone__(self) -> Self:
        """Clone as usual, but share the cluster: a client or a communicator cannot be copied."""
        has_cluster, clone = "cluster" in vars(self), copy.copy(self)
        if has_cluster:
            clone.cluster = None
        clone = clone_parametrized(clone)
        if has_cluster:
            clone.cluster = self.cluster
        return clone

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # Clients and communicators cannot be pickled.
        is_named = isinstance(self.cluster, Integral) or "cluster" not in state
        return state if is_named else {**state, "cluster": None}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def data_of_fit(X: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
    """What callbacks hear of the data."""
    return {"X": X, "y": y, "metadata": None if sample_weight is None else {"sample_weight": sample_weight}}


def common_attributes(classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
    """Classes, intercepts and the problem's report: a value for one part, an array for several."""
    reports = {f"{name}_": [model.report[name] for model in models] for name in models[0].report}
    return {
        "classes_": classes,
        "intercept_": np.array([model.intercept for model in models]),
        **{name: values[0] if len(models) == 1 else np.array(values) for name, values in reports.items()},
    }


def linear_scores(X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Scores of shape (n_rows, n_separators), in the dtype of the rows."""
    coef, intercept = coef.astype(X.dtype, copy=False), intercept.astype(X.dtype, copy=False)
    scores: np.ndarray
    if X.shape[0] < _MANY_ROWS or not is_on_host(X):
        scores = safe_sparse_dot(X, coef.T, dense_output=True) + intercept
        return scores
    scores = Shard(X, np.empty(0), np.empty(0)).products(coef.T)
    each_piece(lambda rows: np.add(scores[rows], intercept, out=scores[rows]), len(scores))
    return scores
