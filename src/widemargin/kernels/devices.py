"""Which device computes kernels, and a kernel on rows there; torch is imported only where it is used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from widemargin.data.shard import Shard
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_cpu import RowsOnCPU, alone
from widemargin.kernels.precision import Reduce
from widemargin.kernels.protocol import KernelRows
from widemargin.ledger import Ledger

NAMES = ("cpu", "cuda", "auto")
CPU = "cpu"
GPU = "cuda"  # the torch device behind "cuda"


def resolved(name: str) -> str:
    """``"cpu"``, or the name of a torch device; ``"auto"`` is a GPU if everything that it needs is installed."""
    if name == CPU:
        return CPU
    missing = _missing()
    if missing is None:
        return GPU
    if name == "auto":
        return CPU
    raise missing


def is_gpu(device: str) -> bool:
    return device != CPU


def kernel_rows(
    kernel: Kernel,
    X: Any,
    numbers: int | np.ndarray = 0,
    ledger: Ledger | None = None,
    *,
    device: str = CPU,
    precision: str = "auto",
    reduce: Reduce = alone,
    n_everywhere: int | None = None,
    weight: np.ndarray | None = None,
    points: Any = None,
) -> KernelRows:
    """A kernel on rows, on the device that computes it.

    ``X`` is an array, a CSR matrix, a list of such, or a tensor. ``gamma="scale"`` and ``"auto"`` are resolved with
    rows counted by ``weight``. ``reduce`` combines an array over ranks by "sum" or "max". ``precision`` is that of rows
    on a GPU, where "auto" is float16. Rows that are only predicted, from ``points``, need less preparation.
    """
    if isinstance(kernel.gamma, str) and kernel.needs_gamma:
        assert weight is not None
        kernel = kernel.resolved(Shard(X, weight, weight), lambda sums: reduce(sums, "sum"))
    if not is_gpu(device):
        predicted_from = points if isinstance(X, np.ndarray) else None
        return RowsOnCPU(kernel, X, numbers, ledger, reduce, n_everywhere, predicted_from)
    from widemargin.kernels.on_torch import RowsOnTorch

    precision = "float16" if precision == "auto" else precision
    return RowsOnTorch(kernel, X, numbers, ledger, n_everywhere, device=device, precision=precision)


def free_bytes(device: str) -> int:
    """Memory of a GPU that nobody uses."""
    import torch

    from widemargin.kernels import torch_rows

    return int(min(torch_rows.free_bytes(torch.device(device)), sys.maxsize))


def _missing() -> Exception | None:
    """The error that says why no GPU can be used, if there is one."""
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
