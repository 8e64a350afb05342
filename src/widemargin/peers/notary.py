"""Signatures of records: nobody speaks for another member, and what a member has said can be shown to all.

A record that names a neighbour who is not on the list is not valid: nobody fills the tables of others with strangers.

A signature covers the bytes of a record on the wire and the context: the network, its organiser and its terms, which
include a random number of the run. So no record of one run is one of another.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from widemargin.comm.identity import Identity, is_signed_by
from widemargin.comm.members import Membership
from widemargin.peers.records import Accusation, Record, Snapshot, Statement
from widemargin.peers.wire import statement_bytes

_SIGNED = b"widemargin record 1\n"


class MemberNotary:
    """Signs as one member, and checks by the newest list of members."""

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
        if member is None or (isinstance(record, Snapshot) and not members.keys() >= set(record.neighbours.tolist())):
            return False
        return is_signed_by(member.card.key, self._prefix + statement_bytes(record), record.signature)
