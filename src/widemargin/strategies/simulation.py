"""A whole network in one process: every sweep is a tick in which each peer works once, over a wire that may fail.

Peers are those that run elsewhere; only the wire is not real. The same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from widemargin.comm.faults import Faults, FaultyWire
from widemargin.comm.protocol import Communicator
from widemargin.peers.peer import Peer
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate
from widemargin.solvers.protocol import Solver


@dataclass
class State:
    peers: dict[int, Peer]  # those that are there
    wire: FaultyWire
    rng: np.random.Generator
    comm: Communicator
    lives: dict[int, int]  # of those that have crashed


@dataclass(frozen=True)
class Simulation(Solver[State, dict[int, Peer]]):
    """A solver whose sweeps are ticks; ``begin(number, life)`` makes a peer."""

    solves: ClassVar = (MeanHinge,)

    begin: Callable[[int, int], Peer]
    n_peers: int
    faults: Faults

    def __post_init__(self) -> None:
        faults = self.faults
        named = {*faults.crash, *(peer for _, _, peers in faults.partition for peer in peers)}
        strangers = sorted(named.difference(range(self.n_peers)))
        if strangers:
            raise ValueError(
                f"Faults name the peers {strangers}, and the network has those from 0 to {self.n_peers - 1}."
            )
        if all(peer in faults.crash and peer not in faults.rejoin for peer in range(self.n_peers)):
            raise ValueError("Faults(crash=...) ends every peer, and none of them comes back: there would be no model.")

    def start(self, problem: Any, shard: Any, comm: Communicator, rng: np.random.Generator, warm: Any = None) -> State:
        """All peers with their rows, knowing nobody; or, as ``warm``, as they were left."""
        peers = warm if warm is not None else {k: self.begin(k, 0) for k in range(self.n_peers)}
        return State(dict(peers), FaultyWire(self.faults, rng.spawn(1)[0]), rng, comm, {})

    def sweep(self, state: State) -> State:
        """One tick: what was sent arrives, then each peer works and writes."""
        faults, wire, peers, ledger = self.faults, state.wire, state.peers, state.comm.ledger
        for to, message in wire.arrivals():
            if to in peers:
                peers[to].receive(message)
        for number, tick in faults.crash.items():
            if tick == wire.now and number in peers:
                state.lives[number] = peers.pop(number).life
        for number, tick in faults.rejoin.items():
            if tick == wire.now:
                peers[number] = self.begin(number, state.lives.get(number, 0) + 1)
        for number in sorted(peers):
            if faults.idle and state.rng.random() < faults.idle:
                continue
            for to, message in peers[number].tick():
                ledger.messages += 1
                ledger.bytes += message.n_bytes
                ledger.scalars += message.n_bytes // 8
                wire.send(number, to, message)
        ledger.rounds += 1
        return state

    def certify(self, state: State) -> Certificate | None:
        """The worst of what peers have certified, once all have, for the network that they are then.

        None before, while faults are still to come, and while someone has yet to learn who is there and has which rows.
        """
        peers, proofs = state.peers, {}
        if not peers or not self.faults.are_over_at(state.wire.now):
            return None
        for number, peer in peers.items():
            proof = peer.proof
            if proof is None:
                return None
            proofs[number] = proof
        for together in _components(peers, state.wire):
            total = sum(peers[number].algorithm.rows.total for number in together)
            if any(proofs[n].members != together or abs(proofs[n].total - total) > 1e-9 * total for n in together):
                return None
        return max((proof.worst for proof in proofs.values()), key=lambda each: each.relative)

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        """What all have certified; before that, what holds for any data: F(0) = 1 and D(0) = 0."""
        return self.certify(state) or Certificate(1.0, 0.0)

    def diagnostics(self, state: State) -> dict[str, float]:
        """How far the latest models are from their mean, by its length; the farthest."""
        models = np.array([peer.algorithm.model for peer in state.peers.values()])
        mean = models.mean(axis=0)
        apart = np.linalg.norm((models - mean).reshape(len(models), -1), axis=1).max()
        return {"consensus": float(apart) / (float(np.linalg.norm(mean)) or 1.0), "peers": len(models)}

    def warm_state(self, state: State) -> np.ndarray:
        return state.peers[min(state.peers)].model.ravel()

    def extract(self, state: State) -> dict[int, Peer]:
        return state.peers


def _components(peers: dict[int, Peer], wire: FaultyWire) -> list[frozenset[int]]:
    """The networks into which those that are there fall, as the wire is cut now."""
    found: list[frozenset[int]] = []
    left = set(peers)
    while left:
        ahead = [left.pop()]
        together = set(ahead)
        while ahead:
            one = ahead.pop()
            news = [j for j in peers[one].neighbours if j in left and not wire.is_cut(one, j)]
            together.update(news)
            left.difference_update(news)
            ahead.extend(news)
        found.append(frozenset(together))
    return found
