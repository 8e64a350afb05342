"""What do signatures and the checks of what members say cost, in networks of 10, 100 and 1,000 members?

    python -m benchmarks.peer_signatures            # some minutes
    python -m benchmarks.peer_signatures --quick

The networks are simulated on Adult to a certified gap of 1e-3 (1e-2 for 1,000 members), in one process. Up to 100
members every record is signed and every new one verified, by each member that receives it, and stated losses are
checked against stated cuts: processor seconds stand beside those of the same network without. For 1,000 members the
records that each would verify are counted, and multiplied by the time that one takes; in a real network every member
has a processor of its own.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks import _gossip_runs as runs
from benchmarks import _harness as harness
from benchmarks.sparse import Section
from widemargin.comm.identity import Identity
from widemargin.comm.members import MemberList, Membership
from widemargin.peers.claims import Claims
from widemargin.peers.notary import MemberNotary
from widemargin.peers.peer import Peer

QUESTION = __doc__
TERMS = {"run": "benchmark"}
GAPS = {10: 1e-3, 100: 1e-3, 1000: 1e-2}
MOST_SIGNED = 100  # members of networks that really sign


class Counting:
    """Counts what a notary would have to do, or has it done."""

    def __init__(self, notary: MemberNotary | None) -> None:
        self.notary, self.n_signed, self.n_verified = notary, 0, 0
        self.sign_seconds: list[float] = []
        self.verify_seconds: list[float] = []

    def signed(self, record: Any) -> Any:
        self.n_signed += 1
        begin = time.perf_counter()
        record = record if self.notary is None else self.notary.signed(record)
        self.sign_seconds.append(time.perf_counter() - begin)
        return record

    def is_valid(self, record: Any) -> bool:
        self.n_verified += 1
        begin = time.perf_counter()
        is_valid = self.notary is None or self.notary.is_valid(record)
        self.verify_seconds.append(time.perf_counter() - begin)
        return is_valid


def network(task: runs.Task, n_peers: int, gap: float, *, is_signed: bool, is_counted: bool) -> dict[str, Any]:
    """One network until all its members have certified the gap."""
    owners = [Identity.create(f"owner{number}") for number in range(n_peers)] if is_signed else []
    organiser = Identity.create("organiser")
    members = MemberList("benchmark", organiser.card.key)
    for owner in owners:
        members = members.with_member(owner.card, len(task.y), organiser)
    notaries: dict[int, Counting] = {}

    def prepare(peer: Peer) -> None:
        if is_counted:
            notary = MemberNotary(owners[peer.number], Membership(members), TERMS) if is_signed else None
            peer.notary = notaries[peer.number] = Counting(notary)
            peer.claims = Claims() if is_signed else None
            peer._announce_moments()  # those that it announced when it began are not signed

    last: list[runs.Moment] = []

    def look(moment: runs.Moment) -> bool:
        last[:] = [moment]
        return moment.certified <= gap

    runs.trace(task, look, seed=0, n_peers=n_peers, prepare=prepare)
    (end,) = last
    found: dict[str, Any] = {"ticks": end.tick, "cpu_seconds": end.cpu_seconds, "certified": end.certified}
    if notaries:
        found |= {
            name: median(getattr(each, name) for each in notaries.values()) for name in ("n_signed", "n_verified")
        }
    if is_signed and is_counted:
        for name in ("sign_seconds", "verify_seconds"):
            found[name] = median(each for notary in notaries.values() for each in getattr(notary, name))
    return found


def main() -> None:
    chosen = harness.arguments(QUESTION, ())
    report = Section("gossip", "signatures", quick=chosen.quick)
    task = runs.few(runs.load("Adult"), 2_000) if chosen.quick else runs.load("Adult")
    network(task, 4, 1e-1, is_signed=True, is_counted=True)  # loads compiled code
    rows, found = [], dict[str, Any]()
    verify = 0.0
    for n_peers in (10, 30) if chosen.quick else GAPS:
        gap = GAPS.get(n_peers, 1e-2)
        is_signed = n_peers <= MOST_SIGNED
        plain = network(task, n_peers, gap, is_signed=False, is_counted=False)
        counted = network(task, n_peers, gap, is_signed=is_signed, is_counted=True)
        verify = counted.get("verify_seconds", verify)
        of_one = verify * counted["n_verified"]
        found[f"{n_peers} members"] = {"gap": gap, "plain": plain, "counted": counted, "seconds_of_one": of_one}
        extra = counted["cpu_seconds"] / plain["cpu_seconds"] if is_signed else None
        rows.append(
            (n_peers, f"{gap:g}", counted["ticks"], counted["n_signed"], counted["n_verified"], of_one,
             of_one / counted["ticks"], extra)
        )  # fmt: skip
    head = ("members", "gap", "ticks", "signed by one", "verified by one", "seconds of one for that", "of a tick",
            "processor seconds of all / without")  # fmt: skip
    found["verify_microseconds"] = 1e6 * verify
    harness.show("Signatures and checks", head, rows)
    report.add("signatures", found)


if __name__ == "__main__":
    main()
