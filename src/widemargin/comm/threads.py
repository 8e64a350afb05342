"""Ranks as threads of this process that exchange arrays in shared memory.

Compiled loops release the GIL, so ranks run in parallel. The ledger counts what the same exchange would send between
machines in a star: rank 0 receives one message from each other rank and answers each.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from widemargin import cores
from widemargin.comm.protocol import Communicator, Reduction, reduce_in_order
from widemargin.comm.solo import Solo
from widemargin.ledger import Ledger

T = TypeVar("T")


class RankAborted(RuntimeError):
    """Another rank failed, so this one stops too."""


class Meeting:
    """A barrier where the ranks of one job exchange arrays."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._condition = threading.Condition()
        self._arrived: list[Any] = [None] * size
        self._n_arrived = self._round = 0
        self._outcome: Any = None
        self._is_aborted = False

    def exchange(self, rank: int, values: np.ndarray | None, combine: Callable[[list[Any]], Any]) -> Any:
        """Contribute ``values``; the last rank to arrive combines all contributions, and every rank gets the result."""
        with self._condition:
            if self._is_aborted:
                raise RankAborted("another rank failed")
            self._arrived[rank] = None if values is None else values.copy()  # the caller may overwrite its array
            self._n_arrived += 1
            this_round = self._round
            if self._n_arrived == self.size:
                self._outcome = combine(self._arrived)
                self._arrived = [None] * self.size
                self._n_arrived = 0
                self._round += 1
                self._condition.notify_all()
            else:
                self._condition.wait_for(lambda: self._round != this_round or self._is_aborted)
                if self._round == this_round:
                    raise RankAborted("another rank failed")
            # The next round cannot complete before this rank joins it, so `_outcome` is still this round's.
            return self._outcome

    def abort(self) -> None:
        """Raise RankAborted in every rank that waits or arrives later."""
        with self._condition:
            self._is_aborted = True
            self._condition.notify_all()


class Threads:
    """The communicator of one rank among ``size`` threads."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self.ledger = rank, meeting.size, Ledger()
        self._meeting = meeting

    def allreduce(self, values: np.ndarray, op: Reduction = "sum") -> np.ndarray:
        outcome = self._meeting.exchange(self.rank, values, lambda everyone: reduce_in_order(everyone, op))
        self.ledger.exchanged(self, up=values, down=outcome)
        return outcome

    def gather(self, values: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        everyone = self._meeting.exchange(self.rank, values, list)
        self.ledger.exchanged(self, up=values, down=None, centre=root)
        return everyone if self.rank == root else None

    def broadcast(self, values: np.ndarray | None, root: int = 0) -> np.ndarray:
        outcome = self._meeting.exchange(self.rank, values, lambda everyone: everyone[root])
        self.ledger.exchanged(self, up=None, down=outcome, centre=root)
        return outcome


def on_ranks(n_ranks: int, work: Callable[[Communicator], T]) -> list[T]:
    """``work(comm)`` on every one of ``n_ranks`` threads; what each rank returned, in order.

    Rank 0 is the calling thread, so that callbacks, progress and Ctrl-C run in the user's thread. If a rank raises, all
    ranks stop and the error is raised here.
    """
    if n_ranks == 1:
        return [work(Solo())]
    meeting = Meeting(n_ranks)
    n_threads = cores.n_threads() // n_ranks  # of each
    outcomes: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def rank(number: int) -> None:
        try:
            with cores.at_most(n_threads):
                outcomes[number] = work(Threads(number, meeting))
        except BaseException as error:
            errors[number] = error
            meeting.abort()

    others = [threading.Thread(target=rank, args=(k,), name=f"widemargin-rank-{k}") for k in range(1, n_ranks)]
    for thread in others:
        thread.start()
    rank(0)
    for thread in others:
        thread.join()
    if errors:
        # RankAborted is only the consequence of another rank's error.
        causes = [error for _, error in sorted(errors.items()) if not isinstance(error, RankAborted)]
        raise causes[0] if causes else errors[min(errors)]
    return [outcomes[number] for number in range(n_ranks)]
