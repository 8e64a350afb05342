"""MarginDistributionSVC against a quadratic programme: every solver, the tree and its levels, scikit-learn's habits."""

from __future__ import annotations

import pickle
import signal
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier

from tests.conftest import STORAGES
from tests.estimators.test_kernel import Recorder, three_classes
from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import overlapping
from widemargin import InterruptedFitWarning, MarginDistributionSVC, PrecisionWarning
from widemargin.solvers import partition_merge

GAMMA = 0.25
TIGHT = {"tol": 1e-7, "gamma": GAMMA}
TREE = {"solver": "partition-merge", "n_partitions": 4}
KERNEL = {
    "auto": {},
    "dual-descent": {"solver": "dual-descent"},
    "newton": {"solver": "newton"},
    "tree": TREE,
    "threads": {**TREE, "cluster": 2},
    "random tree": {**TREE, "n_partitions": 5, "merge_factor": 3, "partition": "random"},
}
LINEAR = {name: {**options, "kernel": "linear"} for name, options in KERNEL.items()}
LINEAR["svrg"] = {"solver": "svrg", "kernel": "linear", "max_iter": 20_000}
EVERY: dict[str, Any] = {**KERNEL, **{f"linear {name}": options for name, options in LINEAR.items()}}
# At these sizes a relative gap of 1e-7 leaves scores this close.
SCORES = {"rtol": 0, "atol": 5e-3}


def narrow(A, B):
    return rbf_kernel(A, B, gamma=GAMMA)


def values(options, X):
    return X @ X.T if options.get("kernel") == "linear" else rbf_kernel(X, gamma=GAMMA)


def exact(model, K, y, weight=None):
    """The optimum; labels are of two classes."""
    return exact_odm(K, np.where(y == model.classes_[1], 1.0, -1.0), model._problem(), weight).value


def objective(model, X, y, weight=None):
    """The primal objective of a fitted model, from what it shows of itself."""
    weight = np.ones(len(y)) if weight is None else weight
    sign, theta = np.where(y == model.classes_[1], 1.0, -1.0), model.deadband
    if hasattr(model, "coef_"):
        squared = float(model.coef_[0] @ model.coef_[0])
    else:
        beta = np.zeros(len(y))
        beta[model.support_] = model.dual_coef_[0]
        squared = float(beta @ rbf_kernel(X, gamma=GAMMA) @ beta)
    F = sign * model.decision_function(X)
    loss = np.maximum(1 - theta - F, 0) ** 2 + model.overshoot_weight * np.maximum(F - 1 - theta, 0) ** 2
    scale = model.C / (2 * weight.sum() * (1 - theta) ** 2)
    return 0.5 * (squared + float(model.intercept_[0]) ** 2) + scale * float(weight @ loss)


def assert_optimal(model, best, tol=1e-7):
    assert model.stop_reason_ == "gap"
    assert model.certificate_.dual <= best * (1 + 1e-8)
    assert model.certificate_.primal >= best * (1 - 1e-8)
    assert model.certificate_.primal == pytest.approx(best, rel=2 * tol)


# -- the optimum -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1.0, 1e4])
@pytest.mark.parametrize("name", EVERY)
def test_every_solver_reaches_the_optimum_of_the_qp(name, C):
    X, y = overlapping(0, n=40)
    model = MarginDistributionSVC(C=C, **EVERY[name], **TIGHT).fit(X, y)
    assert_optimal(model, exact(model, values(EVERY[name], X), y))
    assert objective(model, X, y) == pytest.approx(model.certificate_.primal, rel=1e-7)


