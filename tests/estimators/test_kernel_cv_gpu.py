"""KernelSVCCV(device="cuda") on torch's CPU device, which stands for the GPU, beside device="cpu"."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

from widemargin import KernelSVC, KernelSVCCV
from widemargin.kernels import devices

torch = pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")

GRID = {"Cs": [0.1, 1.0, 10.0], "gammas": [0.02, 0.1], "cv": 4, "refine": False, "skip": False, "tol": 1e-5}


@pytest.fixture(autouse=True)
def cpu_for_gpu(monkeypatch):
    monkeypatch.setattr(devices, "GPU", "cpu:0")


def made(n_classes=2, n=240):
    X, y = make_classification(n, 8, n_informative=5, n_classes=n_classes, flip_y=0.1, random_state=0)
    return X, np.array(["ash", "birch", "elm"])[y]


def both(X, y, sample_weight=None, **options):
    options = {**GRID, **options}
    return (
        KernelSVCCV(**options).fit(X, y, sample_weight),
        KernelSVCCV(**options, device="cuda").fit(X, y, sample_weight),
    )


def check_same(cpu, gpu):
    """Fits to a small gap score rows alike, but for those that are at the boundary."""
    assert (gpu.cv_results_["state"] == "certified").all()
    assert np.abs(cpu.scores_ - gpu.scores_).max() <= 1.5 / 60
    assert np.abs(cpu.scores_ - gpu.scores_).mean() <= 2e-3
    assert gpu.certificate_.relative <= GRID["tol"]
    assert gpu.device_ == "cuda"
    np.testing.assert_allclose(gpu.cv_results_["n_support"], cpu.cv_results_["n_support"], rtol=0.05)


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_scores_are_those_of_the_cpu(kernel, fit_intercept):
    check_same(*both(*made(), kernel=kernel, fit_intercept=fit_intercept))


def test_linear_kernels_have_no_gamma():
    X, y = made()
    options = {"Cs": [0.01, 0.1], "cv": 3, "kernel": "linear", "refine": False, "tol": 1e-5}
    model, twin = KernelSVCCV(**options, device="cuda").fit(X, y), KernelSVCCV(**options).fit(X, y)
    assert np.abs(model.scores_ - twin.scores_).max() <= 1.5 / 80
    assert set(model.best_params_) == {"C"}


@pytest.mark.parametrize("multi_class", ["pairs", "rest"])
def test_several_classes(multi_class):
    check_same(*both(*made(3), multi_class=multi_class))


def test_float32_and_sparse_rows():
    X, y = made()
    X = np.where(np.abs(X) < 0.5, 0.0, X).astype(np.float32)
    dense, sparse = (KernelSVCCV(**GRID, device="cuda").fit(rows, y) for rows in (X, sp.csr_matrix(X)))
    np.testing.assert_array_equal(dense.scores_, sparse.scores_)


def test_tensors():
    X, y = made()
    model = KernelSVCCV(**GRID, device="cuda").fit(torch.from_numpy(X), y)
    np.testing.assert_array_equal(model.scores_, KernelSVCCV(**GRID, device="cuda").fit(X, y).scores_)


def test_weights_are_multiplicities():
    X, y = made(n=120)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    folds = np.arange(len(y)) % 4
    split = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(4)]
    again = np.repeat(np.arange(len(y)), weight)
    repeated = [tuple(np.flatnonzero(np.isin(again, rows)) for rows in pair) for pair in split]
    options = {**GRID, "device": "cuda", "class_weight": "balanced"}
    weighted = KernelSVCCV(**{**options, "cv": split}).fit(X, y, weight)
    copied = KernelSVCCV(**{**options, "cv": repeated}).fit(X[again], y[again])
    np.testing.assert_allclose(weighted.scores_, copied.scores_, atol=1e-12)


def test_without_room_for_all_values_problems_take_turns():
    X, y = made()
    few, all_values = (KernelSVCCV(**{**GRID, "cache_size": size}, device="cuda").fit(X, y) for size in (0.01, 100.0))
    assert np.abs(few.scores_ - all_values.scores_).max() <= 1.5 / 60
    assert (few.cv_results_["state"] == "certified").all()


def test_kernels_without_a_lower_bound_take_turns():
    X, y = made()
    with np.errstate(all="ignore"):
        model = KernelSVCCV(**{**GRID, "kernel": "sigmoid", "tol": 1e-3}, device="cuda").fit(X, y)
    assert np.isfinite(model.scores_).all()
    assert (model.cv_results_["state"] == "estimated").all()


def test_time_ends_a_search():
    X, y = made()
    with pytest.warns(ConvergenceWarning, match="max_time"):
        model = KernelSVCCV(**{**GRID, "max_time": 1e-9}, device="cuda").fit(X, y)
    assert (model.cv_results_["state"] == "not tried").all()


def test_the_final_model_is_that_of_kernel_svc():
    X, y = made()
    model = KernelSVCCV(**GRID, device="cuda").fit(X, y)
    twin = KernelSVC(**model.best_params_, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), twin.decision_function(X), atol=2e-2)


def test_kernels_that_do_not_run_on_a_gpu_are_refused():
    X, y = made()
    with pytest.raises(ValueError, match="is not among those that run on a GPU"):
        KernelSVCCV(Cs=[1.0], kernel=lambda a, b: a @ b.T, device="cuda").fit(X, y)
