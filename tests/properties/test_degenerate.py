"""Rows that nobody would choose: the answer is a true certificate and a model that predicts, or a refusal in words."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from tests.properties.cases import CASES, RANKS, assert_holds, check, fitted, optimum, rows
from tests.properties.cases import Rows as Presented
from widemargin import DebiasedSparseSVC, SparseSVCCV

SOME = pytest.mark.parametrize("n_examples", [10, pytest.param(200, marks=pytest.mark.long)])
ALL = pytest.mark.parametrize("name", list(CASES))
# Of problems that a unit of length does not change but by a factor: distances grow with it.
HULLS = ("hard", "nu", "saddle")
# Of kernels that scikit-learn's own, taken from products of rows, tells to be 0 or 1 for rows that are far apart.
DISTANT = ("kernel", "perceptron", "margins")


def constant_column(X, rng):
    return np.column_stack([X, np.full(len(X), rng.choice([0.0, 1.0, -7.5]))])


def both_labels(X, rng):
    return X[rng.integers(0, max(1, len(X) // 3), len(X))]


def more_columns_than_rows(X, rng):
    return np.hstack([X, rng.integers(-4, 5, (len(X), 3 * len(X))) / 4])


def zero_rows(X, rng):
    return X * (rng.random(len(X)) < 0.5)[:, None]


def collinear(X, rng):
    return X[:, :1] * rng.integers(-2, 3, (1, X.shape[1]))


def all_alike(X, rng):
    return np.broadcast_to(X[0], X.shape).copy()


def far_away(X, rng):
    return X + 1024.0


SPOILT = [constant_column, both_labels, more_columns_than_rows, zero_rows, collinear, all_alike, far_away]


@SOME
@ALL
def test_spoilt_rows_keep_a_true_certificate(name, n_examples):
    case = CASES[name]

    def claim(data, spoil, seed, ranks, is_sparse):
        X = spoil(data.X.astype(np.float64), np.random.default_rng(seed))
        exact = optimum(case, Presented(X, data.sign, data.weight))
        model = fitted(case.make(ranks), sp.csr_matrix(X) if is_sparse else X, data.sign, data.weight)
        # Distances are differences of scores, and those are as large as the rows.
        assert_holds(model.certificate_, exact, scale=max(1.0, np.abs(X).max()))
        assert np.isfinite(model.decision_function(X)).all()

    check(
        claim,
        n_examples,
        data=rows(dtypes=("float64",)),
        spoil=st.sampled_from(SPOILT),
        seed=st.integers(0, 99),
        ranks=st.sampled_from(RANKS),
        is_sparse=st.booleans(),
    )


@SOME
@ALL
def test_one_row_of_each_class(name, n_examples):
    case = CASES[name]

    def claim(difference, at):
        X, sign = np.array([at, np.add(at, difference)]) / 4, np.array([-1.0, 1.0])
        data = Presented(X, sign, np.ones(2))
        model = fitted(case.make(None), X, sign)
        assert_holds(model.certificate_, optimum(case, data))
        if any(difference) and model.stop_reason_ == "gap" and name not in ("sparse", "gossip"):
            assert (model.predict(X) == sign).all()

    vector = st.lists(st.integers(-6, 6), min_size=3, max_size=3)
    check(claim, n_examples, difference=vector, at=vector)


# The largest power of ten of rows of order one that is tried, where it is not 150.
LARGEST = {"sparse": 30}


@SOME
@ALL
@pytest.mark.parametrize("is_single", [False, True], ids=["float64", "float32"])
def test_any_unit_of_length_ends_in_a_true_certificate_or_a_refusal(name, is_single, n_examples):
    case = CASES[name]
    most = LARGEST.get(name, 150)
    powers = [-30, -20, -10, 4, 10, 18] if is_single else [-150, -75, -30, -12, -6, 4, 6, 12, 30, 75, 150]

    def claim(data, exponent):
        X = data.X.astype(np.float64)
        scaled = (X * 10.0**exponent).astype(np.float32) if is_single else X * 10.0**exponent
        try:
            model = fitted(case.make(None), scaled, data.sign, data.weight)
        except ValueError as error:
            assert "scale the features" in str(error)  # noqa: PT017
            return
        certificate = model.certificate_
        assert np.isfinite(certificate.primal), certificate
        assert certificate.dual <= certificate.primal * (1 + 1e-9) + 1e-300, certificate
        if name in DISTANT and not is_single and exponent >= 4:
            exact = optimum(case, Presented(scaled, data.sign, data.weight))
            assert_holds(certificate, exact)
        assert np.isfinite(model.decision_function(scaled)).all()
        if name in HULLS and not is_single:
            exact = optimum(case, data) * 10.0**exponent
            assert_holds(certificate, exact, scale=10.0**exponent * max(1.0, np.abs(X).max()))

    exponents = st.sampled_from([power for power in powers if power <= most])
    check(claim, n_examples, data=rows(dtypes=("float64",)), exponent=exponents)


@pytest.mark.parametrize("n_examples", [8, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "model", [DebiasedSparseSVC(alpha=0.05), SparseSVCCV(n_alphas=3, cv=2)], ids=lambda m: type(m).__name__
)
def test_those_without_an_oracle_end_in_a_finite_model_or_a_refusal(model, n_examples):
    def claim(data, spoil, seed):
        X = spoil(data.X.astype(np.float64), np.random.default_rng(seed))
        try:
            fitted(model, X, data.sign, data.weight)
        except ValueError as error:
            assert len(str(error)) > 20  # noqa: PT017
            return
        assert model.certificate_.dual <= model.certificate_.primal + 1e-9
        assert np.isfinite(model.coef_).all()

    check(claim, n_examples, data=rows(dtypes=("float64",)), spoil=st.sampled_from(SPOILT), seed=st.integers(0, 99))
