"""Identities, cards and lists of members: what is signed cannot be changed, and newer lists replace older ones."""

from __future__ import annotations

import json
import stat
import sys

import pytest

pytest.importorskip("nacl", reason="needs the gossip extra")

from widemargin.comm.identity import Card, Identity, is_signed_by
from widemargin.comm.members import MAX_LIST_BYTES, MemberList, Membership

ORGANISER, ALICE, BOB = (Identity.create(name) for name in ("organiser", "alice", "bob"))


def begun():
    return MemberList("hospitals", ORGANISER.card.key).with_member(ALICE.card, 100, ORGANISER)


def both():
    return begun().with_member(BOB.card, 50.5, ORGANISER)


def test_an_identity_is_the_same_after_reading_and_its_file_is_private(tmp_path):
    path = tmp_path / "alice.key"
    ALICE.write(path)
    again = Identity.read(path)
    assert again.card == ALICE.card
    assert is_signed_by(ALICE.card.key, b"data", again.sign(b"data"))
    assert not is_signed_by(BOB.card.key, b"data", again.sign(b"data"))
    assert not is_signed_by(ALICE.card.key, b"other", again.sign(b"data"))
    assert not is_signed_by(b"short", b"data", b"")
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        ALICE.write(path)


@pytest.mark.parametrize("name", ["", ".hidden", "a b", "a/b", "x" * 65, 7, None, "é"])
def test_names_are_plain(name):
    with pytest.raises(ValueError, match="is not a name"):
        Identity.create(name)


@pytest.mark.parametrize("changed", ["name", "key", "curve", "signature"])
def test_a_card_that_was_changed_is_refused(changed):
    content = ALICE.card.content()
    assert Card.of(content, "here") == ALICE.card
    content[changed] = BOB.card.content()[changed]
    with pytest.raises(ValueError, match="not signed by its own key"):
        Card.of(content, "here")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"name": "alice"}', "[" * 5000, " " * 20_000])
def test_what_is_no_card_or_identity_is_refused_in_a_sentence(text, tmp_path):
    path = tmp_path / "file"
    path.write_text(text)
    for read in (Card.read, Identity.read, MemberList.read):
        with pytest.raises(ValueError, match="file"):
            read(path)
    with pytest.raises(ValueError, match="No such file"):
        Card.read(tmp_path / "none")


def test_a_list_survives_its_file_and_numbers_are_given_once(tmp_path):
    both().write(tmp_path / "members.json")
    read = MemberList.read(tmp_path / "members.json")
    assert read == both()
    assert (read.number, read.next_member, read.caps) == (2, 2, {0: 100.0, 1: 50.5})
    without = read.without("alice", ORGANISER)
    assert (without.number, set(without.active), set(without.members)) == (3, {1}, {0, 1})
    assert MemberList.parse(without.text().encode()) == without
    back = without.with_member(ALICE.card, 10, ORGANISER)
    assert back.active[2].card == ALICE.card
    assert back.with_key(ALICE.card.key).number == 2
    assert back.fingerprint == read.fingerprint != MemberList("clinics", ORGANISER.card.key).fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"network": "clinics"}, {"number": 3}, {"next_member": 9}, {"organiser": BOB.card.key.hex()},
        {"members": []}, {"signature": "00" * 64},
    ],
)  # fmt: skip
def test_a_list_that_was_changed_is_refused(change):
    content = json.loads(both().text())
    MemberList.parse(json.dumps(content).encode())
    with pytest.raises(ValueError, match="not signed by its organiser"):
        MemberList.parse(json.dumps({**content, **change}).encode())


@pytest.mark.parametrize("change", [{"rows": 51}, {"revoked": True}, {"member": 0}])
def test_a_member_that_was_changed_is_refused(change):
    content = json.loads(both().text())
    content["members"][1] |= change
    with pytest.raises(ValueError, match=r"not signed by its organiser|two members with one number"):
        MemberList.parse(json.dumps(content).encode())


@pytest.mark.parametrize(
    "change",
    [{"number": -1}, {"number": 1.0}, {"number": True}, {"members": {}}, {"members": [1]}, {"network": "a b"},
     {"organiser": "zz"}, {"organiser": "00"}],
)  # fmt: skip
def test_a_list_of_another_form_is_refused(change):
    content = json.loads(both().text())
    with pytest.raises(ValueError, match="is not a list of members"):
        MemberList.parse(json.dumps({**content, **change}).encode())
    content["members"][1] |= {"rows": 10**400}  # which no float is as large as
    with pytest.raises(ValueError, match="not a largest number of rows"):
        MemberList.parse(json.dumps(content).encode())
    with pytest.raises(ValueError, match="more than"):
        MemberList.parse(b" " * (MAX_LIST_BYTES + 1))


def test_only_the_organiser_changes_a_list_and_nobody_is_on_it_twice():
    for change in (lambda: both().without("bob", BOB), lambda: begun().with_member(BOB.card, 1, BOB)):
        with pytest.raises(ValueError, match="not the organiser"):
            change()
    with pytest.raises(ValueError, match="on the list"):
        both().with_member(ALICE.card, 1, ORGANISER)
    same_name = Identity.create("alice")
    with pytest.raises(ValueError, match="on the list"):
        both().with_member(same_name.card, 1, ORGANISER)
    with pytest.raises(ValueError, match="not on the list"):
        both().named("carol")
    # The same CURVE key under another name: whoever connects with it could be either.
    stolen = Identity("mallory", bytes(32), ALICE.curve_secret)
    with pytest.raises(ValueError, match="two members with one"):
        both().with_member(stolen.card, 1, ORGANISER)
    for rows in (0, -1, float("nan"), float("inf"), "many"):
        with pytest.raises(ValueError, match="largest number of rows"):
            begun().with_member(BOB.card, rows, ORGANISER)


def test_a_newer_list_replaces_an_older_one_of_the_same_network():
    membership = Membership(begun())
    assert membership.take(both())
    assert not membership.take(begun())
    assert not membership.take(both())
    assert membership.newest == both()
    for other in (
        MemberList("clinics", ORGANISER.card.key).with_member(ALICE.card, 1, ORGANISER),
        MemberList("hospitals", BOB.card.key).with_member(ALICE.card, 1, BOB),
    ):
        with pytest.raises(ValueError, match=r"another organiser|of the network"):
            membership.take(other)


def test_two_lists_with_one_number_are_noticed_until_there_is_a_newer_one():
    membership = Membership(begun())
    membership.take(begun())
    assert not membership.has_rival
    membership.take(MemberList("hospitals", ORGANISER.card.key).with_member(BOB.card, 1, ORGANISER))
    assert membership.has_rival
    assert membership.newest == begun()
    membership.take(both())
    assert not membership.has_rival
