"""KernelSVC(device="cuda") on torch's CPU device, which stands for the GPU, beside device="cpu"."""

from __future__ import annotations

import pickle
import signal

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from tests.problems_at_hand import overlapping
from tests.test_exact_arithmetic import Setting, falsehoods, fitted, rows_of
from widemargin import InterruptedFitWarning, KernelSVC, MarginDistributionSVC
from widemargin.io import archive
from widemargin.kernels import devices

torch = pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")

from widemargin.kernels import on_torch, vectors  # noqa: E402
from widemargin.solvers import flat_dual  # noqa: E402

KERNELS = {
    "rbf": {},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "coef0": 1.0, "degree": 2},
    "laplacian": {"kernel": "laplacian", "gamma": 0.2},
    "cosine": {"kernel": "cosine"},
}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(devices, "GPU", "cpu:0")


@pytest.fixture(params=[None, 32], ids=["all-rows-fit", "many-sets"])
def sizes(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setattr(flat_dual, "BLOCK", request.param)
        monkeypatch.setattr(vectors, "_MIN_GROUPS", request.param)


def both(X, y, weight=None, **settings):
    """The same fit here and there, closely enough that scores can be compared."""
    settings = {"tol": 1e-6, "random_state": 0, **settings}
    return KernelSVC(**settings).fit(X, y, weight), KernelSVC(device="cuda", **settings).fit(X, y, weight)


# -- as on the CPU -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(KERNELS))
def test_two_classes_are_those_of_the_cpu(name, sizes, storage, dtype):
    X, y = overlapping(0, n=150, shift=0.5)
    here, there = both(storage(X.astype(dtype)), y, **KERNELS[name])
    assert there.stop_reason_ == "gap"
    assert there.certificate_.relative <= 1e-6
    assert there.certificate_.primal == pytest.approx(here.certificate_.primal, rel=2e-6)
    np.testing.assert_allclose(there.decision_function(storage(X)), here.decision_function(storage(X)), atol=2e-2)
    assert (there.device_, here.device_) == ("cuda", "cpu")
    assert 0 < there.kernel_error_ < 1e-3
    assert not hasattr(here, "kernel_error_")
    assert hasattr(there, "coef_") == (name == "linear")


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_several_classes_share_the_rows(sizes, monkeypatch, multi_class):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, np.array(list("abcdefghij"))[y[:300]]
    made = []
    monkeypatch.setattr(on_torch.RowsOnTorch, "__init__", counted(on_torch.RowsOnTorch.__init__, made))
    here, there = both(X, y, C=10, tol=1e-4, multi_class=multi_class)
    assert len(made) == 1
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=0.05)
    assert there.kernel_error_.shape == (45 if multi_class == "pairs" else 10,)
    theirs = SVC(C=10).fit(X, y)
    assert np.mean(there.predict(X) == theirs.predict(X)) > 0.99


def test_pairs_use_the_memory_of_their_lane_in_turn(monkeypatch):
    """Rows of zeros behind those of a smaller pair change nothing, and each lane records its rounds once."""
    monkeypatch.setattr(flat_dual, "BLOCK", 32)
    monkeypatch.setattr(vectors, "_MIN_GROUPS", 32)
    monkeypatch.setattr(on_torch, "_MAX_LANES", 2)
    rng, made = np.random.default_rng(0), []
    y = np.repeat(np.arange(4), [60, 60, 55, 30])
    X = rng.normal(size=(len(y), 6)) + 0.8 * rng.normal(size=(4, 6))[y]
    monkeypatch.setattr(flat_dual.Memory, "on", counted(flat_dual.Memory.on, made))
    model = KernelSVC(device="cuda", C=10, tol=1e-6).fit(X, y)
    assert [rows.n_rows for rows in made] == [120, 120]
    monkeypatch.setattr(on_torch.RowsOnTorch, "_room_for", lambda self, n_rows: None)
    alone = KernelSVC(device="cuda", C=10, tol=1e-6).fit(X, y)
    assert len(made) == 2 + 6
    for ours, theirs in zip(model.parts_, alone.parts_, strict=True):
        assert ours.certificate.relative <= 1e-6
        assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=2e-6)
    np.testing.assert_allclose(model.decision_function(X), alone.decision_function(X), atol=0.01)


