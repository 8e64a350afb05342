"""All rows on every rank, for work that ranks share by tasks."""

from __future__ import annotations

import socket
import traceback
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from widemargin.codec import pack, unpack
from widemargin.comm.protocol import Communicator
from widemargin.data.pieces import distinct_labels
from widemargin.data.shard import Shard
from widemargin.kernels.storage import joined
from widemargin.strategies.labels import agree, checked
from widemargin.strategies.protocol import Rows
from widemargin.strategies.ranks import row_numbers


def all_rows(rows: Rows, groups: Any, comm: Communicator, n_bytes: int) -> tuple[Rows, Any]:
    """The rows of all ranks and their groups, if each rank has its own; errors of one rank are raised on all.

    Raises ValueError if they take more than ``n_bytes`` of this or another rank.
    """
    note: dict[str, Any] = {}
    try:
        X, y, weight, _ = checked(rows)
        if groups is not None and len(groups) != len(y):
            raise ValueError(f"groups has {len(groups)} entries, and X {len(y)} rows: they must be equal.")
        note = {"labels": distinct_labels(y), "n_features": Shard(X, y, weight).n_features}
    except Exception as error:
        note = {"error": str(error), "kind": type(error).__name__, "traceback": traceback.format_exc()}
    agree({**note, "seed": 0}, comm)
    together = joined(X) if isinstance(X, list) else X
    size, most = bytes_of(together), -float(comm.allreduce(np.array([-float(n_bytes)]), "max")[0])
    total = float(comm.allreduce(np.array([float(size)]))[0])
    if total > most:
        raise ValueError(
            f"The rows of all ranks take {total / (1 << 20):.0f} MiB, and a rank has room for "
            f"{most / (1 << 20):.0f} MiB: a search needs all rows on every rank. Use fewer rows, or more memory."
        )
    numbers = row_numbers(Shard(X, y, weight), rows.parts, comm)
    content = pack([together, y, weight, numbers, None if groups is None else np.asarray(groups)])
    gathered = comm.gather(np.frombuffer(content, np.uint8))
    merged = (
        None if gathered is None else np.frombuffer(_merged([unpack(each.tobytes()) for each in gathered]), np.uint8)
    )
    X, y, weight, groups = unpack(comm.broadcast(merged).tobytes())
    return Rows(X, y, weight), groups


def _merged(parts: list[list[Any]]) -> bytes:
    """The rows of all ranks by their numbers."""
    parts = [part for part in parts if len(part[1])] or parts[:1]
    X, y, weight, numbers, groups = zip(*parts, strict=True)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    rest = [None if each[0] is None else np.concatenate(each)[order] for each in (y, weight, groups)]
    return pack([joined(list(X))[order], *rest])


def bytes_of(X: Any) -> int:
    """What rows take in memory."""
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) if sp.issparse(X) else int(X.nbytes)


def ranks_on_machine(comm: Communicator) -> int:
    """How many ranks are on the machine of this one."""
    everyone = np.zeros(comm.size)
    everyone[comm.rank] = crc32(socket.gethostname().encode())
    everyone = comm.allreduce(everyone)
    return int(np.count_nonzero(everyone == everyone[comm.rank]))
