"""A network of real peers, each a process of its own, that a test changes and judges."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.peers.networks import optimum, signs_of
from tests.soak.peer_program import ALPHA, EVERY, PACE, rows_of

TOL = 1e-3
SLACK = 1e-9  # relative, for LIBLINEAR's own tolerance
PATIENCE = 90.0  # seconds in which all must have certified again, once they run
START = 300.0  # seconds in which a process must run: a busy machine compiles and imports slowly
_ROOT = Path(__file__).parents[2]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class PeerProcess:
    """A peer, and the last line that it printed."""

    def __init__(self, number: int, version: int, join: str | None) -> None:
        self.number, self.version = number, version
        command = [sys.executable, "-m", "tests.soak.peer_program", str(number), str(version), *filter(None, [join])]
        paths = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": paths}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, cwd=_ROOT, env=environment, text=True, **streams)
        self.address: str | None = None
        self.state: dict | None = None
        self.memory: list[tuple[float, int]] = []  # seconds, bytes
        self.errors: deque[str] = deque(maxlen=30)
        for read in (self._read, self._read_errors):
            threading.Thread(target=read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            told = json.loads(line)
            if "address" in told:
                self.address = told["address"]
            else:
                self.state = told
                self.memory.append((time.monotonic(), told["rss"]))

    def _read_errors(self) -> None:
        self.errors.extend(self._process.stderr)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def tell(self, sign: signal.Signals) -> None:
        self._process.send_signal(sign)

    def end(self, sign: signal.Signals = signal.SIGKILL) -> None:
        self._process.send_signal(sign)
        code = self._process.wait(timeout=30)
        assert sign == signal.SIGKILL or code == 0, (code, "".join(self.errors))


@dataclass
class Soak:
    """The network, what was done to it, and what it certified."""

    rng: np.random.Generator
    peers: dict[int, PeerProcess] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)  # peers that are gone, and the version of their rows
    changes: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # to certify again
    ticks: dict[str, list[int]] = field(default_factory=dict)  # the same after each kind of change, by who is ahead
    messages: np.ndarray = field(default_factory=lambda: np.zeros(3, int))  # sent, lost, refused; of peers that ended
    n_certificates: int = 0
    n_bounds: int = 0  # pairs of bounds that were checked on the way
    memory: dict[int, tuple[float, float]] = field(default_factory=dict)  # of peers that lived for long
    sizes: dict[str, int] = field(default_factory=dict)  # the largest of each table
    _next: int = 0
    _optima: dict[tuple, float] = field(default_factory=dict)

    # -- changes -----------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """A peer with a new number, that any member takes in."""
        self._next += 1
        self._start(self._next, 0)

    def come_back(self, *, has_new_rows: bool = False) -> None:
        number = int(self.rng.choice(sorted(self.left)))
        self._start(number, self.left.pop(number) + has_new_rows)

    def _start(self, number: int, version: int) -> None:
        there = [peer.address for peer in self.peers.values() if peer.address is not None]
        self.peers[number] = PeerProcess(number, version, str(self.rng.choice(there)) if there else None)

    def lose(self, sign: signal.Signals) -> None:
        """One peer ends, by its own will or by a crash."""
        number = int(self.rng.choice(sorted(self.peers)))
        peer = self.peers.pop(number)
        self._note(peer)
        peer.end(sign)
        self.left[number] = peer.version

    def jump(self) -> None:
        """The clocks of some peers jump an hour, ahead or back."""
        for number in self.rng.choice(sorted(self.peers), 2, replace=False).tolist():
            self.peers[number].tell(signal.SIGUSR1 if self.rng.random() < 0.5 else signal.SIGUSR2)

    # -- judgement ---------------------------------------------------------------------------------------------------

    def certify(self, what: str) -> None:
        """Wait until all have certified the present members; every bound on the way must be true for its members."""
        self.changes[what] = self.changes.get(what, 0) + 1
        began, members, tick, until = time.monotonic(), sorted(self.peers), None, time.monotonic() + START
        awaited = {number: peer.state for number, peer in self.peers.items()}  # a state from before says nothing
        while True:
            for number, peer in self.peers.items():
                assert peer.is_running, f"peer {number} ended after {what}: {''.join(peer.errors)}"
                if peer.state is not awaited.get(number):
                    self._check(peer.state)
            if tick is None and all(peer.state is not None for peer in self.peers.values()):
                tick, until = self._tick(), time.monotonic() + PATIENCE
            if all(p.state is not awaited[k] and self._is_certified(p.state, members) for k, p in self.peers.items()):
                break
            states = {number: peer.state and peer.state["members"] for number, peer in self.peers.items()}
            assert time.monotonic() < until, f"no certificate after {what} for {members}: {states}"
            time.sleep(0.05)
        self.n_certificates += len(members)
        self.seconds.append(time.monotonic() - began)
        self.ticks.setdefault(what, []).append(self._tick() - (tick or 0))
        for peer in self.peers.values():
            self.sizes = {k: max(self.sizes.get(k, 0), n) for k, n in peer.state["sizes"].items()}

    def _tick(self) -> int:
        return max((peer.state["ticks"] for peer in self.peers.values() if peer.state is not None), default=0)

    def _is_certified(self, state: dict, members: list[int]) -> bool:
        is_proved = state["primal"] is not None and state["members"] == members
        return is_proved and (state["primal"] - state["dual"]) <= TOL * state["primal"]

    def _check(self, state: dict) -> None:
        """The optimum of the rows of a certificate's members lies between its bounds."""
        if state["primal"] is None:
            return
        # While a peer returns with other rows, a certificate may be of either.
        versions = [self._versions_of(number) for number in state["members"]]
        exact = [self._optimum(tuple(zip(state["members"], each, strict=True))) for each in _choices(versions)]
        allowed = SLACK * state["primal"]
        is_true = [state["dual"] <= best + allowed and best <= state["primal"] + allowed for best in exact]
        assert any(is_true), (state, exact)
        self.n_bounds += 1

    def _versions_of(self, number: int) -> list[int]:
        now = self.peers[number].version if number in self.peers else self.left[number]
        return [now] if now == 0 else [now, now - 1]

    def _optimum(self, rows: tuple[tuple[int, int], ...]) -> float:
        if rows not in self._optima:
            parts = [rows_of(number, version) for number, version in rows]
            X, codes = np.vstack([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
            self._optima[rows] = optimum(X, signs_of(codes, 2)[0], alpha=ALPHA)
        return self._optima[rows]

    def _note(self, peer: PeerProcess) -> None:
        """Messages of a peer that ends, and memory: the median of the third quarter of its life, and of the last.

        Its tables fill in the first half.
        """
        if peer.state is not None:
            self.messages += [peer.state[each] for each in ("sent", "lost", "refused")]
        values = np.array([value for _, value in peer.memory], dtype=float)
        if len(values) >= 400:
            third, last = np.array_split(values, 4)[2:]
            self.memory[peer.number] = float(np.median(third)), float(np.median(last))

    def end(self) -> None:
        for peer in self.peers.values():
            if peer.is_running:
                self._note(peer)
                peer.end()

    def summary(self) -> str:
        done = ", ".join(f"{n} x {what}" for what, n in sorted(self.changes.items()))
        grown = [(last - third) / 2**20 for third, last in self.memory.values()]
        growth = f"{max(grown):+.1f} MiB at most over {len(grown)} long-lived peers" if grown else "no long-lived peer"
        sent, lost, refused = self.messages
        spans = [("all", [n for each in self.ticks.values() for n in each]), *sorted(self.ticks.items())]
        ticks = ", ".join(f"{what} {np.median(each):.0f} (most {max(each)})" for what, each in spans)
        first = max((third for third, _ in self.memory.values()), default=0.0) / 2**20
        return "\n".join(
            [
                f"changes: {sum(self.changes.values())} ({done})",
                f"certificates: {self.n_certificates} of gap {TOL:g} for all members, {self.n_bounds} bounds checked",
                f"seconds to start and certify: median {np.median(self.seconds):.1f}, most {max(self.seconds):.1f}",
                f"ticks to certify again, to about {EVERY / PACE:.0f}: {ticks}",
                f"messages: {sent} sent, {lost} of them lost, {refused} refused",
                f"memory, third to last quarter of a life: {growth}, from {first:.0f} MiB",
                "largest tables: " + ", ".join(f"{name} {n}" for name, n in sorted(self.sizes.items())),
            ]
        )


def _choices(versions: list[list[int]]) -> list[tuple[int, ...]]:
    """All combinations for a few that may have either version; else the present ones."""
    if sum(len(each) > 1 for each in versions) > 4:
        versions = [each[:1] for each in versions]
    choices: list[tuple[int, ...]] = [()]
    for each in versions:
        choices = [(*choice, version) for choice in choices for version in each]
    return choices
