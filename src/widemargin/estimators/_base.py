"""The one way of a fit: validate -> encode -> plan -> launch -> unpack -> warn."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import combinations
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from widemargin.callbacks import ProgressLine, first_interrupt_kept
from widemargin.comm._protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.engines import inline
from widemargin.engines._plan import split_rows
from widemargin.exceptions import InterruptedFitWarning
from widemargin.ledger import Ledger
from widemargin.problems._protocol import Certificate
from widemargin.solvers._protocol import Separator, Solver
from widemargin.solvers._run import Limits, Progress, Result, Watch, run

# The reasons to stop that leave the gap open; the others are proofs.
_LIMITS = ("max_iter", "max_time")


@dataclass(frozen=True)
class Task:
    """What every rank is told: the same problems in the same order, solved the same way."""

    pairs: list[tuple[int, int]]  # positive and negative class of each problem
    problem: Any
    solver: Solver
    limits: Limits
    seed: int
    warm: list[np.ndarray] | None
    watch_model: bool

    def solve(self, shard: Shard, comm: Communicator, watch: list[Watch]) -> list[Result]:
        """One run for each pair of classes; ledgers are parted between them."""
        results = []
        for k, (positive, negative) in enumerate(self.pairs):
            comm.ledger = Ledger()
            result = run(
                self.solver,
                self.problem,
                shard.between(positive, negative),
                comm,
                self.limits,
                np.random.default_rng([self.seed, k]),
                warm=None if self.warm is None else self.warm[k],
                watch=watch[k],
                watch_model=self.watch_model,
            )
            results.append(result)
        return results


class MarginClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """A linear classifier by pairs of classes, certified; subclasses say which problem and which solver."""

    _parameter_constraints: ClassVar[dict] = {
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "cluster": [Interval(Integral, 1, None, closed="left"), None],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _problem(self) -> Any:
        """What is optimised."""

    @abstractmethod
    def _solver(self) -> Solver:
        """How."""

    @abstractmethod
    def _advice(self, result: Result) -> str:
        """The change most likely to close the gap of this result."""

    def _weigh(self, codes: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The multiplicity of each row from its sample weight and class."""
        class_weight = getattr(self, "class_weight", None)
        if class_weight is None:
            return weight
        labels = self.classes_[codes]
        each = compute_class_weight(class_weight, classes=self.classes_, y=labels, sample_weight=weight)
        if not (np.isfinite(each).all() and (each > 0).all()):
            raise ValueError(f"class_weight={class_weight!r} must give every class a positive, finite weight.")
        return weight * each[codes]

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
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
        shard = self._validate(X, y, sample_weight)
        task = self._plan(shard)
        results = self._launch(task, shard, X, y, sample_weight)
        self._unpack(task, results)
        self._warn(shard)
        return self

    def _validate(self, X, y, sample_weight) -> Shard:
        """Check everything that can be wrong before any work is done; set ``classes_``."""
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", accept_large_sparse=True
        )
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if sp.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        if (weight == 0).any():
            present = np.flatnonzero(weight)
            X, y, weight = X[present], y[present], weight[present]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            seen = self.classes_.tolist()
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes with rows of positive weight, and got "
                f"{len(seen)} class(es): {seen}."
            )
        return Shard(X, codes.astype(np.float64), self._weigh(codes, weight))

    def _plan(self, shard: Shard) -> Task:
        n_classes = len(self.classes_)
        # With two classes a positive score means the second one; pairs of more read as in LIBSVM, first against second.
        pairs = [(1, 0)] if n_classes == 2 else list(combinations(range(n_classes), 2))
        max_time = np.inf if self.max_time is None else self.max_time
        return Task(
            pairs=pairs,
            problem=self._problem(),
            solver=self._solver(),
            limits=Limits(self.tol, self.max_iter, max_time),
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            warm=self._warm_directions(len(pairs), shard.n_features),
            watch_model=bool(getattr(self, "_skl_callbacks", [])),
        )

    def _warm_directions(self, n_pairs: int, n_features: int) -> list[np.ndarray] | None:
        """Directions of the last fit in the length of the hull distance, if they fit this one."""
        coef = getattr(self, "coef_", None)
        if not self.warm_start or coef is None or coef.shape != (n_pairs, n_features) or not coef.any(axis=1).all():
            return None
        return [2 * row / (row @ row) for row in coef.astype(np.float64)]

    def _launch(self, task: Task, shard: Shard, X, y, sample_weight) -> list[Result]:
        """Run on all ranks; the results of rank 0 with the traffic of all."""
        shards = split_rows(shard, self.cluster or 1)
        root = self._init_callback_context(max_subtasks=len(task.pairs))
        root.call_on_fit_task_begin(estimator=self, X=X, y=y)
        # Inside a search or a pipeline Ctrl-C must end the whole, not this fit alone.
        with first_interrupt_kept(not hasattr(self, "_parent_callback_ctx")) as interruption:
            metadata = None if sample_weight is None else {"sample_weight": sample_weight}
            watches = [
                self._watch(k, task, root, interruption, {"X": X, "y": y, "metadata": metadata})
                for k in range(len(task.pairs))
            ]
            by_rank = inline.launch(shards, lambda shard, comm: task.solve(shard, comm, watches))
        results = [_over_ranks(list(parts)) for parts in zip(*by_rank, strict=True)]
        attributes = self._model_attributes(task, [result.model for result in results])
        root.call_on_fit_task_end(estimator=self, X=X, y=y, metadata=metadata, reconstruction_attributes=attributes)
        return results

    def _watch(self, part: int, task: Task, root, interruption, data: dict[str, Any]) -> Watch:
        """What rank 0 does after each certified sweep of one part: progress, callbacks, Ctrl-C."""
        line = ProgressLine(type(self).__name__, self.tol) if self.verbose else None
        context = None

        def watch(progress: Progress) -> str | None:
            nonlocal context
            if line is not None:
                is_last = progress.certificate.relative <= self.tol or progress.sweep >= self.max_iter
                line.show(progress.sweep, progress.certificate, progress.seconds, is_last=is_last)
            if progress.model is not None:
                if context is None:
                    context = root.subcontext(task_name="classes", max_subtasks=None)
                    context.call_on_fit_task_begin(estimator=self, **data)
                sweep = context.subcontext(task_name="sweep")
                sweep.call_on_fit_task_begin(estimator=self, **data)
                models = self._models_so_far(task, part, progress.model)
                attributes = self._model_attributes(task, models)
                if sweep.call_on_fit_task_end(estimator=self, **data, reconstruction_attributes=attributes):
                    return "callback"
            return "interrupted" if interruption else None

        return watch

    def _models_so_far(self, task: Task, part: int, model: Separator) -> list[Separator]:
        """Models of all parts while one is being solved; those not reached yet abstain."""
        abstains = model._replace(coef=np.zeros_like(model.coef), intercept=0.0)
        if part == 0:
            self._models_while_fitting = [abstains] * len(task.pairs)
        self._models_while_fitting[part] = model
        return list(self._models_while_fitting)

    def _model_attributes(self, task: Task, models: list[Separator]) -> dict[str, Any]:
        """Fitted attributes that ``decision_function`` needs, and what the problem reports."""
        reports = {f"{name}_": [model.report[name] for model in models] for name in models[0].report}
        single = len(models) == 1
        return {
            "coef_": np.array([model.coef for model in models]),
            "intercept_": np.array([model.intercept for model in models]),
            **{name: values[0] if single else np.array(values) for name, values in reports.items()},
        }

    def _unpack(self, task: Task, results: list[Result]) -> None:
        for name, value in self._model_attributes(task, [result.model for result in results]).items():
            setattr(self, name, value)
        self.__dict__.pop("_models_while_fitting", None)
        worst = max(results, key=lambda result: (result.stop_reason != "gap", result.certificate.relative))
        self.certificate_: Certificate = worst.certificate
        self.stop_reason_: str = worst.stop_reason
        self.n_iter_: int = worst.n_iter
        self.parts_ = results
        self.history_ = [
            row if len(results) == 1 else {"part": k, **row} for k, part in enumerate(results) for row in part.history
        ]
        self.cost_ = sum((result.ledger for result in results[1:]), start=results[0].ledger)

    def _warn(self, shard: Shard) -> None:
        name, gap = type(self).__name__, self.certificate_.relative
        if self.stop_reason_ in _LIMITS:
            worst = max(self.parts_, key=lambda part: part.certificate.relative)
            limit = getattr(self, self.stop_reason_)
            warnings.warn(
                f"{name} did not converge: the relative gap is {gap:.2e} and tol={self.tol:g} was asked for when "
                f"{self.stop_reason_}={limit:g} was reached. {self._advice(worst)}",
                ConvergenceWarning,
                stacklevel=2,
            )
        elif self.stop_reason_ == "interrupted":
            warnings.warn(
                f"{name} was interrupted at a relative gap of {gap:.2e} (tol={self.tol:g}); the model is the best one "
                "found until then.",
                InterruptedFitWarning,
                stacklevel=2,
            )

    def decision_function(self, X):
        """Signed scores of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, positive for the second. With more, the votes of all pairs of classes for each class,
            ties broken by the sum of scores.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        coef, intercept = self.coef_.astype(X.dtype, copy=False), self.intercept_.astype(X.dtype, copy=False)
        scores = safe_sparse_dot(X, coef.T, dense_output=True) + intercept
        return scores[:, 0] if len(self.classes_) == 2 else votes_of_pairs(scores, len(self.classes_))

    def predict(self, X):
        """Class labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def votes_of_pairs(scores: np.ndarray, n_classes: int) -> np.ndarray:
    """Votes for each class from the scores of all pairs, a positive one being a vote for the first of the pair.

    The sum of a class's scores, squeezed into (-1/3, 1/3), breaks ties between equal numbers of votes.
    """
    votes = np.zeros((len(scores), n_classes))
    sums = np.zeros((len(scores), n_classes))
    for k, (first, second) in enumerate(combinations(range(n_classes), 2)):
        votes[:, first] += scores[:, k] > 0
        votes[:, second] += scores[:, k] <= 0
        sums[:, first] += scores[:, k]
        sums[:, second] -= scores[:, k]
    return votes + sums / (3 * (np.abs(sums) + 1))


def _over_ranks(parts: list[Result]) -> Result:
    """Rank 0's result with the traffic of all ranks in its ledger and history."""
    first = parts[0]
    traffic = ("messages", "scalars", "bytes", "kernel_evaluations")
    history = [
        {**row, **{name: sum(part.history[i][name] for part in parts) for name in traffic}}
        for i, row in enumerate(first.history)
    ]
    return replace(first, history=history, ledger=Ledger.over_ranks([part.ledger for part in parts]))
