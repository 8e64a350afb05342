"""KernelSVC: the kernel C-SVM, exact with a certified gap, or compact and early by the stochastic batch perceptron."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, validate_data

from widemargin.estimators._base import Method
from widemargin.estimators._kernel import KernelClassifier
from widemargin.estimators._types import ClassWeight, Folder, RandomState
from widemargin.kernels import devices
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.problems.slack_constrained import SlackConstrained
from widemargin.solvers.batch_perceptron import BatchPerceptron
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.by_size import BySize
from widemargin.solvers.flat_dual import FlatDual
from widemargin.solvers.multipliers import LinearCSVM
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.strategies.task import FLOATS, Rows


def _keeps_support(model: KernelSVC) -> bool:
    """Whether there will be support vectors to go on from."""
    if model._is_linear() or (model.kernel == "precomputed"):
        raise AttributeError(f"partial_fit goes on from support vectors, which kernel={model.kernel!r} does not keep.")
    return True


def _where_support_is_kept(method: Method) -> Method:
    """The method, where there will be support vectors; by scikit-learn's own decorator its types would be lost."""
    decorated: Method = available_if(_keeps_support)(method)
    return decorated


class KernelSVC(KernelClassifier):
    """Kernel C-SVM, certified: scikit-learn's ``SVC`` where it never finishes.

    Solves, for each class against the rest (once for two classes), with :math:`\\phi` the feature map of the kernel,

    .. math:: \\min_{w,b} \\tfrac12 \\|w\\|^2 + C \\sum_i \\max(0, 1 - y_i (w \\cdot \\phi(x_i) + b))

    The intercept is not penalised. The certificate brackets the optimum by both objectives, computed in float64. With
    ``slack`` it is the same problem in the form of the stochastic batch perceptron, the largest level that a unit
    vector reaches over all rows when ``slack`` per row may be added; the certificate brackets that level.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss. ``slack_`` reports the slack that it implies.
    slack : float or None, default=None
        Total slack per row, the paper's nu, in the place of ``C``; solved by the batch perceptron. ``C_`` reports the
        C that it implies.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
        ``"linear"`` takes a road of its own, in linear time, and gives ``coef_``. A callable is given two blocks of
        rows and returns their kernel values; it and a precomputed kernel are taken to be positive semidefinite.
        ``"sigmoid"`` is not, so that nothing bounds its optimum from below: ``certificate_.dual`` is then -inf.
    gamma : {"scale", "auto"} or float, default="scale"
        Coefficient of rbf, poly, sigmoid and laplacian; ``"scale"`` is 1 / (n_features * X.var()), ``"auto"`` is
        1 / n_features.
    degree : int, default=3
        Of the poly kernel.
    coef0 : float, default=0.0
        Constant of the poly and sigmoid kernels.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    solver : {"auto", "exact", "batch-perceptron"}, default="auto"
        ``"exact"`` descends on blocks of the dual until the gap is closed. ``"batch-perceptron"`` is the paper's: few
        kernel evaluations, good early, ends when the error on rows held out stops falling. ``"auto"`` is the first
        up to 200,000 rows, and for any number on a GPU, the second beyond, or where only it knows a parameter that was
        given.
    batch_size : int or "auto", default="auto"
        Rows drawn per step of the batch perceptron.
    max_support : int or None, default=None
        Largest number of support vectors of each problem. A larger solution is replaced by the nearest one in the span
        of those that stay, and the certificate is that of the smaller model.
    validation_fraction : float or None, default=None
        Share of the rows that the batch perceptron holds out to tell when to stop; None is 0.1 but at most 10,000
        rows, 0 is none. They count in the certificate. An error with another solver.
    cache_size : float, default=200
        MiB of kernel values that may be held; of no account on a GPU, where none are.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where kernels are computed. ``"cuda"`` is a GPU, by torch and Triton (``pip install 'widemargin[gpu]'``), or an
        error that says what is missing; ``"auto"`` is a GPU if there is one with these packages. Arrays of torch and
        CuPy given to ``fit`` stay there, and scores come back in the same library. Not with ``cluster``.
    precision : {"auto", "float16", "float32"}, default="auto"
        Of the rows that kernels are computed from on a GPU. ``"float16"`` rounds them, but gives the features that lose
        most a second number where there is room for it; ``"float32"`` gives it to all, for up to thrice the work. The
        certificate is computed from the rows as given either way, and the descent goes on until it holds for these.
        ``"auto"`` is the first for fits and the second for scores of rows in float32; rows in float64 are given scores
        in float64. Means nothing on the CPU.
    tol : float, default=1e-3
        Stop when the relative gap is at most this.
    max_iter : int, default=10000
        Largest number of sweeps for each class.
    max_time : float, default=None
        Largest number of seconds for each class.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the weight of the rows of each class.
    warm_start : bool, default=False
        Begin at the solution of the last fit, if it was on the same rows.
    random_state : int, RandomState instance or None, default=None
        Seed of the rows that are drawn.
    cluster : int, dask.distributed.Client, mpi4py communicator or None, default=None
        Where it runs: None is this process, an integer that many ranks on threads of it, a client the workers of a Dask
        cluster; with a communicator every MPI rank calls ``fit`` with its own rows. ``X`` and ``y`` may be Dask
        collections. Equal seed and ranks give equal bits.
    checkpoint : str, path or None, default=None
        Folder in which the state is kept every few sweeps. ``fit`` with the same folder and data goes on from there.
    verbose : int, default=0
        1 shows a line with the gap against ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    support_ : ndarray of shape (n_SV,)
        Numbers of the support vectors of all classes; absent for Dask collections, whose rows have no numbers.
    support_vectors_ : {ndarray, sparse matrix} of shape (n_SV, n_features)
        Empty with a precomputed kernel.
    dual_coef_ : ndarray of shape (1 or n_classes, n_SV)
        Coefficients of the support vectors, with the sign of their labels.
    support_labels_, support_weight_ : ndarray of shape (n_SV,)
        Labels and weights of the support vectors, from which :meth:`partial_fit` goes on.
    n_support_ : ndarray of shape (1 or n_classes,)
        Support vectors of each problem.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        With the linear kernel only.
    intercept_ : ndarray of shape (1 or n_classes,)
    C_, slack_ : float or ndarray of shape (n_classes,)
        Either as given, the other as implied; not with the linear kernel.
    violation_ : float or ndarray of shape (n_classes,)
        Largest violation of the optimality conditions, which is what LIBSVM's ``tol`` bounds; of ``solver="exact"``.
    kernel_ : Kernel
        The kernel with a number for gamma.
    device_ : str
        Where the kernel was computed, ``"cpu"`` or ``"cuda"``.
    kernel_error_ : float or ndarray of shape (n_classes,)
        Largest error of a kernel value that the exact solver worked with, among pairs of some rows; on a GPU only.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst problem.
    stop_reason_ : str
        ``"gap"``, ``"plateau"``, ``"max_support"`` (the gap was closed, and then the model made smaller),
        ``"stationary"`` (sigmoid), ``"precision"`` (rounding keeps the gap open: the features are too large),
        ``"max_iter"``, ``"max_time"``, ``"callback"`` or ``"interrupted"``.
    history_ : list of dict
        Per certified sweep: seconds, bounds as the solver sees them (the last as confirmed in float64), and the counts
        of the ledger; with ``violation`` or ``validation_error``.
    cost_ : Ledger
        Kernel evaluations, rows found in the cache, rounds, bytes and seconds per phase, of all problems and ranks.
    n_iter_ : int
    parts_ : list of Result
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    See Also
    --------
    NuMarginSVC : The linear nu-SVM.

    Notes
    -----
    Not for millions of rows with a narrow kernel: the model then has as many support vectors as there are rows in
    doubt, and any kernel method pays for each pair. At large C a violation of 1e-3, which other libraries stop at, can
    leave a gap of several percent at the same test error; here the gap is what ``tol`` means.

    The batch perceptron is no way to a small gap: its bounds are true and far apart. Choose it for a compact model, or
    a good one early.

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

    @_where_support_is_kept
    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: Any = None) -> Self:
        """Go on with new rows, from the model as it is.

        The support vectors stay as rows of their classes; all other rows of earlier calls are forgotten.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come, for the first call; rows of all of them must be there.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : object
        """
        if classes is not None and len(np.setdiff1d(classes, y)) and not hasattr(self, "classes_"):
            missing = np.setdiff1d(classes, y).tolist()
            raise ValueError(f"The first rows must be of all classes; there is none of {missing}.")
        if not hasattr(self, "classes_"):
            return self.fit(X, y, sample_weight)
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)
        if not hasattr(self, "support_labels_"):
            raise ValueError(
                "partial_fit goes on from support vectors with their labels, which a fit on rows that lie elsewhere "
                "does not bring here; use fit."
            )
        sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        old = self.support_vectors_
        stack = sp.vstack if sp.issparse(X) or sp.issparse(old) else np.vstack
        X, y = stack([old, X]), np.concatenate([self.support_labels_, y])
        X = sp.csr_matrix(X) if sp.issparse(X) else X
        warm = np.zeros((len(self.dual_coef_), len(y)))
        warm[:, : old.shape[0]] = self.dual_coef_
        names = getattr(self, "feature_names_in_", None)
        self._going_on = warm
        try:
            self.fit(X, y, np.concatenate([self.support_weight_, sample_weight]))
        finally:
            del self._going_on
        if names is not None:
            self.feature_names_in_ = names  # the rows put together are plain arrays
        return self

    def _problem(self) -> HingeL2 | SlackConstrained:
        if self.slack is not None:
            return SlackConstrained(slack=float(self.slack), fit_intercept=self.fit_intercept)
        return HingeL2(float(self.C), self.fit_intercept)

    def _is_linear(self) -> bool:
        return self.kernel == "linear" and not self._asks_for_perceptron() and not self._uses_gpu()

    def _asks_for_perceptron(self) -> bool:
        """Whether the parameters leave no choice of a solver."""
        given = self.slack, self.validation_fraction
        is_given = any(value is not None for value in given) or self.batch_size != "auto"
        return self.solver == "batch-perceptron" or (is_given and self.solver != "exact")

    def _refuse_what_has_no_meaning(self) -> None:
        """Parameters that belong to another solver than the one asked for."""
        unused = {"slack": None, "validation_fraction": None, "batch_size": "auto"}
        for name, absent in unused.items():
            if getattr(self, name) != absent and self.solver == "exact":
                raise ValueError(
                    f"{name}={getattr(self, name)!r} belongs to the batch perceptron and means nothing with "
                    f"solver='exact': leave it {absent!r}, or use solver='batch-perceptron'."
                )
        if self.precision != "auto" and not self._uses_gpu():
            raise ValueError(
                f"precision={self.precision!r} is that of rows on a GPU and means nothing on the CPU: leave it 'auto', "
                "or use device='cuda'."
            )
        if self.max_support is not None and self._is_linear():
            raise ValueError(f"max_support={self.max_support} means nothing for kernel='linear': leave it None.")

    def _solver(self) -> AnySolver:
        self._refuse_what_has_no_meaning()
        if self._is_linear():
            return LinearCSVM()
        most = None if self.max_support is None else int(self.max_support)
        perceptron = BatchPerceptron(self.batch_size, most, self.validation_fraction, self._cache_bytes())
        if self._asks_for_perceptron():
            return perceptron
        if self._uses_gpu():
            return FlatDual(stationary=self.tol, max_support=most)
        exact = BlockDual(self._cache_bytes(), self.tol, most)
        if self.solver == "exact":
            return exact
        return BySize(exact, perceptron, np.inf if self.max_time is None else float(self.max_time))

    def _advice(self, result: Result) -> str:
        if "validation_error" in (result.history[-1] if result.history else {}):
            return "The batch perceptron is no way to a small gap: solver='exact' is."
        return f"Raise {result.stop_reason}, or scale the features (StandardScaler) if their units differ much."

    def _warm_state(self, rows: Rows) -> np.ndarray | None:
        return self._going_on if hasattr(self, "_going_on") else super()._warm_state(rows)
