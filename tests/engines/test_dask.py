"""Fits on real Dask workers: processes on this machine, some of which are killed or stopped by pid."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, LinearSVC

from tests.engines.conftest import N_WORKERS, Gated, StopAfter, eventually, start_cluster
from widemargin import (
    DebiasedSparseSVC,
    DegenerateModelWarning,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    PeerLost,
    SparseSVC,
    SparseSVCCV,
)
from widemargin.data import make_nonseparable, make_sparse_gaussians
from widemargin.exceptions import InterruptedFitWarning, PeerLostWarning
from widemargin.solvers.newton import EntropicNewton

dask = pytest.importorskip("dask", reason="needs the dask extra")
distributed = pytest.importorskip("distributed", reason="needs the dask extra")
psutil = pytest.importorskip("psutil", reason="comes with distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
engine = pytest.importorskip("widemargin.engines.dask")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# Rounds of small steps, which never close a gap of 0.
ENDLESS = {"solver": "saddle", "block_size": 1, "tol": 0.0, "max_iter": 1_000_000, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_nonseparable(3001, 20, random_state=0)


def as_collections(X, y, n_chunks=4):
    size = -(-len(y) // n_chunks)
    return da.from_array(X, chunks=(size, X.shape[1])), da.from_array(y, chunks=size)


@pytest.mark.parametrize("solver", ["newton", "saddle"])
def test_same_seed_and_ranks_give_the_bits_of_threads(client, data, solver):
    X, y = data
    settings = {"solver": solver, "block_size": 8, "max_iter": 6, "tol": 0.0, "random_state": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on_dask = NuMarginSVC(cluster=client, **settings).fit(X, y)
        on_threads = NuMarginSVC(cluster=N_WORKERS, **settings).fit(X, y)
    np.testing.assert_array_equal(on_dask.coef_, on_threads.coef_)
    np.testing.assert_array_equal(on_dask.intercept_, on_threads.intercept_)
    assert [row["primal"] for row in on_dask.history_] == [row["primal"] for row in on_threads.history_]
    assert on_dask.cost_.scalars == on_threads.cost_.scalars
    assert on_dask.cost_.rounds == on_threads.cost_.rounds


def test_collections_run_where_their_chunks_lie(client, data):
    X, y = data
    dX, dy = client.persist(as_collections(X, y, n_chunks=6))
    distributed.wait([dX, dy])
    model = NuMarginSVC(cluster=client, tol=1e-6).fit(dX, dy)
    plain = NuMarginSVC(tol=1e-6).fit(X, y)
    assert model.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-5)
    assert model.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(model.classes_, plain.classes_)


def test_weights_and_string_labels_in_collections(client, data):
    X, y = data
    weight = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    names = np.where(y > 0, "yes", "no")
    dX, _ = as_collections(X, y)
    model = NuMarginSVC(tol=1e-7, cluster=client).fit(
        dX, da.from_array(names, chunks=dX.chunks[0]), sample_weight=da.from_array(weight, chunks=dX.chunks[0])
    )
    plain = NuMarginSVC(tol=1e-7).fit(X, names, sample_weight=weight)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-2, atol=1e-3)
    assert model.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-6)


def test_dataframes_keep_their_names_and_parquet_works(client, data, tmp_path):
    import pandas as pd

    X, y = data
    names = [f"f{k}" for k in range(X.shape[1])]
    pd.DataFrame(X, columns=names).assign(label=y).to_parquet(tmp_path / "rows.parquet", row_group_size=800)
    frame = dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=True)
    model = NuMarginSVC(cluster=client).fit(frame[names], frame["label"])
    assert model.feature_names_in_.tolist() == names
    predicted = model.predict(frame[names])
    assert predicted.compute().shape == (len(y),)


def test_partitions_without_rows_do_no_harm(client, data):
    import pandas as pd

    X, y = data
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])]).assign(label=y, day=np.arange(len(y)) // 1000)
    frame = dd.from_pandas(frame, npartitions=4)
    frame = frame[frame["day"] != 0]
    names = [name for name in frame.columns if name.startswith("f")]
    model = NuMarginSVC(cluster=client, tol=1e-6).fit(frame[names], frame["label"])
    plain = NuMarginSVC(tol=1e-6).fit(X[1000:], y[1000:])
    assert model.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-5)


def test_predictions_of_collections_are_lazy_and_equal(client, data):
    X, y = data
    model = NuMarginSVC(cluster=client).fit(X, y)
    dX, _ = as_collections(X, y)
    scores, labels = model.decision_function(dX), model.predict(dX)
    assert isinstance(scores, da.Array)
    assert isinstance(labels, da.Array)
    np.testing.assert_allclose(scores.compute(), model.decision_function(X))
    np.testing.assert_array_equal(labels.compute(), model.predict(X))
    three = NuMarginSVC().fit(X, np.digitize(X[:, 0], [-0.2, 0.2]))
    assert three.decision_function(dX).compute().shape == (len(y), 3)


def test_hard_margin_by_column_generation_on_workers(client):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 5))
    y = X[:, 0] > 0
    X[:, 0] += np.where(y, 0.5, -0.5)
    on_dask = HardMarginSVC(cluster=client, tol=1e-8).fit(*as_collections(X, y))
    assert on_dask.certificate_.primal == pytest.approx(HardMarginSVC(tol=1e-8).fit(X, y).certificate_.primal, rel=1e-7)


def test_clone_search_and_pickle_keep_or_drop_the_client(client, data):
    X, y = data
    model = NuMarginSVC(cluster=client)
    assert clone(model).cluster is client
    search = GridSearchCV(model, {"nu": [0.4, 0.6]}, cv=2).fit(X[:600], y[:600])
    assert search.best_estimator_.cluster is client
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    assert copy.cluster is None
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))


def test_an_error_on_one_rank_is_raised_with_its_traceback(client, data):
    X, y = data
    X = X.copy()
    X[-1, 0] = np.nan
    with pytest.raises(ValueError, match=r"(?s)On rank \d: Input X? ?contains NaN.*Traceback"):
        NuMarginSVC(cluster=client).fit(*as_collections(X, y))


class FailsOnOneRank(EntropicNewton):
    def sweep(self, state):
        if state.hulls.comm.rank == 1:
            raise RuntimeError("this rank has had enough")
        return super().sweep(state)


class FailingSVC(NuMarginSVC):
    def _solver(self):
        return FailsOnOneRank()


def test_a_rank_that_raises_in_the_middle_ends_all_with_its_own_error(client, data):
    X, y = data
    with pytest.raises(RuntimeError, match="this rank has had enough") as caught:
        FailingSVC(cluster=client, nu=0.5, tol=1e-9).fit(X, y)
    assert not isinstance(caught.value, PeerLost)
    assert any(entry.name == "sweep" for entry in caught.traceback)
    assert NuMarginSVC(cluster=client).fit(X, y).stop_reason_ == "gap"


def test_infeasible_nu_is_refused_with_its_interval(client, data):
    X, y = data
    with pytest.raises(ValueError, match=r"nu=1 is infeasible.*must lie in \(0, "):
        NuMarginSVC(cluster=client, nu=1.0).fit(X, np.arange(len(y)) < 100)


def test_lengths_that_differ_are_refused(client, data):
    X, y = data
    dX, _ = as_collections(X, y)
    with pytest.raises(ValueError, match="rows"):
        NuMarginSVC(cluster=client).fit(dX, y[:-1])


def test_two_fits_at_once_both_finish(client, data):
    X, y = data
    models = [NuMarginSVC(cluster=client, tol=1e-6), NuMarginSVC(cluster=client, tol=1e-6)]
    threads = [threading.Thread(target=model.fit, args=(X, y)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_progress_reaches_the_driver_and_a_callback_stops_the_fit(client, data):
    X, y = data
    watcher = StopAfter(3)
    model = NuMarginSVC(cluster=client, **ENDLESS).set_callbacks(watcher).fit(X, y)
    assert len(watcher.models) >= 3
    assert all(each.coef_.shape == (1, 20) for each in watcher.models)
    assert model.stop_reason_ == "callback"


def chunk_of_rows(k):
    return np.random.default_rng(k).normal(size=(2_000, 32))


def collection_with_a_recipe(client):
    """Chunks that are computed on the workers in turn, so that all have some, and elsewhere once those are gone."""
    addresses = sorted(client.nthreads())
    chunks = [
        client.submit(chunk_of_rows, k, workers=[addresses[k % N_WORKERS]], allow_other_workers=True, pure=False)
        for k in range(6)
    ]
    X = da.concatenate([da.from_delayed(dask.delayed(each), (2_000, 32), np.float64) for each in chunks])
    return X, X[:, 0] + 0.3 * X[:, 1] > 0


def scattered(client, *arrays, n_chunks=6):
    """Collections whose chunks were sent to the workers in turn, so that no worker holds a run of rows."""
    addresses = sorted(client.nthreads())
    size = -(-len(arrays[0]) // n_chunks)
    chunks = [slice(k * size, min((k + 1) * size, len(arrays[0]))) for k in range(n_chunks)]
    out = []
    for array in arrays:
        parts = [
            dask.delayed(client.scatter(array[chunk], workers=[addresses[k % len(addresses)]], hash=False))
            for k, chunk in enumerate(chunks)
        ]
        shapes = [(array[chunk].shape, array.dtype) for chunk in chunks]
        out.append(da.concatenate([da.from_delayed(part, *shape) for part, shape in zip(parts, shapes, strict=True)]))
    return out


def gated(Estimator: Any, gate, **options):
    """An estimator whose ranks wait at the gate, in their first sweep."""

    class Held(Estimator):
        def _solver(self):
            return Gated(super()._solver(), gate)

    return Held(**options)


def harm_during(client, gate, fit, harm: signal.Signals):
    """Run ``fit`` and send a signal to the process of one worker when all ranks are at the gate, then open it.

    Returns the worker's address, the outcome, and what was warned.
    """
    pids = client.run(os.getpid)
    address = sorted(pids)[1]
    sent = []

    def send_when_all_wait():
        if eventually(lambda: set(gate.waiting()) == set(pids.values())):
            os.kill(pids[address], harm)
            sent.append(harm)
            # Threads of a process stop one by one: none may slip through the gate meanwhile.
            if harm == signal.SIGSTOP:
                assert eventually(lambda: is_stopped(pids[address]))
        gate.open()

    thread = threading.Thread(target=send_when_all_wait)
    thread.start()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcome = fit()
            except PeerLost as error:
                outcome = error
    finally:
        thread.join()
        if sent == [signal.SIGSTOP]:
            with suppress(ProcessLookupError):  # its nanny may have ended it
                os.kill(pids[address], signal.SIGCONT)
    assert sent, f"only {gate.waiting()} came to the gate"
    return address, outcome, [each.message for each in caught]


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are."""
    threads = [psutil.Process(thread.id) for thread in psutil.Process(pid).threads()]
    return all(thread.status() == psutil.STATUS_STOPPED for thread in threads)