def test_models_of_pairs_share_their_support_vectors():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200] / 16, y[:200]
    model = KernelSVC(device="cuda").fit(X, y)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    again = pickle.loads(pickle.dumps(model))
    for part, copy in zip(model.parts_, again.parts_, strict=True):
        points = part.model.points
        assert points.source is model.support_vectors_  # no part keeps the training rows
        np.testing.assert_array_equal(points.X, X[points.numbers])
        np.testing.assert_array_equal(points[1:3].X, X[points.numbers[1:3]])
        np.testing.assert_array_equal(copy.model.points.X, points.X)


def test_a_file_holds_the_points_of_each_pair(tmp_path):
    X, y = load_digits(return_X_y=True)
    model = KernelSVC(device="cuda").fit(X[:200] / 16, y[:200])
    archive.save(model, tmp_path / "pairs.wm")
    loaded = archive.load(tmp_path / "pairs.wm")
    for ours, theirs in zip(model.parts_, loaded.parts_, strict=True):
        np.testing.assert_array_equal(ours.model.points.X, theirs.model.points.X)


def counted(function, made):
    def and_count(self, *arguments, **options):
        made.append(self)
        return function(self, *arguments, **options)

    return and_count


def test_weights_of_rows_and_classes(sizes):
    X, y = overlapping(1, n=120, shift=0.4)
    weight = np.random.default_rng(0).integers(0, 3, 120).astype(float)
    here, there = both(X, y, weight, class_weight={1.0: 2.0})
    assert there.certificate_.primal == pytest.approx(here.certificate_.primal, rel=2e-6)
    assert there.kernel_.gamma == pytest.approx(here.kernel_.gamma, rel=1e-12)
    assert not np.isin(np.flatnonzero(weight == 0), there.support_).any()


def test_precision_is_that_which_was_asked_for():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 64))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=200) > 0, 1, 0)
    coarse, fine = (KernelSVC(device="cuda", precision=each).fit(X, y) for each in ("float16", "float32"))
    assert fine.kernel_error_ < 1e-5 < coarse.kernel_error_
    assert KernelSVC(device="cuda").fit(X, y).kernel_error_ == coarse.kernel_error_
    scores = SVC(tol=1e-6).fit(X, y).decision_function(X)
    for model in (coarse, fine):
        np.testing.assert_allclose(model.set_params(tol=1e-7).fit(X, y).decision_function(X), scores, atol=1e-3)


def test_scores_in_float64_are_exact_and_others_close():
    X, y = overlapping(2, n=200, shift=0.3)
    there = KernelSVC(device="cuda", C=10).fit(X, y)
    here = KernelSVC(C=10).fit(X, y)
    for name in ("support_vectors_", "dual_coef_", "intercept_", "support_", "kernel_"):
        setattr(here, name, getattr(there, name))
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), rtol=1e-10, atol=1e-10)
    few = X.astype(np.float32)
    np.testing.assert_allclose(there.decision_function(few), here.decision_function(few), atol=1e-3)
    assert there.score(X, y) == here.score(X, y)


def test_the_batch_perceptron_and_a_smaller_model_run_there():
    X, y = overlapping(3, n=300, shift=0.6)
    here, there = (
        KernelSVC(solver="batch-perceptron", device=device, random_state=0, max_iter=20).fit(X, y)
        for device in ("cpu", "cuda")
    )
    assert there.stop_reason_ in ("plateau", "max_iter")
    assert abs(there.score(X, y) - here.score(X, y)) < 0.05
    assert there.cost_.kernel_evaluations > 0
    small = KernelSVC(device="cuda", max_support=15).fit(X, y)
    assert len(small.support_) <= 15


