"""The choice and the problem of a working set on a CUDA device: ``working_set.cu``, compiled when first used.

Each function gives the answer of the same function in :mod:`vectors`. Arrays of one more dimension, in front, have a
problem in each line.
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


def _launch(name: str, n_threads: int, *arguments: Any, grid: tuple[int, int] = (1, 1)) -> None:
    _compiled(name)(grid=(*grid, 1), block=(n_threads, 1, 1), args=list(arguments))


def choose(keys: torch.Tensor, places: torch.Tensor, kept: torch.Tensor, n_new: int) -> torch.Tensor:
    n, n_kept = keys.shape[-1], kept.shape[-1]
    if n > _MAX_GROUPS or n_new > _MAX_ROWS:
        raise ValueError(f"{n} groups, {n_new} rows: at most {_MAX_GROUPS} groups and {_MAX_ROWS} rows can be sorted.")
    out = torch.empty((*kept.shape[:-1], n_kept + n_new), dtype=torch.int64, device=keys.device)
    _launch("choose", 1024, keys, places, kept, out, n, n_kept, n_new, grid=_one_each(kept))
    return out


def keep(working: torch.Tensor, dual: Dual, n_kept: int) -> torch.Tensor:
    out = torch.empty((*working.shape[:-1], n_kept), dtype=torch.int64, device=working.device)
    vectors = (each.contiguous() for each in dual[1:])
    _launch("keep", 1024, working, *vectors, out, working.shape[-1], n_kept, grid=_one_each(working))
    return out


def solve(
    K: torch.Tensor, dual: Dual, tol: torch.Tensor, middle: torch.Tensor, is_tied: bool, max_steps: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The problem of a working set of at most 1,024 rows: new ``beta``, new ``pull``, number of steps."""
    pull, beta, low, high = dual.pull.clone(), dual.beta.clone(), dual.low.contiguous(), dual.high.contiguous()
    n = beta.shape[-1]
    if n > _MAX_ROWS:
        raise ValueError(f"A working set of {n} rows: one thread block holds at most {_MAX_ROWS}.")
    width = -(-n // 4) * 4
    K = K.contiguous() if width == n else torch.nn.functional.pad(K, (0, width - n))
    tol, middle = (torch.as_tensor(each, dtype=torch.float64, device=beta.device) for each in (tol, middle))
    steps = torch.zeros(beta.shape[:-1], dtype=torch.int32, device=beta.device)
    name, n_threads = "solve_pairs" if is_tied else "solve_singles", _MAX_ROWS // _ROWS_PER_THREAD
    arguments = (K, pull, beta, low, high, tol.contiguous(), middle.contiguous(), n, width, max_steps, steps)
    _launch(name, n_threads, *arguments, grid=_one_each(beta))
    return beta, pull, steps


def gather(values: torch.Tensor, working: torch.Tensor) -> torch.Tensor:
    """Kernel values of the working set of each problem, from those between all rows."""
    n_problems, n = working.shape
    out = torch.empty((n_problems, n, n), dtype=torch.float32, device=values.device)
    _launch("gather", 256, values, working, out, n, values.stride(0), grid=(n, n_problems))
    return out


def subtract(values: torch.Tensor, working: torch.Tensor, change: torch.Tensor, pull: torch.Tensor) -> None:
    """``pull -= change @ values[working]`` of each problem; lines of ``values`` begin at multiples of four."""
    (n_problems, n), n_rows = working.shape, pull.shape[1]
    grid = (-(-n_rows // 1024), n_problems)
    _launch("subtract", 256, values, working, change.contiguous(), pull, n, values.stride(0), n_rows, grid=grid)


def _one_each(vectors: torch.Tensor) -> tuple[int, int]:
    """A thread block for each problem."""
    return (len(vectors) if vectors.ndim == 2 else 1), 1