def n_ranks_at_work(client) -> int:
    return sum("-rank" in key for tasks in client.processing().values() for key in tasks)


def assert_done_by_survivors(model, address, messages):
    lost = [message for message in messages if isinstance(message, PeerLostWarning)]
    assert len(lost) == 1
    assert address in str(lost[0])
    assert model.cost_.lost_peers == 1
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(model.certificate_).all()


class Report:
    """A future whose error is known after it was looked at so many times; without an error it never ends."""

    def __init__(self, error=None, after=0):
        self.error, self.looks = error, after

    @property
    def status(self):
        return "error" if self.error is not None and self.looks <= 0 else "pending"

    def done(self):
        self.looks -= 1
        return self.status == "error"

    def exception(self):
        return self.error


@pytest.mark.parametrize("alive", ["abc", "ac"], ids=["lost but not missed yet", "missed"])
def test_a_rank_that_ends_because_of_a_loss_is_not_taken_for_the_lost_one(monkeypatch, alive):
    """Rank 1 is lost; rank 0 says so and closes its connections, which rank 2 may report before that is heard."""
    monkeypatch.setattr(engine.Job, "_look", lambda job: dict.fromkeys(alive, 0.0))
    monkeypatch.setattr(engine, "_GRACE", 1.0)
    job = engine.Job(engine.Scheduler(None), "rank", ["a", "b", "c"])
    job.futures = [Report(PeerLost("rank 1 is lost", "b"), after=2), Report(), Report(PeerLost("rank 0 is lost", "a"))]
    assert str(engine._cause(job)) == "rank 1 is lost"
    job.futures[1] = Report(ArithmeticError("rank 1 failed"), after=2)
    assert isinstance(engine._cause(job), ArithmeticError if "b" in alive else PeerLost)


