"""What a member can try, and what comes of it: two of ten lie, and the others certify the optimum of their rows."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.peers.liars import BEHAVIOURS, LIES, PAYLOADS, UNPROVED, make_garbler, make_liar, make_nuisance
from tests.peers.networks import (
    ALPHA,
    Network,
    assert_brackets,
    chords,
    even,
    objective,
    overlapping_rows,
    split,
)
from tests.peers.test_records import W, hinge_costs, snapshot
from widemargin.peers.claims import Claims, contradiction
from widemargin.peers.records import Proposal, digest_of, is_sound
from widemargin.peers.table import RecordTable
from widemargin.problems.mean_hinge import MeanHinge

N, LIARS = 10, (0, 3)  # 0 has the lowest number: it proposes
HONEST = [k for k in range(N) if k not in LIARS]
X, CODES = overlapping_rows(200)
PARTS = split(X, CODES, even(200, N))


def checked_network(lie=None):
    network = Network(PARTS, chords(N))
    for peer in network.peers.values():
        peer.claims = Claims(dict.fromkeys(range(N), 25.0))
    for k in LIARS if lie is not None else ():
        network.peers[k].claims = None
        make_liar(network.peers[k], lie, seed=k)
    return network


@pytest.mark.parametrize("lie", LIES)
def test_eight_of_ten_certify_their_rows_once_two_liars_are_proved_or_revoked(lie):
    network = checked_network(LIES[lie])
    exact = network.optima(HONEST)
    for tick in range(600):
        network.go()
        if tick == 60:  # those that no record proves to lie are revoked
            for k in HONEST:
                for liar in LIARS:
                    network.peers[k].exclude(liar)
        proofs = [network.peers[k].proof for k in HONEST]
        for proof in filter(None, proofs):
            assert all(each.dual <= each.primal for each in proof.certificates)
            if proof.members == set(HONEST):
                assert_brackets(proof, exact)
        if all(p is not None and p.members == set(HONEST) and p.worst.relative <= 1e-3 for p in proofs):
            break
    else:
        raise AssertionError(f"not certified: {proofs}")
    found = [evidence for k in HONEST for evidence in network.peers[k].evidence.values()]
    assert found
    assert all(contradiction(each, dict.fromkeys(range(N), 25.0)) in LIARS for each in found)


ATTACKS = {
    **{f"records: {name}": (make_liar, UNPROVED[name]) for name in UNPROVED},
    **{f"payload: {name}": (make_garbler, lambda name=name: name) for name in PAYLOADS},
    **{f"behaviour: {name}": (make_nuisance, lambda name=name: name) for name in BEHAVIOURS},
}
REVOKED_AT, ALLOWED = 60, {1e-3: 40, 1e-6: 80}  # ticks


@pytest.mark.parametrize("attack", ATTACKS)
def test_eight_of_ten_recover_from_what_no_record_proves_once_two_are_revoked(attack):
    """Bounds are true all along, and the models of the honest, not only what they certify, come to the optimum."""
    network = checked_network()
    install, of = ATTACKS[attack]
    for k in LIARS:
        network.peers[k].claims = None
        install(network.peers[k], of(), seed=k)
    (exact,), everything = network.optima(HONEST), network.optima(range(N))
    honest, reached = [network.peers[k] for k in HONEST], {}
    with np.errstate(over="ignore", invalid="ignore"):
        for tick in range(REVOKED_AT + ALLOWED[1e-6]):
            if tick == REVOKED_AT:
                for peer in honest:
                    assert np.isfinite(peer.algorithm.model).all()
                    for liar in LIARS:
                        peer.exclude(liar)
            network.go()
            assert all(is_sound(record, peer.model, peer._own_moment) for peer in honest for record in said_by(peer))
            proofs = [peer.proof for peer in honest]
            for proof in filter(None, proofs):
                assert all(each.dual <= each.primal <= 1.0 for each in proof.certificates)
                if proof.members == set(HONEST):
                    assert_brackets(proof, [exact])
                elif attack.startswith("payload"):  # the records are honest, and so is what follows from them
                    assert_brackets(proof, everything)
            gap = max(p.worst.relative if p is not None and p.members == set(HONEST) else np.inf for p in proofs)
            for level in ALLOWED:
                if gap <= level:
                    reached.setdefault(level, tick + 1 - REVOKED_AT)
    assert not any(peer.table.excluded - set(LIARS) for peer in honest)
    assert all(reached[level] <= most for level, most in ALLOWED.items()), reached
    rows, y, weight = rows_of(HONEST)
    values = [objective(peer.algorithm.model[0], rows, y, weight, ALPHA) for peer in honest]
    assert max(values) <= 1.05 * exact, values


def said_by(peer):
    return [newest[peer.number] for newest in peer.table.newest.values() if peer.number in newest]


def rows_of(numbers):
    parts = [PARTS[k] for k in numbers]
    return (
        np.vstack([part.X for part in parts]),
        np.hstack([part.signs[0] for part in parts]),
        np.hstack([part.weight for part in parts]),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e4, 1e8])
def test_no_honest_member_is_accused(scale, dtype):
    rows = (X * np.array([scale] * (X.shape[1] - 1) + [1.0])).astype(dtype)
    network = Network(split(rows, CODES, even(200, 4)), chords(4))
    for peer in network.peers.values():
        peer.claims = Claims(dict.fromkeys(range(4), 50.0))
    network.go(60)
    assert all(not peer.evidence and not peer.table.excluded for peer in network.peers.values())
    assert any(len(each) > 3 for each in network.peers[0].claims._costs.values())  # there was something to check


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_records_of_the_same_rows_are_compared_whatever_else_comes_between(order):
    """A liar names other rows in between: the table goes on with a snapshot of the former ones."""
    claims, found = Claims(), []
    assert claims.check(Proposal(0, 1, W)) is None
    said = hinge_costs(1, 0.0, number=7), hinge_costs(1, 0.0, number=10, data_version=6), snapshot(1, [0], number=9)
    for k in order:
        found.append(claims.check(said[k]))
    (evidence,) = filter(None, found)
    assert contradiction(evidence) == 1


def test_costs_of_another_model_under_the_same_number_do_not_count():
    """A proposer that sends two models under one number gets no proof for either, and nobody accused."""
    table = RecordTable(0, MeanHinge(0.5))
    other = W + 1.0
    assert all(one != two for one, two in zip(digest_of(other), digest_of(W), strict=True))  # both halves
    assert len(digest_of(W)) == 2  # of 64 bits: the half would let a proposer find two models with one digest
    for record in (snapshot(0, [1]), snapshot(1, [0]), Proposal(0, 1, W), hinge_costs(0, 3.0)):
        table.take(record)
    table.take(hinge_costs(1, 5.0, model=other))
    assert table.prove() is None
    table.take(hinge_costs(1, 5.0, number=2))
    assert table.prove() is not None
