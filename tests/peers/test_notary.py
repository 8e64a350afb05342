"""Signed records: what is signed survives the wire and relays, and nothing else passes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nacl", reason="needs the gossip extra")

from tests.peers.networks import Network, chords, even, overlapping_rows, split
from widemargin.comm.identity import Identity
from widemargin.comm.members import MemberList, Membership
from widemargin.peers.claims import Claims, contradiction
from widemargin.peers.cutting_planes import MOST_CUTS
from widemargin.peers.notary import MemberNotary
from widemargin.peers.peer import Peer
from widemargin.peers.records import (
    KINDS,
    LAST_TICK,
    NUMBERS_PER_INCARNATION,
    Accusation,
    Answer,
    Moments,
    Proposal,
    Query,
    Snapshot,
)
from widemargin.peers.wire import BadMessage, MessageFormat, decode, encode

N = 6
X, CODES = overlapping_rows(150)
ORGANISER, OWNERS = Identity.create("organiser"), [Identity.create(f"owner{k}") for k in range(N)]
TERMS = {"alpha": 0.01, "run": "00"}


def listed():
    found = MemberList("clinics", ORGANISER.card.key)
    for owner in OWNERS:
        found = found.with_member(owner.card, 50, ORGANISER)
    return found


LIST = listed()


class SignedNetwork(Network):
    """A simulated network whose peers sign, as those in shells do."""

    def begin(self, number, incarnation):
        peer = super().begin(number, incarnation)
        notary = MemberNotary(OWNERS[number], Membership(LIST), TERMS)
        return Peer(
            number, peer.problem, peer.algorithm, peer.neighbours, peer.fan_out, peer.rng, incarnation, self.store,
            Claims(LIST.caps), notary,
        )  # fmt: skip


def signed_network(ticks=20):
    return SignedNetwork(split(X, CODES, even(150, N)), chords(N)).go(ticks)


def on_the_wire(peer, message):
    form = MessageFormat.of(peer)
    return decode(encode(message), form, form.limit_bytes)


@pytest.fixture(scope="module")
def network():
    return signed_network()


def test_all_records_of_a_network_are_signed_by_their_peers_and_survive_the_wire():
    network, seen = signed_network(0), []

    def by_wire(peer, message_to):
        def message(to):
            there = on_the_wire(network.peers[to], message_to(to))
            assert all(map(network.peers[to].notary.is_valid, there.records))
            seen.extend(there.records)
            return there

        return message

    for peer in network.peers.values():
        peer._message = by_wire(peer, peer._message)
    network.until(1e-3, 200)
    assert {type(each) for each in seen} == set(KINDS) - {Accusation}
    assert not any(peer.traffic.refused for peer in network.peers.values())
    assert network.peers[0].proof.members == set(range(N))


def test_whatever_is_changed_is_not_valid(network):
    record, notary = network.peers[1].table.newest[Snapshot][1], network.peers[0].notary
    assert notary.is_valid(record)
    changes = (
        {"peer": 2}, {"number": record.number + 1}, {"total": record.total + 1}, {"model": record.model + 1e-9},
        {"dual": record.dual._replace(sums=record.dual.sums + 1e-9)}, {"signature": b""}, {"signature": bytes(64)},
        {"peer": N + 7}, {"neighbours": record.neighbours[:-1]},
    )  # fmt: skip
    for change in changes:
        assert not notary.is_valid(record._replace(**change)), change
    signer = network.peers[1].notary
    assert notary.is_valid(signer.signed(record._replace(neighbours=np.array([0, 2]))))
    assert not notary.is_valid(signer.signed(record._replace(neighbours=np.array([0, N + 7]))))  # who is no member


@pytest.mark.parametrize("other", ["run", "alpha", "network"])
def test_a_record_of_one_run_is_none_of_another(network, other):
    record = network.peers[1].table.newest[Snapshot][1]
    known = LIST
    if other == "network":
        known = MemberList("hospitals", ORGANISER.card.key)
        for owner in OWNERS:
            known = known.with_member(owner.card, 50, ORGANISER)
    terms = {**TERMS, other: 1.0} if other in TERMS else TERMS
    assert not MemberNotary(OWNERS[0], Membership(known), terms).is_valid(record)


def test_a_message_with_a_forged_record_is_refused_whole(network):
    """Nobody speaks for another: the sender signs a record in the name of a third member."""
    peer, sender = network.peers[0], network.peers[1]
    known = peer.table.newest[Snapshot][3]
    forged = sender.notary.signed(known._replace(number=known.number + 1, model=known.model + 1))
    message = sender._message(0)._replace(records=[forged])
    refused = peer.traffic.refused
    peer.receive(on_the_wire(peer, message))
    assert peer.traffic.refused == refused + 1
    assert peer.table.newest[Snapshot][3] is known
    assert not peer.table.excluded


def test_two_records_under_one_number_exclude_their_peer_everywhere():
    network = signed_network()
    liar = network.peers[1]
    said = network.peers[0].table.newest[Snapshot][1]
    other = liar.notary.signed(said._replace(model=said.model + 1.0))
    assert contradiction((said, other)) == 1
    assert contradiction((said, said)) is None
    assert contradiction((said, said._replace(signature=bytes(64)))) is None  # the same thing twice
    # One neighbour hears it, and the others learn of it from this one, with the evidence.
    network.peers[0].receive(liar._message(0)._replace(records=[other]))
    assert network.peers[0].table.excluded == {1}
    del network.state.peers[1]
    network.go(12)
    for peer in network.peers.values():
        assert peer.table.excluded == {1}
        assert peer.is_convicted(1)
        assert 1 not in peer.neighbours
    proof = network.go(60).peers[3].proof
    assert proof.members == {0, 2, 3, 4, 5}
    for which in ({0}, {3}):  # a member that comes later is told, and the evidence survives the wire
        (number,) = which
        peer = network.peers[number]
        accusation = peer.table.newest[Accusation][1]
        there = on_the_wire(peer, peer._message(peer.neighbours[0])._replace(records=[accusation])).records[0]
        assert contradiction(there.evidence) == 1
        assert peer.notary.is_valid(there)


def test_a_member_that_is_convicted_by_the_first_half_of_its_message_does_no_harm_with_the_second():
    """Records of one kind are taken one after another, and accusations before all others."""
    for which in ("answers", "accusations"):
        network = signed_network()
        peer, liar = network.peers[0], network.peers[1]
        said = liar.table.newest[Answer][1]
        heavy = [liar.notary.signed(said._replace(number=said.number + k, total=1e6)) for k in (20, 21)]
        accusations = [Accusation(1, 1, (heavy[0],))] * 2
        records = heavy if which == "answers" else accusations
        peer.receive(on_the_wire(peer, liar._message(0)._replace(records=records)))
        assert peer.table.excluded == {1}
        del network.state.peers[1]
        network.go(60)
        assert peer.proof.members == {0, 2, 3, 4, 5}


def test_evidence_that_is_none_excludes_nobody(network):
    peer, sender = network.peers[0], network.peers[1]
    one, two = peer.table.newest[Snapshot][3], peer.table.newest[Snapshot][4]
    forged = sender.notary.signed(one._replace(model=one.model + 1))
    for evidence in ((one,), (one, two), (one, forged), (one, one), (forged, forged._replace(model=one.model + 2))):
        for accused in (3, 4):
            message = sender._message(0)._replace(records=[Accusation(accused, 1, evidence)])
            peer.receive(on_the_wire(peer, message))
    assert not peer.table.excluded


def test_a_member_that_is_accused_itself_knows():
    network = signed_network()
    peer, sender = network.peers[0], network.peers[1]
    own = peer.table.newest[Snapshot][0]
    twin = peer.notary.signed(own._replace(model=own.model + 1.0))
    peer.receive(on_the_wire(peer, sender._message(0)._replace(records=[Accusation(0, 1, (own, twin))])))
    assert peer.is_accused


def test_an_accusation_within_an_accusation_is_refused(network):
    peer = network.peers[0]
    record = peer.table.newest[Snapshot][3]
    nested = Accusation(3, 1, (record,))
    for _ in range(3):
        nested = Accusation(3, 1, (nested,))
    form, message = MessageFormat.of(peer), network.peers[1]._message(0)
    data = bytearray(encode(message._replace(records=[Accusation(3, 1, (record,))])))
    head = bytes(data[-(len(data) - len(encode(message._replace(records=[])))) :][:24])
    deep = encode(message._replace(records=[]))[:8] + (1).to_bytes(4, "little")
    deep += encode(message._replace(records=[]))[12:] + head * 100_000
    with pytest.raises(BadMessage, match="no evidence of another"):
        decode(deep, form, form.limit_bytes)


def test_a_record_that_nobody_signed_does_not_blame_its_peer():
    """A record older than the known one is not checked: whoever names a far tick in it speaks for another."""
    network = SignedNetwork(split(X, CODES, even(150, N)), chords(N), seed=1)
    network.start({k: network.begin(k, 2) for k in range(N)}, np.random.default_rng(0))
    network.go(20)
    peer, sender = network.peers[0], network.peers[1]
    peer.highest_tick = 1000
    known = peer.table.newest[Snapshot][3]
    older = known._replace(number=NUMBERS_PER_INCARNATION + LAST_TICK, signature=bytes(64))
    assert older.number < known.number
    peer.receive(on_the_wire(peer, sender._message(0)._replace(records=[older])))
    assert not peer.too_far_ahead
    ahead = network.peers[3].notary.signed(known._replace(number=known.number + LAST_TICK // 2))
    peer.receive(on_the_wire(peer, network.peers[1]._message(0)._replace(records=[ahead])))
    assert set(peer.too_far_ahead) == {3}


def test_a_message_with_many_records_of_one_kind_is_refused(network):
    peer, sender = network.peers[0], network.peers[1]
    known = sender.table.newest[Snapshot][1]
    many = [sender.notary.signed(Proposal(1, known.number + k, known.model)) for k in range(2000)]
    refused = peer.traffic.refused
    peer.receive(on_the_wire(peer, sender._message(0)._replace(records=many)))
    assert peer.traffic.refused == refused + 1
    assert 1 not in peer.table.newest[Proposal]


def test_accusations_of_strangers_take_no_room(network):
    peer, sender = network.peers[0], network.peers[1]
    evidence = (sender.table.newest[Snapshot][1],)
    before = peer.store.n_peers
    accusations = [Accusation(N + k, 1, evidence) for k in range(1000)]
    peer.receive(on_the_wire(peer, sender._message(0)._replace(records=accusations)))
    assert peer.store.n_peers == before


def test_what_no_honest_peer_names_is_refused(network):
    """Neighbours and cuts that are named many times would make small messages large where they are read."""
    peer, sender = network.peers[0], network.peers[1]
    snapshot, query = sender.table.newest[Snapshot][1], network.peers[0].table.newest[Query][0]
    weights = np.zeros((1, 1))
    query = query._replace(peer=1, owners=np.array([2]), cuts=np.array([7]), weights=weights)
    few, many = np.arange(MOST_CUTS), np.arange(MOST_CUTS + 1)
    for record, is_good in (
        (snapshot._replace(neighbours=np.array([0, 2])), True),
        (snapshot._replace(neighbours=np.array([0, 2, 0])), False),
        (query, True),
        (query._replace(owners=np.array([N + 7])), False),
        (query._replace(owners=np.array([2, 2]), cuts=np.array([7, 7]), weights=np.zeros((2, 1))), False),
        (query._replace(owners=0 * few, cuts=few, weights=np.zeros((len(few), 1))), True),
        (query._replace(owners=0 * many, cuts=many, weights=np.zeros((len(many), 1))), False),
    ):
        new = sender.notary.signed(record._replace(number=snapshot.number + LAST_TICK // 4))
        assert peer._is_sound(on_the_wire(peer, sender._message(0)._replace(records=[new]))) == is_good, record


def test_a_proposal_and_a_query_can_be_equivocated_too(network):
    proposer = network.peers[min(network.peers)]
    said = proposer.table.newest[Proposal][0]
    other = proposer.notary.signed(said._replace(model=said.model * 2))
    assert contradiction((said, other)) == 0


def test_no_number_is_used_twice_by_a_peer_that_gets_rows_twice_in_a_tick():
    network = signed_network()
    peer, seen = network.peers[0], []
    announce = peer._announce

    def noted(record):
        seen.append((type(record), record.number))
        announce(record)

    peer._announce = noted
    extra = split(X, CODES, [10, 140])[0]
    peer.add_rows(extra)
    peer.add_rows(extra)
    network.go(3)
    assert len(seen) == len(set(seen))
    assert np.isclose(peer.table.newest[Moments][0].total, 25 + 20)