@pytest.mark.parametrize("kind", ["collection", "array"])
def test_a_killed_worker_costs_its_rows_to_be_recomputed(doomed, gate, kind):
    X, y = collection_with_a_recipe(doomed)
    if kind == "array":
        X, y = doomed.gather(doomed.compute([X, y]))
    model = gated(NuMarginSVC, gate, cluster=doomed)
    address, fitted, messages = harm_during(doomed, gate, lambda: model.fit(X, y), signal.SIGKILL)
    assert fitted is model, fitted
    assert_done_by_survivors(model, address, messages)


def test_a_stopped_worker_counts_as_lost_after_its_silence(doomed, gate):
    X, y = collection_with_a_recipe(doomed)
    model = gated(NuMarginSVC, gate, cluster=doomed)
    with dask.config.set({"widemargin.silence": 3.0}):
        address, fitted, messages = harm_during(doomed, gate, lambda: model.fit(X, y), signal.SIGSTOP)
    assert fitted is model, fitted
    assert_done_by_survivors(model, address, messages)


def test_rows_without_a_recipe_are_lost_for_good_and_said_so(doomed, gate):
    """Instead of waiting for them, which would be for ever."""
    X, y = scattered(doomed, *make_nonseparable(3000, 10, random_state=0))
    model = gated(NuMarginSVC, gate, cluster=doomed)
    address, error, _ = harm_during(doomed, gate, lambda: model.fit(X, y), signal.SIGKILL)
    assert isinstance(error, PeerLost)
    assert error.address == address