@pytest.mark.parametrize("options", [{"overshoot_weight": 0.1, "deadband": 0.5}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("name", ["auto", "tree", "linear auto", "linear svrg"])
def test_and_of_other_losses(name, options, seed):
    X, y = overlapping(seed, n=30)
    model = MarginDistributionSVC(C=100.0, **EVERY[name], **options, **TIGHT).fit(X, y)
    assert_optimal(model, exact(model, values(EVERY[name], X), y))
    assert (model.intercept_ != 0) == model.fit_intercept


@pytest.mark.parametrize("name", KERNEL)
def test_conditions_11_and_12_hold(name):
    """What short margins lack is M c v zeta, what long ones have too much is M c beta, and no row has both."""
    X, y = overlapping(0, n=40)
    model = MarginDistributionSVC(C=100.0, **KERNEL[name], **{**TIGHT, "tol": 1e-10}).fit(X, y)
    g = np.zeros(len(y))
    g[model.support_] = model.dual_coef_[0]
    g *= y
    margin, theta, v = y * model.decision_function(X), model.deadband, model.overshoot_weight
    c = (1 - theta) ** 2 / (model.C * v)
    np.testing.assert_allclose(np.maximum(1 - theta - margin, 0), len(y) * c * v * np.maximum(g, 0), atol=1e-4)
    np.testing.assert_allclose(np.maximum(margin - 1 - theta, 0), len(y) * c * np.maximum(-g, 0), atol=1e-4)


@pytest.mark.parametrize("name", EVERY)
def test_a_weight_is_a_number_of_copies(name, seed):
    X, y = overlapping(seed, n=30)
    copies = np.random.default_rng(seed).integers(0, 4, len(y))
    options = {"C": 100.0, "max_iter": 20_000, **EVERY[name], **TIGHT}
    weighted = MarginDistributionSVC(**options).fit(X, y, copies)
    repeated = MarginDistributionSVC(**options).fit(np.repeat(X, copies, axis=0), np.repeat(y, copies))
    assert_optimal(weighted, exact(weighted, values(EVERY[name], X), y, copies))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), **SCORES)
    if hasattr(weighted, "support_vectors_"):
        np.testing.assert_array_equal(weighted.support_vectors_, X[weighted.support_])


@pytest.mark.parametrize("class_weight", [{1: 3.0, -1: 1.0}, "balanced"], ids=str)
@pytest.mark.parametrize("name", ["auto", "tree", "linear auto"])
def test_class_weights_multiply_weights(name, class_weight):
    X, y = overlapping(0, n=30)
    factors = {1: 3.0, -1: 1.0} if isinstance(class_weight, dict) else {1: 30 / 24, -1: 30 / 36}
    weight = np.where(y > 0, factors[1], factors[-1])
    options = {"C": 100.0, **EVERY[name], **TIGHT}
    model = MarginDistributionSVC(class_weight=class_weight, **options).fit(X, y)
    given = MarginDistributionSVC(**options).fit(X, y, weight)
    assert model.certificate_.primal == pytest.approx(given.certificate_.primal, rel=1e-6)


@pytest.mark.parametrize("storage", [name for name in STORAGES if name != "dense"])
@pytest.mark.parametrize("name", EVERY)
def test_sparse_rows_give_the_same_model(name, storage):
    X, y = overlapping(0, n=40, d=6)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.6, 0.0, X)
    options = {"C": 100.0, "max_iter": 20_000, **EVERY[name], **TIGHT}
    dense = MarginDistributionSVC(**options).fit(X, y)
    sparse = MarginDistributionSVC(**options).fit(STORAGES[storage](X), y)
    assert sparse.certificate_.primal == pytest.approx(dense.certificate_.primal, rel=2e-7)
    np.testing.assert_allclose(sparse.decision_function(STORAGES[storage](X)), dense.decision_function(X), **SCORES)


@pytest.mark.parametrize("name", ["auto", "dual-descent", "newton", "linear auto", "linear svrg"])
def test_ranks_certify_the_same_objective(name):
    X, y = overlapping(0, n=60)
    options = {"C": 100.0, "max_iter": 20_000, **EVERY[name], **TIGHT}
    alone, three = (MarginDistributionSVC(cluster=ranks, **options).fit(X, y) for ranks in (None, 3))
    assert alone.certificate_.primal == pytest.approx(three.certificate_.primal, rel=2e-7)


