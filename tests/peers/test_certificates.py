"""Whatever happens on the way, what a peer certifies is true of the rows of those it counts: at every tick, for all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.peers.networks import (
    Network,
    assert_brackets,
    chords,
    even,
    optimum,
    overlapping_rows,
    ring,
    signs_of,
    split,
)
from widemargin.comm.faults import Faults
from widemargin.peers.proofs import Proof
from widemargin.problems.protocol import Certificate

X, CODES = overlapping_rows()
EXACT = [optimum(X, y) for y in signs_of(CODES, 2)]
BY_LABEL = np.argsort(CODES, kind="stable")


def follow(network, exact, gap, ticks):
    """Every proof of the whole holds, from the first on, and in the end all reach the gap."""
    whole, n_seen = frozenset(range(len(network.parts))), 0
    for _ in range(ticks):
        network.go()
        for peer in network.peers.values():
            if peer.proof is not None and peer.proof.members == whole:
                assert_brackets(peer.proof, exact)
                n_seen += 1
        proof = network.simulation.certify(network.state)
        if proof is not None and proof.relative <= gap:
            break
    assert proof is not None, "nobody has certified anything"
    assert proof.relative <= gap
    assert n_seen >= len(whole)


def test_assert_brackets_fails_on_a_bound_that_is_none():
    assert_brackets(Proof(np.zeros((1, 2)), [Certificate(1.1, 0.9)], frozenset()), [1.0])
    for wrong in (Certificate(1.1, 1.01), Certificate(0.99, 0.9)):
        with pytest.raises(AssertionError):
            assert_brackets(Proof(np.zeros((1, 2)), [wrong], frozenset()), [1.0])


FAULTS = {
    "none": Faults(),
    "drop": Faults(drop=0.3),
    "delay": Faults(delay=(0, 3)),
    "duplicate": Faults(duplicate=0.3),
    "reorder": Faults(reorder=0.3),
    "idle": Faults(idle=0.5),
    "all": Faults(drop=0.2, delay=(0, 2), duplicate=0.1, reorder=0.1, idle=0.2),
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("is_sorted", [False, True], ids=["mixed", "sorted"])
def test_admm_under_faults(faults, is_sorted):
    parts = split(X, CODES, even(120, 6), order=BY_LABEL if is_sorted else None)
    follow(Network(parts, chords(6), faults=faults), EXACT, 1e-3, 1500)


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "diagonal"])
@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_admm_on_any_storage(is_full, storage, dtype):
    rows = X.astype(dtype) if storage == "dense" else sp.csr_matrix(X.astype(dtype))
    exact = [optimum(X.astype(dtype).astype(np.float64), signs_of(CODES, 2)[0])]
    follow(Network(split(rows, CODES, [60, 10, 30, 20]), ring(4), is_full=is_full), exact, 1e-3, 1500)


def test_dense_and_sparse_rows_give_the_same_models():
    dense = Network(split(X, CODES, even(120, 4)), ring(4)).go(40)
    sparse = Network(split(sp.csr_matrix(X), CODES, even(120, 4)), ring(4)).go(40)
    for number in range(4):
        one, other = dense.peers[number].model, sparse.peers[number].model
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_weights_are_multiplicities():
    weight = np.random.default_rng(3).integers(0, 3, size=120).astype(float)
    exact = [optimum(X, signs_of(CODES, 2)[0], weight)]
    follow(Network(split(X, CODES, even(120, 4), weight), ring(4)), exact, 1e-3, 1000)
    twice = np.repeat(np.arange(120), weight.astype(int))
    assert optimum(X[twice], signs_of(CODES, 2)[0][twice]) == pytest.approx(exact[0], rel=1e-7)
    sizes = [int(weight[30 * k : 30 * k + 30].sum()) for k in range(4)]
    follow(Network(split(X[twice], CODES[twice], sizes), ring(4)), exact, 1e-3, 1000)


def test_several_classes_in_the_same_messages():
    rows, codes = overlapping_rows(150, n_classes=3, seed=2)
    exact = [optimum(rows, y) for y in signs_of(codes, 3)]
    network = Network(split(rows, codes, even(150, 5), n_classes=3), chords(5), faults=Faults(drop=0.2))
    follow(network, exact, 1e-3, 1000)
    assert network.peers[0].model.shape == (3, 6)


@pytest.mark.parametrize("alpha", [1e-5, 1e-3, 10.0, 1e4])
def test_any_penalty(alpha):
    exact = [optimum(X, signs_of(CODES, 2)[0], alpha=alpha)]
    follow(Network(split(X, CODES, even(120, 4)), ring(4), alpha=alpha), exact, 1e-2, 3000)


@pytest.mark.parametrize("is_sorted", [False, True], ids=["mixed", "sorted"])
@pytest.mark.parametrize("faults", [Faults(), FAULTS["all"]], ids=["sound", "faults"])
def test_push_sum(faults, is_sorted):
    parts = split(X, CODES, [40, 10, 20, 30, 15, 5], order=BY_LABEL if is_sorted else None)
    network = Network(parts, chords(6), alpha=0.1, solver="push-sum", faults=faults)
    follow(network, [optimum(X, signs_of(CODES, 2)[0], alpha=0.1)], 0.1, 4000)


def test_what_peers_say_of_their_gap_is_what_they_have_certified():
    network = Network(split(X, CODES, even(120, 4)), ring(4)).go(60)
    for peer in network.peers.values():
        certificate = peer.proof.worst
        assert certificate.gap == certificate.primal - certificate.dual
        assert certificate.relative == certificate.gap / certificate.primal
        said = [network.peers[j].table.newest for j in network.peers]
        gaps = [
            records[snapshot][peer.number].gap
            for records in said
            for snapshot in records
            if snapshot.__name__ == "Snapshot"
        ]
        assert all(certificate.relative <= gap < 1 for gap in gaps)