def test_tasks_end_when_the_client_of_the_driver_is_closed(client, data):
    X, y = data
    driver = distributed.Client(client.scheduler.address)
    failed = []

    def fit():
        try:
            NuMarginSVC(cluster=driver, **ENDLESS).fit(X, y)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=fit)
    thread.start()
    assert eventually(lambda: n_ranks_at_work(client) == N_WORKERS)
    driver.close()
    assert eventually(lambda: n_ranks_at_work(client) == 0)
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert failed
    # The workers are free for others again.
    assert NuMarginSVC(cluster=client).fit(X, y).stop_reason_ == "gap"


def test_ctrl_c_on_the_driver_keeps_the_best_model(client, data):
    class Press(StopAfter):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if not self.models and context.task_name == "sweep":
                signal.raise_signal(signal.SIGINT)
            return super().on_fit_task_end(estimator, context, fitted_estimator=fitted_estimator)

    X, y = data
    model = NuMarginSVC(cluster=client, **ENDLESS).set_callbacks(Press())
    with pytest.warns(InterruptedFitWarning):
        model.fit(X, y)
    assert model.stop_reason_ == "interrupted"
    assert model.score(X, y) > 0.5
    assert NuMarginSVC(cluster=client).fit(X, y).stop_reason_ == "gap"


