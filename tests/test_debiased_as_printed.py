"""The debiased 1-norm SVM as printed: CLIME, the indicator and rows on the margin, averages and a shared inverse."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="baselines are not in the distribution")

from benchmarks.baselines import debiased_as_printed as printed

from widemargin.data import make_sparse_gaussians

P, LAM, C = 12, 0.05, 0.1


@pytest.fixture(scope="module")
def data():
    return make_sparse_gaussians(4_000, P, random_state=1)


def test_rows_of_clime_meet_their_constraint_with_the_least_norm_and_are_shrunk(data):
    X, y, _ = data
    H = printed.hessian(X, y, printed.penalised(X, y, LAM))
    theta = printed.clime(H, np.arange(P), C)
    assert np.abs(theta @ H - np.eye(P)).max() <= C * (1 + 1e-6)
    inverse = np.linalg.inv(H)
    assert (np.abs(theta).sum(axis=1) <= np.abs(inverse).sum(axis=1)).all()
    np.testing.assert_allclose(np.diag(theta @ H), 1 - C, atol=1e-6)
    np.testing.assert_allclose(printed.clime(H, np.arange(P), 1e-6), inverse, atol=1e-3 * np.abs(inverse).max())


def test_the_indicator_leaves_the_estimate_to_rounding(data):
    X, y, _ = (each[:400] if len(each) == 4_000 else each for each in data)
    coef = printed.penalised(X, y, LAM)
    n_on_margin = np.count_nonzero(np.abs(y * (X @ coef) - 1) < 1e-9)
    assert n_on_margin >= np.count_nonzero(coef) - 1
    theta = printed.clime(printed.hessian(X, y, coef), np.arange(P), C)
    ends = [coef + theta @ printed.indicator_score(X, y, coef, counts_margin=on) for on in (False, True)]
    step = np.abs(ends[0] - coef).max()
    assert np.abs(ends[1] - ends[0]).max() > 0.1 * step
    on_support = printed.indicator_score(X, y, coef)[coef != 0]
    assert np.abs(on_support - LAM * np.sign(coef[coef != 0])).max() > 1e-3  # conditions (3) do not hold for it


@pytest.mark.parametrize("is_shared", [False, True])
def test_debiasing_mends_the_average_with_an_inverse_of_each_machine_or_a_shared_one(data, is_shared):
    X, y, beta = data
    parts = [(X[part], y[part]) for part in np.array_split(np.arange(len(y)), 4)]
    found = printed.estimates(parts, LAM, C, is_shared=is_shared)
    off = {name: np.abs(coef - beta).max() for name, coef in found._asdict().items()}
    assert off["aggregated"] < 0.6 * off["naive"]
    assert np.count_nonzero(found.aggregated) == P
    assert np.count_nonzero(found.thresholded) < P
    assert off["thresholded"] <= max(off["aggregated"], np.abs(found.aggregated[found.thresholded == 0]).max() + 1e-12)


def test_a_shared_inverse_is_one_for_all_machines(data):
    X, y, _ = data
    parts = [(X[part], y[part]) for part in np.array_split(np.arange(len(y)), 4)]
    own, shared = (printed.estimates(parts, LAM, C, is_shared=each) for each in (False, True))
    np.testing.assert_array_equal(own.naive, shared.naive)
    between = np.abs(own.aggregated - shared.aggregated).max()
    assert 0 < between < 0.5 * np.abs(own.aggregated - own.naive).max()


def test_a_machine_of_few_rows_chooses_a_larger_penalty(data):
    X, y, _ = data
    grid = np.geomspace(0.003, 0.3, 9)
    assert printed.cross_validated(X[:150], y[:150], grid) > printed.cross_validated(X, y, grid)
