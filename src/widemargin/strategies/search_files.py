"""Fits of a search on disk, to go on from after a crash.

The fits of each kernel are written to one more file, whole or not at all, when they are done; as far as they are, now
and then, to one that replaces the last of its kind. Each file names the search and the data that it belongs to. Nothing
in a file is executed, whoever wrote it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from widemargin import checkpoint
from widemargin.codec import conforms, pack, record, unpack
from widemargin.strategies.fold_paths import KeptPoint
from widemargin.strategies.search_crew import KeptFits, KeptPaths

_FORM, _PATHS = "search-{:06d}.checkpoint", "search.checkpoint"


@record()
class SearchState(NamedTuple):
    task: str  # estimator, kernel, grids, limits and classes
    data: np.ndarray  # of uint64: the number of rows and of features, and hashes of their content and of the folds
    fits: list[KeptFits | KeptPoint]
    paths: KeptPaths | None  # of the kernel that was being tried

    def belongs_to(self, fresh: SearchState) -> bool:
        """Whether this is a part of the same search on the same data."""
        return self.task == fresh.task and np.array_equal(self.data, fresh.data)


def load(folder: str | os.PathLike[str]) -> list[SearchState]:
    """All that was saved in a folder; raises ValueError for a damaged file, and for a folder that cannot be used."""
    checkpoint.check_folder(folder)
    found = [checkpoint.read(path, _state) for path in sorted(Path(folder).glob("search*.checkpoint"))]
    return [state for state in found if state is not None]


def _state(payload: bytes) -> SearchState:
    state = unpack(payload, is_trusted=False)
    if not conforms(state, SearchState):
        raise ValueError("it is not that of a search.")
    found: SearchState = state
    return found


def save(folder: str | os.PathLike[str], state: SearchState) -> None:
    """Add a file with these fits, and replace that of a kernel that is being tried."""
    folder = Path(folder)
    if state.fits:
        number = len(list(folder.glob("search-*.checkpoint")))
        while (path := folder / _FORM.format(number)).exists():
            number += 1
        checkpoint.write(path, pack(state._replace(paths=None)))
    if state.paths is not None:
        checkpoint.write(folder / _PATHS, pack(state._replace(fits=[])))
