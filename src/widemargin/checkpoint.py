"""The state of a long fit on disk, so that it can go on after a crash.

A state is small whatever the size of the data: for each pair of classes the best direction so far and how many sweeps
it took; and marks of the data it belongs to. It is written to a new file that then takes the place of the old one, so a
crash at any moment leaves the last good state. A file that is damaged, or of other data or parameters, is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from widemargin.codec import record
from widemargin.data.arrays import BROKEN, refuse_false_sizes
from widemargin.data.files import write_whole

_MAGIC = b"widemargin checkpoint 1\n"
_FILE = "fit.checkpoint"
_DIGEST = hashlib.sha256().digest_size


@record()
class FitState(NamedTuple):
    """Where a fit stands."""

    task: str  # estimator, problem and classes
    marks: np.ndarray  # sums over the data, by which it is known again
    directions: np.ndarray  # (n_parts, n_features); zeros for a part not begun
    sweeps: np.ndarray  # (n_parts,)

    def belongs_to(self, task: str, marks: np.ndarray) -> bool:
        """Whether this is the state of that task on that data; sums may differ by the order of additions."""
        return self.task == task and self.marks.shape == marks.shape and np.allclose(self.marks, marks, rtol=1e-8)


def load(folder: str | os.PathLike[str]) -> FitState | None:
    """The last good state in a folder; None if there is none."""
    path = Path(folder) / _FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    head, payload = raw[: len(_MAGIC) + _DIGEST], raw[len(_MAGIC) + _DIGEST :]
    if not head.startswith(_MAGIC):
        raise ValueError(
            f"{path} is not a checkpoint of this version of widemargin. Delete it, or choose another folder."
        )
    if head[len(_MAGIC) :] != hashlib.sha256(payload).digest():
        raise ValueError(f"{path} is damaged: its checksum does not match. Delete it to begin anew.")
    try:
        return _state(payload)
    except (ValueError, KeyError, OSError, *BROKEN) as error:
        raise ValueError(f"{path} has no state of a fit in it: {error} Delete it to begin anew.") from error


def _state(payload: bytes) -> FitState:
    """The state in these bytes, whose checksum is right, which anyone can do."""
    refuse_false_sizes(io.BytesIO(payload), len(payload))
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        state = FitState(str(arrays["task"]), arrays["marks"], arrays["directions"], arrays["sweeps"])
    numbers = [values.dtype.kind == kind for values, kind in zip(state[1:], "ffi", strict=True)]
    if not all(numbers) or state.directions.ndim != 2 or state.sweeps.shape != state.directions.shape[:1]:
        raise ValueError("its arrays are not those of a fit.")
    return state


def save(folder: str | os.PathLike[str], state: FitState) -> None:
    """Put a state in the place of the last one, whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, task=np.array(state.task), **{name: getattr(state, name) for name in state._fields[1:]})
    payload = buffer.getvalue()
    write_whole(Path(folder) / _FILE, _MAGIC + hashlib.sha256(payload).digest() + payload)