@pytest.mark.parametrize("name", ["auto", "tree", "random tree", "linear auto", "linear svrg"])
def test_several_classes_are_each_against_the_rest(name):
    X, y = three_classes()
    options = {"C": 100.0, "max_iter": 20_000, **EVERY[name], **TIGHT}
    model = MarginDistributionSVC(**options).fit(X, y)
    rest = OneVsRestClassifier(
        MarginDistributionSVC(**{**options, "n_partitions": options.get("n_partitions", "auto")})
    )
    scores = model.decision_function(X)
    assert scores.shape == (75, 3)
    np.testing.assert_allclose(scores, rest.fit(X, y).decision_function(X), **SCORES)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])
    for k, part in enumerate(model.parts_):
        labels = np.where(y == model.classes_[k], 1.0, -1.0)
        best = exact_odm(values(EVERY[name], X), labels, model._problem()).value
        assert part.certificate.dual <= best * (1 + 1e-8)
        assert part.certificate.primal == pytest.approx(best, rel=2e-7)


@pytest.mark.parametrize("name", KERNEL)
@pytest.mark.parametrize("kind", ["callable", "precomputed", "sparse precomputed"])
def test_given_values_and_functions_are_kernels_too(name, kind):
    X, y = overlapping(0, n=40)
    new, _ = overlapping(1, n=20)
    reference = MarginDistributionSVC(C=100.0, **TIGHT).fit(X, y)
    options = {"C": 100.0, **KERNEL[name], **TIGHT}
    if kind == "callable":
        scores = MarginDistributionSVC(**{**options, "kernel": narrow}).fit(X, y).decision_function(new)
    else:
        make = sp.csr_matrix if kind.startswith("sparse") else np.asarray
        model = MarginDistributionSVC(**{**options, "kernel": "precomputed"}).fit(make(narrow(X, X)), y)
        scores = model.decision_function(make(narrow(new, X)))
    np.testing.assert_allclose(scores, reference.decision_function(new), **SCORES)


def test_given_values_of_rows_without_weight_in_the_tree():
    X, y = overlapping(0, n=50)
    weight = np.where(np.arange(50) % 3, 1.0, 0.0)
    options = {"C": 100.0, **TREE, "tol": 1e-7}
    given = MarginDistributionSVC(kernel="precomputed", **options).fit(narrow(X, X), y, weight)
    plain = MarginDistributionSVC(gamma=GAMMA, tol=1e-7, C=100.0).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(given.decision_function(narrow(X, X)), plain.decision_function(X), **SCORES)
    assert (weight[given.support_] > 0).all()
    assert all(level.model.points.X.size == 0 for level in given.levels_)  # no copies of all values


# -- the tree --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grown():
    X, y = overlapping(0, n=160, shift=0.5)
    return MarginDistributionSVC(C=100.0, random_state=0, **TREE, **TIGHT).fit(X, y), X, y


def test_levels_go_from_the_leaves_to_the_root(grown):
    model, X, y = grown
    assert [level.n_parts for level in model.levels_] == [4, 2, 1]
    assert [len(level.task_seconds) for level in model.levels_] == [4, 2, 1]
    seconds = [level.seconds for level in model.levels_]
    assert seconds == sorted(seconds)
    assert model.levels_[-1].largest_gap <= 1e-7
    objectives = [objective(model.at_level(k), X, y) for k in range(3)]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == pytest.approx(model.certificate_.primal, rel=1e-9)


def test_every_level_is_a_model(grown):
    model, X, y = grown
    for level in (0, 1, 2, -1, -3):
        early = model.at_level(level)
        assert early.score(X, y) > 0.6
        assert early.dual_coef_.shape == (1, len(early.support_))
        scores = narrow(X, X[early.support_]) @ early.dual_coef_[0] + early.intercept_
        np.testing.assert_allclose(early.decision_function(X), scores, atol=1e-9)
        again = pickle.loads(pickle.dumps(early)).at_level(1)
        np.testing.assert_array_equal(again.decision_function(X), model.at_level(1).decision_function(X))
    np.testing.assert_array_equal(model.at_level(-1).decision_function(X), model.decision_function(X))


def test_rows_are_kept_once_for_all_levels_and_only_those_that_have_a_coefficient(grown):
    model, X, _ = grown
    among = model.levels_[0].among
    assert all(level.among is among for level in model.levels_)
    used = np.unique(np.concatenate([level.numbers for level in model.levels_]))
    np.testing.assert_array_equal(among.numbers, used)
    np.testing.assert_array_equal(among.X, X[used])


