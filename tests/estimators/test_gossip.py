"""GossipSVC: the optimum of LIBLINEAR by every network, what its peers can say, and what happens when they fail."""

from __future__ import annotations

import pickle
import signal
import threading
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from tests.problems_at_hand import overlapping
from widemargin import Faults, GossipSVC, InterruptedFitWarning
from widemargin.exceptions import PrecisionWarning
from widemargin.peers.topology import build

ALPHA = 0.01


def optimum(X, y, weight=None, alpha=ALPHA, fit_intercept=True):
    """Of the same problem, by LIBLINEAR."""
    weight = np.ones(len(y)) if weight is None else weight
    signs = np.where(y == np.unique(y)[1], 1.0, -1.0)
    options = {"loss": "hinge", "tol": 1e-9, "max_iter": 2_000_000, "fit_intercept": fit_intercept, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = LinearSVC(C=1 / (alpha * weight.sum()), **options).fit(X, y, sample_weight=weight)
    return objective(theirs.coef_[0], theirs.intercept_ if fit_intercept else [0.0], X, signs, weight, alpha)


def objective(coef, intercept, X, signs, weight, alpha=ALPHA):
    slack = np.maximum(0, 1 - signs * (X @ coef + intercept[0]))
    return alpha / 2 * (coef @ coef + intercept[0] ** 2) + weight @ slack / weight.sum()


@pytest.fixture(scope="module")
def data():
    X, y = overlapping(0, n=300, shift=0.8)
    return X, np.where(y > 0, "yes", "no")


NETWORKS = [
    {"topology": "complete", "n_peers": 5},
    {"topology": "ring", "n_peers": 6},
    {"topology": "star", "n_peers": 6},
    {"topology": "grid", "n_peers": 7},
    {"topology": "erdos-renyi", "n_peers": 8},
    {"topology": "random-regular", "n_peers": 8, "fan_out": 1},
    {"topology": [(0, 1), (1, 2), (2, 3)], "n_peers": 4},
    {"topology": nx.path_graph("abcd"), "n_peers": 4},
    {"n_peers": 1},
    {"n_peers": 2},
    {"shards": "by-label", "n_peers": 4},
    {"shards": [200, 60, 30, 10]},
    {"metric": "diagonal"},
    {"fit_intercept": False},
]


@pytest.mark.parametrize("options", NETWORKS, ids=[", ".join(map(str, each)) for each in NETWORKS])
def test_every_network_finds_the_optimum_and_proves_it_at_every_peer(data, options):
    X, y = data
    model = GossipSVC(ALPHA, max_iter=3000, **options).fit(X, y)
    exact = optimum(X, y, fit_intercept=model.fit_intercept)
    assert model.stop_reason_ == "gap"
    signs = np.where(y == "yes", 1.0, -1.0)
    for node in model.nodes_.values():
        assert node.certificate.dual <= exact * (1 + 1e-9)
        assert node.gap <= model.tol
        assert node.members == frozenset(model.nodes_)
        value = objective(node.coef_[0], node.intercept_, X, signs, np.ones(len(y)))
        assert value == pytest.approx(node.certificate.primal, rel=1e-9)
        assert value <= exact * (1 + 1e-3)
    assert sum(node.messages_sent for node in model.nodes_.values()) == model.cost_.messages
    assert sum(node.bytes_sent for node in model.nodes_.values()) == model.cost_.bytes
    assert sum(node.n_rows for node in model.nodes_.values()) == len(y)
    np.testing.assert_array_equal(model.coef_, model.nodes_[0].coef_)
    assert model.consensus_ < 0.1
    assert model.score(X, y) > 0.7


def test_dense_and_sparse_and_a_seed_give_the_same_and_float32_nearly(data):
    X, y = data
    dense = GossipSVC(ALPHA).fit(X, y)
    again, sparse = GossipSVC(ALPHA).fit(X, y), GossipSVC(ALPHA).fit(sp.csr_matrix(X), y)
    np.testing.assert_array_equal(dense.coef_, again.coef_)
    assert dense.history_[-1]["bytes"] == again.history_[-1]["bytes"]
    # Sums of sparse rows are rounded otherwise, and cutting planes may then be others: both end within the gap.
    assert sparse.stop_reason_ == dense.stop_reason_ == "gap"
    assert sparse.certificate_.primal == pytest.approx(dense.certificate_.primal, rel=2e-3)
    half = GossipSVC(ALPHA).fit(X.astype(np.float32), y)
    assert half.certificate_.primal == pytest.approx(dense.certificate_.primal, rel=2e-3)
    other = GossipSVC(ALPHA, random_state=1).fit(X, y)
    assert (other.coef_ != dense.coef_).any()


def test_a_weight_is_a_number_of_copies_at_a_tight_tolerance(data):
    X, y = data
    weight = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    weighted = GossipSVC(ALPHA, tol=1e-5, max_iter=5000).fit(X, y, weight)
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    exact = optimum(X, y, weight)
    assert weighted.certificate_.dual <= exact * (1 + 1e-9)
    assert weighted.certificate_.primal == pytest.approx(exact, rel=2e-5)
    repeated = GossipSVC(ALPHA, tol=1e-5, max_iter=5000).fit(X[rows], y[rows])
    assert repeated.certificate_.primal == pytest.approx(exact, rel=2e-5)
    balanced = GossipSVC(ALPHA, tol=1e-5, max_iter=5000, class_weight={"yes": 3.0}).fit(X, y)
    assert balanced.certificate_.primal == pytest.approx(optimum(X, y, np.where(y == "yes", 3.0, 1.0)), rel=2e-5)


def test_classes_share_messages():
    X, y = load_digits(return_X_y=True)
    X = X[:600] / 16
    y = y[:600] % 4
    model = GossipSVC(ALPHA, n_peers=5).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.coef_.shape == (4, 64)
    assert model.decision_function(X).shape == (600, 4)
    assert model.score(X, y) > 0.75
    assert len(model.parts_) == 4
    for k, part in enumerate(model.parts_):
        exact = optimum(X, y == k)
        assert part.certificate.dual <= exact * (1 + 1e-9)
        assert part.certificate.primal == pytest.approx(exact, rel=2e-3)
    assert model.cost_.messages == 5 * 3 * model.n_iter_


def test_faults_cost_ticks_and_not_the_answer(data):
    X, y = data
    exact = optimum(X, y)
    storms = [
        Faults(drop=0.4),
        Faults(delay=(0, 4), reorder=0.2, duplicate=0.2),
        Faults(idle=0.5),
        Faults(partition=[(5, 60, [0, 1, 2])]),
        Faults(crash={0: 5}, rejoin={0: 80}),
    ]
    for faults in storms:
        model = GossipSVC(ALPHA, faults=faults, max_iter=3000).fit(X, y)
        assert model.stop_reason_ == "gap", faults
        assert len(model.nodes_[0].members) == 10
        assert model.certificate_.dual <= exact * (1 + 1e-9)
        assert model.certificate_.primal == pytest.approx(exact, rel=2e-3)


def test_those_who_stay_solve_their_own_problem():
    X, y = overlapping(1, n=240, shift=0.8)
    shards = [(X[k::6], y[k::6]) for k in range(6)]
    model = GossipSVC(ALPHA, faults=Faults(crash={0: 10, 3: 12}), max_iter=3000).fit_shards(shards)
    stay = [1, 2, 4, 5]
    assert sorted(model.nodes_) == stay
    assert all(node.members == frozenset(stay) for node in model.nodes_.values())
    theirs = np.concatenate([X[k::6] for k in stay]), np.concatenate([y[k::6] for k in stay])
    exact = optimum(*theirs)
    assert model.certificate_.dual <= exact * (1 + 1e-9)
    assert model.certificate_.primal == pytest.approx(exact, rel=2e-3)


def test_parts_of_a_network_prove_nothing_for_all():
    X, y = overlapping(1, n=200, shift=0.8)
    cut = Faults(partition=[(1, 10**6, [0, 1, 2])])
    with pytest.warns(ConvergenceWarning, match="relative gap is 1 or more"):
        model = GossipSVC(ALPHA, n_peers=6, topology="ring", faults=cut, shards="by-label", max_iter=150).fit(X, y)
    assert model.certificate_ == (1.0, 0.0)
    assert {len(node.members) for node in model.nodes_.values()} == {3}
    with pytest.warns(ConvergenceWarning, match=r"2 parts of it stopped separately, \[\(0,\), \(2,\)\]"):
        model = GossipSVC(
            ALPHA, n_peers=3, topology=[(0, 1), (1, 2)], faults=Faults(crash={1: 3}), shards="by-label"
        ).fit(X, y)
    assert model.stop_reason_ == "split"
    assert model.certificate_ == (1.0, 0.0)
    assert [node.members for node in model.nodes_.values()] == [frozenset({0}), frozenset({2})]


def test_what_arrives_meets_the_same_problem_and_all_of_it_or_none(data):
    X, y = data
    model = GossipSVC(ALPHA, n_peers=4).fit(X, y)
    with pytest.raises(ValueError, match=r"alpha=0.1 differs from the value that the peers of this model use, 0.01"):
        model.set_params(alpha=0.1).partial_fit(X[:5], y[:5])
    model.set_params(alpha=ALPHA, tol=1e-2)
    with pytest.raises(ValueError, match=r"y has the classes \['maybe'\]; the known classes are"):
        model.partial_fit(X[:20], [*y[:19], "maybe"])
    model.partial_fit(X[:20], y[:20])
    assert sum(node.n_rows for node in model.nodes_.values()) == 320
    with pytest.raises(ValueError, match="there are no peers yet"):
        GossipSVC(ALPHA).partial_fit(X, y, peer=3)


def test_a_peer_whose_rows_have_no_weight_helps_the_others(data):
    X, y = data
    halves = [(X[k::2], y[k::2]) for k in range(2)]
    model = GossipSVC(ALPHA).fit_shards([*halves, (X[:5], y[:5], np.zeros(5))])
    assert [node.n_rows for node in model.nodes_.values()] == [150, 150, 0]
    assert model.certificate_.dual <= optimum(X, y) * (1 + 1e-9)
    assert model.certificate_.primal == pytest.approx(optimum(X, y), rel=2e-3)
    with pytest.raises(ValueError, match="at least 2 classes with rows of positive weight, and got 0"):
        GossipSVC(ALPHA).fit_shards([(X, y, np.zeros(len(y)))])


def test_rows_too_large_for_one_peer_arrive_at_none(data):
    """The second half goes to the last two of four peers, and its squares are beyond what these could tell."""
    X, y = data
    model = GossipSVC(ALPHA, n_peers=4).fit(X, y)
    huge = np.vstack([X[:20], 1e25 * X[:20]])
    for peer in (None, 3, "new"):
        with pytest.raises(ValueError, match=r"squares of a feature add up to .*: scale the features"):
            model.partial_fit(huge, [*y[:20], *y[:20]], peer=peer)
        assert sorted(model._peers) == sorted(model.graph_) == [0, 1, 2, 3]
        assert sum(peer.algorithm.rows.n_rows for peer in model._peers.values()) == len(y)
    assert model.partial_fit(X[:20], y[:20]).stop_reason_ == "gap"


def test_warnings_of_partial_fit_point_at_the_line_that_called_it(data):
    X, y = data
    model = GossipSVC(ALPHA, n_peers=3, max_iter=3, tol=1e-9)
    for _ in range(2):
        with pytest.warns(ConvergenceWarning) as caught:
            model.partial_fit(X[:50], y[:50])
        assert [each.filename for each in caught] == [__file__]


def test_rows_and_peers_that_arrive(data):
    X, y = data
    model = GossipSVC(ALPHA, n_peers=4).partial_fit(X[:150], y[:150])
    model.partial_fit(X[150:200], y[150:200], peer=2)
    assert model.certificate_.primal == pytest.approx(optimum(X[:200], y[:200]), rel=2e-3)
    model.partial_fit(X[200:260], y[200:260], peer="new")
    assert sorted(model.nodes_) == [0, 1, 2, 3, 4]
    assert len(model.graph_[4]) == 3
    model.partial_fit(X[260:], y[260:])
    exact = optimum(X, y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.dual <= exact * (1 + 1e-9)
    assert model.certificate_.primal == pytest.approx(exact, rel=2e-3)
    with pytest.raises(ValueError, match=r"peer=9 must be None, 'new' or one of the present peers: \[0, 1, 2, 3, 4"):
        model.partial_fit(X[:5], y[:5], peer=9)
    with pytest.raises(ValueError, match=r"y has the classes \['maybe'\]; the known classes are"):
        model.partial_fit(X[:5], ["maybe"] * 5)
    with pytest.raises(ValueError, match="4 features"):
        model.partial_fit(X[:5, :-1], y[:5])


def test_classes_that_the_first_rows_lack(data):
    X, y = data
    model = GossipSVC(ALPHA, n_peers=3).partial_fit(X[y == "no"][:30], ["no"] * 30, classes=["no", "yes"])
    assert (model.predict(X[y == "no"][:30]) == "no").all()
    model.partial_fit(X, y)
    assert model.score(X, y) > 0.7
    with pytest.raises(ValueError, match="at least 2 classes"):
        GossipSVC(ALPHA).partial_fit(X[:30], ["no"] * 30)


def test_the_scale_of_gamma_counts_rows_as_often_as_they_are_there():
    X, y = overlapping(0, n=60, shift=0.8)
    X[:10] *= 5.0
    copies = np.where(np.arange(60) < 10, 3.0, 1.0)
    weighted = GossipSVC(ALPHA, n_peers=2, kernel="rbf", n_random_features=20).fit(X, y, copies)
    repeated = np.repeat(np.arange(60), copies.astype(int))
    gamma = 1 / (X.shape[1] * X[repeated].var())
    assert weighted._map.gamma == pytest.approx(gamma, rel=1e-12)


def test_a_kernel_by_features_that_all_peers_share():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X**2).sum(axis=1) > 1.4
    linear, round_ = GossipSVC(1e-3).fit(X, y), GossipSVC(1e-3, kernel="rbf", gamma=0.5).fit(X, y)
    assert linear.score(X, y) < 0.7
    assert round_.score(X, y) > 0.95
    assert round_.coef_.shape == (1, 256)
    assert round_.stop_reason_ == "gap"
    scaled = GossipSVC(1e-3, kernel="rbf").fit_shards([(X[:200], y[:200]), (X[200:], y[200:])])
    assert scaled.score(X, y) > 0.95
    sparse = GossipSVC(1e-3, kernel="rbf").fit(sp.csr_matrix(X), y)
    assert sparse.score(sp.csr_matrix(X), y) > 0.95


def test_the_paper_s_method_has_true_bounds_too(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match=r"use solver='admm'"):
        model = GossipSVC(0.1, solver="push-sum", max_iter=400, tol=1e-6).fit(X, y)
    exact = optimum(X, y, alpha=0.1)
    for row in model.history_:
        assert row["dual"] <= exact * (1 + 1e-9)
        assert row["primal"] >= exact * (1 - 1e-9)
    assert model.certificate_.primal <= 1.1 * exact


def test_pickles_leave_the_peers_behind(data):
    X, y = data
    model = GossipSVC(ALPHA).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert len(copy.nodes_) == 10
    assert not any(X[:50].tobytes() in part for part in (pickle.dumps(model),))
    with pytest.raises(ValueError, match="ran in the process that fitted"):
        copy.partial_fit(X, y)
    clone(model).partial_fit(X, y)


class Recorder:
    def __init__(self, stop_after=np.inf):
        self.seen, self.stop_after = 0, stop_after

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "sweep":
            assert fitted_estimator.coef_.shape[1] > 0
            self.seen += 1
        return self.seen >= self.stop_after


def test_callbacks_see_ticks_and_may_stop_them(data):
    X, y = data
    recorder = Recorder(stop_after=3)
    model = GossipSVC(ALPHA, tol=0.0).set_callbacks(recorder).fit(X, y)
    assert model.stop_reason_ == "callback"
    assert recorder.seen == 3 == len(model.history_)


def test_ctrl_c_keeps_the_best(data):
    X, y = data

    class Press(Recorder):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "sweep" and not self.seen:
                self.seen = 1
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return False

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(InterruptedFitWarning):
            model = GossipSVC(ALPHA, tol=0.0, max_iter=10**6).set_callbacks(Press()).fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.stop_reason_ == "interrupted"
    assert model.certificate_.relative < 1


def test_too_few_ticks_for_a_proof_say_so(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="relative gap is 1 or more"):
        model = GossipSVC(ALPHA, max_iter=1).fit(X, y)
    assert model.certificate_ == (1.0, 0.0)
    assert model.nodes_[3].certificate is None
    assert model.nodes_[3].gap == np.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": [(0, 1), (2, 3)], "n_peers": 4}, r"2 components .* \{0, 1\}; \{2, 3\}"),
        ({"topology": [(0, 7)], "n_peers": 4}, r"numbers must lie in \[0, 3\]"),
        ({"topology": [(0, 1, 2)], "n_peers": 4}, "each a pair of peer numbers"),
        ({"topology": nx.path_graph(3), "n_peers": 4}, "3 nodes and there are 4 peers: both must be equal"),
        ({"n_peers": 301}, "n_peers=301 is more than the number of rows, n_samples = 300"),
        ({"shards": [1, 2]}, "2 positive whole sizes that add up to the 300 rows"),
        ({"shards": [100.5, 199.5]}, "2 positive whole sizes"),
        ({"topology": [(0.5, 1)], "n_peers": 2}, "each a pair of peer numbers"),
        ({"rounds": 3}, "rounds=3 has no effect .* use solver='push-sum'"),
        ({"gamma": 2.0}, "gamma=2.0 has no effect .* use kernel='rbf'"),
        ({"solver": "push-sum", "metric": "full"}, "metric='full' has no effect .* use solver='admm'"),
        ({"alpha": 0.0}, "alpha"),
        ({"cluster": 3}, "cluster"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(data, options, message):
    with pytest.raises(ValueError, match=message):
        GossipSVC(**options).fit(*data)


def test_shards_that_do_not_fit_together_are_refused(data):
    X, y = data
    for shards, message in [
        ([], "shards is empty"),
        ([(X,)], r"shards\[0\] must be a pair"),
        ([(X, y), (X[:, 1:], y)], "different numbers of columns"),
        ([(X, y), (X, y[:-1])], r"shards\[1\] has 300 rows and labels of shape \(299,\)"),
        ([(X, y), (np.full_like(X, np.nan), y)], "X of shard 1 contains NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            GossipSVC(ALPHA).fit_shards(shards)
    frame = pd.DataFrame(X, columns=list("abcd"))
    with pytest.raises(ValueError, match="same order"):
        GossipSVC(ALPHA).fit_shards([(frame, y), (frame[list("dcba")], y)])
    with pytest.raises(ValueError, match="use one kind for all rows"):
        GossipSVC(ALPHA).fit_shards([(X, y), (X, y == "yes")])
    with pytest.raises(ValueError, match="whole numbers"):
        Faults(crash={3: 5.5})
    with pytest.raises(ValueError, match="n_peers=3, but 2 shards"):
        GossipSVC(ALPHA, n_peers=3).fit_shards([(X, y), (X, y)])
    with pytest.raises(ValueError, match="fit_shards takes divided rows"):
        GossipSVC(ALPHA, shards="by-label").fit_shards([(X, y), (X, y)])


@pytest.mark.parametrize("n_peers", [2, 3, 4, 5, 9, 10, 50])
@pytest.mark.parametrize("name", ["complete", "ring", "grid", "star", "random-regular", "erdos-renyi"])
def test_graphs_are_connected_and_go_both_ways(name, n_peers):
    for seed in range(3):
        graph = build(name, n_peers, 3, seed)
        assert sorted(graph) == list(range(n_peers))
        assert all(i in graph[j] and i != j for i, neighbours in graph.items() for j in neighbours)
        assert nx.is_connected(nx.Graph(graph))
    if name == "random-regular" and n_peers >= 5:
        assert {len(neighbours) for neighbours in graph.values()} == {3 + n_peers % 2}


def microarray(rng):
    codes = np.arange(40) % 2
    X = np.exp(1.5 * rng.normal(size=4000) + 5) * np.exp(0.4 * rng.normal(size=(40, 4000)))
    X[:, :100] *= np.where(codes, 1.6, 1.0)[:, None]
    return X, codes


def word_counts(rng):
    codes, often = np.arange(200) % 2, 1 / np.arange(1.0, 801)
    tilted = often * np.where(np.arange(800) % 7, 1.0, np.exp(rng.normal(size=800)))
    shares = [often / often.sum(), tilted / tilted.sum()]
    return sp.csr_matrix([rng.multinomial(rng.integers(50, 300), shares[k]).astype(float) for k in codes]), codes


def normal_rows(rng, n, d):
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=d) + rng.normal(size=n) > 0).astype(int)


def with_constant(rng):
    X, y = normal_rows(rng, 200, 5)
    return np.hstack([X, np.full((200, 1), 1e8)]), y


UNSCALED = {
    "300 x 30": lambda rng: normal_rows(rng, 300, 30),
    "raw wine": lambda rng: load_wine(return_X_y=True),
    "counts of words": word_counts,
    "like a microarray": microarray,
    "a constant column of 1e8": with_constant,
}


@pytest.mark.parametrize("rows", UNSCALED.values(), ids=UNSCALED.keys())
def test_rows_in_any_units_end_by_their_gap_at_the_defaults(rows):
    X, y = rows(np.random.default_rng(0))
    model = GossipSVC().fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.n_iter_ <= 300
    assert max(node.gap for node in model.nodes_.values()) <= 1e-3
    assert model.certificate_.dual <= model.certificate_.primal


def test_a_gap_that_rounding_keeps_open_ends_the_fit():
    X, y = normal_rows(np.random.default_rng(0), 60, 3)
    with pytest.warns(PrecisionWarning, match="Rounding keeps the relative gap"):
        model = GossipSVC(alpha=0.1, n_peers=3, tol=1e-17, max_iter=2000).fit(X, y)
    assert model.stop_reason_ == "precision"
    assert model.certificate_.relative < 1e-9
