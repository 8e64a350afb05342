"""What a fit may never do with its input: accept what is not finite, write to it, or answer differently next time."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from tests.properties.cases import CASES, RANKS, STORAGES, check, fitted, rows

FEW = pytest.mark.parametrize("n_examples", [6, pytest.param(150, marks=pytest.mark.long)])
ALL = pytest.mark.parametrize("name", list(CASES))


def parts_of(X):
    """The arrays that storage is made of."""
    if sp.issparse(X):
        names = ("data", "indices", "indptr") if hasattr(X, "indptr") else ("data", "row", "col")
        return [getattr(X, name) for name in names]
    return [X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)]


@FEW
@ALL
def test_numbers_that_are_not_finite_are_refused(name, n_examples):
    def claim(data, storage, value, place, ranks):
        X = data.X.astype(np.float64)
        X.ravel()[place % X.size] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            fitted(CASES[name].make(ranks), STORAGES[storage](X), data.sign)

    check(
        claim,
        n_examples,
        data=rows(),
        storage=st.sampled_from(list(STORAGES)),
        value=st.sampled_from([np.nan, np.inf, -np.inf]),
        place=st.integers(0, 1000),
        ranks=st.sampled_from(RANKS),
    )


@FEW
@ALL
def test_input_is_left_as_it_was_and_the_same_input_gives_the_same_bits(name, n_examples):
    def claim(data, storage, ranks):
        X, y, weight = STORAGES[storage](data.X), data.sign.copy(), data.weight.copy()
        arrays = [*parts_of(X), y, weight]
        before = [array.tobytes() for array in arrays]
        one = fitted(CASES[name].make(ranks), X, y, weight)
        scores = one.decision_function(X)
        assert [array.tobytes() for array in [*parts_of(X), y, weight]] == before
        other = fitted(CASES[name].make(ranks), STORAGES[storage](data.X), y, weight)
        assert other.certificate_ == one.certificate_
        assert other.decision_function(X).tobytes() == scores.tobytes()
        again = pickle.loads(pickle.dumps(one))
        assert again.decision_function(X).tobytes() == scores.tobytes()

    check(claim, n_examples, data=rows(), storage=st.sampled_from(list(STORAGES)), ranks=st.sampled_from(RANKS))
