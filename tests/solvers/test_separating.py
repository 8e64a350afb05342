"""Separable classes are separated whatever the units of their columns; overlap is proved or not said."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from tests.problems_at_hand import overlapping
from tests.solvers.test_hull_rounding import assert_true, fitted
from widemargin import HardMarginSVC, NuMarginSVC, PrecisionWarning

MODELS = {
    "hard": HardMarginSVC(),
    "hard newton": HardMarginSVC(solver="newton"),
    "hard active-set": HardMarginSVC(solver="active-set"),
    "hard saddle": HardMarginSVC(solver="saddle", random_state=0, max_iter=300),
    "nu": NuMarginSVC(nu=0.02, max_iter=300),
    "nu newton": NuMarginSVC(nu=0.02, solver="newton"),
}
ALL = pytest.mark.parametrize("name", list(MODELS))


def one_column_separates(wide, n=200):
    """The first column separates with a margin over 2; the second is noise that many times as wide."""
    rng = np.random.RandomState(0)
    y = np.arange(n) % 2
    return np.c_[(2 * y - 1) * (1 + rng.rand(n)), rng.randn(n) * wide], y


@ALL
@pytest.mark.parametrize("wide", [3e5, 1e6, 3e6, 1e9, 1e12])
def test_a_narrow_column_separates_beside_a_wide_one(name, wide):
    X, y = one_column_separates(wide)
    model = fitted(MODELS[name], X, y)
    assert model.score(X, y) == 1.0
    assert model.certificate_.dual > 2
    assert_true([model], X, y)


@ALL
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("cluster", [None, 3])
def test_units_of_columns_do_not_hide_a_separator(name, is_sparse, cluster):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    T = rng.normal(size=(60, 5))
    T[:, 0] += (2 * y - 1) * (np.abs(T[:, 0]).max() + 0.1)
    mixed = T @ np.linalg.qr(rng.normal(size=(5, 5)))[0]
    X = mixed * np.array([1e-8, 1e-4, 1.0, 1e4, 1e8])
    model = fitted(MODELS[name].set_params(cluster=cluster), sp.csr_matrix(X) if is_sparse else X, y)
    MODELS[name].set_params(cluster=None)
    assert model.stop_reason_ not in ("overlap", "undecided")
    assert model.certificate_.dual > 0
    assert model.score(X, y) == 1.0


def facing(gap, d, seed=0, n=60):
    """Two hulls with many vertices on two parallel faces, ``gap`` apart; a negative one lets them overlap."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    sign = 2 * y - 1
    T = rng.normal(size=(n, d))
    T[:, 0] = sign * np.abs(T[:, 0])
    few = 2 * (d + 3)
    T[:few, 0] = sign[:few] * gap / 2
    return T @ np.linalg.qr(rng.normal(size=(d, d)))[0], y


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-10, 1e-11])
@pytest.mark.parametrize("solver", ["auto", "newton", "active-set"])
def test_hulls_that_nearly_touch_are_told_from_hulls_that_meet(solver, gap, d):
    X, y = facing(gap, d)
    model = fitted(HardMarginSVC(solver=solver), X, y)
    assert model.certificate_.dual > 0.9 * gap
    assert model.score(X, y) == 1.0
    assert_true([model], X, y)


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("gap", [0.0, -1e-11, -1e-6])
@pytest.mark.parametrize("solver", ["auto", "newton", "active-set"])
def test_hulls_that_meet_are_proved_to(solver, gap, d):
    X, y = facing(gap, d)
    model = fitted(HardMarginSVC(solver=solver), X, y)
    assert model.stop_reason_ == "overlap"
    assert model.certificate_.primal <= 1e-11


@pytest.mark.parametrize("gap", [1e-12, 1e-13, 1e-14])
def test_what_is_closer_than_the_limit_is_separated_or_called_an_overlap(gap):
    X, y = facing(gap, 4)
    model = fitted(HardMarginSVC(), X, y)
    assert model.certificate_.dual > 0 or model.stop_reason_ in ("overlap", "undecided")
    assert_true([model], X, y)


@pytest.mark.parametrize("make", [HardMarginSVC, NuMarginSVC])
@pytest.mark.parametrize("cluster", [None, 3])
def test_equal_rows_of_both_classes_overlap(make, cluster):
    half = np.random.default_rng(0).normal(size=(30, 3)) * [1e-6, 1.0, 1e6]
    X, y = np.vstack([half, half]), np.repeat([0, 1], 30)
    model = fitted(make(cluster=cluster), X, y)
    assert model.stop_reason_ == "overlap"
    assert model.certificate_.dual <= 0


@pytest.mark.parametrize("make", [HardMarginSVC, NuMarginSVC])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e8, 1e-300])
def test_rows_that_are_all_alike_overlap(make, value):
    model = fitted(make(), np.full((4, 2), value), [0, 1, 0, 1])
    assert model.stop_reason_ == "overlap"
    assert model.certificate_.primal == 0
    assert not model.coef_.any()


@pytest.mark.parametrize("make", [HardMarginSVC, NuMarginSVC])
@pytest.mark.parametrize("apart", [1e-7, 1.0, 1e200])
def test_one_row_of_each_class(make, apart):
    X = np.array([[1.0, 2.0], [1.0, 2.0 + apart]])
    model = fitted(make() if make is HardMarginSVC else make(nu=1.0), X, [0, 1])
    assert model.stop_reason_ in ("gap", "precision")
    exact = Fraction(X[1, 1]) - Fraction(X[0, 1])
    assert Fraction(model.certificate_.dual) <= exact <= Fraction(model.certificate_.primal)


def test_reduced_hulls_that_overlap_are_proved_to_on_many_rows():
    X, y = overlapping(0, n=3000, d=8, shift=0.1)
    for solver in ("auto", "multipliers", "newton", "saddle"):
        model = fitted(NuMarginSVC(nu=0.1, solver=solver, random_state=0), X, y)
        assert model.stop_reason_ == "overlap"


def test_what_rounding_hides_is_undecided_and_says_so(monkeypatch):
    """Faces 1e-11 apart, of which nothing exact is left once inner products and polishing are all there is."""
    X, y = facing(3e-11, 4)
    monkeypatch.setattr("widemargin.solvers.active_set.across", lambda working: np.zeros(4))
    with pytest.warns(PrecisionWarning, match=r"undecided.*1e-12.*NuMarginSVC"):
        model = HardMarginSVC(solver="newton").fit(X, y)
    assert model.stop_reason_ == "undecided"
    assert model.certificate_.dual <= 0 < model.certificate_.primal
    assert_true([model], X, y)
