from __future__ import annotations

import threading
from functools import reduce

import numpy as np
import pytest

from tests.problems_at_hand import on_ranks
from widemargin.comm.threads import Meeting, RankAborted, Threads
from widemargin.ledger import Ledger

SIZES = [2, 3, 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("op", "combine"), [("sum", np.add), ("min", np.minimum), ("max", np.maximum)])
def test_allreduce_combines_elementwise_on_every_rank(size, op, combine):
    values = np.random.default_rng(0).normal(size=(size, 5))
    expected = reduce(combine, values)
    for outcome in on_ranks(size, lambda comm: comm.allreduce(values[comm.rank], op)):
        np.testing.assert_array_equal(outcome, expected)


def test_sum_is_the_default():
    assert [outcome[0] for outcome in on_ranks(3, lambda comm: comm.allreduce(np.array([2.0])))] == [6.0] * 3


def test_sums_are_taken_in_the_order_of_ranks_whoever_arrives_first():
    """1 + 1e16 - 1e16 - 1 differs with the order, and so do the arrivals."""
    values = [1.0, 1e16, -1e16, 1.0, 3.0]
    expected = reduce(lambda a, b: a + b, values)
    assert expected != reduce(lambda a, b: a + b, values[::-1])
    for late in range(5):
        gate = threading.Event()

        def task(comm, late=late, gate=gate):
            if comm.rank == late:
                gate.wait(timeout=0.05)
            return comm.allreduce(np.array([values[comm.rank]]))[0]

        assert on_ranks(5, task) == [expected] * 5


@pytest.mark.parametrize("root", [0, 2])
def test_gather_brings_arrays_of_different_lengths_to_the_root_only(root):
    outcomes = on_ranks(3, lambda comm: comm.gather(np.full(comm.rank, float(comm.rank)), root))
    assert [outcome is None for outcome in outcomes] == [rank != root for rank in range(3)]
    assert [len(each) for each in outcomes[root]] == [0, 1, 2]
    assert outcomes[root][2].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("root", [0, 2])
def test_broadcast_gives_every_rank_the_array_of_the_root(root):
    def task(comm):
        return comm.broadcast(np.array([7.0, float(comm.rank)]) if comm.rank == root else None, root)

    assert [outcome.tolist() for outcome in on_ranks(3, task)] == [[7.0, float(root)]] * 3


def test_what_was_handed_in_may_be_overwritten_at_once():
    def task(comm):
        mine = np.array([1.0])
        totals = []
        for _ in range(50):
            totals.append(comm.allreduce(mine)[0])
            mine[0] += 1
        return totals

    assert on_ranks(3, task) == [[3.0 * k for k in range(1, 51)]] * 3


def test_many_rounds_of_all_kinds_never_mix():
    def task(comm):
        seen = []
        for k in range(200):
            seen.append(comm.allreduce(np.array([float(k + comm.rank)]))[0])
            seen.append(comm.broadcast(np.array([float(k)]), root=k % comm.size)[0])
            gathered = comm.gather(np.array([float(comm.rank)]), root=k % comm.size)
            seen.append(0.0 if gathered is None else sum(each[0] for each in gathered) - 6.0)
        return seen

    first, *others = on_ranks(4, task)
    assert first[:2] == [6.0, 0.0]
    assert all(other == first for other in others)


def test_a_rank_that_comes_after_an_abort_is_sent_away_and_those_who_wait_are_woken():
    meeting = Meeting(2)
    caught = []

    def waiting():
        try:
            Threads(0, meeting).allreduce(np.zeros(1))
        except RankAborted as error:
            caught.append(error)

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    meeting.abort()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert len(caught) == 1
    with pytest.raises(RankAborted):
        Threads(1, meeting).allreduce(np.zeros(1))


# -- the ledger of a star --------------------------------------------------------------------------------------------


def ledgers_of(size, *calls):
    def task(comm):
        comm.ledger = Ledger()
        for call in calls:
            call(comm)
        return comm.ledger

    return on_ranks(size, task)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [1, 10])
def test_an_allreduce_is_one_message_from_each_rank_and_one_back(size, length):
    ledgers = ledgers_of(size, lambda comm: comm.allreduce(np.ones(length)))
    assert [ledger.rounds for ledger in ledgers] == [1] * size
    assert [ledger.messages for ledger in ledgers] == [size - 1] + [1] * (size - 1)
    assert [ledger.scalars for ledger in ledgers] == [length * (size - 1)] + [length] * (size - 1)
    assert [ledger.bytes for ledger in ledgers] == [8 * ledger.scalars for ledger in ledgers]


@pytest.mark.parametrize("size", SIZES)
def test_a_gather_is_one_message_from_each_other_rank(size):
    ledgers = ledgers_of(size, lambda comm: comm.gather(np.ones(1 + comm.rank)))
    assert [ledger.messages for ledger in ledgers] == [0] + [1] * (size - 1)
    assert [ledger.scalars for ledger in ledgers] == [0, *range(2, size + 1)]


@pytest.mark.parametrize("size", SIZES)
def test_a_broadcast_is_one_message_to_each_other_rank(size):
    ledgers = ledgers_of(size, lambda comm: comm.broadcast(np.ones(5), root=1))
    assert [ledger.messages for ledger in ledgers] == [0, size - 1] + [0] * (size - 2)
    assert sum(ledger.scalars for ledger in ledgers) == 5 * (size - 1)


def test_rounds_add_up():
    calls = [lambda comm: comm.allreduce(np.ones(2))] * 3 + [lambda comm: comm.broadcast(np.ones(4))] * 2
    ledgers = ledgers_of(3, *calls)
    assert [ledger.rounds for ledger in ledgers] == [5] * 3
    assert sum(ledger.scalars for ledger in ledgers) == 3 * 2 * 2 * 2 + 2 * 4 * 2
