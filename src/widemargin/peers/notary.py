"""Sign records and check signatures: nobody can speak for another member, and signed records prove what was said.

A record that names somebody who is not on the list is not valid: otherwise a member could fill the tables of others
with strangers.

A signature covers the bytes of one record on the wire, and its context: the network, the organiser and the terms, which
include a random number of the run. So a record of one run is not valid in another. Each record has its own signature:
messages batch signed records, and never sum them. Simulations do not sign.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from widemargin.comm.identity import Identity, is_signed_by
from widemargin.comm.members import Membership
from widemargin.peers.records import Accusation, Query, Record, Snapshot, Statement
from widemargin.peers.wire import statement_bytes

_SIGNED = b"widemargin record 1\n"


class MemberNotary:
    """Signs records as one member, and checks those of others against the newest list of members."""

    def __init__(self, identity: Identity, membership: Membership, terms: dict[str, Any]) -> None:
        self._identity, self._membership = identity, membership
        text = json.dumps(terms, sort_keys=True, separators=(",", ":"))
        context = hashlib.blake2b(text.encode(), digest_size=32, person=b"terms").digest()
        self._prefix = _SIGNED + membership.newest.fingerprint.encode() + context

    def signed(self, record: Statement) -> Statement:
        return record._replace(signature=self._identity.sign(self._prefix + statement_bytes(record)))

    def is_valid(self, record: Record) -> bool:
        if isinstance(record, Accusation):
            return all(map(self.is_valid, record.evidence))
        members = self._membership.newest.members
        member = members.get(record.peer)
        if member is None or not members.keys() >= set(_named_in(record).tolist()):
            return False
        return is_signed_by(member.card.key, self._prefix + statement_bytes(record), record.signature)


def _named_in(record: Statement) -> np.ndarray:
    """The peers that a record speaks of, beside its own."""
    if isinstance(record, Snapshot):
        return record.neighbours
    return record.owners if isinstance(record, Query) else np.zeros(0, np.int64)
