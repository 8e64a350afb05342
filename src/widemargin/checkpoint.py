"""Checkpoints: the state of a long fit on disk, to resume from after a crash.

A state is small whatever the size of the data: the warm state and the number of sweeps of each part, and a hash of the
data. It is written to a new file that then replaces the old one, so a crash at any time leaves the last good state.
``load`` refuses a damaged file, and one of another version; a fit refuses the state of other data or parameters.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from widemargin.codec import record
from widemargin.data.arrays import BROKEN, refuse_false_sizes
from widemargin.data.files import check_writable, write_whole
from widemargin.exceptions import CheckpointWarning, warn_user

_MAGIC = b"widemargin checkpoint 2\n"
_FILE = "fit.checkpoint"
State = TypeVar("State")
_DIGEST = hashlib.sha256().digest_size


@record()
class FitState(NamedTuple):
    task: str  # estimator, problem and classes
    data: np.ndarray  # of uint64: the number of rows and of features, and the hash of their content
    directions: np.ndarray  # warm states, (n_parts, width); zeros for a part that has not started
    sweeps: np.ndarray  # (n_parts,)

    def belongs_to(self, fresh: FitState) -> bool:
        """Whether this is a later state of the same task on the same data."""
        is_of_data = np.array_equal(self.data, fresh.data) and self.directions.shape == fresh.directions.shape
        return self.task == fresh.task and is_of_data

    def with_part(self, part: int, direction: np.ndarray, n_sweeps: int) -> FitState:
        directions, sweeps = self.directions.copy(), self.sweeps.copy()
        directions[part], sweeps[part] = direction, n_sweeps
        return self._replace(directions=directions, sweeps=sweeps)


def load(folder: str | os.PathLike[str]) -> FitState | None:
    """The last state saved in a folder, or None; raises ValueError for a damaged file."""
    return read(Path(folder) / _FILE, _state)


def read(path: Path, parse: Callable[[bytes], State]) -> State | None:
    """What a file holds, or None if there is none; raises ValueError for a damaged file, and where ``parse`` does."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file. Delete it, or choose another folder.")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}. Choose another folder.") from error
    head, payload = raw[: len(_MAGIC) + _DIGEST], raw[len(_MAGIC) + _DIGEST :]
    if not head.startswith(_MAGIC):
        raise ValueError(
            f"{path} is not a checkpoint of this version of widemargin. Delete it, or choose another folder."
        )
    if head[len(_MAGIC) :] != hashlib.sha256(payload).digest():
        raise ValueError(f"{path} is damaged: its checksum does not match. Delete it to start over.")
    try:
        return parse(payload)
    except (ValueError, KeyError, OSError, *BROKEN) as error:
        raise ValueError(f"{path} does not contain the state of a fit: {error} Delete it to start over.") from error


def _state(payload: bytes) -> FitState:
    """Parse bytes whose checksum is right; anyone can compute a checksum, so everything else is checked here."""
    refuse_false_sizes(io.BytesIO(payload), len(payload))
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        state = FitState(str(arrays["task"]), arrays["data"], arrays["directions"], arrays["sweeps"])
    numbers = [values.dtype.kind == kind for values, kind in zip(state[1:], "ufi", strict=True)]
    if not all(numbers) or state.directions.ndim != 2 or state.sweeps.shape != state.directions.shape[:1]:
        raise ValueError("its arrays have the wrong types or shapes.")
    return state


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise ValueError unless states can be saved in this folder, which is made if it is missing."""
    try:
        check_writable(Path(folder) / _FILE)
    except OSError as error:
        raise ValueError(
            f"checkpoint={os.fspath(folder)!r} cannot be used: {error.strerror or error}. Choose a folder that can be "
            "written, on a disk that is not full."
        ) from error


def save(folder: str | os.PathLike[str], state: FitState) -> None:
    """Replace the saved state, atomically."""
    buffer = io.BytesIO()
    np.savez(buffer, task=np.array(state.task), **{name: getattr(state, name) for name in state._fields[1:]})
    write(Path(folder) / _FILE, buffer.getvalue())


def write(path: Path, payload: bytes) -> None:
    """Write a file that :func:`read` reads, atomically."""
    write_whole(path, _MAGIC + hashlib.sha256(payload).digest() + payload)


class Saver(Generic[State]):
    """Saves the states of one fit. What cannot be saved warns once, and is no reason to lose the fit."""

    def __init__(self, folder: str | os.PathLike[str], save: Callable[[str | os.PathLike[str], State], None]) -> None:
        self._folder, self._save, self._has_warned = folder, save, False

    def save(self, state: State) -> None:
        try:
            self._save(self._folder, state)
        except (OSError, ValueError) as error:
            if not self._has_warned:
                self._has_warned = True
                warn_user(
                    f"The state of the fit could not be saved in checkpoint={os.fspath(self._folder)!r}: {error}. The "
                    "fit goes on and tries again; the last state that was saved, if any, is whole.",
                    CheckpointWarning,
                )
