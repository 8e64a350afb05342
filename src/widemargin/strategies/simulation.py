"""A whole network in one process: every sweep is a tick in which each peer works once, over a faulty network.

The peers are those that run elsewhere; only the network is simulated. The same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from widemargin.comm.faults import Faults, FaultyWire
from widemargin.comm.protocol import Communicator
from widemargin.data.shard import Shard
from widemargin.peers.peer import Peer
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate
from widemargin.solvers.protocol import Solver, Warm

NOTHING_PROVED = Certificate(1.0, 0.0)  # F(0) and D(0), which hold for any data


@dataclass
class State:
    peers: dict[int, Peer]  # those that are running
    wire: FaultyWire
    rng: Generator
    comm: Communicator
    incarnations: dict[int, int]  # of those that have crashed


@dataclass(frozen=True)
class Simulation(Solver[State, dict[int, Peer]]):
    """A solver whose sweeps are ticks of these peers; ``restart(number, incarnation)`` makes one that rejoins."""

    solves: ClassVar = (MeanHinge,)

    peers: Mapping[int, Peer]
    faults: Faults
    restart: Callable[[int, int], Peer]

    def __post_init__(self) -> None:
        faults = self.faults
        named = {*faults.crash, *(peer for _, _, peers in faults.partition for peer in peers)}
        unknown = sorted(named.difference(self.peers))
        if unknown:
            raise ValueError(f"Faults name the peers {unknown}; the network has 0 to {len(self.peers) - 1}.")
        if all(peer in faults.crash and peer not in faults.rejoin for peer in self.peers):
            raise ValueError("Faults(crash=...) ends every peer, and none rejoins: there would be no model.")

    def start(self, problem: MeanHinge, shard: Shard, comm: Communicator, rng: Generator, warm: Warm = None) -> State:
        """All peers as they are; the rows are theirs, and ``shard`` is empty."""
        return State(dict(self.peers), FaultyWire(self.faults, rng.spawn(1)[0]), rng, comm, {})

    def sweep(self, state: State) -> State:
        """One tick: messages arrive, then each peer works and sends."""
        faults, wire, peers, ledger = self.faults, state.wire, state.peers, state.comm.ledger
        for to, message in wire.arrivals():
            if to in peers:
                peers[to].receive(message)
        for number, tick in faults.crash.items():
            if tick == wire.now and number in peers:
                state.incarnations[number] = peers.pop(number).incarnation
        for number, tick in faults.rejoin.items():
            if tick == wire.now:
                peers[number] = self.restart(number, state.incarnations.get(number, 0) + 1)
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
        """The worst certificate of all peers, once each has one for the network that it is in.

        None before that, while faults are still to come, and while a peer does not know all members or all rows.
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
            members = {id(proofs[n].members): proofs[n].members for n in together}  # mostly one object
            if any(each != together for each in members.values()):
                return None
            if any(abs(proofs[n].total - total) > 1e-9 * total for n in together):
                return None
        return max((proof.worst for proof in proofs.values()), key=lambda each: each.relative)

    def confirm(self, state: State, latest: Certificate | None = None) -> Certificate:
        return self.certify(state) or NOTHING_PROVED

    def stop_reason(self, state: State) -> str | None:
        """ "precision" once rounding keeps the gaps of all peers open."""
        proofs = [peer.proof for peer in state.peers.values()]
        return "precision" if all(proof is not None and proof.is_stuck for proof in proofs) else None

    def diagnostics(self, state: State) -> dict[str, float]:
        """The largest distance of a peer's model to the mean, relative to that mean."""
        models = np.array([peer.algorithm.model for peer in state.peers.values()])
        mean = models.mean(axis=0)
        apart = np.linalg.norm((models - mean).reshape(len(models), -1), axis=1).max()
        return {"consensus": float(apart) / (float(np.linalg.norm(mean)) or 1.0), "peers": len(models)}

    def extract(self, state: State) -> dict[int, Peer]:
        return state.peers


def _components(peers: dict[int, Peer], wire: FaultyWire) -> list[frozenset[int]]:
    """The connected components of the running peers, with the current partitions."""
    found: list[frozenset[int]] = []
    left = set(peers)
    while left:
        ahead = [left.pop()]
        together = set(ahead)
        while ahead:
            one = ahead.pop()
            reached = [j for j in peers[one].neighbours if j in left and not wire.is_cut(one, j)]
            together.update(reached)
            left.difference_update(reached)
            ahead.extend(reached)
        found.append(frozenset(together))
    return found
