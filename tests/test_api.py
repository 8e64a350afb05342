"""The interface for solvers of one's own: what it refuses, and that ranks, weights and callbacks reach the solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.oracles import exact_svm
from tests.problems_at_hand import assert_brackets, overlapping
from widemargin import api
from widemargin.comm.threads import on_ranks
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.multipliers import Multipliers

X, Y = overlapping(0, n=60)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("rows", [X, X.tolist(), sp.csr_matrix(X), X.astype(np.float32)])
def test_it_ends_at_the_optimum_on_any_number_of_ranks(rows, ranks):
    exact = exact_svm(np.asarray(X, dtype=getattr(rows, "dtype", np.float64)), Y, 1.0)
    result = api.solve(Multipliers(), HingeL2(1.0), rows, Y.astype(int), ranks=ranks, tol=1e-6)
    assert result.stop_reason == "gap"
    assert_brackets(result.history, exact)
    assert result.certificate.primal == pytest.approx(exact, rel=1e-5)


def test_weights_are_multiplicities():
    weight = np.random.default_rng(0).integers(0, 3, len(Y))
    weighted = api.solve(Multipliers(), HingeL2(1.0), X, Y, sample_weight=weight, tol=1e-8)
    repeated = api.solve(Multipliers(), HingeL2(1.0), np.repeat(X, weight, axis=0), np.repeat(Y, weight), tol=1e-8)
    assert weighted.certificate.primal == pytest.approx(repeated.certificate.primal, rel=1e-7)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_callback_sees_every_sweep_and_may_stop(ranks):
    seen = []

    def watch(progress):
        seen.append(progress)
        return progress.sweep == 3

    result = api.solve(Multipliers(), HingeL2(1.0), X, Y, ranks=ranks, tol=0.0, callback=watch)
    assert (result.stop_reason, result.n_iter) == ("callback", 3)
    assert [progress.sweep for progress in seen] == [1, 2, 3]
    assert all(progress.certificate.dual <= progress.certificate.primal for progress in seen)


def test_limits_are_kept():
    assert api.solve(Multipliers(), HingeL2(1.0), X, Y, tol=0.0, max_iter=2).stop_reason == "max_iter"
    assert api.solve(Multipliers(), HingeL2(1.0), X, Y, tol=0.0, max_time=0.0).stop_reason == "max_time"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": np.where(Y > 0, 1, 0)}, r"-1 or \+1"),
        ({"y": Y[:-1]}, r"y of shape \(59,\).*60 rows"),
        ({"X": np.full_like(X, np.nan)}, "finite numbers only"),
        ({"X": X[:, 0]}, "two dimensions"),
        ({"sample_weight": -np.ones(60)}, r"sample_weight.*\[0, inf\)"),
        ({"sample_weight": np.ones(3)}, r"sample_weight of shape \(3,\)"),
        ({"ranks": 0}, r"ranks=0.*\[1, 60\]"),
        ({"ranks": 61}, r"ranks=61.*\[1, 60\]"),
        ({"y": np.ones(60)}, "negative class has weight 0"),
        ({"problem": HingeL2(-1.0)}, "C=-1"),
    ],
)
def test_what_cannot_be_solved_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        api.solve(**{"solver": Multipliers(), "problem": HingeL2(1.0), "X": X, "y": Y, **options})


def test_an_error_of_one_rank_is_raised_here():
    class Failing(Multipliers):
        def sweep(self, state):
            if state.rows.comm.rank == 1:
                raise ArithmeticError("on rank 1")
            return super().sweep(state)

    with pytest.raises(ArithmeticError, match="on rank 1"):
        api.solve(Failing(), HingeL2(1.0), X, Y, ranks=2)


def test_every_name_is_there():
    assert all(hasattr(api, name) for name in api.__all__)
    assert api.__all__ == sorted(api.__all__, key=lambda name: (name[0].islower(), name))


def test_every_rank_learns_why_a_run_stopped():
    limits = api.Limits(0.0, 100)

    def on_rank(comm):
        part = slice(comm.rank, None, comm.size)
        shard = api.Shard(np.ascontiguousarray(X[part]), Y[part], np.ones(len(Y[part])))
        rng = np.random.default_rng(0)
        return api.run(Multipliers(), HingeL2(1.0), shard, comm, limits, rng, watch=lambda _: "enough").stop_reason

    assert on_ranks(3, on_rank) == ["enough"] * 3


@pytest.mark.parametrize("kind", [sp.csc_matrix, sp.coo_matrix, sp.csr_array])
def test_sparse_rows_of_any_format_and_rows_of_no_weight(kind):
    weight = np.where(np.arange(len(Y)) % 3, 1.0, 0.0)
    dense = api.solve(Multipliers(), HingeL2(1.0), X[weight > 0], Y[weight > 0], tol=1e-8)
    sparse = api.solve(Multipliers(), HingeL2(1.0), kind(X), Y, sample_weight=weight, ranks=2, tol=1e-8)
    assert sparse.certificate.primal == pytest.approx(dense.certificate.primal, rel=1e-7)
