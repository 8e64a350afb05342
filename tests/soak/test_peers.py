"""Peers that join, leave, crash and return for as long as one likes: certificates stay true, and memory flat.

``WIDEMARGIN_SOAK_SECONDS`` is how long the long version goes on; half an hour if it is not set.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
import pytest

pytest.importorskip("zmq", reason="needs the gossip extra")

from tests.soak.peer_network import Soak

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sends signals that other systems lack"),
    pytest.mark.xdist_group("peers in processes"),
]
LONG = float(os.environ.get("WIDEMARGIN_SOAK_SECONDS", "1800"))
FEWEST, MOST = 3, 6  # peers
GROWTH = 6 * 2**20  # bytes, in the last quarter of a peer's life


@pytest.fixture
def soak():
    network = Soak(np.random.default_rng(int(os.environ.get("WIDEMARGIN_SOAK_SEED", "0"))))
    yield network
    network.end()


def begin(soak, n_peers):
    soak.join()
    while soak.peers[1].address is None:
        assert soak.peers[1].is_running, "".join(soak.peers[1].errors)
        time.sleep(0.02)
    for _ in range(n_peers - 1):
        soak.join()
    soak.certify("start")


def test_one_of_each(soak, capsys):
    begin(soak, 3)
    soak.lose(signal.SIGKILL)
    soak.certify("crash")
    soak.come_back()
    soak.certify("return")
    soak.jump()
    soak.certify("clocks jump")
    soak.lose(signal.SIGTERM)
    soak.certify("leave")
    soak.join()
    soak.certify("join")
    soak.end()
    assert soak.n_certificates == 3 + 2 + 3 + 3 + 2 + 3
    with capsys.disabled():
        print("\n" + soak.summary())


@pytest.mark.long
def test_half_an_hour(soak, capsys):
    begin(soak, 5)
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        change(soak)
        time.sleep(soak.rng.exponential(3.0))
    soak.end()
    with capsys.disabled():
        print("\n" + soak.summary())
    assert soak.memory, "no peer lived long enough to judge its memory"
    for number, (third, last) in soak.memory.items():
        assert last - third <= GROWTH, f"peer {number}: {third / 2**20:.1f} MiB, then {last / 2**20:.1f} MiB"


def change(soak):
    """One random change, and certificates of all who are there then."""
    kinds = ["clocks jump"]
    kinds += ["join"] if len(soak.peers) < MOST else []
    kinds += ["return", "return with other rows"] if len(soak.peers) < MOST and soak.left else []
    kinds += ["leave", "crash"] if len(soak.peers) > FEWEST else []
    kinds += ["two crash"] if len(soak.peers) > FEWEST + 1 else []
    what = str(soak.rng.choice(kinds))
    if what == "join":
        soak.join()
    elif what.startswith("return"):
        soak.come_back(has_new_rows=what != "return")
    elif what == "clocks jump":
        soak.jump()
    else:
        for _ in range(2 if what == "two crash" else 1):
            soak.lose(signal.SIGTERM if what == "leave" else signal.SIGKILL)
    soak.certify(what)
