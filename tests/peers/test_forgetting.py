"""Peers that come and go for ever leave no more behind than the last few, and clocks that jump stop nobody."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.peers.networks import overlapping_rows, split
from tests.peers.test_loop import FAST, Threads, Wires, data, peer_of, wait_until
from widemargin.peers import table
from widemargin.peers.admm import GossipADMM
from widemargin.peers.loop import PeerLimits, PeerLoop
from widemargin.peers.peer import Peer
from widemargin.peers.records import Moments, Snapshot
from widemargin.problems.mean_hinge import MeanHinge


def a_peer(number, neighbours, part, incarnation=0):
    problem, rng = MeanHinge(0.01), np.random.default_rng(number)
    return Peer(number, problem, GossipADMM(problem, part, rng, is_full=True), list(neighbours), 3, rng, incarnation)


def run(peers, ticks):
    """Some ticks in which all messages to those who are there arrive."""
    there = {peer.number: peer for peer in peers}
    for _ in range(ticks):
        for peer in peers:
            for to, message in peer.tick():
                if to in there:
                    there[to].receive(message)


def meet(host, guest, ticks=6):
    """Some ticks in which two write to each other and nothing is lost."""
    for _ in range(ticks):
        for one, other in ((host, guest), (guest, host)):
            for to, message in one.tick():
                if to == other.number:
                    other.receive(message)


def test_of_peers_that_left_the_last_few_are_remembered():
    X, codes = overlapping_rows(40)
    (part,) = split(X, codes, [40])
    host = a_peer(0, [], part)
    n_kept = table._KEPT_DEPARTED
    for number in range(1, n_kept + 12):
        host.add_neighbour(number)
        meet(host, a_peer(number, [0], part))
        host.remove_neighbour(number)
    for _ in range(table._DEPARTED_TICKS + 10):
        host.tick()
    known = set(host.table.newest[Snapshot])
    assert known == {0, *range(12, n_kept + 12)}
    assert set(host.table.newest[Moments]) == known
    assert set(host.table.cuts.by_peer) == {0}
    assert len(host.algorithm._checksums) == len(known)
    assert host.neighbours == [] == list(host.delivery.pending)
    assert host.proof is not None
    assert host.proof.members == {0}
    # One that was forgotten is welcome again.
    host.add_neighbour(1)
    meet(host, a_peer(1, [0], part), ticks=30)
    assert host.proof.members == {0, 1}


@pytest.mark.parametrize("is_direct", [True, False], ids=["neighbour of all", "behind one that forgot"])
def test_a_peer_that_returns_under_a_lower_number_than_some_remember_is_heard(is_direct):
    """The one that it joins has forgotten it, and so it is told of no earlier life; the others have not."""
    X, codes = overlapping_rows(120)
    parts = split(X, codes, [30] * 4)
    first, second = a_peer(0, [1, 3], parts[0]), a_peer(1, [0, 3], parts[1])
    guest = a_peer(3, [0, 1], parts[3], incarnation=2)
    run([first, second, guest], 40)
    assert first.proof.members == {0, 1, 3}
    run([first, second], 60)
    assert first.proof.members == {0, 1}
    host = a_peer(2, [0, 1, 3], parts[2])
    for peer in (first, second):
        peer.add_neighbour(2)
        if not is_direct:
            peer.remove_neighbour(3)
    run([first, second, host], 60)
    host.table._forget(3)
    guest = a_peer(3, [0, 1, 2] if is_direct else [2], parts[3])
    everyone = [first, second, host, guest]
    run(everyone, 80)
    for peer in everyone:
        assert peer.proof.members == {0, 1, 2, 3}
    assert guest.incarnation > 2


def test_neighbours_that_are_silent_for_long_are_forgotten(monkeypatch):
    monkeypatch.setattr("widemargin.peers.loop._SILENT_SECONDS", 0.05)
    (X,), (y,) = data(1)
    forgotten = []
    wire = Wires(30).of(0)
    wire.forget = forgotten.append
    loop = PeerLoop(peer_of(0, X, y, range(1, 21)), wire, PeerLimits(0.0, at_least=2, max_ticks=300, **FAST))
    loop.run()
    assert sorted(forgotten + loop.peer.neighbours) == list(range(1, 21))
    assert len(loop.peer.neighbours) == 8


class Jumping:
    """Seconds with steps."""

    offset = 0.0

    def __call__(self):
        return time.monotonic() + self.offset


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_clocks_that_jump_delay_nobody(jump):
    parts, labels = data(3)
    wires, threads, clock = Wires(3), Threads(), Jumping()
    is_enough = []
    limits = PeerLimits(0.0, at_least=4, pace=0.002, silence=0.5)
    loops = [
        PeerLoop(
            peer_of(k, parts[k], labels[k], {0, 1, 2} - {k}), wires.of(k), limits,
            lambda loop: bool(is_enough), clock if k == 0 else time.monotonic,
        )
        for k in range(3)
    ]  # fmt: skip
    for loop in loops:
        threads.start(loop)
    wait_until(lambda: all(loop.gap < 1e-3 for loop in loops))
    before = loops[0].peer.ticks
    clock.offset += jump
    wait_until(lambda: loops[0].peer.ticks > before + 50)
    assert all(len(loop.peer.live_neighbours) == 2 for loop in loops)
    seconds = loops[0].seconds
    assert (seconds >= 3600) == (jump > 0)
    is_enough.append(True)
    assert all(report.members == [0, 1, 2] for report in threads.join().values())
