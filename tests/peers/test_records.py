"""The table of one peer: what counts, who is there, and what makes a proof."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from widemargin.peers import records, store
from widemargin.peers.cutting_planes import Cut
from widemargin.peers.records import KEPT, NUMBERS_PER_INCARNATION, HingeCosts, Proposal, Snapshot
from widemargin.peers.table import RecordTable
from widemargin.problems.mean_hinge import MeanHinge

ALPHA = 0.5
W = np.array([[0.5, 0.0]])


def snapshot(peer, neighbours, number=1, tick=0, total=10.0, dual_sum=2.0, incarnation=0, data_version=5):
    return Snapshot(
        peer=peer,
        number=incarnation * NUMBERS_PER_INCARNATION + number,
        tick=tick,
        neighbours=np.array(neighbours, dtype=np.int64),
        data_version=data_version,
        total=total,
        dual=Cut(np.array([dual_sum]), np.array([[1.0, 0.0]]), np.zeros(1)),
        model=W,
        rho=1.0,
        gap=np.inf,
        is_stuck=False,
    )


def hinge_costs(peer, cost, number=1, proposals=(1,), total=10.0, incarnation=0, proposer=0, data_version=5, model=W):
    costs = np.full((len(proposals), 1), float(cost))
    number += incarnation * NUMBERS_PER_INCARNATION
    digests = np.array([records.digest_of(model)] * len(proposals))
    return HingeCosts(peer, number, proposer, data_version, total, np.array(proposals, dtype=np.int64), costs, digests)


@pytest.fixture
def table():
    """Two peers, all said."""
    table = RecordTable(0, MeanHinge(ALPHA))
    for record in (
        snapshot(0, [1]), snapshot(1, [0]), Proposal(0, 1, W), hinge_costs(0, 3.0), hinge_costs(1, 5.0),
    ):  # fmt: skip
        assert table.take(record)
    return table


def test_a_proof_is_of_sums_over_all(table):
    proof = table.prove()
    assert proof.members == {0, 1}
    assert proof.total == 20.0
    certificate = proof.worst
    assert certificate.primal == pytest.approx(0.5 * ALPHA * 0.25 + (3 + 5) / 20)
    assert certificate.dual == pytest.approx(4 / 20 - 2**2 / (2 * ALPHA * 20**2))


def test_older_records_are_no_news(table):
    assert not table.take(snapshot(1, [0]))
    assert not table.take(snapshot(1, [0], number=0))
    assert table.take(snapshot(1, [0], number=2))


def test_there_is_no_proof_while_one_is_named_and_unknown(table):
    table.take(snapshot(1, [0, 2], number=2))
    assert table.prove() is None
    assert not table.is_network_known
    assert table.members == {0, 1, 2}
    table.take(snapshot(2, [1]))
    assert table.is_network_known
    assert table.prove() is None  # it has not proposals
    table.take(hinge_costs(2, 7.0))
    assert table.prove().worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + (3 + 5 + 7) / 30)


def test_one_that_is_no_longer_named_is_not_counted(table):
    table.take(snapshot(1, [0, 2], number=2))
    table.take(snapshot(2, [1]))
    table.take(snapshot(1, [0], number=3))
    assert table.members == {0, 1}
    assert table.prove() is not None


def test_the_lowest_number_that_is_there_proposes():
    table = RecordTable(3, MeanHinge(ALPHA))
    table.take(snapshot(3, [1, 5]))
    assert table.proposer == 1
    table.take(snapshot(3, [5], number=2))
    assert table.proposer == 3


def test_bounds_never_get_worse_while_the_problem_is_the_same(table):
    before = table.prove().worst
    table.take(Proposal(0, 2, 3 * W))
    for peer in (0, 1):
        table.take(hinge_costs(peer, 9.0, number=2, proposals=(2, 1)))
        table.take(snapshot(peer, [1 - peer], number=2, tick=4, dual_sum=0.1))
    assert table.prove().worst == before


@pytest.mark.parametrize("are_costs_first", [True, False])
def test_costs_of_fewer_rows_never_meet_weights_of_more(table, are_costs_first):
    """Whichever arrives first, there is no proof before both are of the same rows."""
    assert table.prove() is not None
    new = (
        hinge_costs(1, 25.0, number=2, total=30.0, data_version=6),
        snapshot(1, [0], number=2, tick=4, total=30.0, data_version=6),
    )
    for record in new if are_costs_first else new[::-1]:
        before = table.prove()
        assert before is None or before.total == 20.0
        table.take(record)
    table.take(snapshot(0, [1], number=2, tick=4))
    proof = table.prove()
    assert proof.total == 40.0
    assert proof.worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + (3 + 25) / 40)


def test_an_old_record_of_costs_that_comes_after_new_rows_is_not_used(table):
    table.take(snapshot(1, [0], number=5, tick=4, total=30.0, data_version=6))
    table.take(hinge_costs(1, 5.0, number=3))  # of ten rows: late, and newer than the one that is here
    assert table.prove() is None


def test_a_former_incarnation_of_as_many_rows_may_have_had_others(table):
    table.take(snapshot(1, [0], incarnation=1))
    assert table.prove() is None
    table.take(hinge_costs(1, 6.0, incarnation=1))
    assert table.prove().worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + (3 + 6) / 20)


@pytest.mark.parametrize("are_costs_first", [True, False])
def test_other_rows_of_the_same_number_in_the_same_incarnation(table, are_costs_first):
    assert table.prove() is not None
    new = hinge_costs(1, 6.0, number=2, data_version=6), snapshot(1, [0], number=2, data_version=6)
    for record in new if are_costs_first else new[::-1]:
        before = table.prove()
        assert before is None or before.worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + (3 + 5) / 20)
        table.take(record)
    assert table.prove().worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + (3 + 6) / 20)


def test_a_lower_bound_above_an_upper_one_proves_nothing_and_all_begins_anew(table):
    assert table.prove() is not None
    table.take(Proposal(0, 2, W))
    for peer in (0, 1):
        table.take(hinge_costs(peer, 0.0, number=2, proposals=(2,)))  # of rows whose dual value is above this
    assert table.prove() is None
    assert not table._costs
    assert not table._of_tick
    table.take(Proposal(0, 3, W))
    for peer in (0, 1):
        table.take(hinge_costs(peer, 5.0, number=3, proposals=(3,)))
        table.take(snapshot(peer, [1 - peer], number=3, tick=4))
    assert table.prove().worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + (5 + 5) / 20)


def test_records_that_nobody_keeps_are_let_go(monkeypatch):
    """However many came: in all no more than so many bytes, beyond those that are in use."""
    monkeypatch.setattr(store, "_UNSWEPT_BYTES", 100_000)
    shared, models = store.RecordStore(), []
    table, other = (RecordTable(me, MeanHinge(ALPHA), shared) for me in (0, 1))
    for number in range(1, 300):
        model = np.zeros((1, 200))
        record = Proposal(0, number, model)
        assert shared.size_of(record, model, None) == records.n_bytes_of(record)
        table.take(record)
        if number % 50 == 1:
            other.take(record)
        models.append(weakref.ref(model))
        del model, record
        shared.sweep()
        assert sum(each() is not None for each in models) * 1600 <= 150_000
    assert table.newest[Proposal][0].number == 299
    assert other.newest[Proposal][0].number == 251
    assert len(shared._free) > 0


def test_costs_are_kept_of_what_was_proposed_whatever_a_peer_names():
    """Also where it names one of a higher number, and a later incarnation, over and over."""
    table = RecordTable(0, MeanHinge(ALPHA))
    for peer in (0, 1):
        table.take(snapshot(peer, [1 - peer]))
        table.take(hinge_costs(peer, 3.0, number=1))
    table.take(Proposal(0, 1, W))
    for number in range(2, 9 * KEPT):
        proposals = range(5 * NUMBERS_PER_INCARNATION + number, 5 * NUMBERS_PER_INCARNATION + number - KEPT, -1)
        table.take(hinge_costs(1, 1.0, number=number, proposals=proposals, proposer=1))
    assert table.prove().worst.primal == pytest.approx(0.5 * ALPHA * 0.25 + 6 / 20)
    assert len(table._costs) == 1


def test_the_table_does_not_grow_with_time():
    table = RecordTable(0, MeanHinge(ALPHA))
    for number in range(1, 200):
        table.take(snapshot(0, [], number=number, tick=number))
        table.take(Proposal(0, number, W))
        table.take(hinge_costs(0, 3.0, number=number, proposals=(number,)))
        table.prove()
    assert len(table._of_tick) == KEPT
    assert len(table.proposals) == KEPT
    assert len(table._costs) <= KEPT
