"""Where a fit runs, from the text of ``--cluster``."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from widemargin.cli import in_words
from widemargin.cli._say import remark
from widemargin.engines.mpi import all_end_with_one


class Place(NamedTuple):
    """The value for ``cluster=``, and which of several MPI processes this is."""

    cluster: Any = None
    rank: int = 0
    size: int = 1

    def total(self, numbers: Any) -> Any:
        """The sum of an array over all processes of an MPI job."""
        if self.size == 1:
            return numbers
        import numpy as np

        everywhere = np.empty_like(numbers)
        self.cluster.Allreduce(numbers, everywhere)
        return everywhere


@contextmanager
def opened(text: str | None) -> Iterator[Place]:
    """``threads:4``, ``dask:tcp://host:8786``, ``mpi``, or None for this process alone."""
    kind, _, rest = (text or "").partition(":")
    if text is None:
        yield Place()
    elif kind == "threads":
        if not rest.isdecimal() or int(rest) < 1:
            raise ValueError(f"--cluster {text}: the number of threads must be a positive integer, as in threads:4.")
        yield Place(int(rest))
    elif kind == "dask" and rest:
        client = _dask(rest)
        try:
            yield Place(client)
        finally:
            client.close()
    elif text == "mpi":
        comm = _imported("mpi4py.MPI", "mpi").COMM_WORLD
        with all_end_with_one(comm, tell=_tell, status=2):
            yield Place(comm, comm.Get_rank(), comm.Get_size())
    else:
        raise ValueError(f"--cluster {text} must be threads:NUMBER, dask:ADDRESS (as dask:tcp://host:8786) or mpi.")


def _tell(error: BaseException) -> None:
    if os.environ.get("WIDEMARGIN_TRACEBACK"):
        traceback.print_exception(error)
    remark(in_words(error) if isinstance(error, Exception) else repr(error))


def _dask(address: str) -> Any:
    distributed = _imported("distributed", "dask")
    try:
        return distributed.Client(address, timeout="10s")
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"No Dask scheduler answers at {address}: {type(error).__name__}.") from error


def _imported(module: str, kind: str) -> Any:
    try:
        return import_module(module)
    except (ImportError, RuntimeError) as error:
        needs = f"--cluster {kind} needs more packages: pip install 'widemargin[{kind}]'"
        raise ImportError(f"{needs} ({error}).") from error
