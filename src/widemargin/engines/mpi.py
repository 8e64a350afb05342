"""Fits under MPI: every rank of the job calls ``fit`` with its own rows."""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any

from widemargin.comm.mpi import Mpi

_AGREEMENT = 2.0  # seconds in which all ranks must have failed for an error to be everybody's


def launch(rows: Any, comm: Any, task: Any, watch: Any) -> Any:
    """Run ``task`` on this rank among all ranks of ``comm``; every rank gets the outcome.

    An error that all ranks meet, as a value of nu that is out of range, is raised on all. One that some meet alone
    would leave the others waiting for ever, so it is printed and the job is aborted.
    """
    ours = comm.Dup()  # our messages cannot meet the caller's
    try:
        outcome = task.run_on_rank(rows, Mpi(ours), watch if comm.Get_rank() == 0 else None)
        ours.Free()
        return outcome
    except BaseException:
        if not _all_failed(ours):
            print(f"widemargin: rank {comm.Get_rank()} failed and ends the job.", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            comm.Abort(1)
        raise


def _all_failed(comm: Any) -> bool:
    """Whether every rank comes here in time."""
    request = comm.Ibarrier()
    until = time.monotonic() + _AGREEMENT
    while time.monotonic() < until:
        if request.Test():
            return True
        time.sleep(0.01)
    return False
