"""Tiny problems, all the ways to present their rows, and every estimator with the exact optimum of what it solves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist

from tests.estimators.test_sparse import by_highs
from tests.oracles import exact_svm, hull_distance, nu_cap
from tests.problems.test_margin_distribution import exact_odm
from tests.problems_at_hand import PaperNuSVC
from tests.solvers.test_block_dual import exact_of
from widemargin import (
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    SparseSVC,
)
from widemargin.problems.margin_distribution import MarginDistribution

TOL = 1e-5
GAMMA = 0.5
RANKS = (None, 2, 3)


class Case(NamedTuple):
    """An estimator, and the optimum of its problem from rows, signs and weights by another way."""

    make: Callable[[int | None], Any]
    exact: Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def _with_constant(X):
    return np.column_stack([X, np.ones(len(X))])


def _exact_gossip(X, y, weight, alpha=0.01):
    total = float(weight.sum())
    return alpha * exact_svm(_with_constant(X), y, 1 / (alpha * total), weight, fit_intercept=False)


def _rbf(X: np.ndarray) -> np.ndarray:
    """From differences of rows, which products of rows far from zero would lose."""
    return np.exp(-GAMMA * cdist(X, X, "sqeuclidean"))


CASES = {
    "hard": Case(
        lambda cluster: HardMarginSVC(tol=TOL, cluster=cluster, random_state=0),
        lambda X, y, weight: hull_distance(X, y, weight).distance,
    ),
    "nu": Case(
        lambda cluster: PaperNuSVC(tol=TOL, cluster=cluster, random_state=0),
        lambda X, y, weight: hull_distance(X, y, weight, nu_cap(y, "paper", weight)).distance,
    ),
    "saddle": Case(
        lambda cluster: PaperNuSVC(solver="saddle", tol=1e-2, max_iter=60, cluster=cluster, random_state=0),
        lambda X, y, weight: hull_distance(X, y, weight, nu_cap(y, "paper", weight)).distance,
    ),
    "kernel": Case(
        lambda cluster: KernelSVC(gamma=GAMMA, tol=TOL, cluster=cluster),
        lambda X, y, weight: exact_of(_rbf(X), y, 1.0, weight),
    ),
    "kernel linear": Case(
        lambda cluster: KernelSVC(kernel="linear", tol=TOL, cluster=cluster),
        lambda X, y, weight: exact_svm(X, y, 1.0, weight),
    ),
    "perceptron": Case(
        lambda cluster: KernelSVC(
            gamma=GAMMA, solver="batch-perceptron", tol=1e-2, max_iter=20, cluster=cluster, random_state=0
        ),
        lambda X, y, weight: exact_of(_rbf(X), y, 1.0, weight),
    ),
    "margins": Case(
        lambda cluster: MarginDistributionSVC(C=10.0, gamma=GAMMA, tol=TOL, cluster=cluster, random_state=0),
        lambda X, y, weight: exact_odm(_rbf(X), y, MarginDistribution(10.0), weight).value,
    ),
    "margins linear": Case(
        lambda cluster: MarginDistributionSVC(C=10.0, kernel="linear", tol=TOL, cluster=cluster, random_state=0),
        lambda X, y, weight: exact_odm(X @ X.T, y, MarginDistribution(10.0), weight).value,
    ),
    "sparse": Case(
        lambda cluster: SparseSVC(alpha=0.05, cluster=cluster),
        lambda X, y, weight: by_highs(X, y, 0.05, weight=weight),
    ),
    "gossip": Case(
        lambda cluster: GossipSVC(alpha=0.01, n_peers=cluster or 1, max_iter=300),
        _exact_gossip,
    ),
}

# -- how rows may come -----------------------------------------------------------------------------------------------


def _strided(X):
    wide = np.zeros((2 * X.shape[0], 3 * X.shape[1]), X.dtype)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def _read_only(X):
    X = np.ascontiguousarray(X)
    X.flags.writeable = False
    return X


def _csr(X, index=np.int32):
    matrix = sp.csr_matrix(X)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


def _all_entries(X, columns):
    """A CSR matrix in which every entry is given, zeros too, in this order of columns."""
    n, d = X.shape
    data, indices = np.ascontiguousarray(X[:, columns]).ravel(), np.tile(np.asarray(columns, np.int32), n)
    return sp.csr_matrix((data, indices, np.arange(0, n * d + 1, d, dtype=np.int32)), shape=X.shape)


def _duplicated(X):
    """Every entry in two parts; a half of a number of quarters is exact in all types of floats."""
    n, d = X.shape
    if X.dtype.kind != "f":
        return _all_entries(X, np.arange(d))
    data, indices = np.repeat(X.ravel() / 2, 2), np.tile(np.repeat(np.arange(d, dtype=np.int32), 2), n)
    return sp.csr_matrix((data, indices, np.arange(0, 2 * n * d + 1, 2 * d, dtype=np.int32)), shape=X.shape)


STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "backwards": lambda X: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only": _read_only,
    "CSR": _csr,
    "CSR, wide indices": lambda X: _csr(X, np.int64),
    "CSR, unsorted": lambda X: _all_entries(X, np.arange(X.shape[1])[::-1]),
    "CSR, explicit zeros": lambda X: _all_entries(X, np.arange(X.shape[1])),
    "CSR, duplicates": _duplicated,
    "CSR array": lambda X: sp.csr_array(X),
    "CSC": sp.csc_matrix,
    "COO": sp.coo_matrix,
    "frame": lambda X: pd.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])]),
    "lists": lambda X: X.tolist(),
}
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
LABELS = {
    "signs": np.array([-1, 1]),
    "floats": np.array([0.0, 1.0]),
    "strings": np.array(["no", "yes"]),
    "bools": np.array([False, True]),
    "large": np.array([-(10**12), 10**12]),
}


class Rows(NamedTuple):
    """Rows as numbers, signs and multiplicities."""

    X: np.ndarray
    sign: np.ndarray
    weight: np.ndarray


@st.composite
def rows(draw, dtypes=DTYPES, most_rows=14, most_columns=5):
    """Few rows of small numbers: many repeat, vanish or lie on one line; both classes are there."""
    n = draw(st.integers(4, most_rows), label="rows")
    d = draw(st.integers(1, most_columns), label="columns")
    dtype = np.dtype(draw(st.sampled_from(dtypes), label="dtype"))
    low = 0 if dtype.kind in "ub" else -8
    numbers = draw(hnp.arrays(np.int64, (n, d), elements=st.integers(low, 8)), label="X")
    X = (numbers / 4 if dtype.kind == "f" else numbers % 2 if dtype.kind == "b" else numbers // 2).astype(dtype)
    sign = np.array([-1.0, 1.0, *draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=n - 2, max_size=n - 2))])
    weight = draw(hnp.arrays(np.float64, n, elements=st.integers(0, 3).map(float)), label="weight")
    weight[:2] = np.maximum(weight[:2], 1.0)  # a row of each class counts
    if draw(st.booleans(), label="all once"):
        weight[:] = 1.0
    return Rows(X, sign, weight)


# -- what is done with them ------------------------------------------------------------------------------------------


def check(claim: Callable[..., None], n_examples: int, **strategies: Any) -> None:
    """Try a claim on so many examples: always the same ones for a few, new ones each time for many."""
    is_short = n_examples < 50
    options = settings(
        max_examples=n_examples,
        deadline=None,
        derandomize=is_short,
        database=None,
        print_blob=True,
        phases=[Phase.generate] if is_short else [Phase.generate, Phase.shrink],  # which takes minutes
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    options(given(**strategies)(claim))()


def optimum(case: Case, data: Rows) -> float:
    """The exact optimum; where the slow method cannot prove its own answer, the example is left."""
    try:
        return case.exact(data.X.astype(np.float64), data.sign, data.weight)
    except (AssertionError, np.linalg.LinAlgError, RuntimeWarning):
        reject()


def fitted(model: Any, X: Any, y: Any, weight: Any = None) -> Any:
    """The model after a fit that may say that a margin does not exist or that a gap stays open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X, y, weight)


def assert_holds(certificate: Any, exact: float, scale: float = 1.0, slack: float = 1e-8) -> None:
    """The certificate has the optimum between its bounds; ``scale`` is what a rounding error is measured by."""
    room = slack * max(abs(exact), scale)
    assert np.isfinite(certificate.primal), certificate
    assert certificate.dual <= exact + room, f"the lower bound {certificate.dual!r} is over the optimum {exact!r}"
    assert certificate.primal >= exact - room, f"the upper bound {certificate.primal!r} is under the optimum {exact!r}"
