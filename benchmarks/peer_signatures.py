"""What do signatures and the checks of what members say cost, in networks of 10, 100 and 1,000 members?

    python -m benchmarks.peer_signatures            # some minutes
    python -m benchmarks.peer_signatures --quick

The networks are simulated on Adult to a certified gap of 1e-3, in one process. With 10 and 100 members, each keeps its
own records, signs what it says, verifies what is new to it, and checks stated losses against stated cuts: processor
seconds stand beside those of the same network without. With 1,000, new records are counted, and multiplied by the time
that one takes. In a real network every member has a processor of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
from widemargin.peers.store import N_KINDS

QUESTION = __doc__
TERMS = {"run": "benchmark"}
GAP = 1e-3
SIZES = (10, 100, 1000)
MOST_SIGNED = 100  # members of networks that really sign


class Timed:
    """A notary whose work is counted and timed."""

    def __init__(self, notary: MemberNotary) -> None:
        self.notary, self.seconds_to_sign, self.seconds_to_verify = notary, list[float](), list[float]()

    def signed(self, record: Any) -> Any:
        begin = time.perf_counter()
        record = self.notary.signed(record)
        self.seconds_to_sign.append(time.perf_counter() - begin)
        return record

    def is_valid(self, record: Any) -> bool:
        begin = time.perf_counter()
        is_valid = self.notary.is_valid(record)
        self.seconds_to_verify.append(time.perf_counter() - begin)
        return is_valid


def plain(task: runs.Task, n_peers: int, *, is_store_shared: bool) -> dict[str, float]:
    """A network without signatures; ``new_records`` is how many are new to a peer and not its own, the median."""
    n_new = dict.fromkeys(range(n_peers), 0)

    def prepare(peer: Peer) -> None:
        take_all = peer.table.take_all

        def counted(handles: Any) -> Any:
            news = take_all(handles)
            n_new[peer.number] += int(
                (peer.store.keys[news.handles] // N_KINDS != peer.store.slot_of(peer.number)).sum()
            )
            return news

        peer.table.take_all = counted  # type: ignore[method-assign]

    end = run(task, n_peers, prepare, is_store_shared=is_store_shared)
    return {"ticks": end.tick, "cpu_seconds": end.cpu_seconds, "new_records": median(n_new.values())}


def signed(task: runs.Task, n_peers: int) -> dict[str, float]:
    """The same network with keys, whose members check what others say."""
    owners, organiser = [Identity.create(f"owner{number}") for number in range(n_peers)], Identity.create("organiser")
    members = MemberList("benchmark", organiser.card.key)
    for owner in owners:
        members = members.with_member(owner.card, len(task.y), organiser)
    notaries: list[Timed] = []

    def prepare(peer: Peer) -> None:
        notaries.append(Timed(MemberNotary(owners[peer.number], Membership(members), TERMS)))
        peer.notary, peer.claims = notaries[-1], Claims(members.caps)
        peer._announce_moments()  # those that it announced when it began are not signed

    end = run(task, n_peers, prepare, is_store_shared=False)
    found: dict[str, float] = {"ticks": end.tick, "cpu_seconds": end.cpu_seconds}
    for what in ("sign", "verify"):
        each = [getattr(notary, f"seconds_to_{what}") for notary in notaries]
        found[f"to_{what}"] = median(len(times) for times in each)
        found[f"microseconds_to_{what}"] = 1e6 * median(seconds for times in each for seconds in times)
    return found


def run(task: runs.Task, n_peers: int, prepare: Callable[[Peer], None], *, is_store_shared: bool) -> runs.Moment:
    """One network until all its members have certified the gap; how it ended."""
    last: list[runs.Moment] = []

    def look(moment: runs.Moment) -> bool:
        last[:] = [moment]
        return moment.certified <= GAP

    is_small = n_peers <= runs.PEERS  # as with metric="auto"
    settings: dict[str, Any] = {"is_metric_full": is_small, "is_store_shared": is_store_shared}
    runs.trace(task, look, seed=0, n_peers=n_peers, prepare=prepare, **settings)
    return last[0]


def main() -> None:
    chosen = harness.arguments(QUESTION, ())
    report = Section("gossip", "signatures", quick=chosen.quick)
    task = runs.few(runs.load("Adult"), 2_000) if chosen.quick else runs.load("Adult")
    signed(runs.few(task, 200), 4)  # loads compiled code
    rows, found = [], dict[str, Any]()
    each: dict[str, float] = {}
    for n_peers in (10, 30) if chosen.quick else SIZES:
        is_signed = n_peers <= MOST_SIGNED
        without = plain(task, n_peers, is_store_shared=not is_signed)
        each = signed(task, n_peers) if is_signed else each
        seconds = without["new_records"] * each["microseconds_to_verify"] / 1e6
        found[f"{n_peers} members"] = {
            "without": without, "signed": each if is_signed else None, "seconds_to_verify": seconds,
        }  # fmt: skip
        extra = each["cpu_seconds"] / without["cpu_seconds"] if is_signed else None
        of_tick = 1e3 * seconds / without["ticks"]
        rows.append([n_peers, without["ticks"], without["new_records"], seconds, of_tick, extra])
        report.add("signatures", found)
    head = ["members", "ticks", "records that one verifies", "seconds for that", "ms a tick", "cpu / without"]
    harness.show(f"Signatures and checks, to a certified gap of {GAP:g}", head, rows)


if __name__ == "__main__":
    main()
