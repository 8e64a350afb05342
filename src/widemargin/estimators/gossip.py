"""GossipSVC: a linear SVM trained by peers that keep their rows, with no server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import RBFSampler
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from widemargin.codec import conforms
from widemargin.comm.clusters import is_dask
from widemargin.comm.faults import Faults
from widemargin.data.shard import Shard
from widemargin.estimators._base import FORM, StopWarnings, fitting
from widemargin.estimators._linear import LinearClassifier
from widemargin.estimators._private import check_private, private
from widemargin.estimators._types import ClassWeight, RandomState
from widemargin.estimators.registry import OPTIMUM, Bracket, Descriptor, FeatureMap, Formula, Symbol, register
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.peers import topology
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.private_release import Release
from widemargin.sklearn_private import HasMethods, Interval, StrOptions, check_feature_names
from widemargin.solvers.run import Result
from widemargin.strategies.labels import checked_labels
from widemargin.strategies.peers import GrowingPeers, Network, NetworkOutcome, Node, Peers, has_full_metric
from widemargin.strategies.protocol import Outcome, Plan, Rows, Strategy

_DEFAULT_PEERS = 10  # at most, with n_peers="auto"
# Parameters that belong to one value of another, with their defaults.
_DEPENDENT: dict[tuple[str, str], dict[str, Any]] = {
    ("solver", "admm"): {"metric": "auto"},
    ("solver", "push-sum"): {"batch_size": 32, "rounds": 1},
    ("kernel", "rbf"): {"gamma": "scale", "n_random_features": 256},
}
_FREE = ("tol", "max_iter", "max_time", "verbose", "degree", "faults")  # may change between calls of partial_fit


class GossipSVC(LinearClassifier):
    """Linear SVM trained by peers that keep their rows, with no server; every peer certifies its model.

    Solves, over the rows of all peers, with the intercept as the weight of a constant feature,

    .. math:: \\min_w \\tfrac{\\alpha}{2} \\|w\\|^2 + \\tfrac1N \\sum_i \\max(0, 1 - y_i\\, w \\cdot x_i)

    Peers send messages to their neighbours in a network; messages may be lost, and peers may leave and return. Gossip
    alone certifies the gap: no peer sees the rows of others. ``LinearSVC(loss="hinge", C=1 / (alpha * n_samples))``
    solves the same problem.

    Parameters
    ----------
    alpha : float, default=1e-4
        Weight of the penalty; the paper's lambda.
    n_peers : int or "auto", default="auto"
        Number of peers; ``"auto"`` is one per worker of the cluster, or ten without one, and at most one per row.
    topology : {"random-regular", "complete", "ring", "grid", "star", "erdos-renyi"}, networkx graph or list of \
            edges, default="random-regular"
        The graph of the network, which must be connected.
    degree : int, default=3
        Degree of a random regular graph; mean degree of an Erdos-Renyi graph.
    fan_out : int, default=3
        Number of neighbours that a peer writes to in each tick, in turns if it has more. Neighbours that have fewer
        than ``fan_out`` neighbours themselves, such as the leaves of a star, are answered in every tick.
    solver : {"admm", "push-sum"}, default="admm"
        ``"admm"`` is one-way relaxed ADMM. The peers also build a model of the objective from cutting planes, so that
        the fit converges on rows of any scale, offset and width. ``"push-sum"`` is the paper's GADGET, corrected. It
        needs little memory per peer, but hundreds of times more messages to reach a gap of one percent.
    metric : {"auto", "full", "diagonal"}, default="auto"
        How ADMM measures the distance between models: by all second moments of the features, or by their diagonal.
        ``"full"`` takes several times fewer ticks. Every peer sends the moments of its rows to all others once.
        ``"auto"`` is ``"full"`` if this takes at most a million numbers in total.
    batch_size : int, default=32
        Rows that a peer draws per step of push-sum.
    rounds : int, default=1
        Ticks of averaging per step of push-sum.
    fit_intercept : bool, default=True
        Whether to fit an intercept; it is penalised, as in LIBLINEAR.
    kernel : {"linear", "rbf"}, default="linear"
        ``"rbf"`` maps rows to random Fourier features; a shared seed makes them the same for all peers.
    gamma : float or "scale", default="scale"
        Coefficient of the rbf kernel; ``"scale"`` is 1 / (n_features * X.var()) over all rows.
    n_random_features : int, default=256
        Number of random Fourier features.
    shards : None, "by-label" or list of int, default=None
        How ``fit`` divides rows among peers: evenly at random, sorted by label, or at random with these sizes. Use
        :meth:`fit_shards` for rows that are already divided.
    faults : Faults or None, default=None
        Faults of the simulated network: loss, delay, crashes, partitions; see :class:`widemargin.comm.faults.Faults`.
    tol : float, default=1e-3
        Stop when every peer has certified a relative gap of at most ``tol``.
    max_iter : int, default=1000
        Maximum number of ticks.
    max_time : float, default=None
        Maximum time in seconds; None is no limit.
    privacy : (epsilon, delta) or None, default=None
        Members see what members see, and are not protected from each other. With a pair, ``fit`` releases only a model
        with noise, from which others learn little about any single row: see ``docs/privacy.md``. It needs ``classes``
        and ``account``, an ``alpha`` and features chosen without these rows, and rows of weight 1.
    clip : float, default=1.0
        Largest norm of a row, constant feature included; longer rows are scaled down to it. Only with ``privacy``.
    classes : array-like or None, default=None
        All classes, which are public; only with ``privacy``.
    account : str, path or None, default=None
        File of the :class:`PrivacyAccount` that is charged before the fit; only with ``privacy``.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the sample weights of each class; ``"balanced"`` gives all classes the same total weight.
    cluster : dask.distributed.Client or None, default=None
        None simulates the network in this process, tick by tick. With a client every peer runs on its own worker, in
        real time, and sends messages directly to others; callbacks then see no models.
    random_state : int, RandomState instance or None, default=0
        Seed for the network, the division of rows, the faults and all random choices of peers.
    verbose : int, default=0
        1 shows a progress line with the gap and ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Model of the running peer with the lowest number. One row for two classes; with more, one for each class against
        the rest. With the rbf kernel, coefficients of its random features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    nodes_ : dict of int to Node
        For every running peer: ``coef_`` and ``intercept_``, certified ``gap``, ``consensus_error``, messages and bytes
        sent and received, live neighbours.
    peer_ : int
        In a model that ``widemargin peer`` saved, the number of the peer that saved it. Then ``nodes_`` has the members
        that the certificate is for, with ``n_rows`` as they state them; gap and traffic are known for this peer only.
    consensus_ : float
        Largest ``consensus_error`` of all peers.
    graph_ : dict of int to list of int
        Neighbours of each peer.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative`` of the worst peer.
    stop_reason_ : str
        ``"gap"``, ``"precision"`` (rounding keeps the gap open), ``"max_iter"``, ``"max_time"``, ``"callback"``,
        ``"interrupted"``, or ``"split"``: the network split into parts that stopped separately.
    history_ : list of dict
        One entry per tick once all peers have a certificate: seconds, primal, dual, messages and bytes so far.
    cost_ : Ledger
        Messages and bytes sent by all peers, seconds per phase.
    n_iter_ : int
        Ticks.
    parts_, training_, n_features_in_, feature_names_in_
        As in :class:`NuMarginSVC`, with one part per class.
    release_ : Release
        With ``privacy``: the terms, the noise, and bounds on the loss that were known before any row was seen. Then
        there are no ``nodes_``, ``graph_``, ``consensus_`` or ``training_``, and ``certificate_`` is one that holds for
        any rows.

    See Also
    --------
    KernelSVC : With ``kernel="linear"`` the same loss, for rows on one machine or cluster.
    DebiasedSparseSVC : Averages over many machines, with confidence intervals for coefficients.

    Notes
    -----
    If you can bring the rows together, KernelSVC is much faster. Messages are not private: each peer sends all others
    its model, weighted sums of its rows and, with ADMM, second moments of its features. If a peer has few rows, these
    reveal much about them. ``privacy`` limits what people learn who see only the released model.

    References
    ----------
    H. Dutta, N. Nataraj: GADGET SVM: A Gossip-bAseD sub-GradiEnT Solver for Linear SVMs, 2018.

    N. Bastianello, R. Carli, L. Schenato, M. Todescato: Asynchronous Distributed Optimization over Lossy Networks via
    Relaxed ADMM: Stability and Linear Convergence, 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import GossipSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = GossipSVC(alpha=1e-2).fit(scale(X), y)
    >>> model.stop_reason_, len(model.nodes_), max(node.gap for node in model.nodes_.values()) <= 1e-3
    ('gap', 10, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{k: v for k, v in LinearClassifier._parameter_constraints.items() if k not in ("warm_start", "checkpoint")},
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "n_peers": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "topology": [StrOptions(set(topology.NAMES)), HasMethods(["nodes", "edges"]), list, tuple, np.ndarray],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "fan_out": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions({"admm", "push-sum"})],
        "metric": [StrOptions({"auto", "full", "diagonal"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "rounds": [Interval(Integral, 1, None, closed="left")],
        "fit_intercept": ["boolean"],
        "kernel": [StrOptions({"linear", "rbf"})],
        "gamma": [StrOptions({"scale"}), Interval(Real, 0, None, closed="neither")],
        "n_random_features": [Interval(Integral, 1, None, closed="left")],
        "shards": [None, StrOptions({"by-label"}), list, tuple, np.ndarray],
        "faults": [None, Faults],
        "cluster": [None, HasMethods("scheduler_info")],
        "privacy": [None, list, tuple],
        "clip": [Interval(Real, 0, None, closed="neither")],
        "classes": [None, "array-like"],
        "account": [None, str, os.PathLike],
    }

    def __init__(
        self,
        alpha: float = 1e-4,
        *,
        n_peers: int | Literal["auto"] = "auto",
        topology: Any = "random-regular",
        degree: int = 3,
        fan_out: int = 3,
        solver: Literal["admm", "push-sum"] = "admm",
        metric: Literal["auto", "full", "diagonal"] = "auto",
        batch_size: int = 32,
        rounds: int = 1,
        fit_intercept: bool = True,
        kernel: Literal["linear", "rbf"] = "linear",
        gamma: float | Literal["scale"] = "scale",
        n_random_features: int = 256,
        shards: Any = None,
        faults: Faults | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        max_time: float | None = None,
        privacy: tuple[float, float] | None = None,
        clip: float = 1.0,
        classes: Any = None,
        account: str | os.PathLike[str] | None = None,
        class_weight: ClassWeight = None,
        cluster: Any = None,
        random_state: RandomState = 0,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.n_peers = n_peers
        self.topology = topology
        self.degree = degree
        self.fan_out = fan_out
        self.solver = solver
        self.metric = metric
        self.batch_size = batch_size
        self.rounds = rounds
        self.fit_intercept = fit_intercept
        self.kernel = kernel
        self.gamma = gamma
        self.n_random_features = n_random_features
        self.shards = shards
        self.faults = faults
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.privacy = privacy
        self.clip = clip
        self.classes = classes
        self.account = account
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose

    @fitting
    def fit_shards(self, shards: Iterable[Any]) -> Self:
        """Fit to rows that are already divided among peers.

        Parameters
        ----------
        shards : list of (X, y) or (X, y, sample_weight)
            The rows of each peer, all with the same columns.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        shards = list(shards)
        if not shards:
            raise ValueError("shards is empty: pass the rows of at least one peer.")
        if self.shards is not None:
            raise ValueError(f"shards={self.shards!r} is how fit divides rows; fit_shards takes divided rows.")
        if self.n_peers not in ("auto", len(shards)):
            raise ValueError(f"n_peers={self.n_peers}, but {len(shards)} shards were given.")
        self._check_parameters()
        pieces = [self._checked_shard(number, shard) for number, shard in enumerate(shards)]
        widths = sorted({piece.X.shape[1] for piece in pieces})
        if len(widths) > 1:
            raise ValueError(f"Shards have different numbers of columns: {widths}.")
        self.n_features_in_ = widths[0]
        for number, shard in enumerate(shards):
            check_feature_names(self, shard[0], reset=number == 0)
        return self._fit(pieces, [shard[0] for shard in shards], [shard[1] for shard in shards])

    @fitting
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: Any = None,
        peer: int | Literal["new"] | None = None,
    ) -> Self:
        """Continue with new rows, at present peers or at one that joins; all peers keep their state and earlier rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New rows.
        y : array-like of shape (n_samples,)
            Labels, of classes that the first call knew.
        classes : array-like of shape (n_classes,), default=None
            All classes; needed only in the first call, if its rows lack some of them.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplicity of each row.
        peer : int, "new" or None, default=None
            The peer that gets the rows; ``"new"`` is one that joins the network, with ``degree`` random neighbours;
            None divides the rows among all peers.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._validate_params()
        if self.privacy is not None:
            raise ValueError("privacy=(epsilon, delta) is one release per network: use fit or fit_shards.")
        peers = getattr(self, "_peers", None)
        if peers is None and hasattr(self, "coef_"):
            raise ValueError(
                "The peers of this model ran in the process that fitted it, or on workers, and are gone: use fit."
            )
        if peers is None:
            if peer is not None:
                raise ValueError(f"peer={peer!r}: there are no peers yet; the first call makes them.")
            plan, known = self._plan(), None if classes is None else np.unique(classes)
            pieces = self._prepared(self._divided(self._validate(X, y, sample_weight)), plan)
            return self._fit(pieces, X, y, sample_weight, self._strategy(pieces, plan, known))
        changed = [name for name, was in self._parameters_of_fit.items() if repr(getattr(self, name)) != was]
        if changed:
            raise ValueError(
                f"{changed[0]}={getattr(self, changed[0])!r} differs from the value that the peers of this model use, "
                f"{self._parameters_of_fit[changed[0]]}: call fit to start again."
            )
        if self.class_weight is not None:
            raise ValueError("The rows of the first call set class_weight; with partial_fit use sample_weight.")
        checked, labels = validate_data(self, X, y, reset=False, **FORM)
        rows = checked_labels(Rows(self._mapped(checked), labels, sample_weight), len(labels), self._problem())
        growing = GrowingPeers(self._plan(), self._last_network, peers, self.classes_, peer, int(self.degree))
        return self._fit(rows, X, y, sample_weight, growing)

    def _fit(self, rows: Any, X: Any, y: Any, sample_weight: Any = None, strategy: Strategy | None = None) -> Self:
        if strategy is None:
            plan = self._plan()
            rows = self._prepared(self._divided(rows) if isinstance(rows, Rows) else rows, plan)
            strategy = self._strategy(rows, plan)
        return super()._fit(rows, X, y, sample_weight, strategy)

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        self._check_parameters()
        return super()._validate(X, y, sample_weight)

    def _check_parameters(self) -> None:
        check_private(self)
        for (owner, value), defaults in _DEPENDENT.items():
            if getattr(self, owner) != value:
                self._refuse_unused(defaults, owner, value)
        if self.cluster is not None and self.faults is not None:
            raise ValueError("faults are for a simulated network (cluster=None); on workers they would have no effect.")

    def _checked_shard(self, number: int, shard: Any) -> Rows:
        """The rows of one peer; errors name the shard."""
        if not isinstance(shard, list | tuple) or len(shard) not in (2, 3):
            raise ValueError(f"shards[{number}] must be a pair (X, y) or a triple (X, y, sample_weight).")
        X = check_array(shard[0], input_name=f"X of shard {number}", estimator=self, **FORM)
        y = np.asarray(shard[1])
        if y.shape != (X.shape[0],):
            raise ValueError(f"shards[{number}] has {X.shape[0]} rows and labels of shape {y.shape}.")
        return checked_labels(
            Rows(X, y, shard[2] if len(shard) == 3 else None), X.shape[0], self._problem(), are_all=False
        )

    def _divided(self, rows: Rows) -> list[Rows]:
        if is_dask(rows.X):
            raise ValueError(
                "GossipSVC divides rows among peers itself: pass X as an array (cluster=client puts a peer on each "
                "worker), or pass the rows of each peer to fit_shards."
            )
        n, n_peers = len(rows.y), self._n_peers(len(rows.y))
        sizes = [len(part) for part in np.array_split(np.arange(n), n_peers)]
        order = check_random_state(self.random_state).permutation(n)
        if isinstance(self.shards, str):
            order = np.argsort(rows.y, kind="stable")
        elif self.shards is not None:
            sizes = list(self.shards) if all(isinstance(size, Integral) for size in self.shards) else []
            if len(sizes) != n_peers or min(sizes) < 1 or sum(sizes) != n:
                raise ValueError(
                    f"shards={list(self.shards)!r} must be {n_peers} positive whole sizes that add up to the {n} rows."
                )
        parts = [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]
        return [Rows(rows.X[part], rows.y[part], rows.weight[part]) for part in parts]

    def _n_peers(self, n_rows: int) -> int:
        if self.n_peers != "auto":
            if self.n_peers > n_rows:
                raise ValueError(f"n_peers={self.n_peers} is more than the number of rows, n_samples = {n_rows}.")
            return int(self.n_peers)
        if isinstance(self.shards, str) or self.shards is None:
            return min(len(self.cluster.nthreads()) if is_dask(self.cluster) else _DEFAULT_PEERS, n_rows)
        return len(self.shards)

    def _prepared(self, pieces: list[Rows], plan: Plan) -> list[Rows]:
        """The rows of each peer, mapped to random features for the rbf kernel."""
        parameters = self.get_params(deep=False)
        self._parameters_of_fit = {name: repr(value) for name, value in parameters.items() if name not in _FREE}
        self._map = None
        if self.kernel == "rbf":
            weight = np.concatenate([piece.weight for piece in pieces])
            rows = Shard([piece.X for piece in pieces], np.empty(0), weight)
            kernel = Kernel("rbf", self.gamma if isinstance(self.gamma, str) else float(self.gamma))
            gamma, n_features = kernel.resolved(rows, lambda sums: sums).gamma, int(self.n_random_features)
            self._map = RBFSampler(gamma=gamma, n_components=n_features, random_state=plan.seed).fit(pieces[0].X[:1])
        return [piece._replace(X=self._mapped(piece.X)) for piece in pieces]

    def _mapped(self, X: Any) -> Any:
        return X if self._map is None else self._map.transform(X).astype(X.dtype, copy=False)

    def _strategy(self, rows: Any, plan: Plan | None = None, known_classes: np.ndarray | None = None) -> Strategy:
        plan = self._plan() if plan is None else plan
        network = Network(
            problem=self._problem(),
            graph=topology.build(self.topology, len(rows), int(self.degree), plan.seed),
            fan_out=int(self.fan_out),
            is_metric_full=has_full_metric(self.metric, rows[0].X.shape[1] + bool(self.fit_intercept), len(rows)),
            has_constant=bool(self.fit_intercept),
            algorithm=self.solver,
            batch_size=int(self.batch_size),
            rounds=int(self.rounds),
            clip=None if self.privacy is None else float(self.clip),
        )
        peers = Peers(plan, network, self.faults or Faults(), known_classes)
        return peers if self.privacy is None else private(self, peers, rows)

    def _unpack(self, outcome: Outcome, rows: Any) -> None:
        super()._unpack(outcome, rows)
        if isinstance(outcome.extra, Release):
            self.release_ = outcome.extra
            self.__dict__.pop("_peers", None)  # of an earlier fit
            self.__dict__.pop("_last_network", None)
            return
        assert isinstance(outcome.extra, NetworkOutcome)
        self.__dict__.pop("peer_", None)  # a saved model of a peer may be fitted again
        if outcome.extra.of is not None:
            self.peer_: int = outcome.extra.of
        self.nodes_: dict[int, Node] = outcome.extra.nodes
        self.consensus_: float = max(node.consensus_error for node in self.nodes_.values())
        self._last_network, self._peers = outcome.extra.network, outcome.extra.peers
        self.graph_ = self._last_network.graph

    def _problem(self) -> MeanHinge:
        return MeanHinge(float(self.alpha))

    def _scores(self, X: Any) -> np.ndarray:
        return super()._scores(self._mapped(X))

    def _stop_warnings(self) -> StopWarnings:
        if hasattr(self, "release_"):
            return {}
        networks = sorted({tuple(sorted(node.members)) for node in self.nodes_.values()})
        text = (
            f"The network split: {len(networks)} parts of it stopped separately, {networks}, and nothing is proved for "
            "all rows. The certificates of each part are in nodes_."
        )
        return {**super()._stop_warnings(), "split": (ConvergenceWarning, text)}

    def _remedies(self) -> list[str]:
        curved = ["kernel='rbf' if the boundary is curved"] if self.kernel == "linear" else []
        return [f"a smaller alpha (it is {self.alpha:g})", *super()._remedies(), *curved]

    def _advice(self, result: Result) -> str:
        if self.solver == "push-sum":
            return "Raise max_iter, or use solver='admm'."
        return f"Raise {result.stop_reason}, fan_out or degree, or allow a larger tol."

    def __getstate__(self) -> dict[str, Any]:
        left = ("_peers", "_last_network")  # they hold the rows
        return {name: value for name, value in super().__getstate__().items() if name not in left}


def of_outcome(parameters: dict[str, Any], outcome: Outcome, feature_names: Sequence[str] | None) -> GossipSVC:
    """The fitted estimator of a peer that ran by itself."""
    model = GossipSVC(**parameters)
    model.n_features_in_, model._map = outcome.n_features, None
    if feature_names is not None:
        model.feature_names_in_ = np.array(feature_names, dtype=object)
    model._unpack(outcome, None)
    return model


def _formula(model: GossipSVC) -> Formula:
    row = "φ(<var>x</var><sub>i</sub>)" if model.kernel == "rbf" else "<var>x</var><sub>i</sub>"
    symbols: list[Symbol | str] = [Symbol("α", model.alpha)]
    if hasattr(model, "graph_"):
        symbols.append(f"the N rows of {len(model.graph_)} peers")
    if model.kernel == "rbf":
        symbols.append(f"φ: {model.n_random_features} random Fourier features of the rbf kernel")
    if model.fit_intercept:
        symbols.append("the intercept as the weight of a constant feature")
    return Formula(
        "A linear classifier. The rows stay with the peers of a network without a server.",
        "minimise (α/2)‖<var>w</var>‖² + (1/<var>N</var>) Σ<sub>i</sub> "
        f"max(0, 1 − <var>y</var><sub>i</sub> <var>w</var>·{row})",
        symbols,
    )


def _bracket(model: GossipSVC) -> Bracket:
    if not hasattr(model, "peer_"):
        return Bracket(
            "The optimum over the rows of all peers", "the model of every peer is within {} of the best possible"
        )
    n = len(model.nodes_)
    return Bracket(f"The optimum over the rows of {n} member{'' if n == 1 else 's'}", OPTIMUM.near)


def _saved_parameters(model: GossipSVC) -> dict[str, Any]:
    """A networkx graph as a list of edges between the peers' numbers; no account, which belongs to the place."""
    graph: Any = getattr(model, "graph_", None)
    if not hasattr(model.topology, "edges") or not conforms(graph, dict[int, list[int]]):
        return {"account": None}
    edges = [[one, other] for one, others in graph.items() for other in others if one < other]
    return {"account": None, "topology": edges}


def _check_network(model: GossipSVC, sizes: dict[str, int]) -> None:
    """Raise ModelFileError unless the random features match the kernel, and the shapes of all peers' models agree."""
    if not hasattr(model, "_map") or (model._map is None) != (model.kernel == "linear"):
        raise ModelFileError("GossipSVC has random features that do not belong to its kernel, or lacks them")
    if hasattr(model, "peer_") and model.peer_ not in getattr(model, "nodes_", {}):
        raise ModelFileError("the peer that saved the model is not among its members")
    for node in getattr(model, "nodes_", {}).values():
        if (node.coef_.shape, node.intercept_.shape) != ((sizes["P"], sizes["D"]), (sizes["P"],)):
            raise ModelFileError("the model of a peer differs in shape from that of all")


register(
    Descriptor(
        GossipSVC,
        command="gossip",
        problem=_formula,
        bracket=_bracket,
        fitted={
            "_map": FeatureMap(),
            "nodes_": dict[int, Node],
            "peer_": int,
            "consensus_": float,
            "graph_": dict[int, list[int]],
            "release_": Release,
        },
        not_saved=("_parameters_of_fit", "_peers", "_last_network"),
        saved_parameters=_saved_parameters,
        check=_check_network,
    )
)