def test_tls_clusters_work():
    pytest.importorskip("cryptography", reason="temporary certificates need cryptography")
    security = distributed.Security.temporary()
    X, y = make_nonseparable(400, 6, random_state=0)
    with (
        start_cluster(2, security=security) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        model = NuMarginSVC(cluster=client).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert abs(model.score(X, y) - LinearSVC().fit(X, y).score(X, y)) < 0.1


# -- kernels ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few(data):
    X, y = data
    return X[:500, :6], y[:500]


def narrow(A, B):
    return rbf_kernel(A, B, gamma=0.3)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_kernels_same_seed_and_ranks_give_the_bits_of_threads(client, few, kernel):
    X, y = few
    X = rbf_kernel(X, gamma=0.3) if kernel == "precomputed" else X
    on_dask, on_threads = (
        KernelSVC(kernel=kernel, random_state=3, cluster=cluster).fit(X, y) for cluster in (client, N_WORKERS)
    )
    np.testing.assert_array_equal(on_dask.decision_function(X), on_threads.decision_function(X))
    np.testing.assert_array_equal(on_dask.intercept_, on_threads.intercept_)
    assert on_dask.certificate_ == on_threads.certificate_
    assert on_dask.cost_.scalars == on_threads.cost_.scalars
    assert on_dask.cost_.kernel_evaluations == on_threads.cost_.kernel_evaluations


@pytest.mark.parametrize("kernel", ["rbf", "linear", narrow], ids=["rbf", "linear", "callable"])
def test_kernels_on_collections_certify_the_objective_of_one_machine(client, few, kernel):
    X, y = few
    model = KernelSVC(kernel=kernel, gamma=0.3, tol=1e-5, cluster=client).fit(*as_collections(X, y, n_chunks=5))
    plain = KernelSVC(kernel=kernel, gamma=0.3, tol=1e-5).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=2e-5)
    np.testing.assert_allclose(model.decision_function(X), plain.decision_function(X), atol=0.05)


def test_support_vectors_of_a_collection_have_no_numbers(client, few):
    X, y = few
    model = KernelSVC(gamma=0.3, cluster=client).fit(*scattered(client, X, y))
    assert not hasattr(model, "support_")
    assert {tuple(row) for row in model.support_vectors_} <= {tuple(row) for row in X}


def test_given_kernel_values_in_a_collection_are_refused(client, few):
    X, y = few
    with pytest.raises(ValueError, match="collection"):
        KernelSVC(kernel="precomputed", cluster=client).fit(*scattered(client, rbf_kernel(X, gamma=0.3), y))


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_scores_of_kernels_are_lazy_and_equal(client, few, kernel):
    X, y = few
    dX, _ = as_collections(X, y)
    for labels in (y, np.digitize(X[:, 0], [-0.2, 0.2])):
        model = KernelSVC(kernel=kernel, cluster=client).fit(X, labels)
        scores = model.decision_function(dX)
        assert isinstance(scores, da.Array)
        np.testing.assert_allclose(scores.compute(), model.decision_function(X), atol=1e-9)
        np.testing.assert_array_equal(model.predict(dX).compute(), model.predict(X))


@pytest.mark.parametrize("kernel", ["rbf", narrow], ids=["rbf", "callable"])
def test_the_model_of_a_kernel_reaches_the_driver_s_callbacks(client, few, kernel):
    X, y = few
    watcher = StopAfter()
    model = KernelSVC(kernel=kernel, cluster=client, tol=1e-5).set_callbacks(watcher).fit(X, y)
    assert len(watcher.models) == len(model.history_)
    assert watcher.models[-1].score(X, y) == pytest.approx(model.score(X, y), abs=0.02)


