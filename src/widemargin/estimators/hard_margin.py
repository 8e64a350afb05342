"""HardMarginSVC: the widest margin between classes that a hyperplane separates."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Literal

from sklearn.utils._param_validation import Interval, StrOptions

from widemargin.estimators._linear import LinearByPairs
from widemargin.estimators._types import Folder, RandomState
from widemargin.problems.polytope import HardMargin
from widemargin.solvers.active_set import ActiveSet
from widemargin.solvers.auto import Auto, Stalled
from widemargin.solvers.newton import EntropicNewton
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.solvers.saddle import SaddlePoint


class HardMarginSVC(LinearByPairs):
    """Widest margin between separable classes, certified.

    Solves, for each pair of classes,

    .. math:: \\min_{w,b} \\tfrac12 \\|w\\|^2 \\quad\\text{subject to}\\quad y_i (w \\cdot x_i + b) \\ge 1
       \\text{ for all } i,

    as its dual, the distance between the convex hulls of the two classes. The certificate brackets that distance:
    ``certificate_.primal`` is the distance of two points of the hulls, ``certificate_.dual`` the margin of the model.

    Parameters
    ----------
    solver : {"auto", "active-set", "newton", "saddle"}, default="auto"
        ``"active-set"`` grows a working set of rows and solves it exactly; ``"newton"`` is Newton's method on the
        entropic saddle point; ``"saddle"`` is Saddle-SVC of the paper. ``"auto"`` begins with the first and goes on
        with the second where the first stalls.
    block_size : int or "auto", default="auto"
        Coordinates per step of ``solver="saddle"``, and sent per round on ranks; 1 is the paper's method.
    tol : float, default=1e-3
        Stop when the relative gap, 1 - margin / distance, is at most this.
    max_iter : int, default=1000
        Largest number of sweeps for each pair of classes.
    max_time : float, default=None
        Largest number of seconds for each pair of classes.
    warm_start : bool, default=False
        Begin at the solution of the last fit.
    random_state : int, RandomState instance or None, default=None
        Seed of the random rotation and blocks of ``solver="saddle"``.
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
    coef_ : ndarray of shape (n_pairs, n_features)
        In LIBSVM's scale: rows on the margin score +1 and -1. Two classes make one pair; more make one for each two,
        in the order of LIBSVM.
    intercept_ : ndarray of shape (n_pairs,)
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst pair.
    stop_reason_ : str
        ``"gap"``, ``"max_iter"``, ``"max_time"``, ``"callback"``, ``"interrupted"``, or ``"overlap"``: the hulls meet
        and the model is the separator of the best margin found.
    history_ : list of dict
        Per certified sweep: seconds, primal, dual and the counts of the ledger; ``pandas.DataFrame(history_)``.
    cost_ : Ledger
        Rounds, messages, scalars, bytes and seconds per phase, of all pairs and ranks.
    n_iter_ : int
        Sweeps of the worst pair.
    parts_ : list of Result
        The results of all pairs.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    See Also
    --------
    NuMarginSVC : For classes that overlap.

    Notes
    -----
    Use it where the classes are separable and this is the point; one mislabelled row can overturn the model. Weights
    matter only as present or absent, since a hull does not change when a vertex is repeated; for the same reason there
    is no ``class_weight``.

    References
    ----------
    Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from widemargin import HardMarginSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = HardMarginSVC(tol=1e-6).fit(X, y == 0)
    >>> round(model.certificate_.primal, 5), model.stop_reason_
    (1.63511, 'gap')
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **LinearByPairs._parameter_constraints,
        "solver": [StrOptions({"auto", "active-set", "newton", "saddle"})],
        "block_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    }

    _counts_weight: ClassVar[bool] = False

    def __init__(
        self,
        *,
        solver: Literal["auto", "active-set", "newton", "saddle"] = "auto",
        block_size: int | Literal["auto"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_time: float | None = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        cluster: Any = None,
        checkpoint: Folder = None,
        verbose: int = 0,
    ) -> None:
        self.solver = solver
        self.block_size = block_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.warm_start = warm_start
        self.random_state = random_state
        self.cluster = cluster
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _problem(self) -> HardMargin:
        return HardMargin()

    def _solver(self) -> AnySolver:
        solvers: dict[str, AnySolver] = {
            "active-set": ActiveSet(),
            "newton": EntropicNewton(),
            "saddle": SaddlePoint(block_size=self.block_size),
        }
        if self.solver == "auto":
            return Auto((solvers["active-set"], solvers["newton"]), hand_over=Stalled())
        return solvers[self.solver]

    def _advice(self, result: Result) -> str:
        if result.certificate.dual <= 0:
            return "No separating hyperplane was found yet: the classes may overlap, which NuMarginSVC can handle."
        if self.solver == "saddle":
            return "solver='auto' closes the gap in fewer sweeps."
        return f"Raise {result.stop_reason}, or scale the features (StandardScaler) if their units differ much."

    def _about_overlap(self) -> str:
        return (
            "The classes are not linearly separable: their convex hulls meet, so no hard margin exists. The model is "
            "the best separator found. Use NuMarginSVC, which allows for rows on the wrong side."
        )
