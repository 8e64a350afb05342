"""Fits under MPI: every rank of the job calls ``fit`` with its own rows."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np

from widemargin import cores
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
        with cores.at_most(_n_threads(ours)):
            outcome = program.run_on_rank(rows, Mpi(ours), watch if cluster.Get_rank() == 0 else None)
        ours.Free()
        return outcome
    except BaseException as error:
        if not _all_failed(ours):
            _abort(cluster, error)
        raise


def _n_threads(comm: Any) -> int:
    """How many threads this rank may use, so that ranks on the same cores of one machine share them."""
    from mpi4py.MPI import COMM_TYPE_SHARED

    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    machine, mine = comm.Split_type(COMM_TYPE_SHARED), np.array([crc32(repr(own).encode())])
    everyone = np.empty(machine.Get_size(), mine.dtype)
    machine.Allgather(mine, everyone)
    machine.Free()
    n_ranks = int(np.count_nonzero(everyone == mine))
    return min(cores.n_threads(), len(own) // n_ranks)


@contextmanager
def all_end_with_one(
    comm: Any, *, tell: Callable[[BaseException], None] | None = None, status: int = 1
) -> Iterator[None]:
    """An error of one rank inside the block, or ``sys.exit`` with an error, ends the whole job.

    The others would wait for that rank for ever. Put the whole program of a rank inside: it may fail before ``fit``, as
    where a file is missing on one machine.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The communicator of the job; the block of a single rank raises as usual.
    tell : callable, optional
        Says on the standard error what happened; by default the traceback is printed there.
    status : int, default=1
        The exit status of the job.

    Examples
    --------
    >>> from widemargin.engines.mpi import all_end_with_one
    >>> class OneRank:  # instead of MPI.COMM_WORLD
    ...     def Get_size(self): return 1
    >>> with all_end_with_one(OneRank()):
    ...     print("load the rows, and fit")
    load the rows, and fit
    """
    try:
        yield
    except BaseException as error:
        is_failure = not isinstance(error, SystemExit) or error.code not in (None, 0)
        if is_failure and comm.Get_size() > 1:
            _abort(comm, error, tell, status)
        raise


def _abort(
    comm: Any, error: BaseException, tell: Callable[[BaseException], None] | None = None, status: int = 1
) -> None:
    try:
        if tell is not None:
            tell(error)
        else:
            print(f"widemargin: rank {comm.Get_rank()} failed; aborting the job.", file=sys.stderr)
            traceback.print_exception(error)
        sys.stderr.flush()
    finally:
        comm.Abort(status)


def _all_failed(comm: Any) -> bool:
    request = comm.Ibarrier()
    until = time.monotonic() + _FAILURE_TIMEOUT
    while time.monotonic() < until:
        if request.Test():
            return True
        time.sleep(0.01)
    return False
