"""Peers in real time, as threads of this process, over queues for wires."""

from __future__ import annotations

import queue
import threading
import time

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from tests.peers.networks import Network, chords, even, overlapping_rows, split
from widemargin.peers.admm import GossipADMM
from widemargin.peers.loop import PeerLimits, PeerLoop
from widemargin.peers.peer import Peer
from widemargin.peers.records import Snapshot
from widemargin.peers.rows import PeerRows
from widemargin.problems.mean_hinge import MeanHinge

ALPHA, TOL = 0.01, 1e-3
FAST = {"pace": 0.002, "silence": 0.5, "max_time": 30.0}


class Wires:
    """Queues, one for each peer; ``lose(sender, to)`` says which messages get lost."""

    def __init__(self, n_peers, lose=lambda sender, to: False):
        self.inboxes = [queue.SimpleQueue() for _ in range(n_peers)]
        self.lose = lose

    def of(self, number):
        return Wire(self, number)


class Wire:
    refused = 0

    def __init__(self, wires, number):
        self._wires, self._number, self._newcomers = wires, number, []
        self.is_closed = False

    def open(self):
        pass

    def send(self, to, data):
        if not self._wires.lose(self._number, to):
            self._wires.inboxes[to].put((None, data))

    def receive(self, wait):
        inbox, batch = self._wires.inboxes[self._number], []
        try:
            batch.append(inbox.get(timeout=wait) if wait else inbox.get_nowait())
            while True:
                batch.append(inbox.get_nowait())
        except queue.Empty:
            return batch

    def announce(self, number):
        self._newcomers.append(number)

    def newcomers(self):
        there, self._newcomers = self._newcomers, []
        return there

    def gone(self):
        return set()

    def close(self):
        self.is_closed = True


def data(n_peers, n_rows=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_peers * n_rows, 6))
    y = (X @ rng.normal(size=6) + 0.7 * rng.normal(size=len(X)) > 0).astype(int)
    return np.split(X, n_peers), np.split(y, n_peers)


def peer_of(number, X, y, neighbours, incarnation=0, weight=1.0):
    rows = PeerRows.of(X, y, np.full(len(y), weight), 2, has_constant=True)
    problem = MeanHinge(ALPHA)
    algorithm = GossipADMM(problem, rows, np.random.default_rng(number), is_full=True)
    return Peer(number, problem, algorithm, list(neighbours), 3, np.random.default_rng(number + 100), incarnation)


def optimum(parts, labels, which):
    X, y = np.vstack([parts[k] for k in which]), np.concatenate([labels[k] for k in which])
    model = LinearSVC(loss="hinge", C=1 / (ALPHA * len(y)), tol=1e-9, max_iter=10**6).fit(X, y)
    w, b = model.coef_[0], model.intercept_[0]
    return 0.5 * ALPHA * (w @ w + b * b) + np.maximum(0, 1 - (2 * y - 1) * (X @ w + b)).mean()


