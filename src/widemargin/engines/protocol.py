"""Protocols of the engines and of the programs that they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from widemargin.comm.protocol import Communicator


class RankProgram(Protocol):
    """The program that every rank of a fit runs; plain data, so that it can be sent to other processes."""

    @property
    def name(self) -> str:
        """Name of the estimator, for messages."""

    @property
    def if_lost(self) -> Literal["recompute", "leave out", "raise"]:
        """What to do with the rows of a lost machine."""

    def run_on_rank(self, rows: Any, comm: Communicator, watch: Any) -> Any:
        """Run the whole fit on one rank; rank 0 calls ``watch`` with a report after every sweep."""


class Engine(Protocol):
    """Starts ranks, or independent tasks, on one kind of cluster; implemented by modules of this folder."""

    def launch(self, rows: Any, cluster: Any, program: RankProgram, watch: Any) -> Any:
        """Run the program on the ranks that hold the rows; returns the outcome of rank 0."""

    def map_items(self, cluster: Any, work: Callable[[Any, Any], Any], shared: Any, items: list[Any]) -> list[Any]:
        """``work(shared, item)`` for all items, in parallel."""

    def grow(
        self,
        cluster: Any,
        leaves: list[Any],
        solve: Callable[..., Any],
        look: Callable[[Any], Any],
        fan_in: int,
        is_enough: Callable[[list[Any]], bool],
        is_over: Callable[[], Any],
    ) -> None:
        """Solve a tree from its leaves to its root; see :func:`widemargin.engines.inline.grow`."""
