"""Fits under MPI: every rank of the job calls ``fit`` with its own rows."""

import sys
import time
import traceback
from typing import Any

from widemargin.comm.mpi import Mpi
from widemargin.engines.protocol import RankProgram

_FAILURE_TIMEOUT = 2.0  # seconds within which all ranks must fail for an error to count as common


def launch(rows: Any, cluster: Any, program: RankProgram, watch: Any) -> Any:
    """Run ``program`` on this rank of the communicator; every rank gets the outcome.

    An error common to all ranks, such as a nu out of range, is raised on all. An error of some ranks only would leave
    the others waiting forever, so it is printed and the job is aborted.
    """
    ours = cluster.Dup()  # keeps our messages apart from the caller's
    try:
        outcome = program.run_on_rank(rows, Mpi(ours), watch if cluster.Get_rank() == 0 else None)
        ours.Free()
        return outcome
    except BaseException:
        if not _all_failed(ours):
            print(f"widemargin: rank {cluster.Get_rank()} failed; aborting the job.", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            cluster.Abort(1)
        raise


def _all_failed(comm: Any) -> bool:
    request = comm.Ibarrier()
    until = time.monotonic() + _FAILURE_TIMEOUT
    while time.monotonic() < until:
        if request.Test():
            return True
        time.sleep(0.01)
    return False
