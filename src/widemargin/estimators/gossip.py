"""GossipSVC: a linear SVM trained by peers that keep their rows, with no server."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.validation import validate_data

from widemargin.codec import conforms
from widemargin.comm.faults import Faults
from widemargin.engines.select import is_dask
from widemargin.estimators._base import Launch, common_attributes, fitting
from widemargin.estimators._features import fourier_features
from widemargin.estimators._linear import LinearClassifier
from widemargin.estimators._types import ClassWeight, RandomState
from widemargin.estimators.registry import Bracket, Descriptor, FeatureMap, Formula, Symbol, register
from widemargin.exceptions import ModelFileError
from widemargin.ledger import Ledger
from widemargin.peers import topology
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.sklearn_private import HasMethods, Interval, StrOptions, check_feature_names
from widemargin.solvers.models import Separator
from widemargin.solvers.protocol import AnySolver
from widemargin.solvers.run import Result
from widemargin.strategies.peers import Network, Node
from widemargin.strategies.task import FLOATS, Outcome, PartWatch, Rows, Task, checked_labels

_MOST_PEERS = 10  # where their number is not given
_PORTRAIT_NUMBERS = 1 << 20  # of second moments that all peers together may tell, for a full metric
_OF_PUSH_SUM: dict[str, Any] = {"batch_size": 32, "rounds": 1}
_FREE = ("tol", "max_iter", "max_time", "verbose", "degree", "faults")  # to change from one partial_fit to the next
_OF_THE_MAP: dict[str, Any] = {"gamma": "scale", "n_random_features": 256}


class GossipSVC(LinearClassifier):
    """Linear SVM trained by peers that keep their rows, with no server; every peer knows how good its model is.

    Solves, over the rows of all peers, with the intercept as the weight of a constant feature,

    .. math:: \\min_w \\tfrac{\\alpha}{2} \\|w\\|^2 + \\tfrac1N \\sum_i \\max(0, 1 - y_i\\, w \\cdot x_i)

    Peers write to neighbours in a network, letters may be lost and peers may leave and come back. The gap is certified
    by gossip alone: no peer, and nobody else, sees the rows of all. This is the problem of
    ``LinearSVC(loss="hinge", C=1 / (alpha * n_samples))``.

    Parameters
    ----------
    alpha : float, default=1e-4
        Multiplies the penalty; the paper's lambda.
    n_peers : int or "auto", default="auto"
        Peers of the network; ``"auto"`` is ten, or as many as there are rows, or as there are workers.
    topology : {"random-regular", "complete", "ring", "grid", "star", "erdos-renyi"}, networkx graph or list of \
            edges, default="random-regular"
        Who writes to whom. A network that falls apart is refused, with its components named.
    degree : int, default=3
        Neighbours of each peer in a random regular graph; their mean number in an Erdos-Renyi graph.
    fan_out : int, default=3
        Neighbours that a peer writes to in each tick, chosen at random where it has more.
    solver : {"admm", "push-sum"}, default="admm"
        ``"admm"`` is one-way relaxed ADMM. ``"push-sum"`` is the paper's GADGET, with its corrections: hundreds of
        times more messages to a gap of one percent, and little memory at a peer.
    metric : {"auto", "full", "diagonal"}, default="auto"
        In which ADMM measures how far peers are apart: by second moments of all features, which needs several times
        fewer ticks, or by their diagonal. For a full metric every peer tells all others the second moments of its rows
        once. ``"auto"`` does that up to a million numbers of all peers together.
    batch_size : int, default=32
        Rows that a peer draws for each step of push-sum.
    rounds : int, default=1
        Ticks of averaging for each step of push-sum.
    fit_intercept : bool, default=True
        Whether there is an intercept; it is penalised, as in LIBLINEAR.
    kernel : {"linear", "rbf"}, default="linear"
        ``"rbf"`` maps rows to random Fourier features, the same at all peers by a seed that they share.
    gamma : float or "scale", default="scale"
        Of the rbf kernel; ``"scale"`` is 1 / (n_features * X.var()) of all rows.
    n_random_features : int, default=256
        Random Fourier features.
    shards : None, "by-label" or list of int, default=None
        How ``fit`` divides rows among peers: evenly and at random, sorted by label, or at random with these sizes.
        Rows that are apart already go to :meth:`fit_shards`.
    faults : Faults or None, default=None
        What goes wrong in the simulated network: loss, delay, crashes, partitions. See
        :class:`widemargin.comm.faults.Faults`.
    tol : float, default=1e-3
        Stop when every peer has certified a relative gap of at most this.
    max_iter : int, default=1000
        Largest number of ticks.
    max_time : float, default=None
        Largest number of seconds.
    class_weight : dict, "balanced" or None, default=None
        Multiplies the weight of the rows of each class.
    cluster : dask.distributed.Client or None, default=None
        None simulates the network in this process, tick by tick. With a client every peer runs on a worker of its own,
        in its own time, and peers write to each other without this process; callbacks then see no models.
    random_state : int, RandomState instance or None, default=0
        Seed of the network, of who has which rows, of the faults and of all that peers draw.
    verbose : int, default=0
        1 shows a line with the gap against ``tol``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Of the peer of the lowest number that is there: any would do. One row for two classes; with more, one for each
        class against the rest, all in the same messages. With the rbf kernel, on its random features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    nodes_ : dict of int to Node
        Every peer that is there: its ``coef_`` and ``intercept_``, its certified ``gap``, ``consensus_error``, messages
        and bytes sent and received, live neighbours.
    consensus_ : float
        The largest ``consensus_error`` of all peers.
    graph_ : dict of int to list of int
        Neighbours of each peer.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative``: the worst that any peer has certified.
    stop_reason_ : str
        ``"gap"``, ``"max_iter"``, ``"max_time"``, ``"callback"``, ``"interrupted"``, or ``"split"``: the network fell
        into parts that each ended on its own.
    history_ : list of dict
        Per tick from the first at which all peers had a certificate: seconds, bounds, messages and bytes so far.
    cost_ : Ledger
        Messages and bytes that all peers sent, seconds per phase.
    n_iter_ : int
        Ticks.
    parts_ : list of Result
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    See Also
    --------
    KernelSVC : With ``kernel="linear"`` the same loss where all rows may be brought together.
    DebiasedSparseSVC : Many machines, one average, and intervals for coefficients.

    Notes
    -----
    Not for rows that may be put together: there KernelSVC is faster by far. Not private by itself: a peer's model, its
    pull (a sum over its rows) and, for ADMM, second moments of its features are told to all; with few rows at a peer
    they tell much of them.

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
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "cluster": [None, HasMethods("scheduler_info")],
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
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose

    @fitting
    def fit_shards(self, shards: Iterable[Any]) -> Self:
        """Fit to rows that are apart already: each peer has its own.

        Parameters
        ----------
        shards : list of (X, y) or (X, y, sample_weight)
            The rows of each peer, all with the same columns.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        if self.shards is not None:
            raise ValueError(f"shards={self.shards!r} says how fit divides rows; fit_shards is given them divided.")
        self._check_parameters()
        shards = _listed(shards)
        pieces = [self._checked_shard(number, shard) for number, shard in enumerate(shards)]
        if self.n_peers not in ("auto", len(pieces)):
            raise ValueError(f"n_peers={self.n_peers} and {len(pieces)} shards were given: they must be as many.")
        self.n_features_in_ = pieces[0].X.shape[1]
        check_feature_names(self, shards[0][0], reset=True)
        for shard in shards[1:]:
            check_feature_names(self, shard[0], reset=False)
        task = self._plan(pieces[0], are_rows_checked=True)
        given = [shard[0] for shard in shards], [shard[1] for shard in shards]
        self._unpack(self._launch_shards(task, pieces, *given), pieces)
        self._warn()
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: Any = None,
        peer: int | Literal["new"] | None = None,
    ) -> Self:
        """Go on with new rows, at peers that are there or at one that joins.

        Peers keep what they know, and their rows of earlier calls.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows that arrive.
        y : array-like of shape (n_samples,)
            Their labels, of the classes of the first call.
        classes : array-like of shape (n_classes,), default=None
            All classes; of use in the first call only, where these rows do not have all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts.
        peer : int, "new" or None, default=None
            The peer at which they arrive; ``"new"`` is one that joins the network, with ``degree`` neighbours chosen
            at random; None spreads them over all.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        if getattr(self, "_peers", None) is None:
            if hasattr(self, "coef_"):
                raise ValueError(
                    "The peers of this model lived in the process that fitted it, or on workers, and are gone: use fit."
                )
            if peer is not None:
                raise ValueError(f"peer={peer!r}: there are no peers yet, and the first call makes them.")
            self._known_classes = None if classes is None else np.unique(classes)
            try:
                return self.fit(X, y, sample_weight)
            finally:
                del self._known_classes
        return self._go_on(X, y, sample_weight, peer)

    @fitting
    def _go_on(self, X: Any, y: Any, sample_weight: Any, peer: Any) -> Self:
        changed = [name for name, was in self._parameters_of_fit.items() if repr(getattr(self, name)) != was]
        if changed:
            raise ValueError(
                f"{changed[0]}={getattr(self, changed[0])!r} is not what the peers of this model work with, which is "
                f"{self._parameters_of_fit[changed[0]]}: call fit to begin anew."
            )
        X, y = validate_data(self, X, y, reset=False, accept_sparse="csr", dtype=FLOATS, order="C")
        rows = checked_labels(Rows(X, y, sample_weight), X.shape[0])
        if self.class_weight is not None:
            raise ValueError("class_weight is set by the rows of the first call; with partial_fit give sample_weight.")
        mapped = rows._replace(X=self._mapped(rows.X))
        network: Network = self._last_network.with_rows(
            mapped, self.classes_, peer, self._peers, self._problem(), int(self.degree)
        )

        def launch(rows: Any, cluster: Any, task: Task, watch: PartWatch) -> Outcome:
            begin = lambda number, life: self._peers[number]  # noqa: E731
            return network.run(begin, self._peers, task, watch, self.classes_, Ledger())

        outcome = super()._launch(launch, self._plan(rows, are_rows_checked=True), rows, X, y, sample_weight)
        self._unpack(outcome, rows)
        self._warn()
        return self

    # -- from rows to peers and back ---------------------------------------------------------------------------------

    def _validate(self, X: Any, y: Any, sample_weight: Any) -> Rows:
        self._check_parameters()
        return super()._validate(X, y, sample_weight)

    def _check_parameters(self) -> None:
        """Parameters that mean nothing together."""
        for owner, value, defaults in (("solver", "push-sum", _OF_PUSH_SUM), ("kernel", "rbf", _OF_THE_MAP)):
            if getattr(self, owner) != value:
                for name, default in defaults.items():
                    if getattr(self, name) != default:
                        raise ValueError(
                            f"{name}={getattr(self, name)!r} belongs to {owner}={value!r} and means nothing with "
                            f"{owner}={getattr(self, owner)!r}."
                        )
        if self.solver != "admm" and self.metric != "auto":
            raise ValueError(f"metric={self.metric!r} belongs to solver='admm' and means nothing with 'push-sum'.")
        if self.cluster is not None and self.faults is not None:
            raise ValueError("faults are those of a simulated network (cluster=None); workers fail by themselves.")

    def _checked_shard(self, number: int, shard: Any) -> Rows:
        """The rows of one peer; an error says whose they are."""
        if not isinstance(shard, list | tuple) or len(shard) not in (2, 3):
            raise ValueError(f"shards[{number}] must be a pair (X, y) or a triple (X, y, sample_weight).")
        X = check_array(
            shard[0], accept_sparse="csr", dtype=FLOATS, order="C", input_name=f"X of shard {number}", estimator=self
        )
        weight = shard[2] if len(shard) == 3 else None
        y = np.asarray(shard[1])
        if y.shape != (X.shape[0],):
            raise ValueError(f"shards[{number}] has {X.shape[0]} rows and labels of shape {y.shape}.")
        return checked_labels(Rows(X, y, weight), X.shape[0], are_all=False)

    def _launch(self, launch: Launch, task: Task, rows: Any, X: Any, y: Any, sample_weight: Any) -> Outcome:
        if is_dask(X):
            raise ValueError(
                "GossipSVC divides rows among peers itself: give X as an array (cluster=client puts a peer on each "
                "worker), or the rows of each peer to fit_shards."
            )
        n_rows = rows.X.shape[0]
        n_peers = self._n_peers(n_rows)
        owner = self._owners(np.asarray(rows.y), n_peers)
        parts = [np.flatnonzero(owner == k) for k in range(n_peers)]
        pieces = [Rows(rows.X[part], rows.y[part], rows.weight[part]) for part in parts]
        return self._launch_shards(task, pieces, X, y, sample_weight)

    def _launch_shards(self, task: Task, pieces: list[Rows], X: Any, y: Any, sample_weight: Any = None) -> Outcome:
        """Map the rows of each peer, and let the network work."""
        self._parameters_of_fit = {
            name: repr(value) for name, value in self.get_params(deep=False).items() if name not in _FREE
        }
        widths = sorted({piece.X.shape[1] for piece in pieces})
        if len(widths) > 1:
            raise ValueError(f"Shards have different numbers of columns: {widths}.")
        self._map = None
        if self.kernel == "rbf":
            gamma = self.gamma if isinstance(self.gamma, str) else float(self.gamma)
            self._map = fourier_features(pieces, gamma, int(self.n_random_features), task.seed)
        pieces = [piece._replace(X=self._mapped(piece.X)) for piece in pieces]
        network = self._network(len(pieces), pieces[0].X.shape[1] + bool(self.fit_intercept), task.seed)
        return super()._launch(network.launch, task, pieces, X, y, sample_weight)

    def _n_peers(self, n_rows: int) -> int:
        if self.n_peers != "auto":
            if self.n_peers > n_rows:
                raise ValueError(f"n_peers={self.n_peers} is more than there are rows for them: n_samples = {n_rows}.")
            return int(self.n_peers)
        if isinstance(self.shards, str) or self.shards is None:
            most = len(self.cluster.nthreads()) if is_dask(self.cluster) else _MOST_PEERS
            return min(most, n_rows)
        return len(self.shards)

    def _owners(self, y: np.ndarray, n_peers: int) -> np.ndarray:
        """The peer of each row."""
        n, rng = len(y), check_random_state(self.random_state)
        sizes = [len(part) for part in np.array_split(np.arange(n), n_peers)]
        order = rng.permutation(n)
        if isinstance(self.shards, str):
            order = np.argsort(y, kind="stable")
        elif self.shards is not None:
            are_whole = all(isinstance(size, Integral) for size in self.shards)
            sizes = list(self.shards) if are_whole else []
            if len(sizes) != n_peers or min(sizes) < 1 or sum(sizes) != n:
                raise ValueError(
                    f"shards={list(self.shards)!r} must be {n_peers} positive whole sizes that add up to the {n} rows."
                )
        owner = np.empty(n, np.intp)
        owner[order] = np.repeat(np.arange(n_peers), sizes)
        return owner

    def _network(self, n_peers: int, n_features: int, seed: int) -> Network:
        is_small = n_peers * n_features * (n_features + 1) // 2 <= _PORTRAIT_NUMBERS
        return Network(
            graph=topology.build(self.topology, n_peers, int(self.degree), seed),
            fan_out=int(self.fan_out),
            algorithm=self.solver,
            is_metric_full=self.metric == "full" or (self.metric == "auto" and is_small),
            batch_size=int(self.batch_size),
            rounds=int(self.rounds),
            has_constant=bool(self.fit_intercept),
            faults=self.faults or Faults(),
            known_classes=getattr(self, "_known_classes", None),
        )

    def _unpack(self, outcome: Outcome, rows: Any) -> None:
        report = outcome.results[0].model.report
        nodes, network, peers = report.pop("nodes"), report.pop("network"), report.pop("peers")
        super()._unpack(outcome, rows)
        self.nodes_: dict[int, Node] = nodes
        self.consensus_: float = max(node.consensus_error for node in nodes.values())
        self.graph_ = network.graph
        self._last_network, self._peers = network, peers

    def _mapped(self, X: Any) -> Any:
        return X if self._map is None else self._map.transform(X).astype(X.dtype, copy=False)

    # -- the way of a fit --------------------------------------------------------------------------------------------

    def _problem(self) -> MeanHinge:
        return MeanHinge(float(self.alpha))

    def _solver(self) -> AnySolver:
        return None  # type: ignore[return-value]  # peers are one each

    def _model_attributes(self, classes: np.ndarray, models: list[Separator]) -> dict[str, Any]:
        plain = [model._replace(report={}) for model in models]
        return {**common_attributes(classes, plain), "coef_": np.array([model.coef for model in models])}

    def _scores(self, X: Any) -> np.ndarray:
        return super()._scores(self._mapped(X))

    def _remarks(self) -> dict[str, tuple[type[Warning], str]]:
        networks = sorted({tuple(sorted(node.members)) for node in self.nodes_.values()})
        text = (
            f"The network fell apart: {len(networks)} parts of it ended on their own, {networks}, and nothing is "
            "proved for all rows. What each peer has certified for its own part is in nodes_."
        )
        return {**super()._remarks(), "split": (ConvergenceWarning, text)}

    def _advice(self, result: Result) -> str:
        if self.solver == "push-sum":
            return "Raise max_iter, or use solver='admm'."
        return f"Raise {result.stop_reason}, fan_out or degree, or allow a larger tol."

    def __getstate__(self) -> dict[str, Any]:
        """Without the peers, who hold the rows."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_peers", "_last_network")}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _listed(shards: Iterable[Any]) -> list[Any]:
    listed = list(shards)
    if not listed:
        raise ValueError("shards is empty: there must be the rows of at least one peer.")
    return listed


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
        "A linear classifier of rows that stay with the peers of a network with no server.",
        "minimise (α/2)‖<var>w</var>‖² + (1/<var>N</var>) Σ<sub>i</sub> "
        f"max(0, 1 − <var>y</var><sub>i</sub> <var>w</var>·{row})",
        symbols,
    )


def _saved_parameters(model: GossipSVC) -> dict[str, Any]:
    """A graph as the list of its edges; its nodes may be text, and the fit has numbered them."""
    graph: Any = getattr(model, "graph_", None)
    if not hasattr(model.topology, "edges") or not conforms(graph, dict[int, list[int]]):
        return {}
    return {"topology": [[one, other] for one, others in graph.items() for other in others if one < other]}


def _check_network(model: GossipSVC, sizes: dict[str, int]) -> None:
    """Raise ModelFileError unless the random features fit the kernel, and the models of all peers the whole."""
    if not hasattr(model, "_map") or (model._map is None) != (model.kernel == "linear"):
        raise ModelFileError("GossipSVC has random features that do not belong to its kernel, or lacks them")
    for node in getattr(model, "nodes_", {}).values():
        if (node.coef_.shape, node.intercept_.shape) != ((sizes["P"], sizes["D"]), (sizes["P"],)):
            raise ModelFileError("the model of a peer differs in shape from that of all")


register(
    Descriptor(
        GossipSVC,
        command="gossip",
        problem=_formula,
        bracket=Bracket(
            "The optimum over the rows of all peers", "the model of every peer is within {} of the best possible"
        ),
        fitted={
            "_map": FeatureMap(),
            "nodes_": dict[int, Node],
            "consensus_": float,
            "graph_": dict[int, list[int]],
        },
        not_saved=("_parameters_of_fit", "_peers", "_last_network"),
        saved_parameters=_saved_parameters,
        check=_check_network,
    )
)
