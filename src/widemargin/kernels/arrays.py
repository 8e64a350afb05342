"""Arrays of NumPy, torch and CuPy; torch and CuPy are imported only where their arrays are used."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import numpy as np

from widemargin.kernels import storage

Tensor: TypeAlias = Any


def library_of(X: Any) -> str:
    """``"torch"`` or ``"cupy"`` for their arrays, else ``"host"``, without importing either."""
    if isinstance(X, np.ndarray):
        return "host"
    names = {base.__module__.split(".")[0] for base in type(X).__mro__}
    return next((name for name in ("torch", "cupy") if name in names), "host")


def is_on_host(X: Any) -> bool:
    return library_of(X) == "host"


def as_tensor(X: Any) -> Tensor:
    """An array as a tensor that shares its memory."""
    import torch

    return X if library_of(X) == "torch" else torch.from_dlpack(X)


def like(values: Any, X: Any) -> Any:
    """A tensor or NumPy array as an array of the library and device of ``X``."""
    library = library_of(X)
    if library == "torch":
        return as_tensor(values).to(X.device)
    if library == "cupy":
        return importlib.import_module("cupy").from_dlpack(values)
    return on_host(values)


def on_host(values: Any) -> Any:
    """Arrays of torch and CuPy as NumPy arrays; anything else as it is."""
    return values if is_on_host(values) else np.asarray(as_tensor(values).cpu().numpy())


class Chosen:
    """Some rows of an array, a sparse matrix or a tensor; what is asked for is copied then."""

    def __init__(self, X: Any, places: np.ndarray) -> None:
        self._X, self._places = X, places

    def source(self, chosen: np.ndarray) -> tuple[Any, np.ndarray]:
        """Where the chosen ones of these rows are: an array, and their places there."""
        return self._X, self._places[chosen]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._places), self._X.shape[1]

    @property
    def dtype(self) -> Any:
        return self._X.dtype

    def __getitem__(self, chosen: Any) -> Any:
        return taken(self._X, self._places[chosen])


def taken(X: Any, chosen: np.ndarray) -> Any:
    """The chosen rows of an array, a sparse matrix or a tensor, on its device."""
    return storage.taken(X, chosen) if is_on_host(X) else X[as_tensor(np.array(chosen, dtype=np.int64)).to(X.device)]
