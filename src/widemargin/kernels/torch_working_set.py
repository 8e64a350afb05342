"""The choice and the problem of a working set on a CUDA device: ``working_set.cu``, compiled when first used.

Each function gives the answer of the same function in :mod:`vectors`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import torch

from widemargin.kernels.vectors import Dual

_MAX_GROUPS = 2048  # whose best rows one thread block sorts
_MAX_ROWS, _ROWS_PER_THREAD = 1024, 4  # of a working set, in one thread block


@cache
def _compiled(name: str) -> Any:
    source = files("widemargin.kernels").joinpath("working_set.cu").read_text(encoding="utf8")
    return torch.cuda._compile_kernel(f"#define ROWS {_ROWS_PER_THREAD}\n{source}", name)


def _launch(name: str, n_threads: int, *arguments: Any) -> None:
    _compiled(name)(grid=(1, 1, 1), block=(n_threads, 1, 1), args=list(arguments))


def choose(keys: torch.Tensor, places: torch.Tensor, kept: torch.Tensor, n_new: int) -> torch.Tensor:
    n = keys.shape[1]
    if n > _MAX_GROUPS or n_new > _MAX_ROWS:
        raise ValueError(f"{n} groups, {n_new} rows: at most {_MAX_GROUPS} groups and {_MAX_ROWS} rows can be sorted.")
    out = torch.empty(len(kept) + n_new, dtype=torch.int64, device=keys.device)
    _launch("choose", 1024, keys, places, kept, out, n, len(kept), n_new)
    return out


def keep(working: torch.Tensor, dual: Dual, n_kept: int) -> torch.Tensor:
    out = torch.empty(n_kept, dtype=torch.int64, device=working.device)
    _launch("keep", 1024, working, *(each.contiguous() for each in dual[1:]), out, len(working), n_kept)
    return out


def solve(
    K: torch.Tensor, dual: Dual, tol: torch.Tensor, middle: torch.Tensor, is_tied: bool, max_steps: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The problem of a working set of at most 1,024 rows: new ``beta``, new ``pull``, number of steps."""
    pull, beta, low, high = dual.pull.clone(), dual.beta.clone(), dual.low.contiguous(), dual.high.contiguous()
    n = len(beta)
    if n > _MAX_ROWS:
        raise ValueError(f"A working set of {n} rows: one thread block holds at most {_MAX_ROWS}.")
    width = -(-n // 4) * 4
    K = K.contiguous() if width == n else torch.nn.functional.pad(K, (0, width - n))
    tol, middle = (torch.as_tensor(each, dtype=torch.float64, device=beta.device) for each in (tol, middle))
    steps = torch.zeros(1, dtype=torch.int32, device=beta.device)
    name, n_threads = "solve_pairs" if is_tied else "solve_singles", _MAX_ROWS // _ROWS_PER_THREAD
    _launch(name, n_threads, K, pull, beta, low, high, tol, middle, n, width, max_steps, steps)
    return beta, pull, steps[0]
