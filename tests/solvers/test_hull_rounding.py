"""Bounds of hard margin and nu in exact rational arithmetic: on rows as they are, not as float64 adds them up."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from tests.problems_at_hand import PaperNuSVC
from tests.properties.cases import check
from widemargin import HardMarginSVC, NuMarginSVC, OverlapWarning, PrecisionWarning

STORAGES = {"dense": np.asarray, "csr": sp.csr_matrix}
MODELS = {
    "hard": lambda **options: HardMarginSVC(**options),
    "hard newton": lambda **options: HardMarginSVC(solver="newton", **options),
    "hard saddle": lambda **options: HardMarginSVC(solver="saddle", random_state=0, **options),
    "nu": lambda **options: PaperNuSVC(random_state=0, **options),
    "nu saddle": lambda **options: PaperNuSVC(solver="saddle", random_state=0, **options),
}


def fitted(model, X, y, weight=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X, y, weight)


def signed_square(value):
    return value * abs(value)


def exact_margin(model, X, y, weight=None):
    """The signed square of the margin of ``coef_``, which is rational; None without a direction."""
    coef = [Fraction(float(c)) for c in model.coef_[0]]
    norm = sum(c * c for c in coef)
    if norm == 0:
        return None
    weight = [Fraction(1)] * len(y) if weight is None else [Fraction(float(each)) for each in weight]
    # 2 / (nu W), not the rounded cap_
    caps = [None] * len(y)
    if hasattr(model, "cap_"):
        nu = 2 / (Fraction(float(model.cap_)) * sum(weight)) if model.nu == "auto" else Fraction(float(model.nu))
        caps = [2 * each / (nu * sum(weight)) for each in weight]
    scores = [sum(Fraction(float(v)) * c for v, c in zip(row, coef, strict=True)) for row in X]
    least = Fraction(0)
    for label, sign in ((model.classes_[1], 1), (model.classes_[0], -1)):
        left = Fraction(1)
        mine = [(sign * s, cap) for s, cap, each in zip(scores, caps, y, strict=True) if each == label]
        for score, cap in sorted(mine, key=lambda pair: pair[0]):
            taken = left if cap is None else min(left, cap)
            least += taken * score
            left -= taken
    return signed_square(least) / norm


def assert_true(models, X, y, weight=None):
    """Every lower bound is below the margin of its own model, every upper bound over the margins of all."""
    widest = Fraction(0)
    for model in models:
        margin, bound = exact_margin(model, X, y, weight), model.certificate_.dual
        if margin is not None:
            assert signed_square(Fraction(bound)) <= margin, (model, model.stop_reason_, model.certificate_)
            widest = max(widest, margin)
    for model in models:
        assert Fraction(model.certificate_.primal) ** 2 >= widest, (model, model.stop_reason_, model.certificate_)


def some_rows(seed, is_separable, n=30, d=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    sign = 2.0 * y - 1
    X = rng.normal(size=(n, d)) + (0.0 if is_separable else 0.8) * sign[:, None]
    if is_separable:
        X[:, 0] += sign * (np.abs(X[:, 0]).max() + 0.3)
    return X, y


def of_both(kind, **options):
    return [MODELS[name](**options) for name in MODELS if name.split()[0] == kind]


@pytest.mark.parametrize("kind", ["hard", "nu"])
@pytest.mark.parametrize("is_separable", [True, False], ids=["apart", "mixed"])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8])
@pytest.mark.parametrize("storage", list(STORAGES))
def test_far_from_the_origin(kind, is_separable, offset, storage, seed):
    X, y = some_rows(seed, is_separable)
    X = X + offset
    rows = STORAGES[storage](X)
    models = [fitted(model, rows, y) for tol in (1e-3, 1e-9) for model in of_both(kind, tol=tol, max_iter=60)]
    assert_true(models, X, y)


@pytest.mark.parametrize("kind", ["hard", "nu"])
@pytest.mark.parametrize("is_separable", [True, False], ids=["apart", "mixed"])
@pytest.mark.parametrize("unit", [1e-300, 1e-165, 1e-160, 1e-75, 1e30, 1e160, 1e300])
def test_rows_of_any_size(kind, is_separable, unit):
    X, y = some_rows(0, is_separable)
    models = [fitted(model, X * unit, y) for model in of_both(kind, max_iter=60)]
    assert_true(models, X * unit, y)
    plain = [fitted(model, X, y) for model in of_both(kind, max_iter=60)]
    assert [model.stop_reason_ for model in models] == [model.stop_reason_ for model in plain]
    for model, other in zip(models, plain, strict=True):
        np.testing.assert_array_equal(model.predict(X * unit), other.predict(X))


@pytest.mark.parametrize("kind", ["hard", "nu"])
@pytest.mark.parametrize("ranks", [None, 3])
@pytest.mark.parametrize("is_separable", [True, False], ids=["apart", "mixed"])
def test_columns_of_any_units_on_ranks(kind, ranks, is_separable, seed):
    X, y = some_rows(seed, is_separable)
    X = X * 10.0 ** np.random.default_rng(seed).integers(-8, 9, X.shape[1]) + 1e3
    assert_true([fitted(model, X, y) for model in of_both(kind, cluster=ranks, max_iter=60)], X, y)


@pytest.mark.parametrize("storage", list(STORAGES))
def test_weights_that_no_float_adds_up(storage, seed):
    X, y = some_rows(seed, False)
    weight = np.random.default_rng(seed).choice([0.1, 0.3, 1 / 3, 2.7], len(y))
    for nu in (0.3, 0.5):
        models = [fitted(NuMarginSVC(nu=nu, tol=tol), STORAGES[storage](X), y, weight) for tol in (1e-3, 0)]
        assert_true(models, X, y, weight)


@pytest.mark.parametrize("kind", ["hard", "nu"])
def test_single_precision_rows(kind, seed):
    X, y = some_rows(seed, kind == "hard")
    X = (X + 300).astype(np.float32)
    models = [fitted(model, storage(X), y) for storage in STORAGES.values() for model in of_both(kind, max_iter=60)]
    assert_true(models, X, y)


@pytest.mark.parametrize("storage", list(STORAGES))
@pytest.mark.parametrize("ranks", [None, 2])
def test_steps_that_are_far_too_long_for_float64(storage, ranks):
    X, y = some_rows(142, True, n=16)
    X = (X * 10.0 ** np.linspace(-4, 4, X.shape[1]) + 1e4) * 1e20
    models = [fitted(model, STORAGES[storage](X), y) for model in of_both("hard", cluster=ranks, max_iter=40)]
    assert_true(models, X, y)


@pytest.mark.parametrize("n_examples", [25, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["hard", "nu"])
def test_whatever_the_rows(kind, n_examples):
    def claim(seed, offset, unit, spread, is_separable, is_sparse, ranks, tol):
        X, y = some_rows(seed, is_separable, n=16)
        X = (X * 10.0 ** np.linspace(-spread, spread, X.shape[1]) + offset) * 10.0**unit
        storage = sp.csr_matrix if is_sparse else np.asarray
        models = [fitted(model, storage(X), y) for model in of_both(kind, cluster=ranks, tol=tol, max_iter=40)]
        assert_true(models, X, y)

    check(
        claim,
        n_examples,
        seed=st.integers(0, 999),
        offset=st.sampled_from([0.0, 1.0, 1e4, 1e8]),
        unit=st.sampled_from([-290, -160, -20, 0, 20, 160, 290]),
        spread=st.sampled_from([0, 1, 4, 8]),
        is_separable=st.booleans(),
        is_sparse=st.booleans(),
        ranks=st.sampled_from([None, 2]),
        tol=st.sampled_from([1e-3, 1e-8, 0.0]),
    )


def test_the_comparison_can_fail():
    X, y = some_rows(0, True)
    model = fitted(HardMarginSVC(), X, y)
    primal, dual = model.certificate_
    model.certificate_ = model.certificate_._replace(dual=primal * 1.01)
    with pytest.raises(AssertionError):
        assert_true([model], X, y)
    model.certificate_ = model.certificate_._replace(primal=dual * 0.99, dual=0.0)
    with pytest.raises(AssertionError):
        assert_true([model], X, y)


@pytest.mark.parametrize("tol", [1e-15, 0.0])
@pytest.mark.parametrize("make", [HardMarginSVC, NuMarginSVC])
def test_a_gap_that_rounding_keeps_open_ends_the_fit(make, tol, seed):
    X, y = some_rows(seed, make is HardMarginSVC)
    with pytest.warns(PrecisionWarning, match="Rounding keeps the relative gap"):
        model = make(tol=tol).fit(X, y)
    assert model.stop_reason_ == "precision"
    assert 0 < model.certificate_.relative < 1e-9


@pytest.mark.parametrize("solver", ["auto", "newton", "saddle"])
def test_without_a_margin_the_lower_bound_is_that_of_the_model(solver, seed):
    X, y = some_rows(seed, False, n=60)
    X = X * [1.0, 30.0, 1.0] - np.where(y == 1, 5.0, 0.0)[:, None]
    X[:2] = X[1::-1]
    with pytest.warns(OverlapWarning, match="1e-12 of the radius"):
        model = HardMarginSVC(solver=solver, random_state=0).fit(X, y)
    assert model.stop_reason_ == "overlap"
    margin = exact_margin(model, X, y)
    assert signed_square(Fraction(model.certificate_.dual)) <= margin <= 0
    assert float(margin) == pytest.approx(-(model.certificate_.dual**2), rel=1e-9)
