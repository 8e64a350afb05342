"""Rows of a sparse approximate inverse of a positive semidefinite matrix H, for debiasing.

Row j of Theta shall satisfy |H t - e_j|_inf <= c with a small norm ||t||_1. CLIME [1] asks for just that,

    minimise  ||t||_1   subject to  |H t - e_j|_inf <= c,

a linear program per row. SCIO [2] solves

    minimise  t'Ht / 2 - t_j + c ||t||_1,

whose optimality conditions, (H t - e_j)_k = -c sign(t_k) where t_k is not 0 and |H t - e_j| <= c everywhere, contain
the constraint of [1], and which coordinate descent does. t = (1 - c) e_j / H_jj is the solution when c >= r / (1 + r),
r = max_k |H_kj| / H_jj over k != j: the descent starts there, and one look at row j of H shows whether it ends there.

Both shrink: (Theta H)_jj is 1 - c, so a row is divided by it before use (``rescaled``).

[1] Cai, Liu, Luo: A Constrained l1 Minimization Approach to Sparse Precision Matrix Estimation, 2011.
[2] Liu, Luo: Fast and adaptive sparse precision matrix estimation in high dimensions, 2015.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from widemargin.compiled.scio import scio_block
from widemargin.pauses import WORK, pause_alone

_WORK_PER_ENTRY = 100  # of a row: as many entries change, about
_USABLE = 1.1  # of c: the violation up to which a row is used
_BLOCK_BYTES = 1 << 23  # dense rows in work before they are stored as sparse ones


class InverseRows(NamedTuple):
    """Some rows of an approximate inverse, and how close they are to one.

    A row that cannot be made, since H_jj = 0, is a row of zeros with violation 1. A row whose violation is beyond
    ``c (1 + tolerance)`` was not brought to its end: where H is singular, as with two features that are the same, there
    may be none for a small c.
    """

    theta: sp.csr_matrix  # one row for each that was asked for
    diagonal: np.ndarray  # (Theta H)_jj
    violation: np.ndarray  # |H t - e_j|_inf
    c: float  # what it was to be at most

    def rescaled(self) -> sp.csr_matrix:
        """Rows divided by ``(Theta H)_jj``; those that are far from the constraint become zeros."""
        is_usable = self.violation < min(1.0, _USABLE * self.c)
        factor = np.zeros_like(self.diagonal)
        factor[is_usable] = 1 / self.diagonal[is_usable]
        theta = self.theta.copy()
        theta.data *= np.repeat(factor, np.diff(theta.indptr))
        theta.eliminate_zeros()
        return theta


def scio_rows(
    H: np.ndarray, rows: np.ndarray, c: float, *, tolerance: float = 1e-3, max_passes: int = 10_000
) -> InverseRows:
    """Rows by coordinate descent, to optimality conditions within ``tolerance * c``.

    ``H`` is symmetric, float64 and C-ordered; only its rows are read. ``max_passes`` bounds the passes over the
    entries at work, per row.
    """
    H = _checked(H, c)
    rows = np.asarray(rows, dtype=np.int64)
    p, n_rows = H.shape[0], len(rows)
    diagonal, violation = np.empty(n_rows), np.empty(n_rows)
    step = max(1, min(_BLOCK_BYTES // (8 * p), int(WORK / (_WORK_PER_ENTRY * p))))
    pieces = []
    for begin in range(0, n_rows, step):
        part = slice(begin, min(begin + step, n_rows))
        T = np.zeros((part.stop - begin, p))
        scio_block(H, rows[part], c, tolerance, max_passes, T, diagonal[part], violation[part])
        pieces.append(sp.csr_matrix(T))
        pause_alone(_WORK_PER_ENTRY * T.size)
    theta = sp.vstack(pieces, format="csr") if pieces else sp.csr_matrix((0, p))
    return InverseRows(theta, diagonal, violation, c)


def clime_rows(H: np.ndarray, rows: np.ndarray, c: float) -> InverseRows:
    """Rows by the linear program over t = u - v; a constraint that nothing satisfies leaves a row of zeros."""
    H = _checked(H, c)
    p = H.shape[0]
    both_signs = np.hstack([H, -H])
    sides = np.vstack([both_signs, -both_signs])
    theta = np.zeros((len(rows), p))
    for r, j in enumerate(rows):
        unit = np.zeros(p)
        unit[j] = 1.0
        answer = linprog(np.ones(2 * p), A_ub=sides, b_ub=np.concatenate([c + unit, c - unit]), method="highs")
        if answer.status == 0:
            theta[r] = answer.x[:p] - answer.x[p:]
        pause_alone(WORK)
    products, at = theta @ H, (np.arange(len(rows)), rows)
    diagonal = products[at]
    products[at] -= 1.0
    return InverseRows(sp.csr_matrix(theta), diagonal, np.abs(products).max(axis=1, initial=0.0), c)


def _checked(H: np.ndarray, c: float) -> np.ndarray:
    """H as compiled code reads it, if the constraint leaves anything to be found."""
    if not 0 < c < 1:
        raise ValueError(
            f"c={c:g} is no constraint on rows of an inverse: it must lie in (0, 1), since at 1 and beyond the row of "
            "zeros satisfies it. More rows of data, or a wider bandwidth, allow a smaller one."
        )
    # In Fortran's order the transpose of a symmetric matrix is the same, and no copy.
    return np.ascontiguousarray(H if H.flags.c_contiguous else H.T, dtype=np.float64)