def test_a_killed_worker_costs_a_kernel_its_rows_to_be_recomputed(doomed, gate, few):
    X, y = few
    model = gated(KernelSVC, gate, gamma=0.3, cluster=doomed, tol=1e-4)
    address, fitted, messages = harm_during(doomed, gate, lambda: model.fit(X, y), signal.SIGKILL)
    assert fitted is model, fitted
    assert_done_by_survivors(model, address, messages)
    theirs = SVC(gamma=0.3).fit(X, y)
    assert model.score(X, y) == pytest.approx(theirs.score(X, y), abs=0.01)


def test_a_kernel_goes_on_from_its_checkpoint_on_workers(client, few, tmp_path):
    X, y = few
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KernelSVC(cluster=client, checkpoint=tmp_path, tol=0.0, max_iter=5).fit(X, y)
    model = KernelSVC(cluster=client, checkpoint=tmp_path, tol=1e-5).fit(X, y)
    assert model.history_[0]["sweep"] > 5
    assert model.certificate_.primal == pytest.approx(KernelSVC(tol=1e-5).fit(X, y).certificate_.primal, rel=2e-5)


def interleaved(client, X, y, n_chunks=6):
    """Collections whose chunks lie on the workers by turns, so that the order of ranks is not that of rows."""
    addresses = sorted(client.scheduler_info()["workers"])
    parts = []
    for k, chunk in enumerate(np.array_split(np.arange(len(y)), n_chunks)):
        sent = client.scatter([X[chunk], y[chunk]], workers=[addresses[k % len(addresses)]], hash=False)
        parts.append((sent, len(chunk)))
    rows = [da.from_delayed(dask.delayed(x), (n, X.shape[1]), X.dtype) for (x, _), n in parts]
    labels = [da.from_delayed(dask.delayed(label), (n,), y.dtype) for (_, label), n in parts]
    return da.concatenate(rows), da.concatenate(labels)


@pytest.mark.parametrize("kind", [KernelSVC, NuMarginSVC])
def test_a_checkpoint_knows_its_data_however_they_are_divided(client, few, tmp_path, kind):
    X, y = few
    settings = {"solver": "saddle", "block_size": 1} if kind is NuMarginSVC else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(cluster=client, checkpoint=tmp_path, tol=0.0, max_iter=5, **settings).fit(*interleaved(client, X, y))
        saved = (tmp_path / "fit.checkpoint").read_bytes()
        for cluster, rows in ((client, as_collections(X, y)), (client, (X, y)), (None, (X, y)), (3, (X, y))):
            model = kind(cluster=cluster, checkpoint=tmp_path, tol=1e-5, max_iter=8, **settings).fit(*rows)
            assert model.history_[0]["sweep"] > 5
            (tmp_path / "fit.checkpoint").write_bytes(saved)
    with pytest.raises(ValueError, match="belongs to another fit or to other data"):
        kind(cluster=client, checkpoint=tmp_path, **settings).fit(*as_collections(-X, y))


# -- the batch perceptron --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"C": 1.0}, {"slack": 0.05}], ids=["C", "slack"])
def test_the_perceptron_gives_the_bits_of_threads_and_does_not_go_on_from_rows_that_lie_elsewhere(client, few, options):
    X, y = few
    options = {"solver": "batch-perceptron", "gamma": 0.3, "random_state": 0, **options}
    on_dask, on_threads = (KernelSVC(cluster=cluster, **options).fit(X, y) for cluster in (client, N_WORKERS))
    np.testing.assert_array_equal(on_dask.decision_function(X), on_threads.decision_function(X))
    assert on_dask.certificate_ == on_threads.certificate_
    assert on_dask.stop_reason_ == "plateau"
    assert on_dask.cost_.scalars == on_threads.cost_.scalars
    elsewhere = KernelSVC(cluster=client, **options).fit(*as_collections(X, y))
    assert elsewhere.stop_reason_ == "plateau"
    assert elsewhere.score(X, y) >= on_dask.score(X, y) - 0.1
    with pytest.raises(ValueError, match="Dask collections or MPI ranks"):
        elsewhere.partial_fit(X, y)


