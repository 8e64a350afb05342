"""How far the ticks of a network can have come."""

from __future__ import annotations

import numpy as np

from tests.peers.networks import Network, chords, even, overlapping_rows, split
from widemargin.peers.records import NUMBERS_PER_INCARNATION
from widemargin.peers.tick_limit import LEAST_PACE, TickLimit

X, CODES = overlapping_rows(120)


def test_a_network_at_the_least_pace_is_always_below_the_limit():
    limit = TickLimit(500, 10.0)
    for seconds in np.linspace(0, 1e6, 50):
        assert 500 + seconds / LEAST_PACE < limit.highest(10.0 + seconds)


def test_one_member_cannot_move_the_limit_and_most_can():
    limit = TickLimit(0, 0.0)
    limit.note(1, 10**9, 1.0)
    limit.note(2, 50, 1.0)
    limit.note(3, 52, 1.0)
    assert limit.highest(1.0) < 10_000
    assert limit.can_judge()
    limit.note(2, 10**9, 1.0)  # most say so: the clock here stood still
    assert limit.highest(1.0) > 10**9


def test_two_members_are_too_few_to_judge():
    limit = TickLimit(0, 0.0)
    limit.note(1, 10**9, 1.0)
    limit.note(2, 10**9, 1.0)
    assert not limit.can_judge()
    assert limit.highest(1.0) < 10_000


def test_a_message_from_the_far_future_moves_nobody():
    network = Network(split(X, CODES, even(120, 4)), chords(4)).go(20)
    peer = network.peers[0]
    peer.highest_tick = 1_000
    message = dict(network.peers[1].tick())[0]
    far = message._replace(number=NUMBERS_PER_INCARNATION - 10, records=[])
    ticks, refused = peer.ticks, peer.traffic.refused
    peer.receive(far)
    assert (peer.ticks, peer.traffic.refused) == (ticks, refused + 1)
    assert set(peer.too_far_ahead) == {1}
    near = message._replace(number=50_000, records=[])
    peer.receive(near)
    assert peer.ticks == 999  # advanced, and no further than is possible
