"""How do peers do as processes of their own, some of which die in the middle? A Dask cluster on this machine.

Whether it is the middle is not left to the clock, which means little on a busy machine: peers tell the scheduler how
far they are, and the victims are killed once every peer has come to a certain tick, and certified a gap for all rows.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._gossip_runs import Task
from widemargin import GossipSVC
from widemargin.peers.topology import Graph

MIDDLE = 12  # ticks that every peer has worked when some are killed; a gap of 1e-4 takes five times as many
LONGEST = 120.0  # seconds of a fit
_LOOK = 0.05  # seconds between two looks at what peers have told


def fit_on_workers(
    task: Task, shares: Sequence[np.ndarray], graph: Graph, victims: Sequence[int], tol: float
) -> tuple[GossipSVC, dict[str, Any]] | None:
    """A fit with a peer on each worker, of whom the ``victims`` are killed by pid; None where there is no Dask."""
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        return None
    edges = [(one, other) for one, others in graph.items() for other in others if one < other]
    settings: dict[str, Any] = {"fit_intercept": False, "topology": edges, "tol": tol, "max_iter": 10**6}
    quiet: dict[str, Any] = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    cluster = LocalCluster(n_workers=len(shares), threads_per_worker=1, **quiet)
    with cluster, Client(cluster) as client, Client(cluster, set_as_default=False) as observer:
        pids = client.run(os.getpid)
        doomed = [pids[sorted(pids)[number]] for number in victims]  # peers are on workers in the order of addresses
        killer = _Killer(observer, doomed, len(shares))
        model = GossipSVC(alpha=task.alpha, max_time=LONGEST, cluster=client, **settings)
        begin = time.perf_counter()
        killer.start()
        try:
            with harness.quietly():
                model.fit_shards([(task.X[share], task.y[share]) for share in shares])
        finally:
            killer.stop()
        seconds = time.perf_counter() - begin
    found = {"seconds": seconds, "stop": model.stop_reason_, "ticks": model.n_iter_, "messages": model.cost_.messages}
    return model, {**found, "killed": killer.found, "lost": model.cost_.lost_peers}


class _Killer(threading.Thread):
    """Waits for the middle of a fit, and ends some processes then; ``found`` is when that was."""

    def __init__(self, observer: Any, pids: Sequence[int], n_peers: int) -> None:
        super().__init__(daemon=True)
        self.found: dict[str, Any] | None = None
        self._observer, self._pids, self._n_peers = observer, pids, n_peers
        self._is_over = threading.Event()

    def run(self) -> None:
        while self._pids and not self._is_over.wait(_LOOK):
            news = self._told()
            if len(news) == self._n_peers and all(map(self._is_in_the_middle, news.values())):
                for pid in self._pids:
                    os.kill(pid, signal.SIGKILL)
                ticks = [int(each["tick"]) for each in news.values()]
                gap = max(each["gap"] for each in news.values())
                self.found = {"first": min(ticks), "last": max(ticks), "gap": gap}
                return

    def _is_in_the_middle(self, figures: dict[str, float]) -> bool:
        """Whether a peer has worked for a while, and has certified some gap of the network of all."""
        return figures["tick"] >= MIDDLE and figures["members"] == self._n_peers and np.isfinite(figures["gap"])

    def stop(self) -> None:
        self._is_over.set()
        if self.is_alive():
            self.join()

    def _told(self) -> dict[int, dict[str, float]]:
        """The last figures of every peer, as they were told to the scheduler."""
        news = {}
        for topic, events in self._observer.get_events().items():
            if str(topic).startswith("widemargin-"):
                news |= {event[0]: event[1] for _, event in events if isinstance(event, list | tuple)}
        return news
