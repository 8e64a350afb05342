"""What engines run, and what they offer: neither knows the other's insides."""

from collections.abc import Callable
from typing import Any, Literal, Protocol, Self

from widemargin.comm.protocol import Communicator

# Called with a report that has a ``part``; returns a reason to stop that part, or None to go on.
Watch = Callable[[Any], str | None]
# Of a tree of work; see :func:`widemargin.engines.inline.grow`.
Solve = Callable[..., Any]
Look = Callable[[Any], Any]
IsEnough = Callable[[list[Any]], bool]
IsOver = Callable[[], Any]


class RankOutcome(Protocol):
    """What a rank returns."""

    @property
    def results(self) -> list[Any]:
        """One for each part: dataclasses with a ``stop_reason`` and a ``ledger``."""


class RankProgram(Protocol):
    """What every rank of a fit runs; plain data, so that it can be sent to other processes."""

    @property
    def name(self) -> str:
        """Of the estimator, for messages."""

    @property
    def if_lost(self) -> Literal["recompute", "leave out", "raise"]:
        """What happens to the rows of a lost machine."""

    def run_on_rank(
        self, rows: Any, comm: Communicator, watch: Watch | None, *, may_lose_ranks: bool = False
    ) -> RankOutcome:
        """The whole fit, as one rank sees it; ``watch`` is called with a report after every sweep of rank 0.

        Where ranks may be lost, reports have states now and then from which the fit can go on.
        """

    def after(self, report: Any) -> Self:
        """The same program, which goes on from the state in this report, if it has one."""


class Engine(Protocol):
    """Starts ranks, or independent work, on one kind of cluster; a module of this folder is one."""

    def launch(self, rows: Any, cluster: Any, program: RankProgram, watch: Watch) -> Any:
        """Run the program on the ranks that hold the rows; the outcome of rank 0."""

    def map_items(self, cluster: Any, work: Callable[[Any, Any], Any], shared: Any, items: list[Any]) -> list[Any]:
        """``work(shared, item)`` for all items, side by side."""

    def grow(
        self,
        cluster: Any,
        leaves: list[Any],
        solve: Solve,
        look: Look,
        fan_in: int,
        is_enough: IsEnough,
        is_over: IsOver,
    ) -> None:
        """Solve a tree of work from its leaves to its root; see :func:`widemargin.engines.inline.grow`."""
