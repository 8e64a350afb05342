"""GossipSVC with a peer on each of some real Dask workers: processes on this machine."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from tests.estimators.test_gossip import objective, optimum
from tests.problems_at_hand import overlapping
from widemargin import GossipSVC, InterruptedFitWarning

distributed = pytest.importorskip("distributed", reason="needs the dask extra")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def test_peers_on_workers_find_the_optimum_and_each_proves_it(client):
    X, y = overlapping(0, n=300, shift=0.8)
    exact = optimum(X, y)
    n_workers = len(client.nthreads())
    model = GossipSVC(0.01, cluster=client, max_iter=100_000).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert sorted(model.nodes_) == list(range(n_workers))
    for node in model.nodes_.values():
        assert node.gap <= model.tol
        assert node.certificate.dual <= exact * (1 + 1e-9)
        value = objective(node.coef_[0], node.intercept_, X, np.where(y > 0, 1.0, -1.0), np.ones(len(y)))
        assert value == pytest.approx(node.certificate.primal, rel=1e-9)
    assert model.cost_.messages == sum(node.messages_sent for node in model.nodes_.values())
    assert model.history_[-1]["gap"] <= model.tol
    with pytest.raises(ValueError, match="or on workers, and are gone"):
        model.partial_fit(X, y)
    classes = np.digitize(X[:, 0], [-0.5, 0.8])
    shards = [(X[k::2], classes[k::2]) for k in range(2)]
    three = GossipSVC(0.01, cluster=client, max_iter=100_000).fit_shards(shards)
    assert len(three.nodes_) == 2
    assert three.coef_.shape == (3, X.shape[1])
    assert three.stop_reason_ == "gap"
    shards.append((X[:5], classes[:5], np.zeros(5)))
    weightless = GossipSVC(0.01, cluster=client, max_iter=100_000).fit_shards(shards)
    assert weightless.stop_reason_ == "gap"
    assert weightless.nodes_[2].n_rows == 0
    assert weightless.nodes_[2].gap <= weightless.tol
    # The certificate is that of the worst class, which may be another one: compare the models.
    assert np.mean(weightless.predict(X) == three.predict(X)) >= 0.98
    with pytest.raises(ValueError, match="each peer needs a worker of its own"):
        GossipSVC(0.01, cluster=client, n_peers=n_workers + 1).fit(X, y)


def test_ctrl_c_on_the_driver_ends_the_peers(client):
    X, y = overlapping(0, n=100, shift=0.8)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    press = threading.Timer(4.0, signal.pthread_kill, (main, signal.SIGINT))  # peers have no other end
    press.start()
    try:
        with pytest.warns(InterruptedFitWarning):
            # Push-sum never comes near this gap; ADMM would, and stop where rounding keeps it open.
            model = GossipSVC(0.01, cluster=client, solver="push-sum", tol=0.0, max_iter=10**9).fit(X, y)
    finally:
        press.cancel()
        signal.signal(signal.SIGINT, before)
    assert model.stop_reason_ == "interrupted"
    assert model.score(X, y) > 0.5
