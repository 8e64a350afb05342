"""Records reach neighbours whatever is lost, late or twice, and about once where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.networks import ALPHA, even, overlapping_rows, split
from widemargin.peers import delivery as module
from widemargin.peers import peer
from widemargin.peers.admm import GossipADMM
from widemargin.peers.delivery import Delivery
from widemargin.peers.peer import Peer
from widemargin.peers.records import Moments, Proposal, n_bytes_of
from widemargin.peers.table import RecordTable
from widemargin.problems.mean_hinge import MeanHinge

X, CODES = overlapping_rows(60)
PARTS = split(X, CODES, even(60, 3))


class Silent(GossipADMM):
    """An algorithm that does nothing, for peers whose messages do not matter."""

    def work(self):
        pass


def idle_peer(number):
    algorithm = Silent(MeanHinge(ALPHA), PARTS[0], np.random.default_rng(0), False)
    return Peer(number, MeanHinge(ALPHA), algorithm, [1 - number], 1, np.random.default_rng(0))


@pytest.mark.parametrize("loss", [0.1, 0.5, 0.9])
def test_bits_say_which_message_came_whatever_was_lost_or_late(loss, seed):
    """Against a set of all numbers that came."""
    delivery = Delivery(RecordTable(0, MeanHinge(ALPHA)), {})
    rng, came = np.random.default_rng([seed, int(10 * loss)]), set()
    numbers = np.arange(1, 400)
    order = np.argsort(numbers + rng.integers(0, 12, size=len(numbers)) * (rng.random(len(numbers)) < 0.3))
    for number in numbers[order].tolist():
        for _ in range(1 + (rng.random() < 0.1)):  # now and then twice
            if rng.random() < loss:
                continue
            is_new = delivery.mark_received(1, number)
            assert is_new == (number > max(came, default=0))
            first = min(came, default=number)
            came.add(number)
            last, bits = delivery.received_from(1)
            assert last == max(came)
            for age in range(module.WINDOW):
                expected = last - age - 1 in came
                claimed = bool(bits >> age & 1)
                assert not claimed or expected  # what is confirmed has come
                # All that came is confirmed, too: unless a gap as wide as the window has made it forgotten.
                if expected and last - first <= module.WINDOW:
                    assert claimed


@pytest.mark.parametrize("loss", [0.2, 0.6])
def test_every_record_is_confirmed_or_sent_again(loss, seed):
    """Two peers, one of which has ever new things to say, over a wire that loses messages both ways and reorders."""
    rng = np.random.default_rng([seed, int(10 * loss)])
    one, other = idle_peer(0), idle_peer(1)
    under_way, said = [], {}
    for tick in range(300):
        if tick < 200 and tick % 3 == 0:
            subject = int(rng.integers(2, 9))
            said[subject] = Proposal(subject, tick + 1, np.full((1, 6), float(tick)))
            one._announce(said[subject])
        for sender in (one, other):
            under_way += [(tick + int(rng.integers(1, 4)), *sent) for sent in sender.tick() if rng.random() >= loss]
        for message in [message for at, _, message in under_way if at == tick]:
            (one, other)[1 - message.sender].receive(message)
    newest = other.table.newest[Proposal]
    for subject, record in said.items():
        assert newest[subject].number == record.number
    assert not [record for record in one.delivery.lacking(1) if isinstance(record, Proposal) and record.peer in said]


def test_records_cross_an_edge_about_once_where_nothing_is_lost():
    one, other = idle_peer(0), idle_peer(1)
    sent = []
    for tick in range(60):
        if tick % 5 == 0:
            one._announce(Proposal(5, tick + 1, np.zeros((1, 6))))
        messages = one.tick(), other.tick()
        sent += [
            (r.peer, r.number) for _, m in messages[0] for r in m.records if isinstance(r, Proposal) and r.peer == 5
        ]
        for _, message in (*messages[0], *messages[1]):
            (one, other)[1 - message.sender].receive(message)
    assert len(sent) == len(set(sent)) == 12


def test_records_that_nobody_confirms_are_sent_again():
    """Whether the message was lost, or every answer to it."""
    one = idle_peer(0)
    with_moments = [
        tick for tick in range(1, 12) for _, m in one.tick() if any(isinstance(r, Moments) for r in m.records)
    ]
    assert with_moments == [1, 2 + peer._OVERDUE_TICKS, 3 + 2 * peer._OVERDUE_TICKS]


def test_a_message_holds_only_so_many_records_and_the_next_the_others(monkeypatch):
    one, other = idle_peer(0), idle_peer(1)
    monkeypatch.setattr(module, "_RECORD_BYTES", 500)
    for subject in range(2, 40):
        one._announce(Proposal(subject, 1, np.zeros((1, 6))))
    n_messages = 0
    while len(other.table.newest[Proposal]) < 38:
        ((_, message),) = one.tick()
        assert 0 < sum(n_bytes_of(record) for record in message.records) <= 500
        assert message.n_bytes == 32 + message.payload.nbytes + sum(map(n_bytes_of, message.records))
        other.receive(message)
        one.receive(dict(other.tick())[0])
        n_messages += 1
    assert n_messages > 5