class Threads:
    """Runs loops, each in a thread; what they report, or raise, comes back."""

    def __init__(self):
        self.reports, self.errors, self._threads = {}, [], []

    def start(self, loop):
        thread = threading.Thread(target=self._run, args=(loop,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, loop):
        try:
            self.reports[loop.peer.number] = loop.run()
        except BaseException as error:
            self.errors.append(error)

    def join(self):
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert self.errors == []
        return self.reports


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def ring(n):
    return [[(k - 1) % n, (k + 1) % n] for k in range(n)]


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_all_certify_the_optimum_of_all_and_end_by_themselves(loss):
    n = 5
    parts, labels = data(n)
    rng = np.random.default_rng(0)
    lock = threading.Lock()

    def lose(sender, to):
        with lock:
            return rng.random() < loss

    wires, threads = Wires(n, lose), Threads()
    limits = PeerLimits(TOL, at_least=n, **FAST | {"silence": 10.0})  # a busy machine may stop a thread for long
    transports = [wires.of(k) for k in range(n)]
    for k in range(n):
        threads.start(PeerLoop(peer_of(k, parts[k], labels[k], ring(n)[k]), transports[k], limits))
    reports = threads.join()
    best = optimum(parts, labels, range(n))
    for k, report in reports.items():
        assert report.stop_reason == "gap"
        assert report.gap <= TOL
        assert report.members == list(range(n))
        assert report.certificate.dual <= best * (1 + 1e-9)
        assert report.certificate.primal >= best * (1 - 1e-9)
        assert report.total == n * 80
        assert (report.history[-1].primal, report.history[-1].dual) == report.certificate
        assert np.isnan(report.history[0].primal) == np.isnan(report.history[0].dual) == np.isinf(report.history[0].gap)
        assert report.consensus < 0.2
        assert report.model.shape == (1, 7)
        assert report.number == k
        assert report.refused == 0
        assert report.bytes_sent > 8 * 14 * report.messages_sent
        assert report.history[-1].tick == report.ticks
        assert report.history[-1].messages == report.messages_sent
        assert [row.tick for row in report.history] == sorted({row.tick for row in report.history})
        assert transports[k].is_closed
    if not loss:
        sent = sum(report.messages_sent for report in reports.values())
        # The last messages to those who have ended already are read by nobody.
        assert sent - 60 * n <= sum(report.messages_received for report in reports.values()) <= sent


def test_limits_and_wishes_end_a_peer():
    (X,), (y,) = data(1)
    for limits, watch, reason in [
        (PeerLimits(0.0, at_least=2, max_ticks=4, **FAST), None, "max_ticks"),
        (PeerLimits(0.5, at_least=2, pace=0.001, max_time=0.05), None, "max_time"),
        (PeerLimits(0.0, at_least=2, **FAST), lambda loop: loop.peer.ticks >= 4, "interrupted"),
        (PeerLimits(0.5, **FAST), None, "gap"),
    ]:
        report = PeerLoop(peer_of(0, X, y, []), Wires(1).of(0), limits, watch).run()
        assert report.stop_reason == reason
        assert report.certificate is not None
        assert report.members == [0]


def test_a_peer_whose_rows_have_no_weight_stops_nobody():
    n = 3
    parts, labels = data(n)
    wires, threads = Wires(n), Threads()
    for k in range(n):
        peer = peer_of(k, parts[k], labels[k], ring(n)[k], weight=float(k > 0))
        threads.start(PeerLoop(peer, wires.of(k), PeerLimits(TOL, at_least=n, **FAST)))
    best = optimum(parts, labels, [1, 2])
    for report in threads.join().values():
        assert (report.stop_reason, report.total, report.refused) == ("gap", 160.0, 0)
        assert report.certificate.dual <= best * (1 + 1e-9) <= report.certificate.primal * (1 + 2e-9)


def test_before_there_is_a_proof_there_are_no_bounds():
    parts, labels = data(2)
    loop = PeerLoop(peer_of(0, parts[0], labels[0], [1]), Wires(2).of(0), PeerLimits(TOL, max_ticks=2, **FAST))
    report = loop.run()
    assert report.total == 0.0
    assert report.certificates == []
    assert np.isnan([report.history[-1].primal, report.history[-1].dual]).all()


def test_the_limit_of_ticks_counts_those_of_this_peer():
    """Not those of the network, whose time it takes over when it comes late."""
    parts, labels = data(2)
    wires = Wires(2)
    early = peer_of(1, parts[1], labels[1], [0])
    early.ticks = 500
    from widemargin.peers.wire import encode

    wires.inboxes[0].put((None, b"\x00" + encode(early.tick()[0][1])))
    loop = PeerLoop(peer_of(0, parts[0], labels[0], [1]), wires.of(0), PeerLimits(TOL, max_ticks=20, **FAST))
    report = loop.run()
    assert report.stop_reason == "max_ticks"
    assert 500 + 15 < report.ticks < 500 + 25


def test_a_peer_alone_waits_for_others_where_it_must():
    (X,), (y,) = data(1)
    limits = PeerLimits(0.5, at_least=2, pace=0.002, max_time=0.5)
    report = PeerLoop(peer_of(0, X, y, []), Wires(1).of(0), limits).run()
    assert report.stop_reason == "max_time"
    assert report.gap <= 0.5
    assert report.ticks < 4  # it does not tick for nobody
    limits = PeerLimits(0.5, at_least=2, grace=0.0, max_ticks=60, **FAST)
    assert PeerLoop(peer_of(0, X, y, []), Wires(1).of(0), limits).run().stop_reason == "gap"


@pytest.mark.parametrize(("is_proved", "reason"), [(True, "gap"), (False, "max_time")])
def test_a_member_that_was_proved_to_lie_counts_as_met_and_one_that_was_revoked_does_not(is_proved, reason):
    """The first records of a liar and the proof of its lies may come between two ticks of a peer."""
    n = 2
    parts, labels = data(n + 1)
    wires, threads = Wires(n), Threads()
    liar = peer_of(n, parts[n], labels[n], [0])
    liar.tick()
    liar.tick()
    (honest,) = liar.table.latest(Snapshot)
    peers = [peer_of(k, parts[k], labels[k], [1 - k]) for k in range(n)]
    for k, peer in enumerate(peers):
        if is_proved:
            peer.evidence[n] = (honest, honest._replace(total=2 * honest.total))
        peer.exclude(n)
        limits = PeerLimits(TOL, at_least=n + 1, **FAST | ({} if is_proved else {"max_time": 1.0}))
        threads.start(PeerLoop(peer, wires.of(k), limits))
    reports = threads.join()
    assert all(report.stop_reason == reason and report.members == [0, 1] for report in reports.values())
    assert all(peer.table.excluded == {n} for peer in peers)


def test_bytes_that_are_no_message_are_counted_and_do_no_harm():
    n = 2
    parts, labels = data(n)
    wires, threads = Wires(n), Threads()
    bad = [b"", b"\x00", b"\x02" + b"x" * 80, b"\x01WMPR", np.random.default_rng(0).bytes(300)]
    stranger = peer_of(7, parts[0], labels[0], [0])
    from widemargin.peers.wire import encode

    message = b"\x00" + encode(stranger.tick()[0][1])
    own = b"\x00" + encode(peer_of(0, parts[0], labels[0], [1]).tick()[0][1])
    for data_ in [*bad, message, message[:-1], own]:
        wires.inboxes[0].put((None, data_))
    limits = PeerLimits(TOL, at_least=n, **FAST)
    for k in range(n):
        threads.start(PeerLoop(peer_of(k, parts[k], labels[k], [1 - k]), wires.of(k), limits))
    reports = threads.join()
    assert reports[0].refused == len(bad) + 3
    assert reports[1].refused == 0
    assert all(report.stop_reason == "gap" and report.members == [0, 1] for report in reports.values())


def test_messages_that_are_unsound_are_refused_and_late_ones_are_late():
    X, codes = overlapping_rows(40)
    network = Network(split(X, codes, even(40, 2)), chords(2)).go(10)
    peer, sender = network.peers[0], network.peers[1]
    message = sender._message(0)
    loop = PeerLoop(peer, Wires(2).of(0), PeerLimits(1e-3))
    peer.receive(message._replace(number=1))
    peer.receive(message._replace(payload=message.payload * np.nan))
    report = loop.report()
    assert (report.refused, report.stale) == (1, 1)


def test_one_that_falls_silent_is_left_out_and_its_return_takes_it_in_again():
    n = 4
    parts, labels = data(n)
    wires, threads = Wires(n), Threads()
    endless = PeerLimits(0.0, at_least=n + 1, **FAST)
    is_ill, is_enough = threading.Event(), threading.Event()
    loops = [
        PeerLoop(
            peer_of(k, parts[k], labels[k], ring(n)[k]),
            wires.of(k),
            endless,
            lambda loop, k=k: (is_ill if k == 0 else is_enough).is_set(),
        )
        for k in range(n)
    ]
    for loop in loops:
        threads.start(loop)

    def are_certified(which):
        proofs = [loops[k].peer.proof for k in which]
        return all(proof is not None and proof.members == set(which) and proof.worst.relative < TOL for proof in proofs)

    wait_until(lambda: are_certified(range(n)))
    is_ill.set()
    wait_until(lambda: are_certified([1, 2, 3]))
    rest = loops[1].report()
    best = optimum(parts, labels, [1, 2, 3])
    assert rest.certificate.dual <= best * (1 + 1e-9)
    assert rest.certificate.primal >= best * (1 - 1e-9)
    assert 0 not in rest.live_neighbours
    # It comes back with its rows and nothing else: the one that proposes, and whose old words still go round.
    restarted = peer_of(0, parts[0], labels[0], ring(n)[0], incarnation=1)
    returned = PeerLoop(restarted, wires.of(0), endless, lambda loop: is_enough.is_set())
    loops[0] = returned
    threads.start(returned)
    wait_until(lambda: are_certified(range(n)))
    is_enough.set()
    reports = threads.join()
    best = optimum(parts, labels, range(n))
    for report in reports.values():
        assert report.stop_reason == "interrupted"
        assert report.certificate.dual <= best * (1 + 1e-9)
        assert report.certificate.primal >= best * (1 - 1e-9)
        assert report.gap < TOL


def test_a_newcomer_is_met_and_the_network_goes_on_with_it():
    n = 3
    parts, labels = data(n)
    wires, threads = Wires(n), Threads()
    endless = PeerLimits(0.0, at_least=n + 1, **FAST)
    is_enough = threading.Event()
    transports = [wires.of(k) for k in range(n)]
    watch = lambda loop: is_enough.is_set()  # noqa: E731
    loops = [PeerLoop(peer_of(k, parts[k], labels[k], [1 - k]), transports[k], endless, watch) for k in range(2)]
    for loop in loops:
        threads.start(loop)
    wait_until(lambda: all(loop.gap < TOL for loop in loops) and loops[1].peer.ticks > 40)
    loops.append(PeerLoop(peer_of(2, parts[2], labels[2], [0]), transports[2], endless, watch))
    threads.start(loops[2])
    wait_until(lambda: loops[0].report().refused > 0)
    transports[0].announce(2)
    wait_until(lambda: all(len(loop.peer.table.members) == 3 and loop.gap < TOL for loop in loops))
    is_enough.set()
    reports = threads.join()
    assert reports[0].refused > 0  # before it was announced
    assert reports[1].members == [0, 1, 2]