def test_the_first_level_is_the_mean_of_models_of_parts(grown):
    model, X, y = grown
    whole = np.zeros(len(X))
    rng = np.random.default_rng(int(np.random.RandomState(0).randint(np.iinfo(np.int32).max)))
    from widemargin.data.shard import Shard
    from widemargin.kernels.on_cpu import RowsOnCPU

    rows = RowsOnCPU(model.kernel_, X)
    parts = partition_merge.Division(4, 2, 32, True, 1).divide(
        Shard(X, (y > 0).astype(float), np.ones(len(y)), rows), rng
    )
    for part in parts:
        alone = MarginDistributionSVC(C=100.0, gamma=GAMMA, tol=partition_merge._PART_TOL).fit(X[part], y[part])
        whole += alone.decision_function(X) / 4
    early = model.at_level(0).decision_function(X)
    np.testing.assert_allclose(early, whole, atol=0.5)  # both are within a loose gap of the same
    assert np.corrcoef(early, whole)[0, 1] > 0.98


@pytest.mark.parametrize("level", [3, -4, 100])
def test_a_level_that_is_not_there_is_named(grown, level):
    with pytest.raises(ValueError, match=rf"level={level} is out of range.*\[-3, 2\]"):
        grown[0].at_level(level)


def test_other_solvers_have_no_levels():
    X, y = overlapping(0)
    model = MarginDistributionSVC().fit(X, y)
    assert not hasattr(model, "levels_")
    with pytest.raises(ValueError, match=r"solver='auto' has no levels"):
        model.at_level(0)


def test_levels_of_several_classes():
    X, y = three_classes()
    model = MarginDistributionSVC(**TREE, **TIGHT).fit(X, y)
    assert [[level.n_parts for level in levels] for levels in model.levels_] == [[4, 2, 1]] * 3
    assert model.at_level(0).decision_function(X).shape == (75, 3)
    assert model.at_level(0).score(X, y) > 0.6