def test_history_callbacks_and_cost():
    X, y = overlapping(4, n=200, shift=0.3)
    seen = []

    class Watch:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "sweep":
                seen.append(fitted_estimator.score(X, y))
            return False

    model = KernelSVC(device="cuda", C=10).set_callbacks(Watch()).fit(X, y)
    assert len(seen) == len(model.history_) > 0
    assert seen[-1] == pytest.approx(model.score(X, y), abs=0.02)
    assert model.history_[-1]["kernel_evaluations"] <= model.cost_.kernel_evaluations
    assert {"start", "sweep", "certify"} <= set(model.cost_.seconds)


def test_ctrl_c_keeps_the_best_state_and_its_certificate(monkeypatch):
    X, y = overlapping(5, n=300, shift=0.1)
    sweep = flat_dual.FlatDual.sweep

    def and_interrupt(self, state):
        signal.raise_signal(signal.SIGINT)
        return sweep(self, state)

    monkeypatch.setattr(flat_dual.FlatDual, "sweep", and_interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(InterruptedFitWarning):
            model = KernelSVC(device="cuda", C=1000, tol=1e-12).fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.stop_reason_ == "interrupted"
    assert np.isfinite(model.certificate_.relative)


def test_a_limit_is_said_and_the_certificate_true():
    X, y = overlapping(6, n=300, shift=0.1)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = KernelSVC(device="cuda", C=1000, tol=1e-9, max_iter=1).fit(X, y)
    exact = KernelSVC(C=1000, tol=1e-6).fit(X, y).certificate_
    assert model.certificate_.dual <= exact.primal
    assert model.certificate_.primal >= exact.dual


def test_warm_start_checkpoint_partial_fit_clone_and_pickle(tmp_path):
    X, y = overlapping(7, n=300, shift=0.3)
    model = KernelSVC(device="cuda", warm_start=True, C=10).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ <= first
    assert model.fit(torch.from_numpy(X), y).n_iter_ <= first
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))
    assert clone(model).get_params()["device"] == "cuda"
    kept = KernelSVC(device="cuda", checkpoint=tmp_path).fit(X, y)
    assert KernelSVC(device="cuda", checkpoint=tmp_path).fit(X, y).n_iter_ >= kept.n_iter_
    grown = KernelSVC(device="cuda").partial_fit(X[:150], y[:150]).partial_fit(X[150:], y[150:])
    assert grown.score(X, y) > 0.6


# -- arrays of other libraries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16])
def test_tensors_are_used_where_they_are_and_scores_are_tensors(kind):
    X, y = overlapping(8, n=150, shift=0.5)
    there = torch.from_numpy(X).to(kind)
    model = KernelSVC(device="cuda", tol=1e-5).fit(there, torch.from_numpy(y))
    same = KernelSVC(device="cuda", tol=1e-5).fit(there.to(torch.float32).numpy() if kind != torch.float64 else X, y)
    assert model.certificate_.primal == pytest.approx(same.certificate_.primal, rel=1e-4)
    assert model.kernel_.gamma == pytest.approx(same.kernel_.gamma, rel=1e-6)
    scores = model.decision_function(there)
    assert isinstance(scores, torch.Tensor)
    assert scores.device == there.device
    np.testing.assert_allclose(scores, model.decision_function(there.to(torch.float32).numpy()), atol=1e-3)
    np.testing.assert_array_equal(model.predict(there), np.where(scores.numpy() > 0, 1.0, -1.0))
    assert isinstance(model.support_vectors_, np.ndarray)


def test_tensors_with_weights_and_several_classes():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200] / 16, y[:200]
    weight = np.ones(200)
    weight[::7] = 0.0
    model = KernelSVC(device="cuda").fit(torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(weight))
    same = KernelSVC(device="cuda").fit(X, y, weight)
    np.testing.assert_allclose(model.decision_function(torch.from_numpy(X)), same.decision_function(X), atol=0.05)
    assert model.decision_function(torch.from_numpy(X)).shape == (200, 10)


