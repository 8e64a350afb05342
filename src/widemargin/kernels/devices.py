"""Which device computes kernels, and arrays that lie on one; torch is imported when it is asked for, not before."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

NAMES = ("cpu", "cuda", "auto")
GPU = "cuda"  # the torch device that stands behind "cuda"


def resolved(name: str) -> str:
    """``"cpu"``, or the name of a torch device; ``"auto"`` is a GPU if all that it takes is there."""
    if name == "cpu":
        return "cpu"
    missing = _missing()
    if missing is None:
        return GPU
    if name == "auto":
        return "cpu"
    raise missing


def _missing() -> Exception | None:
    """What keeps a GPU from being used."""
    advice = "pip install 'widemargin[gpu]', or use device='cpu'"
    for package in ("torch", "triton") if GPU == "cuda" else ("torch",):
        try:
            importlib.import_module(package)
        except ImportError as error:
            return ImportError(f"device='cuda' needs {package}, which cannot be imported ({error}): {advice}.")
    import torch

    if GPU == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda or "no CUDA at all"
        return RuntimeError(
            f"device='cuda', but torch {torch.__version__} (built for {built}) finds no GPU here: check nvidia-smi and "
            "install a build of torch for CUDA, or use device='cpu'."
        )
    return None


def library_of(X: Any) -> str:
    """``"torch"`` or ``"cupy"`` for their arrays, else ``"host"``; found out without importing either."""
    names = {base.__module__.split(".")[0] for base in type(X).__mro__}
    return next((name for name in ("torch", "cupy") if name in names), "host")


def as_tensor(X: Any) -> Any:
    """An array as a tensor, which shares its memory."""
    import torch

    return X if library_of(X) == "torch" else torch.from_dlpack(X)


def like(values: Any, X: Any) -> Any:
    """A tensor as an array of the library that ``X`` is from, on its device."""
    if library_of(X) == "torch":
        return values.to(X.device)
    if library_of(X) == "cupy":
        return importlib.import_module("cupy").from_dlpack(values)
    return values.cpu().numpy()


def on_host(values: Any) -> Any:
    """Labels or weights as a host array; what is one, or a list, as it is."""
    return values if library_of(values) == "host" else np.asarray(as_tensor(values).cpu().numpy())
