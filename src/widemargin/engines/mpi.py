"""Fits under MPI: every rank of the job calls ``fit`` with its own rows."""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any

from widemargin.comm.mpi import Mpi
from widemargin.engines.protocol import RankProgram

_AGREEMENT = 2.0  # seconds in which all ranks must have failed for an error to be everybody's


def launch(rows: Any, cluster: Any, program: RankProgram, watch: Any) -> Any:
    """Run ``program`` on this rank among all ranks of the communicator; every rank gets the outcome.

    An error that all ranks meet, as a value of nu that is out of range, is raised on all. One that some meet alone
    would leave the others waiting for ever, so it is printed and the job is aborted.
    """
    ours = cluster.Dup()  # our messages cannot meet the caller's
    try:
        outcome = program.run_on_rank(rows, Mpi(ours), watch if cluster.Get_rank() == 0 else None)
        ours.Free()
        return outcome
    except BaseException:
        if not _all_failed(ours):
            print(f"widemargin: rank {cluster.Get_rank()} failed and ends the job.", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            cluster.Abort(1)
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
