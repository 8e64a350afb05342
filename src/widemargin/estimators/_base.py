"""The one way of a fit: validate -> plan -> launch -> unpack -> warn."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _clone_parametrized, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state, estimator_html_repr
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_feature_names, check_is_fitted, validate_data

from widemargin import checkpoint
from widemargin.callbacks import Interruption, display, first_interrupt_kept
from widemargin.checkpoint import FitState
from widemargin.engines.select import is_dask, is_mpi, launcher
from widemargin.estimators.words import fit_as_html
from widemargin.exceptions import InterruptedFitWarning, PrecisionWarning, warn_user
from widemargin.kernels.functions import Kernel
from widemargin.problems.protocol import Certificate
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Limits, Progress, Result
from widemargin.strategies.labels import FLOATS, checked_labels
from widemargin.strategies.protocol import Outcome, Plan, Rows, Strategy
from widemargin.strategies.task import PartWatch, Task

FORM: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS, "order": "C", "accept_large_sparse": True}
_SWEEPS_PER_CHECKPOINT = 5
# Starts ranks on rows: of the rows, the cluster, the task, and who watches.
Launch = Callable[[Any, Any, Task, PartWatch], Outcome]
# The reasons to stop that leave the gap open; the others are proofs.
_LIMITS = ("max_iter", "max_time")


Method = TypeVar("Method", bound=Callable[..., Any])


def fitting(method: Method) -> Method:
    """What scikit-learn does around a method that fits; by its own decorators its types would be lost."""
    decorated: Method = with_callbacks(_fit_context(prefer_skip_nested_validation=True)(method))
    return decorated


class StateKeeper:
    """Writes the state of a fit into its folder, every few sweeps of each part."""

    def __init__(self, folder: str | os.PathLike[str], resume: FitState | None) -> None:
        self._folder, self._state = folder, resume

    def note(self, part: int, fresh: FitState, progress: Progress) -> None:
        state = self._state or fresh
        directions, sweeps = state.directions.copy(), state.sweeps.copy()
        directions[part], sweeps[part] = progress.warm_state, progress.sweep
        self._state = state._replace(directions=directions, sweeps=sweeps)
        if progress.sweep % _SWEEPS_PER_CHECKPOINT == 0:
            checkpoint.save(self._folder, self._state)


class MarginClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """A maximum-margin classifier, certified; subclasses say which problem, which solver and what a model is."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "checkpoint": [str, os.PathLike, None],
        "cluster": [
            Interval(Integral, 1, None, closed="left"),
            None,
            HasMethods("scheduler_info"),
            HasMethods("Get_rank"),
        ],
        "verbose": ["verbose"],
    }

    # Of parameters that not every estimator has.
    max_time: Any = None
    class_weight: Any = None
    warm_start: Any = False
    random_state: Any = 0
    checkpoint: Any = None

    _counts_weight: ClassVar[bool] = True  # False: a row counts once, whatever its weight
    _one_vs_rest: ClassVar[bool] = False  # False: one problem for each pair of classes

    def _kernel(self) -> Kernel | None:
        """The kernel on the rows; None for linear models."""
        return None

    @abstractmethod
    def _problem(self) -> Any:
        """What is optimised."""

    def _solver(self) -> AnySolver:
        """How."""
        raise NotImplementedError

    @abstractmethod
    def _advice(self, result: Result) -> str:
        """The change most likely to close the gap of this result."""

    @abstractmethod
    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        """Fitted attributes that ``decision_function`` needs, and what the problem reports; of models of all parts."""

    @abstractmethod
    def _silent(self, model: Any) -> Any:
        """A model like this one that abstains."""

    @abstractmethod
    def _scores(self, X: Any) -> np.ndarray:
        """Scores of validated rows."""

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        """What the last fit left to start from, for each part, if that is wanted."""
        return None

    @fitting
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows, of float32 or float64; sparse rows in CSR form are used as they are.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts: 2 is the row twice, 0 is the row absent.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        is_remote = is_mpi(self.cluster) or is_dask(X)
        if is_mpi(self.cluster):
            self._refuse_search()
        rows = Rows(X, y, sample_weight) if is_remote else self._validate(X, y, sample_weight)
        return self._fit(rows, X, y, sample_weight)

    def _fit(self, rows: Any, X: Any, y: Any, sample_weight: Any = None, strategy: Strategy | None = None) -> Self:
        strategy = self._strategy(rows) if strategy is None else strategy
        if strategy is None:
            is_remote = is_mpi(self.cluster) or is_dask(X)
            task = self._task(rows, are_rows_checked=not (is_remote or is_dask(self.cluster)))
            outcome = self._launch(launcher(self.cluster, X), task, rows, X, y, sample_weight)
            self._unpack(outcome, rows)
            if is_remote:
                # A Dask dataframe names its columns as the empty frame does that it carries.
                _check_feature_names(self, getattr(X, "_meta", X), reset=True)
                self.n_features_in_ = outcome.n_features
        else:
            chosen = strategy

            def launch(rows: Any, cluster: Any, task: Task, watch: PartWatch) -> Outcome:
                return chosen.run(rows, cluster, lambda told: watch(*told))

            plan = self._plan()
            task = Task(plan.name, plan.problem, None, plan.limits, plan.seed, one_vs_rest=self._one_vs_rest)  # type: ignore[arg-type]
            self._unpack(self._launch(launch, task, rows, X, y, sample_weight), rows)
        self._warn()
        return self

    def _strategy(self, rows: Any) -> Strategy | None:
        return None

    def _plan(self) -> Plan:
        return Plan(
            name=type(self).__name__,
            problem=self._problem(),
            limits=Limits(self.tol, self.max_iter, np.inf if self.max_time is None else self.max_time),
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            multi_class="rest" if self._one_vs_rest else "pairs",
            class_weight=self.class_weight,
            watch_model=bool(getattr(self, "_skl_callbacks", [])),
        )

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Check everything that can be wrong with the input before any work is done."""
        X, y = validate_data(self, X, y, **FORM)
        return checked_labels(Rows(X, y, sample_weight), X.shape[0])

    def _refuse_search(self) -> None:
        """A search compares scores, and under MPI each rank would see only those of its own rows."""
        context = getattr(self, "_parent_callback_ctx", None)
        while context is not None:
            if context.estimator_name.endswith("SearchCV"):
                raise ValueError(
                    f"{context.estimator_name} is not supported with an MPI communicator: each rank would choose by "
                    "the scores of its own rows. Search with threads (cluster=k) or a Dask client."
                )
            context = context.parent

    def _task(self, rows: Rows, *, are_rows_checked: bool) -> Task:
        return Task(
            name=type(self).__name__,
            problem=self._problem(),
            solver=self._solver(),
            limits=Limits(self.tol, self.max_iter, np.inf if self.max_time is None else self.max_time),
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            kernel=self._kernel(),
            one_vs_rest=self._one_vs_rest,
            class_weight=self.class_weight,
            counts_weight=self._counts_weight,
            warm=self._warm_state(rows),
            watch_model=bool(getattr(self, "_skl_callbacks", [])),
            are_rows_checked=are_rows_checked,
            keeps_state=self.checkpoint is not None,
            **self._read_checkpoint(),
        )

    def _read_checkpoint(self) -> dict[str, Any]:
        """The state to go on from, or why it cannot be used; under MPI rank 0 reads for all."""
        if self.checkpoint is None or (is_mpi(self.cluster) and self.cluster.Get_rank() > 0):
            return {}
        try:
            return {"resume": checkpoint.load(self.checkpoint)}
        except ValueError as error:
            return {"resume_error": str(error)}

    def _launch(self, launch: Launch, task: Task, rows: Any, X: Any, y: Any, sample_weight: Any) -> Outcome:
        root = self._init_callback_context(max_subtasks=None)
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        data = {"X": X, "y": y, "metadata": metadata}
        root.call_on_fit_task_begin(estimator=self, **data)
        # Inside a search or a pipeline Ctrl-C must end the whole, not this fit alone.
        with first_interrupt_kept(not hasattr(self, "_parent_callback_ctx")) as interruption:
            contexts: dict[int, Any] = {}
            watch = self._watch(root, contexts, interruption, data, task)
            outcome = launch(rows, self.cluster, task, watch)
        for context in contexts.values():
            context.call_on_fit_task_end(estimator=self, **data)
        attributes = self._model_attributes(outcome.classes, [result.model for result in outcome.results])
        root.call_on_fit_task_end(estimator=self, **data, reconstruction_attributes=attributes)
        return outcome

    def _watch(
        self, root: Any, contexts: dict[int, Any], interruption: Interruption, data: dict[str, Any], task: Task
    ) -> PartWatch:
        """What happens where the user is after each certified sweep: progress, callbacks, Ctrl-C."""
        line = display(type(self).__name__, self.tol, self.verbose)
        models: dict[int, Any] = {}
        keeper = None if self.checkpoint is None else StateKeeper(self.checkpoint, task.resume)

        def watch(part: int, classes: np.ndarray, fresh: FitState | None, progress: Progress) -> str | None:
            if keeper is not None and fresh is not None and progress.warm_state is not None:
                keeper.note(part, fresh, progress)
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
                # Parts not reached yet abstain.
                silent = self._silent(progress.model)
                so_far = [models.get(k, silent) for k in range(len(task.parts_of(len(classes))))]
                attributes = self._model_attributes(classes, so_far)
                if sweep.call_on_fit_task_end(estimator=self, **data, reconstruction_attributes=attributes):
                    return "callback"
            return "interrupted" if interruption else None

        return watch

    def _unpack(self, outcome: Outcome, rows: Rows) -> None:
        results = outcome.results
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            if name not in ("n_features_in_", "feature_names_in_"):
                delattr(self, name)  # nothing of an earlier fit is left
        for name, value in self._model_attributes(outcome.classes, [result.model for result in results]).items():
            setattr(self, name, value)
        worst = max(results, key=lambda result: (result.stop_reason != "gap", result.certificate.relative))
        self.certificate_: Certificate = worst.certificate
        self.stop_reason_: str = worst.stop_reason
        self.n_iter_: int = worst.n_iter
        self.parts_ = results
        self.history_ = [
            row if len(results) == 1 else {"part": k, **row} for k, part in enumerate(results) for row in part.history
        ]
        self.cost_ = sum((result.ledger for result in results[1:]), start=results[0].ledger)

    def _remarks(self) -> dict[str, tuple[type[Warning], str]]:
        """Warnings for reasons to stop that are neither a gap nor a limit."""
        text = (
            f"Rounding keeps the relative gap of {type(self).__name__} at {self.certificate_.relative:.1e}, over "
            f"tol={self.tol:g}. Scale the features (StandardScaler), or allow a larger tol."
        )
        return {"precision": (PrecisionWarning, text)} if self.certificate_.relative > self.tol else {}

    def _warn(self) -> None:
        """Say what was not reached, and what to change."""
        name, gap = type(self).__name__, self.certificate_.relative
        kind: type[Warning]
        if self.stop_reason_ in _LIMITS:
            worst = max(self.parts_, key=lambda part: part.certificate.relative)
            limit = f"{self.stop_reason_}={getattr(self, self.stop_reason_):g}"
            kind = ConvergenceWarning
            text = (
                f"{name} did not converge: the relative gap is {gap:.2e} and tol={self.tol:g} was asked for when "
                f"{limit} was reached. {self._advice(worst)}"
            )
        elif self.stop_reason_ == "interrupted":
            kind = InterruptedFitWarning
            text = (
                f"{name} was interrupted at a relative gap of {gap:.2e} (tol={self.tol:g}); the model is the best yet."
            )
        elif self.stop_reason_ in self._remarks():
            kind, text = self._remarks()[self.stop_reason_]
        else:
            return
        warn_user(text, kind)

    def decision_function(self, X: Any) -> Any:
        """Signed scores of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, positive for the second. With more, one column for each class, the highest being the
            class that :meth:`predict` gives.
        """
        check_is_fitted(self)
        if is_dask(X):
            return self._lazily("decision_function", X)
        return self._scores(validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False))

    def predict(self, X: Any) -> Any:
        """Class labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        if is_dask(X):
            return self._lazily("predict", X)
        return self._labels(self.decision_function(X))

    def _labels(self, scores: np.ndarray) -> np.ndarray:
        """The class of each row, by its scores."""
        best: np.ndarray = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.take(self.classes_, best)

    def _lazily(self, method: str, X: Any) -> Any:
        """The same method on every part of a Dask collection, when its result is asked for."""
        from widemargin.engines.dask import map_rows

        model = copy.copy(self)
        model.cluster = None  # a client cannot travel to its own workers
        if hasattr(model, "feature_names_in_") and hasattr(X, "columns"):
            X = X[list(model.feature_names_in_)]
            del model.feature_names_in_  # its parts are plain arrays
        few = getattr(model, method)(np.zeros((1, self.n_features_in_)))
        return map_rows(getattr(model, method), X, few.shape[1] if few.ndim == 2 else None, few.dtype)

    def _html_repr(self) -> str:
        """What notebooks show: scikit-learn's diagram, and below it the certificate and the cost of a fitted model."""
        return str(estimator_html_repr(self)) + fit_as_html(self)

    def __sklearn_clone__(self) -> Self:
        """As any estimator, but the cluster is shared: a client or a communicator cannot be copied."""
        twin = copy.copy(self)
        twin.cluster = None
        twin = _clone_parametrized(twin)
        twin.cluster = self.cluster
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # The pickle of a model is for use elsewhere; the cluster it was trained on does not go with it.
        return {**state, "cluster": self.cluster if isinstance(self.cluster, Integral) else None}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def common_attributes(classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
    """Classes, intercepts, and what the problem reports: a value for one problem, an array for several."""
    reports = {f"{name}_": [model.report[name] for model in models] for name in models[0].report}
    return {
        "classes_": classes,
        "intercept_": np.array([model.intercept for model in models]),
        **{name: values[0] if len(models) == 1 else np.array(values) for name, values in reports.items()},
    }


def linear_scores(X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """One column for each separator, in the type of the rows."""
    coef, intercept = coef.astype(X.dtype, copy=False), intercept.astype(X.dtype, copy=False)
    scores: np.ndarray = safe_sparse_dot(X, coef.T, dense_output=True) + intercept
    return scores
