"""However the rows of a problem come, and on however many ranks, the certificate holds the one exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.properties.cases import CASES, LABELS, RANKS, STORAGES, assert_holds, check, fitted, optimum, rows

SOME = pytest.mark.parametrize("n_examples", [15, pytest.param(300, marks=pytest.mark.long)])
ALL = pytest.mark.parametrize("name", list(CASES))
CLOSED = ("gap", "overlap", "precision")
LIMITED = ("saddle", "perceptron", "gossip")  # these may stop at a number of sweeps, or where they get no better


@SOME
@ALL
def test_the_optimum_is_held_whatever_the_storage_weights_order_labels_and_ranks(name, n_examples):
    case = CASES[name]

    def claim(data, storage, labels, ranks, seed):
        exact = optimum(case, data)
        order = np.random.default_rng(seed).permutation(len(data.sign))
        y = LABELS[labels][(data.sign > 0).astype(int)]
        is_weighted = not (data.weight == 1).all()
        model = fitted(
            case.make(ranks),
            STORAGES[storage](data.X[order]),
            y[order],
            data.weight[order] if is_weighted else None,
        )
        assert_holds(model.certificate_, exact)
        assert model.stop_reason_ in (*CLOSED, *(["max_iter", "plateau"] if name in LIMITED else [])), (
            model.stop_reason_
        )
        if model.stop_reason_ == "gap":
            assert model.certificate_.relative <= model.tol
        assert set(model.predict(STORAGES[storage](data.X))) <= set(LABELS[labels].tolist())

    check(
        claim,
        n_examples,
        data=rows(),
        storage=st.sampled_from(list(STORAGES)),
        labels=st.sampled_from(list(LABELS)),
        ranks=st.sampled_from(RANKS),
        seed=st.integers(0, 9),
    )
