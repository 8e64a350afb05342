"""One peer of the soak, as a process: it loses a tenth of its messages, and its clock jumps when it is told to.

Its rows follow from its number and a version. Every quarter of a second it prints a line of JSON: what it has
certified, and how much it holds. SIGTERM stops it; SIGUSR1 sets its clock forward, SIGUSR2 back.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

import numpy as np
import psutil

from tests.peers.networks import overlapping_rows
from widemargin.comm.zmq_keys import SharedKeys
from widemargin.comm.zmq_peers import ZmqPeers, ask
from widemargin.peers.loop import PeerLimits, PeerLoop
from widemargin.peers.records import incarnation_of
from widemargin.peers.rows import PeerRows
from widemargin.peers.wire import MessageFormat
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.strategies.peers import Network

ALPHA, LOSS = 0.01, 0.1
SECRET = "a secret for the soak of peers"
N_ROWS, N_FEATURES, DEGREE = 60, 5, 3
EVERY = 0.25  # seconds
PACE = 0.03  # seconds
JUMP = 3600.0  # seconds


def rows_of(number: int, version: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a peer, with a constant feature, and their classes; all peers draw from the same two clouds."""
    X, codes = overlapping_rows(4000, N_FEATURES, seed=0)
    chosen = np.random.default_rng([number, version]).choice(len(codes), N_ROWS, replace=False)
    return X[chosen], codes[chosen]


class Clock:
    """Seconds, with jumps."""

    offset = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.offset

    def jump(self, signal_number: int, frame: object) -> None:
        self.offset += JUMP if signal_number == signal.SIGUSR1 else -JUMP


class Lossy:
    """A transport that loses a share of what it should send."""

    def __init__(self, inner: ZmqPeers) -> None:
        self._inner, self._rng = inner, np.random.default_rng()
        self.n_sent = self.n_lost = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def send(self, to: int, data: bytes) -> None:
        self.n_sent += 1
        if self._rng.random() >= LOSS:
            self._inner.send(to, data)
        else:
            self.n_lost += 1


def sizes(loop: Any) -> dict[str, int]:
    """Entries in all that a peer keeps about others."""
    peer, table = loop.peer, loop.peer.table
    delivery, contacts = peer.delivery, loop.transport._contacts
    return {
        "records": sum(map(len, table.newest.values())),
        "proposals": len(table.proposals),
        "costs": sum(each.count for each in table._costs.values()),
        "snapshots": sum(each.count for each in table._of_tick.values()),
        "answers": sum(each.count for each in table._answers.values()),
        "cuts": sum(map(len, table.cuts.by_peer.values())),
        "neighbours": len(peer.neighbours),
        "unconfirmed": sum(map(len, delivery._unconfirmed.values())),
        "pending": sum(len(delivery.lacking(neighbour)) for neighbour in delivery.pending),
        "stored": len(peer.store._handles),
        "windows": len(delivery._window),
        "checksums": len(peer.algorithm._checksums),
        "own cuts": len(table.cuts.own()),
        "contacts": len(contacts.addresses) + len(contacts._others),
        "history": len(loop._history),
    }


def state(loop: Any) -> dict[str, object]:
    proof = loop.proof
    bounds = (None, None) if proof is None else tuple(proof.worst)
    return {
        "members": sorted(loop.peer.table.members if proof is None else proof.members),
        "primal": bounds[0],
        "dual": bounds[1],
        "total": 0.0 if proof is None else proof.total,
        "ticks": loop.peer.ticks,
        "seconds": loop.seconds,
        "refused": loop.report().refused,
        "sent": loop.transport.n_sent,
        "lost": loop.transport.n_lost,
        "rss": psutil.Process().memory_info().rss,
        "sizes": sizes(loop),
    }


def main(number: int, version: int, join: str | None) -> None:
    X, codes = rows_of(number, version)
    rows = PeerRows.of(X, codes, np.ones(len(codes)), 2, has_constant=False)
    keys, known, incarnation = SharedKeys.of(SECRET), dict[int, str](), 0
    if join is not None:
        welcome = ask(join, keys, number, 10.0)
        others = [each for each in welcome.peers if each != welcome.number][: DEGREE - 1]
        known = {each: welcome.peers[each] for each in [welcome.number, *others]}
        incarnation = welcome.incarnation
    network = Network(MeanHinge(ALPHA), {number: sorted(known)}, 3, True, False)
    peer = network.begin(number, rows, number, incarnation)
    clock, is_over, due = Clock(), [], 0.0
    inner = ZmqPeers(number, "127.0.0.1:0", keys, MessageFormat.of(peer).limit_bytes, clock=clock, degree=DEGREE)
    for each, address in known.items():
        inner.link(each, address)

    def life_of(asking: int) -> int:
        numbers = [newest[asking].number for newest in peer.table.newest.values() if asking in newest]
        return incarnation_of(max(numbers)) + 1 if numbers else 0

    inner.host(lambda asking: {"terms": {}, "life": life_of(asking), "tick": 0})
    signal.signal(signal.SIGTERM, lambda *reason: is_over.append(True))
    for each in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, clock.jump)

    def watch(loop: PeerLoop) -> bool:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + EVERY
            print(json.dumps(state(loop)), flush=True)
        return bool(is_over)

    print(json.dumps({"address": inner.address}), flush=True)
    limits = PeerLimits(0.0, pace=PACE, silence=0.7, at_least=1 << 20)  # it never stops by itself
    PeerLoop(peer, Lossy(inner), limits, watch, clock).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
