"""KernelSVC: the kernel C-SVM, solved to a certified gap or approximated by the stochastic batch perceptron."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from widemargin.estimators._base import Method
from widemargin.estimators._formulas import HALF_NORM, hinge, kernel_symbols, score
from widemargin.estimators._kernel import KernelClassifier
from widemargin.estimators._types import ClassWeight, Folder, RandomState
from widemargin.estimators.registry import OPTIMUM, Bracket, Descriptor, Each, Formula, Symbol, register
from widemargin.kernels import devices
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.sklearn_private import Interval, StrOptions, check_sample_weight
from widemargin.solvers.auto import Affordable, Auto, kernel_csvm, small_linear_csvm
from widemargin.solvers.batch_perceptron import BatchPerceptron
from widemargin.solvers.flat_dual import FlatDual
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.strategies.labels import FLOATS
from widemargin.strategies.protocol import Rows

_PERCEPTRON_DEFAULTS: dict[str, Any] = {"slack": None, "validation_fraction": None, "batch_size": "auto"}


def _supports_partial_fit(model: KernelSVC) -> bool:
    """True if the model keeps support vectors; raises AttributeError otherwise, as ``available_if`` expects."""
    if model._is_linear() or model.kernel == "precomputed":
        raise AttributeError(f"partial_fit needs support vectors, and kernel={model.kernel!r} does not keep them.")
    return True


_available_with_support_vectors: Callable[[Method], Method] = available_if(_supports_partial_fit)


class KernelSVC(KernelClassifier):
    """Certified kernel C-SVM, for data on which scikit-learn's ``SVC`` does not finish.

    Solves, for each pair of classes or each class against the rest, with :math:`\\phi` the feature map of the kernel,

    .. math:: \\min_{w,b} \\tfrac12 \\|w\\|^2 + C \\sum_i \\max(0, 1 - y_i (w \\cdot \\phi(x_i) + b))

    The intercept is not penalised. The certificate brackets the optimum by the primal and the dual objective, computed
    in float64. With ``slack`` it solves the equivalent problem of the stochastic batch perceptron: the largest margin
    of a unit vector when a slack of ``slack`` per row may be shared among the rows. The certificate brackets it.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss. ``slack_`` reports the equivalent slack.
    slack : float or None, default=None
        Total slack per row, the paper's nu; replaces ``C`` and selects the batch perceptron. ``C_`` reports the
        equivalent C.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        ``"linear"`` uses a dedicated linear-time solver and sets ``coef_``. A callable takes two blocks of rows and
        returns their kernel values. Callables and precomputed kernels are assumed to be positive semidefinite.
        ``"sigmoid"`` is not, so there is no lower bound on its optimum: ``certificate_.dual`` is -inf.
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, poly, sigmoid and laplacian; ``"scale"`` is 1 / (n_features * X.var()), ``"auto"`` is
        1 / n_features.
    degree : int, default=3
        Degree of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly and sigmoid kernels.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    multi_class : {"pairs", "rest"}, default="pairs"
        With more than two classes, solve one problem for each pair of classes, which then vote, as ``SVC`` and LIBSVM
        do; or one for each class against the rest, of which the highest score wins.
    solver : {"auto", "exact", "batch-perceptron"}, default="auto"
        ``"exact"`` is block coordinate descent on the dual until the gap is closed. ``"batch-perceptron"`` is the
        paper's method: it needs few kernel evaluations, is good early, and stops when the error on held-out rows no
        longer falls. ``"auto"`` is exact up to 200,000 rows, and for any number on a GPU; it is the batch perceptron
        beyond, or if a parameter is set that only the batch perceptron has.
    batch_size : int or "auto", default="auto"
        Rows drawn per step of the batch perceptron.
    max_support : int or None, default=None
        Maximum number of support vectors per problem. A larger solution is projected onto the span of those that are
        kept, and the certificate is that of the smaller model.
    validation_fraction : float or None, default=None
        Share of the rows that the batch perceptron holds out for early stopping. None holds out 0.1, at most 10,000
        rows; 0 holds out none. The certificate covers these rows too. ``solver="exact"`` refuses it.
    cache_size : float, default=200
        Size of the kernel cache in MiB; ignored on a GPU, which has no cache.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where kernels are computed. ``"cuda"`` is a GPU, through torch and Triton (``pip install 'widemargin[gpu]'``);
        an error says what is missing. ``"auto"`` uses a GPU if there is one with these packages. Torch and CuPy arrays
        stay on their device, and scores are returned in the same library. Cannot be combined with ``cluster``.
    precision : {"auto", "float16", "float32"}, default="auto"
        Precision of the rows from which a GPU computes kernels. ``"float16"`` rounds them, but stores the remainder of
        the features that lose most, as far as there is room; ``"float32"`` stores it for all features, at up to three
        times the work. Either way the certificate is computed from the rows as given, and the solver runs until it
        holds for these. ``"auto"`` is float16 for fits and float32 for scores of float32 rows; float64 rows get scores
        in float64. Must be ``"auto"`` on the CPU.
    tol : float, default=1e-3
        Stop when the relative gap is at most ``tol``.
    max_iter : int, default=10000
        Maximum number of sweeps per problem.
    max_time : float, default=None
        Maximum time in seconds per problem; None is no limit.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    warm_start : bool, default=False
        Start from the solution of the previous ``fit``, if it used the same rows.
    random_state : int, RandomState instance or None, default=None
        Seed for the rows that the batch perceptron draws.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where the fit runs: in this process (None), on this many threads (int), on the workers of a Dask cluster
        (client), or on MPI ranks that each call ``fit`` with their own rows (communicator). ``X`` and ``y`` may be Dask
        collections. The same seed and number of ranks give bit-identical results.
    checkpoint : str, path or None, default=None
        Folder where ``fit`` saves its state every few sweeps. ``fit`` with the same folder and data resumes from it.
    verbose : int, default=0
        1 shows a progress line with the gap and ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    support_ : ndarray of shape (n_SV,)
        Ascending row indices of the support vectors of all problems, each once; absent for Dask collections, whose rows
        have no index.
    support_vectors_ : {ndarray, sparse matrix} of shape (n_SV, n_features)
        Empty with a precomputed kernel; absent with the linear one.
    dual_coef_ : ndarray of shape (n_problems, n_SV)
        Dual coefficients of the support vectors, times their labels +1 and -1 in each problem: one row for two classes;
        for more, one row per pair of classes, (0, 1), (0, 2) ... (1, 2) ..., with zeros for all rows of other classes,
        or one row per class. ``SVC`` packs the coefficients of pairs into n_classes - 1 rows.
    support_labels_, support_weight_ : ndarray of shape (n_SV,)
        Labels and weights of the support vectors, for :meth:`partial_fit`.
    n_support_ : ndarray of shape (n_problems,)
        Number of support vectors of each problem; ``SVC`` counts those of each class.
    coef_ : ndarray of shape (n_problems, n_features)
        Linear kernel only, which predicts by it: it is ``dual_coef_ @ X[support_]`` but for what the gap leaves open.
    intercept_ : ndarray of shape (n_problems,)
    multi_class_ : {"pairs", "rest"}
        ``multi_class`` of the fit, which predictions follow.
    C_, slack_ : float or ndarray of shape (n_problems,)
        The one that was given, and the equivalent value of the other; not with the linear kernel.
    violation_ : float or ndarray of shape (n_problems,)
        Largest violation of the optimality conditions, which LIBSVM's ``tol`` bounds; ``solver="exact"`` only.
    kernel_ : Kernel
        The kernel, with the numerical value of gamma.
    device_ : str
        Where the kernel was computed, ``"cpu"`` or ``"cuda"``.
    kernel_error_ : float or ndarray of shape (n_problems,)
        Largest error of the kernel values that the exact solver used, over pairs of a sample of rows; GPU only.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst problem.
    stop_reason_ : str
        ``"gap"``, ``"plateau"`` (the held-out error no longer falls), ``"max_support"`` (the gap was closed, then the
        model was reduced), ``"stationary"`` (sigmoid), ``"precision"`` (rounding keeps the gap open: the features are
        too large), ``"max_iter"``, ``"max_time"``, ``"callback"`` or ``"interrupted"``.
    history_ : list of dict
        One entry per certified sweep: seconds, the solver's bounds (the last one confirmed in float64), cost counters,
        and ``violation`` or ``validation_error``.
    cost_ : Ledger
        Kernel evaluations, cache hits, rounds, bytes and seconds per phase, summed over problems and ranks.
    n_iter_, parts_, training_, n_features_in_, feature_names_in_
        As in :class:`NuMarginSVC`, with one part per problem.

    See Also
    --------
    NuMarginSVC : The linear nu-SVM.

    Notes
    -----
    Do not use it for millions of rows with a narrow kernel: every row near the boundary becomes a support vector, and
    the cost of any kernel method grows with the number of pairs. Other libraries stop at a violation of 1e-3, which at
    large C can leave a gap of several percent at the same test error; here ``tol`` bounds the gap.

    Do not use the batch perceptron to reach a small gap: its bounds are valid but far apart. Choose it for a compact
    model, or for a good model early.

    Probabilities: ``CalibratedClassifierCV(KernelSVC(), ensemble=False)``.

    References
    ----------
    A. Cotter, S. Shalev-Shwartz, N. Srebro: The Kernelized Stochastic Batch Perceptron, ICML 2012.

    R.-E. Fan, P.-H. Chen, C.-J. Lin: Working Set Selection Using Second Order Information for Training SVMs, JMLR 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import KernelSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = KernelSVC(C=10).fit(scale(X), y)
    >>> model.stop_reason_, model.certificate_.relative <= 1e-3, len(model.support_) < 120
    ('gap', True, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelClassifier._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "slack": [Interval(Real, 0, None, closed="left"), None],
        "multi_class": [StrOptions({"pairs", "rest"})],
        "solver": [StrOptions({"auto", "exact", "batch-perceptron"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "max_support": [Interval(Integral, 2, None, closed="left"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left"), None],
        "device": [StrOptions(set(devices.NAMES))],
        "precision": [StrOptions({"auto", "float16", "float32"})],
    }

    def __init__(
        self,
        *,
        C: float = 1.0,
        slack: float | None = None,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | Literal["scale", "auto"] = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        multi_class: Literal["pairs", "rest"] = "pairs",
        solver: Literal["auto", "exact", "batch-perceptron"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        max_support: int | None = None,
        validation_fraction: float | None = None,
        cache_size: float = 200,
        device: str = "cpu",
        precision: Literal["auto", "float16", "float32"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 10_000,
        max_time: float | None = None,
        class_weight: ClassWeight = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.slack = slack
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.multi_class = multi_class
        self.solver = solver
        self.batch_size = batch_size
        self.max_support = max_support
        self.validation_fraction = validation_fraction
        self.cache_size = cache_size
        self.device = device
        self.precision = precision
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    @_available_with_support_vectors
    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: Any = None) -> Self:
        """Update the model with new rows.

        The support vectors are kept as training rows; all other rows of earlier calls are forgotten.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All classes, for the first call, which must have rows of every one of them.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : object
        """
        if classes is not None and len(np.setdiff1d(classes, y)) and not hasattr(self, "classes_"):
            missing = np.setdiff1d(classes, y).tolist()
            raise ValueError(f"The first call of partial_fit needs rows of every class; there are none of {missing}.")
        if not hasattr(self, "classes_"):
            return self.fit(X, y, sample_weight)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        if not hasattr(self, "support_labels_"):
            raise ValueError(
                "partial_fit needs the labels of the support vectors, and a fit on Dask collections or MPI ranks does "
                "not keep them; use fit."
            )
        sample_weight = check_sample_weight(sample_weight, X, dtype=np.float64)
        old = self.support_vectors_
        stack = sp.vstack if sp.issparse(X) or sp.issparse(old) else np.vstack
        X, y = stack([old, X]), np.concatenate([self.support_labels_, y])
        X = sp.csr_matrix(X) if sp.issparse(X) else X
        warm = np.zeros((len(self.dual_coef_), len(y)))
        warm[:, : old.shape[0]] = self.dual_coef_
        names = getattr(self, "feature_names_in_", None)
        self._partial_fit_state = warm if self._solves_the_same_parts() else None
        try:
            self.fit(X, y, np.concatenate([self.support_weight_, sample_weight]))
        finally:
            del self._partial_fit_state
        if names is not None:
            self.feature_names_in_ = names  # fit saw an array without names
        return self

    def _problem(self) -> HingeL2 | SlackConstrained:
        if self.slack is not None:
            return SlackConstrained(slack=float(self.slack), fit_intercept=self.fit_intercept)
        return HingeL2(float(self.C), self.fit_intercept)

    def _is_linear(self) -> bool:
        return self.kernel == "linear" and not self._uses_perceptron() and not self._uses_gpu()

    def _uses_perceptron(self) -> bool:
        is_needed = any(getattr(self, name) != default for name, default in _PERCEPTRON_DEFAULTS.items())
        return self.solver == "batch-perceptron" or (is_needed and self.solver != "exact")

    def _refuse_unused_parameters(self) -> None:
        """Raise ValueError for parameters that the chosen solver or device does not use."""
        if self.solver == "exact":
            self._refuse_unused(_PERCEPTRON_DEFAULTS, "solver", "batch-perceptron")
        if self.precision != "auto" and not self._uses_gpu():
            raise ValueError(
                f"precision={self.precision!r} has no effect on the CPU: leave it 'auto', or use device='cuda'."
            )
        if self.max_support is not None and self._is_linear():
            raise ValueError(f"max_support={self.max_support} has no effect with kernel='linear': leave it None.")

    def _solver(self) -> AnySolver:
        self._refuse_unused_parameters()
        if self._is_linear():
            return small_linear_csvm(self._cache_bytes(), self.tol)
        most = None if self.max_support is None else int(self.max_support)
        perceptron = BatchPerceptron(self.batch_size, most, self.validation_fraction, self._cache_bytes())
        if self._uses_perceptron():
            return perceptron
        if self._uses_gpu():
            return FlatDual(stationary=self.tol, max_support=most)
        exact = kernel_csvm(self._cache_bytes(), self.tol, most)
        if self.solver == "exact":
            return exact
        return Auto((exact, perceptron), Affordable(np.inf if self.max_time is None else float(self.max_time)))

    def _advice(self, result: Result) -> str:
        if "validation_error" in (result.history[-1] if result.history else {}):
            return "The batch perceptron does not reach small gaps: use solver='exact'."
        return f"Raise {result.stop_reason}, or scale the features (StandardScaler) if their units differ much."

    def _remedies(self) -> list[str]:
        if self.slack is not None:
            strength = f"another slack (it is {self.slack:g})"
        else:
            strength = f"a larger C (it is {self.C:g})"
        return [strength, *super()._remedies()]

    def _model_attributes(self, classes: np.ndarray, models: list[Any]) -> dict[str, Any]:
        return {**super()._model_attributes(classes, models), "multi_class_": self.multi_class}

    def _solves_the_same_parts(self) -> bool:
        """Whether ``multi_class`` is that of the last fit: three classes have as many pairs, but other problems."""
        return (
            len(getattr(self, "classes_", ())) == 2
            or getattr(self, "multi_class_", self.multi_class) == self.multi_class
        )

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        if hasattr(self, "_partial_fit_state"):
            return self._partial_fit_state
        return super()._warm_state(rows) if self._solves_the_same_parts() else None


_LEVEL = Bracket("The highest possible level", "the level that this model reaches is within {} of it", True, "level")


def _formula(model: KernelSVC) -> Formula:
    if model.slack is not None:
        return Formula(
            "The highest level that a unit vector reaches over all rows when slack may be added to them.",
            "maximise over ‖<var>w</var>‖ ≤ 1 and <var>ξ</var> ≥ 0 with mean slack <var>s</var>: "
            f"min<sub>i</sub> [<var>y</var><sub>i</sub>({score(model)}) + <var>ξ</var><sub>i</sub>]",
            [Symbol("<var>s</var>", model.slack), *kernel_symbols(model)],
        )
    space = "linear in the features" if model.kernel == "linear" else "in the feature space φ of a kernel"
    return Formula(
        f"The classifier with the best balance between a wide margin and a small hinge loss, {space}.",
        f"minimise {HALF_NORM} + <var>C</var> Σ<sub>i</sub> {hinge(score(model))}",
        [Symbol("<var>C</var>", model.C), *kernel_symbols(model)],
    )


register(
    Descriptor(
        KernelSVC,
        command="kernel",
        problem=_formula,
        bracket=lambda model: OPTIMUM if model.slack is None else _LEVEL,
        earlier={"multi_class": "rest"},
        fitted={
            "multi_class_": Literal["pairs", "rest"],
            **dict.fromkeys(("C_", "slack_", "violation_", "kernel_error_"), Each("f")),
        },
        variants={"": {}, "linear": {"kernel": "linear"}},
    )
)
