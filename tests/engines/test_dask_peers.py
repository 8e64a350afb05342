"""Peers on real Dask workers: processes on this machine, two of which are killed by pid."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from widemargin.exceptions import PeerLostWarning
from widemargin.peers.admm import GossipADMM
from widemargin.peers.loop import PeerLimits, PeerLoop, PeerRun
from widemargin.peers.peer import Peer
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

distributed = pytest.importorskip("distributed", reason="needs the dask extra")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

N_WORKERS = 10
ALPHA, TOL = 1e-3, 1e-3
LIMITS = PeerLimits(TOL, max_time=90.0, pace=0.01, silence=8.0)


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def census(n_rows, seed=0):
    """Rows of zeros and ones, one of each group of features: like Adult, and as hard to tell apart."""
    rng = np.random.default_rng(seed)
    sizes = [5, 8, 16, 7, 14, 6, 5, 2]
    blocks = [np.eye(size)[rng.choice(size, n_rows, p=rng.dirichlet(np.ones(size)))] for size in sizes]
    X = np.hstack(blocks)
    scores = X @ rng.normal(size=X.shape[1])
    return X, (scores + rng.logistic(size=n_rows) > np.quantile(scores, 0.75)).astype(int)


def begin(neighbours, number, rows):
    X, y = rows
    problem = MeanHinge(ALPHA)
    of_work, of_messages = np.random.default_rng([7, number]).spawn(2)
    owned = PeerRows.of(X, y, np.ones(len(y)), 2, has_constant=True)
    return Peer(
        number, problem, GossipADMM(problem, owned, of_work, is_full=True), list(neighbours[number]), 3, of_messages
    )


def begin_badly(number, rows):
    if number == 1:
        raise RuntimeError("these rows are not what they seem")
    return begin({0: [1], 1: [0]}, number, rows)


def optimum(X, y):
    from sklearn.svm import LinearSVC  # workers load this file, and do not need it

    model = LinearSVC(loss="hinge", C=1 / (ALPHA * len(y)), tol=1e-8, max_iter=10**6).fit(X, y)
    w, b = model.coef_[0], model.intercept_[0]
    return 0.5 * ALPHA * (w @ w + b * b) + np.maximum(0, 1 - (2 * y - 1) * (X @ w + b)).mean()


def circulant(n, steps):
    return {k: sorted({(k + s) % n for s in steps} | {(k - s) % n for s in steps}) for k in range(n)}


@dataclass(frozen=True)
class Gated(PeerRun):
    """Peers that do not end before a file appears."""

    gate: Path

    def __call__(self, number, rows, transport, watch=None):
        def watch_gate(loop):
            if loop.limits.at_least > 1 and self.gate.exists():
                loop.limits = replace(loop.limits, at_least=1)
            return watch(loop)

        endless = replace(self.limits, at_least=1000)
        return PeerLoop(self.begin(number, rows), transport, endless, watch_gate).run()


def test_peers_reach_the_optimum_with_rows_here_or_there(client):
    from widemargin.engines.dask_peers import launch_peers

    X, y = census(600)
    parts = [(X[k::3], y[k::3]) for k in range(3)]
    graph = circulant(3, [1])
    addresses = sorted(client.nthreads())
    (there,) = client.scatter([parts[2]], workers=[addresses[5]], hash=False)
    told = []
    program = PeerRun(partial(begin, graph), replace(LIMITS, at_least=3))
    outcome = launch_peers(client, [*parts[:2], there], program, graph, tell=lambda *news: told.append(news))
    best = optimum(X, y)
    assert sorted(outcome.reports) == [0, 1, 2]
    assert outcome.lost == {}
    for report in outcome.reports.values():
        assert report.stop_reason == "gap"
        assert report.members == [0, 1, 2]
        assert report.gap <= TOL
        assert report.certificate.dual <= best * (1 + 1e-7)
        assert report.certificate.primal >= best * (1 - 1e-7)
        assert report.refused == 0
        assert report.bytes_received > 0
    assert {number for number, _ in told} == {0, 1, 2}
    assert told[-1][1]["tick"] > 0


def test_an_error_of_a_peer_is_raised_here_and_ends_the_others(client):
    from widemargin.engines.dask_peers import launch_peers

    X, y = census(60)
    with pytest.raises(RuntimeError, match="not what they seem"):
        launch_peers(
            client, [(X, y), (X, y)], PeerRun(begin_badly, replace(LIMITS, tol=0.0, at_least=9)), {0: [1], 1: [0]}
        )
    wait_until(lambda: not any(client.processing().values()))


def test_more_peers_than_workers_are_refused(client):
    from widemargin.engines.dask_peers import launch_peers

    with pytest.raises(ValueError, match="11 peers and 10 workers"):
        launch_peers(client, [None] * 11, PeerRun(begin_badly, LIMITS), {})


def test_a_wish_to_stop_brings_the_best_that_there_is(client):
    from widemargin.engines.dask_peers import launch_peers

    X, y = census(300)
    graph, news = circulant(3, [1]), {}
    program = PeerRun(partial(begin, graph), replace(LIMITS, tol=0.0, at_least=9))
    outcome = launch_peers(
        client,
        [(X[k::3], y[k::3]) for k in range(3)],
        program,
        graph,
        is_over=lambda: len(news) == 3 and all(each["gap"] < 0.01 for each in news.values()),
        tell=news.__setitem__,
    )
    assert {report.stop_reason for report in outcome.reports.values()} == {"interrupted"}
    assert all(report.gap < 0.01 for report in outcome.reports.values())


def wait_until(condition, news=None, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {news}"
        time.sleep(0.02)


def test_two_of_ten_are_killed_in_the_middle_and_the_rest_finish(client, tmp_path):
    from widemargin.engines.dask_peers import launch_peers

    X, y = census(2000)
    parts = [(X[k::10], y[k::10]) for k in range(10)]
    graph = circulant(10, [1, 3])
    news, failed = {}, []
    pids = client.run(os.getpid)
    victims = [sorted(pids)[k] for k in (3, 7)]
    survivors = [k for k in range(10) if k not in (3, 7)]

    def all_know(who, n_members):
        return all(k in news and news[k]["members"] == n_members and news[k]["gap"] <= TOL for k in who)

    def do_harm():
        try:
            wait_until(lambda: all_know(range(10), 10), news)
            for address in victims:
                os.kill(pids[address], signal.SIGKILL)
            wait_until(lambda: all_know(survivors, 8), news)
        except BaseException as error:
            failed.append(error)
        (tmp_path / "gate").touch()

    thread = threading.Thread(target=do_harm)
    thread.start()
    program = Gated(partial(begin, graph), LIMITS, tmp_path / "gate")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = launch_peers(client, parts, program, graph, tell=news.__setitem__)
    thread.join()
    assert failed == []
    (said,) = [each for each in caught if isinstance(each.message, PeerLostWarning)]
    assert all(address in str(said.message) for address in victims)
    assert said.filename == __file__
    assert outcome.lost == dict(zip((3, 7), victims, strict=True))
    assert sorted(outcome.reports) == survivors
    rest = [k for k in range(2000) if k % 10 in survivors]
    best = optimum(X[rest], y[rest])
    for report in outcome.reports.values():
        assert report.stop_reason == "gap"
        assert report.members == survivors
        assert report.gap <= TOL
        assert report.certificate.dual <= best * (1 + 1e-7)
        assert report.certificate.primal >= best * (1 - 1e-7)
        assert not {3, 7} & set(report.live_neighbours)
