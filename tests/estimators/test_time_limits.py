"""max_time and Ctrl-C as users meet them: every estimator ends with a model and a certificate that holds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    InterruptedFitWarning,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
    pauses,
)
from widemargin.callbacks import Interruption
from widemargin.solvers import run as run_module

FITS = {
    "hard": HardMarginSVC(),
    "nu": NuMarginSVC(nu=0.6),
    "kernel": KernelSVC(),
    "kernel on ranks": KernelSVC(cluster=2, solver="exact"),
    "kernel of few": KernelSVC(max_support=5),
    "perceptron": KernelSVC(solver="batch-perceptron", random_state=0),
    "slack": KernelSVC(slack=0.1, random_state=0),
    "linear": KernelSVC(kernel="linear"),
    "margin": MarginDistributionSVC(),
    "margin tree": MarginDistributionSVC(solver="partition-merge", n_partitions=4),
    "margin linear": MarginDistributionSVC(kernel="linear"),
    "sparse": SparseSVC(alpha=0.01),
    "sparse on ranks": SparseSVC(alpha=0.01, cluster=2),
    "debiased": DebiasedSparseSVC(),
    "debiased on ranks": DebiasedSparseSVC(cluster=2),
    "gossip": GossipSVC(n_peers=3, random_state=0),
}


def some_rows(n_classes=2):
    rng = np.random.default_rng(0)
    y = np.arange(150) % n_classes
    return rng.normal(size=(150, 4)) + np.eye(4)[y % 4] * 1.5, y


@pytest.fixture
def short_work(monkeypatch):
    """Every little piece of work is followed by a look at the clock."""
    monkeypatch.setattr(pauses, "WORK", 100.0)
    monkeypatch.setattr(run_module, "_ASK_INTERVAL", -1.0)
    monkeypatch.setattr(run_module, "_GRACE", 0.0)


def fitted(model, n_classes=2):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*some_rows(n_classes))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", [name for name in FITS if "debiased" not in name])
def test_a_fit_without_time_has_a_model_and_a_true_certificate(name, n_classes, short_work):
    model = clone(FITS[name]).set_params(max_time=1e-9)
    optimum = [
        part.certificate for part in fitted(model.__sklearn_clone__().set_params(max_time=None), n_classes).parts_
    ]
    fitted(model, n_classes)
    assert model.stop_reason_ in ("max_time", "gap", "overlap")
    assert model.predict(some_rows()[0]).shape == (150,)
    for part, best in zip(model.parts_, optimum, strict=True):
        assert np.isfinite(part.certificate.primal)
        assert part.certificate.dual <= best.primal * (1 + 1e-9)
        assert part.certificate.primal >= best.dual * (1 - 1e-9)


@pytest.mark.parametrize("after", [0, 1, 3, 10, 40])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("name", FITS)
def test_ctrl_c_at_any_look_ends_all_parts_with_a_model(name, n_classes, after, short_work, monkeypatch):
    looks = 0

    def pressed(self):
        nonlocal looks
        looks += 1
        return looks > after

    monkeypatch.setattr(Interruption, "__bool__", pressed)
    model = fitted(clone(FITS[name]), n_classes)
    assert model.stop_reason_ in (
        "interrupted",
        "gap",
        "plateau",
        "max_support",
        "blind",
        "rounds",
        "precision",
        "overlap",
    )
    assert np.isfinite(model.certificate_.primal) or "debiased" in name
    assert model.predict(some_rows()[0]).shape == (150,)
    if name == "kernel of few":
        assert len(model.support_) <= 5 * len(model.parts_)
    if after == 0 and "debiased" not in name:
        # Overlap may be proved at once, and the first sweep of a small linear problem may be the last.
        assert model.stop_reason_ in ("interrupted", "overlap", *(["gap"] if name in ("linear", "nu") else []))


def test_the_search_of_a_penalty_ends_in_time_and_says_so():
    X, y = some_rows()
    with pytest.warns(ConvergenceWarning, match="ended the search of SparseSVCCV after 1 of 50"):
        model = SparseSVCCV(max_time=1e-9).fit(X, y)
    assert model.alphas_.shape == (1,)
    assert model.error_path_.shape == (1, 5)


def test_a_time_limit_that_is_not_reached_changes_nothing(short_work):
    with_limit, without = (fitted(KernelSVC(max_time=limit)) for limit in (1e6, None))
    assert (with_limit.dual_coef_ == without.dual_coef_).all()
    assert with_limit.certificate_ == without.certificate_


def test_an_interrupted_fit_warns(short_work, monkeypatch):
    monkeypatch.setattr(Interruption, "__bool__", lambda self: True)
    with pytest.warns(InterruptedFitWarning, match="KernelSVC was interrupted"):
        KernelSVC().fit(*some_rows())
