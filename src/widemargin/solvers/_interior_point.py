"""The 1-norm SVM on some columns and rows, by a primal-dual interior point method.

With W = y_i x_ij on the working columns, signed by the label, caps u_i and a penalty alpha,

    minimise    sum_i u_i xi_i + alpha sum_j (p_j + q_j)     over xi, s, p, q >= 0 and b,
    subject to  (W (p - q))_i + y_i b + xi_i - s_i = 1                    multiplier a_i

and its dual

    maximise    sum_i a_i     over a, v, r, t >= 0,
    subject to  a + v = u,    W'a + r = alpha,    -W'a + t = alpha,    y'a = 0,

whose multipliers are xi, p, q and b. At the optimum s_i a_i = xi_i v_i = p_j r_j = q_j t_j = 0; the interior point
keeps these products alike, about mu, and sends mu to zero (predictor and corrector after Mehrotra). Their sum is the
gap.

Eliminating all but the coefficients leaves a symmetric system of their number for each step,

    (W' D^-1 W + diag(1 / E)) d = ...,      D = xi / v + s / a,      E = p / r + q / t,

b being one more column of W, equal to y, that has no penalty. Interior points of both problems are known at once: small
masses; no coefficients and any slack.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import scipy.linalg as la
from scipy.linalg.blas import dsyrk

from widemargin.compiled.jit import compiled
from widemargin.pauses import WORK, pause_alone

_STEP = 0.995  # share of the way to the nearest bound
_MAX_ITERATIONS = 60
_DIVERGED = 100.0  # times the first gap: rows of the band have no feasible masses
_MAX_SLOW_STEPS = 5  # iterations that reduce the merit by less than _MIN_DECREASE before the method stops;
_NEAR = 1e-3  # four times as many while the merit is over this
_MIN_DECREASE = 1e-3
_PASSES = 20  # over the table for each step, at most, with what is done for each row
_SPEED = 8  # multiplications of BLAS, half of them for a triangle, in the time of one of a plain loop
_MAX_AT_ONCE, _PANEL = 2048, 512  # columns that are factored at once, and of a block where there are more
_FEASIBLE = 1e-9  # residuals below which only the gap counts


class Point(NamedTuple):
    """An iterate; all entries of its arrays are over 0."""

    a: np.ndarray
    v: np.ndarray
    s: np.ndarray
    xi: np.ndarray
    p: np.ndarray
    q: np.ndarray
    r: np.ndarray
    t: np.ndarray
    intercept: float

    @property
    def gap(self) -> float:
        return float(self.a @ self.s + self.v @ self.xi + self.p @ self.r + self.q @ self.t)

    def lengths(self, change: Point, share: float) -> tuple[float, float]:
        """Step lengths of the primal and the dual variables, ``share`` of the way to the first zero, at most 1."""
        primal = max(steepest_loss(self[i], change[i]) for i in (2, 3, 4, 5))
        dual = max(steepest_loss(self[i], change[i]) for i in (0, 1, 6, 7))
        return min(1.0, share / max(primal, 1e-300)), min(1.0, share / max(dual, 1e-300))

    def moved(self, change: Point, primal: float, dual: float) -> Point:
        here, ahead = cast(Any, self), cast(Any, change)
        lengths = (dual, dual, primal, primal, primal, primal, dual, dual, primal)
        return Point(*(now + length * step for now, length, step in zip(here, lengths, ahead, strict=True)))


class Answer(NamedTuple):
    """The last iterate, and which of its variables go to zero."""

    point: Point
    is_support: np.ndarray  # columns whose coefficient stays
    is_hinge: np.ndarray  # rows whose mass stays off both bounds
    is_capped: np.ndarray  # rows whose mass goes to its cap
    gap: float
    objective: float
    merit: float  # relative gap and residuals
    has_stalled: bool  # short of the precision asked for


class Program(NamedTuple):
    """The linear program on some rows; the masses of the others are fixed."""

    table: np.ndarray  # in Fortran's order: y first if there is an intercept, then y_i x_ij
    lead: int  # 1 with an intercept, else 0
    y: np.ndarray
    caps: np.ndarray
    alpha: float
    base: np.ndarray  # the other rows' part of table'a
    mass: float  # and of sum(a)

    @property
    def columns(self) -> np.ndarray:
        return self.table[:, self.lead :]

    def start(self, a: np.ndarray, correlation: np.ndarray, coef: np.ndarray, intercept: float, gap: float) -> Point:
        """A point near masses within their caps, correlations within alpha and a model that are ``gap`` apart."""
        mu = gap / (2 * len(a) + 2 * len(coef))
        v = self.caps - a
        shortfall = 1 - self.columns @ coef - intercept * self.y
        # xi - s is given: the larger of the two follows from it, the smaller is about what makes its product mu.
        slack = mu / self.caps
        xi, s = np.maximum(shortfall, 0) + slack, np.maximum(-shortfall, 0) + slack
        r, t = self.alpha - correlation, self.alpha + correlation
        p, q = np.maximum(coef, 0) + mu / self.alpha, np.maximum(-coef, 0) + mu / self.alpha
        return Point(a, v, s, xi, p, q, r, t, intercept)

    def centred(self, coef: np.ndarray, intercept: float, mu: float) -> Point:
        """The point whose model this is and whose products are all ``mu``: it is feasible but for its masses' sums.

        Where the model is nearly best, those are off by little, and the central path is near.
        """
        shortfall = 1 - self.columns @ coef - intercept * self.y
        a, v = _halves(shortfall, self.caps, mu)
        t, r = _halves(coef, 2 * self.alpha, mu)
        return Point(a, v, mu / a, mu / v, mu / r, mu / t, r, t, intercept)

    def solve(self, point: Point, precision: float) -> Answer:
        """Follow the central path from ``point`` until the gap is ``precision`` of the objective.

        If rounding ends it early, the answer is the best iterate by gap and residuals.
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a band may have no feasible masses
            return self._followed(point, precision)

    def _followed(self, point: Point, precision: float) -> Answer:
        best, n_slow, most = None, 0, _DIVERGED * point.gap
        for _ in range(_MAX_ITERATIONS):
            system = _System(self, point)
            if not system.is_sound or system.gap > most:
                break
            predictor = system.direction(0.0, 0.0, 0.0, 0.0)
            is_better = best is None or system.merit < (1 - _MIN_DECREASE) * best.merit
            n_slow = 0 if is_better else n_slow + 1
            if best is None or is_better:
                best = self._answer(system, predictor, precision)
            if not best.has_stalled or n_slow >= (_MAX_SLOW_STEPS if best.merit < _NEAR else 4 * _MAX_SLOW_STEPS):
                break
            # Mehrotra: the better the predictor, the less the corrector aims at the centre.
            ahead = point.moved(predictor, *point.lengths(predictor, 1.0))
            target = system.mu * (ahead.gap / system.gap) ** 3
            d = predictor
            step = system.direction(target - d.a * d.s, target - d.v * d.xi, target - d.p * d.r, target - d.q * d.t)
            point = point.moved(step, *point.lengths(step, _STEP))
        if best is None:
            raise ValueError(
                "The columns differ so much in size that the linear program cannot be factored in float64: scale the "
                "features (StandardScaler, or MaxAbsScaler for sparse rows)."
            )
        return best

    def _answer(self, system: _System, predictor: Point, precision: float) -> Answer:
        """A variable that goes to zero loses all of its value along the predictor, one that stays loses nothing."""
        point = system.point
        is_low, is_high = predictor.a <= -0.5 * point.a, predictor.v <= -0.5 * point.v
        is_support = (predictor.p > -0.5 * point.p) | (predictor.q > -0.5 * point.q)
        is_close = system.gap <= precision * system.objective and system.infeasibility <= max(precision, _FEASIBLE)
        is_hinge, is_capped, has_stalled = ~is_low & ~is_high, is_high & ~is_low, not is_close
        sizes = system.gap, system.objective, system.merit
        return Answer(point, is_support, is_hinge, is_capped, *sizes, has_stalled)


