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
from widemargin.strategies.selection_by_rows import OwnRows


def checked_rows(rows: Rows, groups: Any, comm: Communicator) -> OwnRows:
    """The rows of this rank, checked; an error of one rank is raised on all."""
    note: dict[str, Any] = {}
    try:
        X, y, weight, _ = checked(rows)
        if groups is not None and len(groups) != len(y):
            raise ValueError(f"groups has {len(groups)} entries, and X {len(y)} rows: they must be equal.")
        note = {"labels": distinct_labels(y), "n_features": Shard(X, y, weight).n_features}
    except Exception as error:
        note = {"error": str(error), "kind": type(error).__name__, "traceback": traceback.format_exc()}
    agree({**note, "seed": 0}, comm)
    return OwnRows(Rows(X, y, weight), row_numbers(Shard(X, y, weight), rows.parts, comm), comm)


def is_room_for(own: OwnRows, n_bytes: int) -> bool:
    """Whether every rank has room for all rows; ``n_bytes`` is what this one has."""
    X, comm = own.rows.X, own.comm
    total = float(comm.allreduce(np.array([float(sum(map(bytes_of, X if isinstance(X, list) else [X])))]))[0])
    return total <= -float(comm.allreduce(np.array([-float(n_bytes)]), "max")[0])


def all_rows(own: OwnRows, groups: Any, *, has_X: bool) -> tuple[Rows, Any]:
    """The rows of all ranks by their numbers, and their groups, if each rank has its own.

    Without ``has_X`` they have labels and weights alone, and no columns.
    """
    (X, y, weight, _), numbers, comm = own
    together = (joined(X) if isinstance(X, list) else X) if has_X else np.empty((len(y), 0))
    content = pack([together, y, weight, numbers, None if groups is None else np.asarray(groups)])
    gathered = comm.gather(np.frombuffer(content, np.uint8))
    merged = None
    if gathered is not None:
        merged = np.frombuffer(_merged([unpack(each.tobytes()) for each in gathered]), np.uint8)
    X, y, weight, groups = unpack(comm.broadcast(merged).tobytes())
    return Rows(X, y, weight), groups


class RowsElsewhere:
    """All rows, some of which every rank has; those that are asked for are sent to all ranks."""

    def __init__(self, own: OwnRows, n_rows: int) -> None:
        self._own, self.shape = own, (n_rows, own.shard.n_features)

    def __getitem__(self, numbers: np.ndarray) -> Any:
        """The rows of ascending numbers."""
        own = self._own
        places = np.flatnonzero(np.isin(own.numbers, numbers))
        chosen = own.numbers[places]
        few = Rows(own.shard.take(places).X, chosen, np.ones(len(places)))
        return all_rows(OwnRows(few, chosen, own.comm), None, has_X=True)[0].X


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