def test_tensors_of_a_wrong_shape_or_type_are_refused():
    X, y = overlapping(9)
    for bad in (torch.zeros(5), torch.zeros((5, 2), dtype=torch.int64), torch.zeros((0, 2))):
        with pytest.raises(ValueError, match="two dimensions"):
            KernelSVC(device="cuda").fit(bad, y[: len(bad)])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        KernelSVC(device="cuda").fit(torch.from_numpy(X), y[:-1])
    with pytest.raises(ValueError, match="NaN or infinity"):
        KernelSVC(device="cuda").fit(torch.from_numpy(np.where(X > 1, np.nan, X)), y)
    model = KernelSVC(device="cuda").fit(X, y)
    with pytest.raises(ValueError, match="expecting 4 features"):
        model.decision_function(torch.zeros((3, 5)))
    with pytest.raises(ValueError, match="array of torch on cpu, and device='cpu'"):
        KernelSVC().fit(torch.from_numpy(X), y)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_has_no_meaning_there_is_refused():
    X, y = overlapping(0)
    with pytest.raises(ValueError, match="cluster must be None"):
        KernelSVC(device="cuda", cluster=2).fit(X, y)
    with pytest.raises(ValueError, match="has no effect on the CPU"):
        KernelSVC(precision="float16").fit(X, y)
    with pytest.raises(ValueError, match="kernel='precomputed' is not among those that run on a GPU"):
        KernelSVC(device="cuda", kernel="precomputed").fit(X @ X.T, y)
    with pytest.raises(ValueError, match="kernel='callable' is not among"):
        KernelSVC(device="cuda", kernel=lambda A, B: A @ B.T).fit(X, y)
    with pytest.raises(ValueError, match="NaN or infinity"):
        KernelSVC(device="cuda").fit(np.where(X > 1, np.nan, X), y)
    assert "device" not in MarginDistributionSVC().get_params()


def test_no_silent_way_back(monkeypatch):
    """A model of the GPU says what to do where there is none, and is used on the CPU when told so."""
    X, y = overlapping(0)
    model = KernelSVC(device="cuda").fit(X, y)
    scores = model.decision_function(X)
    monkeypatch.setattr(devices, "GPU", "cuda")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for method in (model.fit, model.decision_function):
        with pytest.raises((ImportError, RuntimeError), match="device='cpu'"):
            method(*((X, y) if method == model.fit else (X,)))
    np.testing.assert_allclose(model.set_params(device="cpu").decision_function(X), scores, rtol=1e-9)
    assert KernelSVC(device="auto").fit(X, y).device_ == "cpu"


def test_sparse_rows_in_float32_stay_what_they_are():
    X, y = overlapping(1, n=80)
    model = KernelSVC(device="cuda").fit(sp.csr_matrix(X.astype(np.float32)), y)
    assert sp.issparse(model.support_vectors_)
    assert model.support_vectors_.dtype == np.float32


# -- what the certificate says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_no_claim_is_false_in_exact_arithmetic(name, precision):
    for setting in (
        Setting(),
        *(Setting(offset=offset) for offset in (1.0, 1e6)),
        *(Setting(scale=scale) for scale in (1e-30, 1e-8, 1e8)),
        *(Setting(C=C) for C in (1e-6, 1e4, 1e12)),
        Setting(dtype="float32", weights="large"),
        Setting(shape="grid", weights="some", tol=0.0),
        Setting("repeated", 1e4, 1e-8, 1e4, 1e-15),
    ):
        rows = rows_of(setting)
        parameters = {"tol": setting.tol, "C": setting.C, "max_iter": 30, "max_time": 1, **KERNELS[name]}
        model = fitted(KernelSVC(device="cuda", precision=precision, **parameters), rows)
        if model is not None:
            model.history_ = []  # bounds of sweeps are those of rounded rows; the last one is confirmed
            assert not falsehoods(model, rows), setting