class _System:
    def __init__(self, program: Program, point: Point) -> None:
        self.program, self.point, self.gap = program, point, point.gap
        self.mu = self.gap / (2 * len(point.a) + 2 * len(point.p))
        self.objective = program.mass + float(point.a.sum()) + self.gap
        a, v, s, xi, p, q, r, t, intercept = point
        lead, alpha = program.lead, program.alpha
        self._row_residual = 1 - program.columns @ (p - q) - intercept * program.y - xi + s
        sums = program.base + program.table.T @ a
        self._imbalance = sums[:lead]
        self._r_residual, self._t_residual = alpha - sums[lead:] - r, alpha + sums[lead:] - t
        residuals = (np.abs(self._imbalance), np.abs(self._r_residual) / alpha, np.abs(self._t_residual) / alpha)
        self.infeasibility = max(float(each.max(initial=0.0)) for each in residuals)
        self.merit = self.gap / self.objective + self.infeasibility
        self._inverse_d = 1 / (xi / v + s / a)
        self._e = p / r + q / t
        matrix = _second_moment(program.table, np.sqrt(self._inverse_d))
        diagonal = np.einsum("ii->i", matrix)
        self._is_held = diagonal[lead:] * self._e > 1  # columns fixed by rows rather than by their own bounds
        diagonal[lead:] += 1 / self._e
        self._factor = _cholesky(matrix, diagonal)

    @property
    def is_sound(self) -> bool:
        return self._factor is not None and bool(np.isfinite(self.merit + self._factor[-1, -1]))

    def direction(self, of_s: Any, of_xi: Any, of_p: Any, of_q: Any) -> Point:
        """Changes for which the products s a, xi v, p r and q t become the given ones, to first order."""
        a, v, s, xi, p, q, r, t, _ = self.point
        program, lead, inverse_d, e = self.program, self.program.lead, self._inverse_d, self._e
        g = self._row_residual - of_xi / v + xi + of_s / a - s
        h = (of_p - p * self._r_residual) / r - p - (of_q - q * self._t_residual) / t + q
        right = program.table.T @ (inverse_d * g)
        right[:lead] += self._imbalance
        right[lead:] += h / e
        d = right if self._factor is None else la.lapack.dpotrs(self._factor, right, lower=1)[0]
        da = inverse_d * (g - program.table @ d)
        # Of two formulas for W'da, the one that does not divide by a value that goes to zero.
        dc = np.where(self._is_held, (d[lead:] - h) / e, program.columns.T @ da)
        dr, dt = self._r_residual - dc, self._t_residual + dc
        ds, dxi = (of_s - s * da) / a - s, (of_xi + xi * da) / v - xi
        dp, dq = (of_p - p * dr) / r - p, (of_q - q * dt) / t - q
        return Point(da, -da, ds, dxi, dp, dq, dr, dt, float(d[:lead].sum()))


