"""Trees of work on threads and on real Dask workers, some of which are killed by pid; the tree of SODM on both."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from tests.engines.conftest import StopAfter, eventually
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

    def is_enough(views):
        seen.append(views)
        return len(views) == 2

    inline.grow(None, [1, 2, 3, 4], add, lambda b: b, 2, is_enough, None)
    assert seen == [[1, 2, 3, 4], [3, 7]]
    inline.grow(2, [1], add, lambda b: b, 2, is_enough, None)
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


def narrow(A, B):
    return rbf_kernel(A, B, gamma=0.3)


def held_after_the_leaves(gate, n_rows):
    """A kernel that waits at the gate on workers once they have more rows than a leaf, of ``n_rows``."""
    here = os.getpid()

    def kernel(A, B):
        if os.getpid() != here and len(B) > n_rows // TREE["n_partitions"]:
            gate.wait()
        return rbf_kernel(A, B, gamma=0.3)

    return kernel


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
    watcher = StopAfter(2)
    stopped = MarginDistributionSVC(cluster=client, **TREE).set_callbacks(watcher).fit(X, y)
    assert all(len(each.dual_coef_) for each in watcher.models)
    assert stopped.stop_reason_ == "callback"
    assert [level.n_parts for level in stopped.levels_] == [4, 2]
    here = os.getpid()

    def fails_elsewhere(A, B):
        if os.getpid() != here:
            raise ArithmeticError("elsewhere")
        return narrow(A, B)

    with pytest.raises(ArithmeticError, match="elsewhere"):
        MarginDistributionSVC(cluster=client, **{**TREE, "kernel": fails_elsewhere}).fit(X, y)
    with pytest.raises(ValueError, match="pass X as an array"):
        MarginDistributionSVC(cluster=client, **TREE).fit(da.from_array(X), da.from_array(y))


def test_ctrl_c_on_the_driver_keeps_the_last_level(client, gate):
    """Pressed when the second level is being solved, which is held until the fit has ended without it."""
    X, y = overlapping(0, n=80, shift=0.5)
    # A process that runs tests for another may ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident

    def press_in_the_middle():
        if eventually(gate.waiting):
            signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=press_in_the_middle)
    model = MarginDistributionSVC(cluster=client, **{**TREE, "kernel": held_after_the_leaves(gate, len(y))})
    thread.start()
    try:
        with pytest.warns(InterruptedFitWarning):
            model.fit(X, y)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert model.stop_reason_ == "interrupted"
    assert len(model.levels_) == 1
    assert model.certificate_.dual <= model.certificate_.primal
    assert model.score(X, y) > 0.5


def test_a_killed_worker_costs_its_parts_and_the_answer_is_the_same(doomed, gate):
    """Killed when it solves a part of the second level, and holds what it has solved of the first."""
    X, y = overlapping(0, n=80, shift=0.5)
    options = {**TREE, "tol": 1e-6}
    killed = []

    def kill_in_the_middle():
        if eventually(gate.waiting):
            killed.append(gate.waiting()[0])
            os.kill(killed[0], signal.SIGKILL)
        gate.open()

    thread = threading.Thread(target=kill_in_the_middle)
    thread.start()
    try:
        model = MarginDistributionSVC(cluster=doomed, **{**options, "kernel": held_after_the_leaves(gate, len(y))}).fit(
            X, y
        )
    finally:
        thread.join()
    assert killed, "no worker came to the second level"
    here = MarginDistributionSVC(**{**options, "kernel": narrow}).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.primal == pytest.approx(exact_odm(narrow(X, X), y, model._problem()).value, rel=2e-6)
    np.testing.assert_array_equal(model.dual_coef_, here.dual_coef_)


def test_nothing_that_arrives_is_unpickled_by_us():
    """Branches travel as arguments and results of Dask's tasks, and by no other way."""
    package = Path(inline.__file__).parents[1]
    for path in ("engines/dask.py", "engines/inline.py", "strategies/tree.py", "solvers/partition_merge.py"):
        names = set(imported((package / path).read_text(encoding="utf8"), "widemargin"))
        assert not {name.split(".")[0] for name in names} & {"pickle", "cloudpickle", "marshal", "shelve", "joblib"}