@pytest.mark.parametrize("options", [{}, {"cluster": 2}, {"partition": "random"}], ids=str)
@pytest.mark.parametrize("stop_level", [1, 2, 5])
def test_stopping_early_is_certified_for_the_whole_problem(stop_level, options):
    X, y = overlapping(0, n=60, shift=0.5)
    model = MarginDistributionSVC(C=100.0, stop_level=stop_level, gamma=GAMMA, **TREE, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    best = exact(model, narrow(X, X), y)
    assert model.stop_reason_ == "stop_level"
    assert [level.n_parts for level in model.levels_] == ([4, 2] if stop_level == 1 else [4])
    assert 0 < model.certificate_.dual <= best <= model.certificate_.primal
    assert objective(model, X, y) == pytest.approx(model.certificate_.primal, rel=1e-9)


@pytest.mark.parametrize(("n_parts", "fan_in", "levels"), [(5, 2, [5, 3, 2, 1]), (9, 3, [9, 3, 1]), (6, 4, [6, 2, 1])])
def test_any_number_of_parts_by_any_factor(n_parts, fan_in, levels):
    X, y = overlapping(0, n=40)
    options = {"solver": "partition-merge", "n_partitions": n_parts, "merge_factor": fan_in, "C": 100.0, **TIGHT}
    model = MarginDistributionSVC(**options).fit(X, y)
    assert [level.n_parts for level in model.levels_] == levels
    assert_optimal(model, exact(model, narrow(X, X), y))
    early = MarginDistributionSVC(stop_level=1, **options).fit(X, y)
    assert [level.n_parts for level in early.levels_] == levels[:-1]


def test_one_part_is_the_problem_itself():
    X, y = overlapping(0, n=40)
    model = MarginDistributionSVC(C=100.0, stop_level=3, **{**TREE, "n_partitions": 1}, **TIGHT).fit(X, y)
    assert_optimal(model, exact(model, narrow(X, X), y))
    assert len(MarginDistributionSVC(solver="partition-merge").fit(X, y).levels_) == 1


def test_more_parts_than_rows_of_a_class_are_refused():
    X, y = overlapping(0, n=30)
    for n_parts in (13, 31):
        with pytest.raises(ValueError, match=rf"n_partitions={n_parts}.*\[1, 12\]"):
            MarginDistributionSVC(solver="partition-merge", n_partitions=n_parts).fit(X, y)
    weight = np.ones(30)
    weight[np.flatnonzero(y > 0)[:2]] = 0
    with pytest.raises(ValueError, match=r"n_partitions=12.*\[1, 10\]"):
        MarginDistributionSVC(solver="partition-merge", n_partitions=12).fit(X, y, weight)


@pytest.mark.parametrize("partition", ["stratified", "random"])
def test_a_rare_class_has_a_row_in_every_part(partition):
    X, _ = overlapping(0, n=60)
    y = np.repeat([0, 1, 2], [50, 5, 5])
    model = MarginDistributionSVC(C=100.0, **{**TREE, "n_partitions": 5, "partition": partition}, **TIGHT).fit(X, y)
    for k, part in enumerate(model.parts_):
        best = exact_odm(narrow(X, X), np.where(y == k, 1.0, -1.0), model._problem()).value
        assert part.certificate.primal == pytest.approx(best, rel=2e-7)


def test_threads_give_the_bits_of_one_after_the_other():
    X, y = overlapping(0, n=120, shift=0.5)
    serial, threads = (
        MarginDistributionSVC(random_state=1, cluster=cluster, **TREE).fit(X, y) for cluster in (None, 3)
    )
    for level in range(3):
        one, other = serial.at_level(level), threads.at_level(level)
        np.testing.assert_array_equal(one.dual_coef_, other.dual_coef_)
    assert serial.certificate_ == threads.certificate_
    assert serial.cost_.counts() == threads.cost_.counts()


def test_the_tree_counts_what_it_costs():
    X, y = overlapping(0, n=60)
    model = MarginDistributionSVC(**TREE).fit(X, y)
    assert model.cost_.kernel_evaluations > 4 * 15**2 + 2 * 30**2 + 60**2
    assert {"encode", "divide", "start", "sweep"} <= set(model.cost_.seconds)
    three = MarginDistributionSVC(**TREE).fit(*three_classes())
    assert three.cost_.kernel_evaluations == sum(part.ledger.kernel_evaluations for part in three.parts_)


def test_merged_parts_begin_near_their_end_only_if_rescaled(monkeypatch):
    """The gap at the start of the root, from coefficients times the shares of parts and from those as they are."""
    X, y = overlapping(0, n=160, shift=0.5)
    starts = []
    usual: Any = vars(partition_merge)["run"]

    def noting(solver, problem, shard, comm, limits, rng, *, warm=None, **options):
        if shard.n_rows == len(y):
            for each in (warm, 2 * warm, None):
                state = solver.start(problem, shard, comm, np.random.default_rng(0), each)
                starts.append(solver.certify(state).relative)
        return usual(solver, problem, shard, comm, limits, rng, warm=warm, **options)

    monkeypatch.setattr(partition_merge, "run", noting)
    monkeypatch.setattr(partition_merge, "_PART_TOL", 1e-3)
    MarginDistributionSVC(C=10.0, gamma=GAMMA, random_state=0, **{**TREE, "n_partitions": 2}).fit(X, y)
    rescaled, as_they_are, from_nothing = starts
    assert rescaled < 0.03  # these are the numbers of docs/papers/sodm.md
    assert 0.2 < as_they_are < 0.4
    assert from_nothing == pytest.approx(1.0)


@pytest.mark.parametrize("solver", ["dual-descent", "newton", "partition-merge"])
@pytest.mark.parametrize("storage", STORAGES)
def test_bounds_are_those_of_the_optimum_far_from_the_origin_too(solver, storage):
    """Rows on a grid of 1/64, so that the shift itself loses nothing, with as many features of zeros again."""
    X, y = overlapping(0, n=60)
    near = np.round(X * 64) / 64
    far = STORAGES[storage](np.hstack([near + 2.0**25, np.zeros((60, 2 * X.shape[1]))]))
    model = MarginDistributionSVC(C=10.0, gamma=GAMMA, solver=solver, tol=1e-7).fit(far, y)
    exact = exact_odm(rbf_kernel(near, gamma=GAMMA), y, model._problem()).value
    assert model.certificate_.dual <= exact * (1 + 1e-7)
    assert model.certificate_.primal >= exact * (1 - 1e-7)
    assert model.certificate_.relative <= 1e-7


# -- limits, interrupts, callbacks -------------------------------------------------------------------------------------


def test_limits_warn_and_leave_certified_models():
    X, y = overlapping(0, n=60)
    for options in ({}, TREE, {"kernel": "linear"}):
        with pytest.warns(ConvergenceWarning, match=r"tol=0, .* max_iter=1 .*Raise max_iter"):
            model = MarginDistributionSVC(tol=0.0, max_iter=1, **options).fit(X, y)
        assert model.stop_reason_ == "max_iter"
        assert model.certificate_.dual <= model.certificate_.primal


@pytest.mark.parametrize("cluster", [None, 2])
def test_the_time_is_that_of_the_whole_tree(cluster):
    X, y = overlapping(0, n=60)

    def slow(A, B):
        time.sleep(0.05)
        return narrow(A, B)

    with pytest.warns(ConvergenceWarning, match=r"max_time=0.1"):
        model = MarginDistributionSVC(
            C=1e6, kernel=slow, tol=1e-15, max_time=0.1, cluster=cluster, cache_size=1e-6, **{**TREE, "n_partitions": 8}
        ).fit(X, y)
    assert model.stop_reason_ == "max_time"
    assert model.certificate_.dual <= model.certificate_.primal
    # The leaves once each, and what certifies; not all levels for as long each.
    assert len(model.levels_) == 1


def test_a_gap_that_is_closed_late_is_closed():
    """Who asks to stop when the root is done is told that it is done."""
    X, y = overlapping(0, n=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder = Recorder(stop_after=3)
        model = MarginDistributionSVC(gamma=GAMMA, **TREE).set_callbacks(recorder).fit(X, y)
    assert model.stop_reason_ == "gap"


@pytest.mark.parametrize("when", ["leaves", "root"])
@pytest.mark.parametrize("options", [{}, {"cluster": 2}, TREE, {**TREE, "cluster": 2}], ids=str)
def test_ctrl_c_keeps_a_certified_model(options, when):
    """Sent from inside the kernel, in the middle of a part or of the whole."""
    X, y = overlapping(0, n=400, shift=0.3)
    pressed = threading.Event()

    def pressing(A, B):
        is_time = when == "leaves" or len(B) > 350
        if is_time and not pressed.is_set():
            pressed.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                time.sleep(0.01)  # until the main thread has taken notice: the next one would raise
        return narrow(A, B)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(InterruptedFitWarning):
            model = MarginDistributionSVC(C=1e8, kernel=pressing, tol=0.0, max_iter=3000, **options).fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.stop_reason_ == "interrupted"
    assert np.isfinite(model.certificate_).all()
    assert model.certificate_.dual <= model.certificate_.primal
    assert model.score(X, y) > 0.5
    if "solver" in options:
        assert len(model.levels_) == (1 if when == "leaves" else 3)


@pytest.mark.parametrize("data", [overlapping(0), three_classes()], ids=["two classes", "three classes"])
@pytest.mark.parametrize("name", ["auto", "tree", "threads", "linear auto", "linear svrg"])
def test_a_callback_gets_models_that_predict(name, data):
    X, y = data
    recorder = Recorder()
    model = MarginDistributionSVC(C=100.0, **EVERY[name], gamma=GAMMA).set_callbacks(recorder).fit(X, y)
    assert recorder.scores[-1] == pytest.approx(model.score(X, y), abs=0.05)
    if EVERY[name].get("solver") == "partition-merge":
        assert len(recorder.models) == 3 * len(model.parts_)


@pytest.mark.parametrize("name", ["auto", "tree", "threads"])
def test_a_callback_that_answers_true_stops_the_fit(name):
    X, y = overlapping(0, n=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MarginDistributionSVC(tol=1e-13, **KERNEL[name]).set_callbacks(Recorder(stop_after=1)).fit(X, y)
    assert model.stop_reason_ == "callback"
    assert model.certificate_.dual <= model.certificate_.primal
    assert model.predict(X).shape == (60,)


# -- beginning where another fit ended -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [overlapping(0), three_classes()], ids=["two classes", "three classes"])
@pytest.mark.parametrize("name", ["auto", "dual-descent", "newton", "linear auto", "linear newton", "linear svrg"])
def test_a_warm_start_begins_at_the_last_fit(name, data):
    X, y = data
    options = {"C": 100.0, "max_iter": 20_000, **EVERY[name], **TIGHT}
    model = MarginDistributionSVC(warm_start=True, random_state=0, **options).fit(X, y)
    before = model.parts_
    model.fit(X, y)
    if name != "linear svrg":  # which finds its intercept and its step anew
        # The linear road begins well from nothing too.
        slack = len(before) if "linear" in name else -1
        assert sum(part.n_iter for part in model.parts_) <= sum(part.n_iter for part in before) + slack
    for part, earlier in zip(model.parts_, before, strict=True):
        assert part.certificate.primal == pytest.approx(earlier.certificate.primal, rel=2e-7)
    other = model.fit(X[:40], y[:40])
    fresh = MarginDistributionSVC(**options).fit(X[:40], y[:40])
    for part, alone in zip(other.parts_, fresh.parts_, strict=True):
        assert part.certificate.primal == pytest.approx(alone.certificate.primal, rel=2e-7)


@pytest.mark.parametrize("name", ["auto", "newton", "dual-descent", "linear auto", "linear svrg"])
def test_a_fit_goes_on_from_its_checkpoint(name, tmp_path, monkeypatch):
    monkeypatch.setattr("widemargin.estimators._base._SWEEPS_PER_CHECKPOINT", 1)
    X, y = overlapping(0, n=80)
    options = {"C": 1e6, **EVERY[name], "gamma": GAMMA}
    options["max_iter"] = 5
    with pytest.warns((ConvergenceWarning, PrecisionWarning)):
        MarginDistributionSVC(checkpoint=tmp_path, **{**options, "tol": 0.0}).fit(X, y)
    options["max_iter"] = 50_000
    model = MarginDistributionSVC(checkpoint=tmp_path, **{**options, "tol": 1e-5}).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.n_iter_ >= 2
    assert model.certificate_.primal == pytest.approx(exact(model, values(EVERY[name], X), y), rel=2e-5)
    with pytest.raises(ValueError, match="another fit"):
        MarginDistributionSVC(checkpoint=tmp_path, **{**options, "C": 2e6}).fit(X, y)


@pytest.mark.parametrize("options", [{"warm_start": True}, {"checkpoint": "somewhere"}], ids=str)
def test_the_tree_begins_at_its_leaves(options):
    with pytest.raises(ValueError, match="checkpoint and warm_start have no effect"):
        MarginDistributionSVC(**TREE, **options).fit(*overlapping(0))


# -- scikit-learn's habits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["auto", "tree", "threads", "linear auto"])
def test_pickle_and_clone_keep_what_they_should(name):
    X, y = overlapping(0)
    model = MarginDistributionSVC(**EVERY[name]).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.certificate_ == model.certificate_
    assert again.get_params() == model.get_params() == clone(model).get_params()
    assert not hasattr(clone(model), "classes_")


def test_search_with_the_tree_and_without():
    X, y = overlapping(0, n=90)
    grid = [{"C": [1.0, 100.0]}, {"solver": ["partition-merge"], "n_partitions": [2, 4], "C": [100.0]}]
    scores = GridSearchCV(MarginDistributionSVC(tol=1e-6), grid, cv=3).fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores[2:], scores[1], atol=0.02)
    given = GridSearchCV(
        MarginDistributionSVC(kernel="precomputed", C=100.0), {"solver": ["auto", "partition-merge"]}, cv=3
    )
    assert np.ptp(given.fit(narrow(X, X), y).cv_results_["mean_test_score"]) <= 0.02


def test_fitting_anew_with_another_solver_leaves_nothing_of_the_old_model():
    X, y = overlapping(0)
    model = MarginDistributionSVC(**TREE).fit(X, y)
    model.set_params(solver="auto", n_partitions="auto").fit(X, y)
    assert set(vars(model)) == set(vars(MarginDistributionSVC().fit(X, y)))
    model.set_params(kernel="linear").fit(X, y)
    assert set(vars(model)) == set(vars(MarginDistributionSVC(kernel="linear").fit(X, y)))


@pytest.mark.parametrize(
    "options",
    [
        {"n_partitions": 4},
        {"merge_factor": 3},
        {"n_strata": 8},
        {"partition": "random"},
        {"stop_level": 1},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("solver", ["auto", "newton", "dual-descent"])
def test_what_belongs_to_the_tree_is_refused_by_others(solver, options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=rf"{name}={value!r} has no effect with solver='{solver}'.*partition-merge"):
        MarginDistributionSVC(solver=solver, **options).fit(*overlapping(0))


@pytest.mark.parametrize(
    "options",
    [
        {"C": 0.0},
        {"deadband": 1.0},
        {"deadband": -0.1},
        {"overshoot_weight": -1.0},
        {"solver": "svrg"},
        {"solver": "smo"},
        {"n_partitions": 0},
        {"n_partitions": "many"},
        {"merge_factor": 1},
        {"n_strata": 0},
        {"partition": "k-means"},
        {"stop_level": -1},
        {"kernel": "gauss"},
        {"kernel": "sigmoid"},
        {"cluster": 0},
    ],
    ids=lambda options: "{}={}".format(*next(iter(options.items()))),
)
def test_a_bad_parameter_is_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        MarginDistributionSVC(**options).fit(*overlapping(0))


# -- odd rows --------------------------------------------------------------------------------------------------------

ODD = {
    "two rows": (np.array([[0.0, 1.0], [1.0, 0.0]]), ["a", "b"]),
    "equal rows": (np.ones((12, 3)), [0, 1, 1] * 4),
    "rows of zeros": (np.zeros((12, 3)), [0, 1, 1] * 4),
    "opposite labels": (np.repeat(np.random.default_rng(0).normal(size=(8, 2)), 2, axis=0), ["no", "yes"] * 8),
    "a constant feature": (np.column_stack([np.arange(12.0) / 12, np.full(12, 7.0)]), [True, False, False] * 4),
    "single precision": (overlapping(0, n=30)[0].astype(np.float32), overlapping(0, n=30)[1]),
}


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e10])
@pytest.mark.parametrize("rows", ODD)
@pytest.mark.parametrize("name", ["auto", "newton", "tree", "linear auto", "linear tree", "linear svrg"])
def test_odd_rows_have_an_optimum_too(name, rows, C):
    if (name, rows, C) == ("linear svrg", "two rows", 1e10):
        pytest.skip("gradients alone do not get there")
    X, y = ODD[rows]
    options = {"max_iter": 20_000, "random_state": 0, **EVERY[name]}
    if "n_partitions" in options:
        options["n_partitions"] = min(4, len(y) // 2)
    model = MarginDistributionSVC(C=C, gamma=GAMMA, **options).fit(X, y)
    X = X.astype(np.float64)
    # With coefficients of 1e10 that cancel, float64 proves no more than this.
    assert model.stop_reason_ == "gap" or (model.stop_reason_ == "precision" and C == 1e10)
    assert model.certificate_.relative <= (1e-3 if model.stop_reason_ == "gap" else 1e-2)
    assert np.isfinite(model.decision_function(X)).all()
    assert set(model.predict(X)) <= set(y)
    tol = max(1e-4, model.certificate_.relative)
    assert objective(model, X, np.asarray(y)) == pytest.approx(model.certificate_.primal, rel=tol)


@pytest.mark.parametrize("name", ["tree", "linear tree"])
def test_one_class_is_refused(name):
    X, y = overlapping(0)
    with pytest.raises(ValueError, match=r"[12] class"):
        MarginDistributionSVC(**EVERY[name]).fit(X, np.ones(50))
    with pytest.raises(ValueError, match="2 classes with rows of positive weight"):
        MarginDistributionSVC(**EVERY[name]).fit(X, y, (y > 0).astype(float))