def _halves(difference: np.ndarray, whole: Any, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """Two parts of ``whole``, for which ``mu / second - mu / first`` is ``difference``."""
    size = np.abs(difference)
    # The smaller one is whole (z + 2 - sqrt(z^2 + 4)) / (2 z), z = size whole / mu; here without the subtraction.
    by_mu = size * whole / mu
    small = 2 * whole / (by_mu + 2 + np.sqrt(by_mu * by_mu + 4))
    large = whole - small
    is_positive = difference > 0
    return np.where(is_positive, large, small), np.where(is_positive, small, large)


def _second_moment(table: np.ndarray, root: np.ndarray) -> np.ndarray:
    """The lower triangle of ``table' diag(root^2) table``."""
    n, k = table.shape
    if n * k * k <= _SPEED * WORK:
        pause_alone(n * k * (k / _SPEED + _PASSES))
        return cast(np.ndarray, dsyrk(1.0, table * root[:, None], trans=1, lower=1))
    total, few = np.zeros((k, k), order="F"), max(64, int(_SPEED * WORK / (k * k)))
    for begin in range(0, n, few):
        part = np.asfortranarray(table[begin : begin + few] * root[begin : begin + few, None])
        total = dsyrk(1.0, part, 1.0, total, trans=1, lower=1, overwrite_c=1)
        pause_alone(len(part) * k * (k / _SPEED + _PASSES))
    return total


def _factored(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """LAPACK's ``dpotrf`` of a lower triangle, block by block where it is large."""
    n = len(matrix)
    if n <= _MAX_AT_ONCE:
        factor, failed = la.lapack.dpotrf(matrix, lower=1, clean=0)
        pause_alone(n**3 / (3 * _SPEED))
        return factor, failed
    factor = matrix.copy(order="F")
    for begin in range(0, n, _PANEL):
        end = min(begin + _PANEL, n)
        corner, failed = la.lapack.dpotrf(factor[begin:end, begin:end], lower=1, clean=1)
        if failed:
            return factor, failed
        factor[begin:end, begin:end] = corner
        below = la.solve_triangular(corner, factor[end:, begin:end].T, lower=True, check_finite=False).T
        factor[end:, begin:end] = below
        for left in range(end, n, _PANEL):
            strip = slice(left - end, left - end + _PANEL)
            factor[left:, left : left + _PANEL] -= below[left - end :] @ below[strip].T
            pause_alone((n - left) * _PANEL**2 / _SPEED)
    return factor, 0


def _cholesky(matrix: np.ndarray, diagonal: np.ndarray) -> np.ndarray | None:
    """The lower factor, of a slightly larger matrix if rounding made this one indefinite."""
    kept = diagonal.copy()
    for extra in (0.0, 1e-14, 1e-12, 1e-10):
        diagonal[:] = kept * (1 + extra)
        factor, failed = _factored(matrix)
        if not failed:
            return factor
    return None


@compiled(error_model="numpy")  # a value of 0 after rounding allows no step, and is no error
def steepest_loss(value: np.ndarray, change: np.ndarray) -> float:
    """The largest ``-change / value``, at least 0."""
    most = 0.0
    for i in range(value.shape[0]):
        loss = -change[i] / value[i]
        if loss > most:
            most = loss
    return most
