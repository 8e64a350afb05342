"""A member that lies: ``widemargin peer`` with one thing changed, by the name of the lie; its options follow.

python -m tests.engines.lying_member LIE --data ...
"""

from __future__ import annotations

import sys

import numpy as np

from tests.peers.liars import LIES
from widemargin.cli import main
from widemargin.peers.peer import Peer
from widemargin.peers.records import NUMBERS_PER_INCARNATION, HingeCosts, Snapshot

announce, message_to = Peer._announce, Peer._message
rng = np.random.default_rng(0)


def state(lie):
    """Announce changed records, and sign them."""

    def changed(peer, record):
        announce(peer, LIES[lie](record, rng))

    Peer._announce = changed


def equivocate():
    """Tell every other neighbour other models, under the same numbers."""

    def changed(peer, to):
        message = message_to(peer, to)
        if len(peer.neighbours) == 1 and peer.number in peer.table.newest[Snapshot]:  # which hears both
            own = peer.table.newest[Snapshot][peer.number]
            return message._replace(records=[*message.records, peer.notary.signed(own._replace(model=own.model + 1.0))])
        if sorted(peer.neighbours).index(to) % 2 == 0:
            return message
        records = [
            peer.notary.signed(each._replace(model=each.model + 1.0))
            if isinstance(each, Snapshot) and each.peer == peer.number
            else each
            for each in message.records
        ]
        return message._replace(records=records)

    Peer._message = changed


def speak_for_another():
    """State losses of nothing in the names of others, with signatures of one's own."""

    def changed(peer, to):
        message, known = message_to(peer, to), peer.table.newest[HingeCosts]
        said = [known[other] for other in peer.live_neighbours if other in known]
        forged = [peer.notary.signed(each._replace(number=each.number + 5, costs=0 * each.costs)) for each in said]
        return message._replace(records=[*message.records, *forged])

    Peer._message = changed


def be_of_the_future():
    """Name ticks that are far ahead."""

    def changed(peer, to):
        message = message_to(peer, to)
        start = message.number // NUMBERS_PER_INCARNATION * NUMBERS_PER_INCARNATION
        return message._replace(number=start + NUMBERS_PER_INCARNATION - 1000 + peer.ticks, records=[])

    Peer._message = changed


def send_garbage():
    """Send payloads of huge random numbers to neighbours."""

    def changed(peer, to):
        message = message_to(peer, to)
        payload = message.payload.copy()
        payload[1:] = rng.normal(size=len(payload) - 1) * 1e30
        return message._replace(payload=payload)

    Peer._message = changed


OTHERS = {each.__name__: each for each in (equivocate, speak_for_another, be_of_the_future, send_garbage)}

if __name__ == "__main__":
    lie = sys.argv.pop(1)
    OTHERS[lie]() if lie in OTHERS else state(lie)
    sys.argv[0:1] = ["widemargin", "peer"]
    main()
