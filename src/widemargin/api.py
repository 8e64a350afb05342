"""The stable interface for solvers and problems of your own.

A solver is a subclass of :class:`Solver`, a problem any class that keeps the :class:`Problem` protocol. :func:`solve`
runs them on plain arrays, on one or several ranks, until the relative gap is small enough. What this module lists in
``__all__`` changes only as the page on releases says; the modules it comes from may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.comm.protocol import Communicator
from widemargin.comm.threads import on_ranks
from widemargin.data.shard import Shard, view_rows
from widemargin.problems.protocol import Certificate, Problem
from widemargin.problems.ranges import refuse_rows_out_of_range, refuse_weights_out_of_range
from widemargin.solvers.models import KernelModel, Separator
from widemargin.solvers.protocol import AnySolver, Solver
from widemargin.solvers.run import Limits, Progress, Result, run

__all__ = [
    "Certificate",
    "Communicator",
    "KernelModel",
    "Limits",
    "Problem",
    "Progress",
    "Result",
    "Separator",
    "Shard",
    "Solver",
    "run",
    "solve",
]


def solve(
    solver: AnySolver,
    problem: Problem,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    ranks: int = 1,
    tol: float = 1e-3,
    max_iter: int = 1000,
    max_time: float | None = None,
    random_state: int = 0,
    callback: Callable[[Progress], bool | None] | None = None,
) -> Result:
    """Run a solver on plain arrays, on ranks in this process.

    Parameters
    ----------
    solver : Solver
        The algorithm; it must solve the class of ``problem``.
    problem : Problem
        What is optimised.
    X : array or CSR matrix of shape (n_samples, n_features)
        The rows, of float32 or float64.
    y : array of shape (n_samples,)
        The labels, -1 and +1.
    sample_weight : array of shape (n_samples,), optional
        Multiplicities of the rows: 2 means twice, 0 absent. Default: 1 each.
    ranks : int, default=1
        The number of ranks, which are threads. Each holds an equal part of consecutive rows.
    tol : float, default=1e-3
        Stop at this relative gap.
    max_iter : int, default=1000
        Stop after so many sweeps.
    max_time : float, optional
        Stop after so many seconds.
    random_state : int, default=0
        The seed. The same seed and number of ranks give the same bits.
    callback : callable, optional
        Called on rank 0 after every sweep with a :class:`Progress`; return True to stop.

    Returns
    -------
    Result
        The model, its certificate, why the run stopped, the history and the cost.

    Examples
    --------
    >>> from widemargin.api import solve
    >>> from widemargin.problems.hinge_l2 import HingeL2
    >>> from widemargin.solvers.multipliers import Multipliers
    >>> result = solve(Multipliers(), HingeL2(C=1.0), [[0.0], [1.0], [3.0], [4.0]], [-1, -1, 1, 1], ranks=2)
    >>> result.stop_reason, result.certificate.relative <= 1e-3
    ('gap', True)
    """
    rows = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if rows.ndim != 2 or not np.isfinite(rows.data if sp.issparse(rows) else rows).all():
        raise ValueError(f"X of shape {rows.shape} must have two dimensions and hold finite numbers only.")
    n_rows, labels = rows.shape[0], np.asarray(y, dtype=np.float64)
    if labels.shape != (n_rows,) or not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError(f"y of shape {labels.shape} must hold -1 or +1 for each of {n_rows} rows.")
    weight = np.ones(n_rows) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(f"sample_weight of shape {weight.shape} must be in [0, inf) for each of {n_rows} rows.")
    refuse_weights_out_of_range(weight)
    refuse_rows_out_of_range([rows], problem)
    present = np.flatnonzero(weight)
    if len(present) < n_rows:
        rows, labels, weight, n_rows = rows[present], labels[present], weight[present], len(present)
    if not 1 <= ranks <= n_rows:
        raise ValueError(f"ranks={ranks} must lie in [1, {n_rows}], the number of rows of positive weight.")
    problem.check(float(weight[labels > 0].sum()), float(weight[labels < 0].sum()))
    limits = Limits(tol, max_iter, np.inf if max_time is None else max_time)

    def watch(progress: Progress) -> str | None:
        return "callback" if callback is not None and callback(progress) else None

    def on_rank(comm: Communicator) -> Result:
        begin, end = n_rows * comm.rank // ranks, n_rows * (comm.rank + 1) // ranks
        shard = Shard(view_rows(rows, begin, end), labels[begin:end], weight[begin:end])
        return run(solver, problem, shard, comm, limits, np.random.default_rng(random_state), watch=watch)

    return on_ranks(ranks, on_rank)[0]
