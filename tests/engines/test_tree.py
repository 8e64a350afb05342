"""Trees of work on threads and on real Dask workers, some of which are killed by pid; the tree of SODM on both."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import overlapping
from tests.test_architecture import imported
from widemargin import InterruptedFitWarning, MarginDistributionSVC
from widemargin.engines import inline

# -- on threads ------------------------------------------------------------------------------------------------------


def add(children, is_over=None):
    return sum(children)


@pytest.mark.parametrize("n_ranks", [None, 1, 3])
@pytest.mark.parametrize(
    ("fan_in", "levels"),
    [
        (2, [[1, 2, 3, 4, 5], [3, 7, 5], [10, 5], [15]]),
        (3, [[1, 2, 3, 4, 5], [6, 9], [15]]),
        (9, [[1, 2, 3, 4, 5], [15]]),
    ],
)
def test_neighbours_are_merged_up_to_the_root(n_ranks, fan_in, levels):
    seen = []

    def is_enough(views):
        seen.append([-view for view in views])
        return False

    inline.grow(n_ranks, [1, 2, 3, 4, 5], add, lambda branch: -branch, fan_in, is_enough, lambda: None)
    assert seen == levels


def test_a_tree_ends_where_it_is_enough_and_one_leaf_is_a_tree():
    seen = []
    inline.grow(None, [1, 2, 3, 4], add, lambda b: b, 2, lambda views: seen.append(views) or len(views) == 2, None)
    assert seen == [[1, 2, 3, 4], [3, 7]]
    inline.grow(2, [1], add, lambda b: b, 2, lambda views: seen.append(views), None)
    assert seen[2:] == [[1]]


def test_an_error_in_a_part_is_raised_here():
    def fail(children, is_over):
        raise ZeroDivisionError("part")

    with pytest.raises(ZeroDivisionError):
        inline.grow(2, [1, 2], fail, lambda b: b, 2, lambda views: False, None)


# -- on workers ------------------------------------------------------------------------------------------------------

distributed = pytest.importorskip("distributed", reason="needs the dask extra")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

TREE = {"solver": "partition-merge", "n_partitions": 4, "C": 100.0, "gamma": 0.3, "random_state": 0}


@pytest.fixture(scope="module")
def client():
    """For all tests: a worker that is killed is replaced, and that is done last."""
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    client = distributed.Client(cluster)
    try:
        yield client
    finally:
        client.close()
        cluster.close(timeout=10)


class StopAfter:
    """Asks to stop after so many levels."""

    def __init__(self, n_levels):
        self.n_levels, self.seen = n_levels, 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "sweep":
            assert len(fitted_estimator.dual_coef_)
            self.seen += 1
        return self.seen >= self.n_levels


def narrow(A, B):
    return rbf_kernel(A, B, gamma=0.3)


def slow(A, B):
    """Takes its time, so that there is some to lose a worker in, or to interrupt."""
    time.sleep(0.05)
    return rbf_kernel(A, B, gamma=0.3)


def test_the_tree_on_workers_is_that_of_threads(client):
    X, y = overlapping(0, n=200, shift=0.5)
    labels = np.digitize(X[:, 0], [-0.5, 0.8])
    cases = [
        ({}, X, y),
        ({"kernel": "precomputed"}, narrow(X, X), y),
        ({"kernel": narrow}, X, y),
        ({"n_partitions": 3, "partition": "random"}, X, labels),
        ({"stop_level": 1}, X, y),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options, rows, targets in cases:
            options = {**TREE, **options}
            there = MarginDistributionSVC(cluster=client, **options).fit(rows, targets)
            here = MarginDistributionSVC(cluster=2, **options).fit(rows, targets)
            for level in range(-1, 2):
                one, other = there.at_level(level), here.at_level(level)
                np.testing.assert_array_equal(one.decision_function(rows), other.decision_function(rows))
            assert there.certificate_ == here.certificate_
            assert there.cost_.counts() == here.cost_.counts()
            assert there.stop_reason_ == here.stop_reason_
    model = pickle.loads(pickle.dumps(there))
    assert model.cluster is None
    np.testing.assert_array_equal(model.predict(X), here.predict(X))
    # What callbacks ask for here ends it there, and an error there is raised here.
    stopped = MarginDistributionSVC(cluster=client, **TREE).set_callbacks(StopAfter(2)).fit(X, y)
    assert stopped.stop_reason_ == "callback"
    assert [level.n_parts for level in stopped.levels_] == [4, 2]
    here = os.getpid()

    def fails_elsewhere(A, B):
        if os.getpid() != here:
            raise ArithmeticError("elsewhere")
        return narrow(A, B)

    with pytest.raises(ArithmeticError, match="elsewhere"):
        MarginDistributionSVC(cluster=client, **{**TREE, "kernel": fails_elsewhere}).fit(X, y)
    with pytest.raises(ValueError, match="give X as an array"):
        MarginDistributionSVC(cluster=client, **TREE).fit(da.from_array(X), da.from_array(y))


def test_ctrl_c_on_the_driver_keeps_the_last_level(client):
    X, y = overlapping(0, n=80, shift=0.5)
    # A process that runs tests for another may ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main, levels = threading.main_thread().ident, []

    class PressLater(StopAfter):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "sweep" and not levels:
                levels.append(threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)))
                levels[0].start()
            return False

    options = {**TREE, "kernel": slow, "tol": 1e-14, "C": 1e8, "cache_size": 1e-6}
    model = MarginDistributionSVC(cluster=client, **options).set_callbacks(PressLater(9))
    begin = time.monotonic()
    try:
        with pytest.warns(InterruptedFitWarning):
            model.fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 20
    assert model.stop_reason_ == "interrupted"
    assert 1 <= len(model.levels_) < 3
    assert model.certificate_.dual <= model.certificate_.primal
    assert model.score(X, y) > 0.5


def test_a_killed_worker_costs_its_parts_and_the_answer_is_the_same(client):
    X, y = overlapping(0, n=80, shift=0.5)
    pids = client.run(os.getpid)
    doomed = sorted(pids)[1]
    killed = []

    def kill_at_work():
        deadline = time.monotonic() + 30
        while not killed and time.monotonic() < deadline:
            # In the middle: something was done there, and something else is being done.
            has = client.has_what().get(doomed, ())
            if has and client.processing().get(doomed):
                os.kill(pids[doomed], signal.SIGKILL)
                killed.append(doomed)
            time.sleep(0.02)

    thread = threading.Thread(target=kill_at_work)
    thread.start()
    try:
        model = MarginDistributionSVC(cluster=client, **{**TREE, "kernel": slow, "tol": 1e-6}).fit(X, y)
    finally:
        thread.join(timeout=60)
    assert killed, "the fit was over too soon"
    here = MarginDistributionSVC(**{**TREE, "kernel": narrow, "tol": 1e-6}).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.primal == pytest.approx(exact_odm(narrow(X, X), y, model._problem()).value, rel=2e-6)
    np.testing.assert_array_equal(model.dual_coef_, here.dual_coef_)


def test_nothing_that_arrives_is_unpickled_by_us():
    """Branches travel as arguments and results of Dask's tasks, and by no other way."""
    package = Path(inline.__file__).parents[1]
    for path in ("engines/dask.py", "engines/inline.py", "estimators/_tree.py", "solvers/partition.py"):
        names = set(imported((package / path).read_text(encoding="utf8"), "widemargin"))
        assert not {name.split(".")[0] for name in names} & {"pickle", "cloudpickle", "marshal", "shelve", "joblib"}