# -- machines of the debiased 1-norm SVM -------------------------------------------------------------------------------


def test_the_sparse_svm_on_workers_is_that_of_threads(client):
    X, y, _ = make_sparse_gaussians(3000, 40, random_state=0)
    for Estimator in (SparseSVC, DebiasedSparseSVC):
        there, here = Estimator(cluster=client).fit(X, y), Estimator(cluster=N_WORKERS).fit(X, y)
        np.testing.assert_array_equal(there.coef_, here.coef_)
        assert there.certificate_ == here.certificate_
    folds, alone = SparseSVCCV(n_alphas=5, cluster=client).fit(X, y), SparseSVCCV(n_alphas=5).fit(X, y)
    np.testing.assert_array_equal(folds.error_path_, alone.error_path_)
    assert folds.alpha_ == alone.alpha_


@pytest.mark.parametrize("kind", ["collection", "array"])
def test_a_lost_machine_is_left_out_of_the_average(doomed, gate, kind):
    X, y, beta = make_sparse_gaussians(6000, 150, random_state=0)
    rows = (X, y) if kind == "array" else scattered(doomed, X, y, n_chunks=N_WORKERS)
    model = gated(DebiasedSparseSVC, gate, cluster=doomed)
    address, fitted, messages = harm_during(doomed, gate, lambda: model.fit(*rows), signal.SIGKILL)
    assert fitted is model, fitted
    lost = [str(message) for message in messages if isinstance(message, PeerLostWarning)]
    assert len(lost) == 1
    assert address in lost[0]
    assert "without its rows: N is that of 2 of 3 machines" in lost[0]
    assert model.n_machines_ == 2
    assert model.n_rows_ == 4000
    assert model.cost_.lost_peers == 1
    assert np.linalg.norm(model.coef_[0] - beta) < 0.2


def test_a_lost_machine_is_an_error_if_asked_for(doomed, gate):
    X, y, _ = make_sparse_gaussians(6000, 150, random_state=0)
    model = gated(DebiasedSparseSVC, gate, cluster=doomed, if_lost="raise")
    address, error, _ = harm_during(doomed, gate, lambda: model.fit(X, y), signal.SIGKILL)
    assert isinstance(error, PeerLost)
    assert error.address == address


EVERYWHERE = [
    HardMarginSVC(max_iter=20),
    NuMarginSVC(),
    KernelSVC(),
    KernelSVC(kernel="linear"),
    MarginDistributionSVC(C=1.0),
    SparseSVC(),
    DebiasedSparseSVC(alpha=0.02),
]


@pytest.mark.parametrize("model", EVERYWHERE, ids=lambda model: str(model)[:40])
@pytest.mark.parametrize("is_noise", [True, False])
def test_ranks_that_hold_the_rows_count_what_the_model_makes_of_them(client, model, is_noise):
    """Also with weights, and with chunks that have one class only."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(240, 3)), np.repeat([0, 1], [190, 50])
    if isinstance(model, DebiasedSparseSVC):
        rng.shuffle(y)  # every machine solves a problem of its own
    X[:, 0] += 0.0 if is_noise else 6.0 * y
    weight = rng.integers(1, 3, len(y)).astype(float)
    model = clone(model).set_params(cluster=client)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(*as_collections(X, y), da.from_array(weight, chunks=60))
    weight = np.ones(len(y)) if isinstance(model, HardMarginSVC) else weight
    guess = np.asarray(model.predict(X))
    assert (model.training_.n_rows, model.training_.n_counted) == (240, 240)
    assert model.training_.accuracy == pytest.approx(np.average(guess == y, weights=weight))
    is_useless = len(np.unique(guess)) == 1 or model.training_.accuracy < max(np.bincount(y, weight)) / weight.sum()
    assert is_useless or not is_noise or isinstance(model, HardMarginSVC | NuMarginSVC)
    assert [each.category for each in told].count(DegenerateModelWarning) == is_useless
