"""Ranks in this process: one in the calling thread, or several threads that meet in shared memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from widemargin.comm._protocol import Communicator
from widemargin.comm.solo import Solo
from widemargin.comm.threads import Meeting, RankAborted, Threads
from widemargin.data.shard import Shard

Outcome = TypeVar("Outcome")


def launch(shards: Sequence[Shard], task: Callable[[Shard, Communicator], Outcome]) -> list[Outcome]:
    """Run ``task`` once for each shard, with a communicator between them; the outcomes by rank.

    Rank 0 is the calling thread, so that callbacks, progress and Ctrl-C act where the user is. If a rank raises, all
    stop and that error is raised here.
    """
    if len(shards) == 1:
        return [task(shards[0], Solo())]
    meeting = Meeting(len(shards))
    outcomes: dict[int, Outcome] = {}
    errors: dict[int, BaseException] = {}

    def rank(number: int) -> None:
        try:
            outcomes[number] = task(shards[number], Threads(number, meeting))
        except BaseException as error:
            errors[number] = error
            meeting.abort()

    others = [threading.Thread(target=rank, args=(k,), name=f"widemargin-rank-{k}") for k in range(1, len(shards))]
    for thread in others:
        thread.start()
    rank(0)
    for thread in others:
        thread.join()
    if errors:
        # A rank that was only told to stop says nothing of the cause.
        cause = [error for _, error in sorted(errors.items()) if not isinstance(error, RankAborted)]
        raise cause[0] if cause else errors[min(errors)]
    return [outcomes[k] for k in range(len(shards))]
