"""The 1-norm SVM on few columns: an interior point (:mod:`._interior_point`) near the end, then the vertex it is near.

Rows far from the hinge do not bend: those beyond it have no mass, those within it their cap, and only a band of rows
near the hinge is left to the interior point. What is off the band is looked at afterwards, and the band widened if a
row has crossed, so that the answer is that of all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from widemargin.problems.hinge_l1 import HingeL1, largest
from widemargin.rounding import PAIRWISE, UNIT, gamma
from widemargin.solvers._interior_point import Answer, Point, Program

_NEXT_PRECISION = 1e-3  # factor for the next solve on the same columns
_MAX_PRECISION = 1e-13
_MIN_START_GAP = 1e-6  # relative; also the share of even masses then
_MANY_ROWS = 1000  # from so many rows on, a band is tried
_BAND = 0.2  # share of the rows that the interior point works on first
_CROSSING = 0.1  # share of the gap that rows which crossed the hinge may cause
_NO_SCORE = 1e-13  # a coefficient that changes scores by less is 0
_ON_HINGE = 1e-9  # distance of a row on the hinge of a vertex
_FEW_ON_HINGE = 200  # rows: up to so many a vertex is looked for at any gap; else
_NEARLY = 1e-5  # at this relative gap, or if the numbers of rows and columns agree
_MAX_LEAST_SQUARES = 4e9  # multiplications, of which it takes a few times as many
_MAX_POLISHED = 3000  # rows or columns of the systems that give a vertex


class Model(NamedTuple):
    coef: np.ndarray  # of the working columns
    intercept: float
    primal: float
    masses: np.ndarray  # within caps and balanced; feasible for the working columns up to their excess
    is_final: bool  # it will not become any better


class RestrictedLP:
    """The problem on the working columns, which grow in number, and where its interior point stands."""

    def __init__(self, problem: HingeL1, y: np.ndarray, caps: np.ndarray, distance: float = 0.0) -> None:
        """``distance``: by which margins of the model it begins with are off, about; 0 if that is not known."""
        self.problem, self.y, self.caps = problem, y, caps
        self._centre = distance * float(np.median(caps)) if len(caps) else 0.0
        self._lead = int(problem.fit_intercept)
        self._room = np.empty((len(y), 32), order="F")  # y if there is an intercept, the columns, and room for more
        self._room[:, : self._lead] = y[:, None]
        self._largest = np.empty(0)  # entry of each column
        self.k = 0
        self._point: Point | None = None
        self._precision = 1.0  # that it has there
        self._band: np.ndarray | None = None  # the rows it works on; None for all
        self._fixed = np.zeros(len(y))  # masses of the others

    @property
    def table(self) -> np.ndarray:
        """y if there is an intercept, then y_i x_ij, in Fortran's order."""
        return self._room[:, : self._lead + self.k]

    @property
    def columns(self) -> np.ndarray:
        return self._room[:, self._lead : self._lead + self.k]

    def add(self, signed_columns: np.ndarray) -> None:
        used, more = self._lead + self.k, signed_columns.shape[1]
        if used + more > self._room.shape[1]:
            room = np.empty((len(self.y), max(used + more, 2 * self._room.shape[1])), order="F")
            room[:, :used] = self.table
            self._room = room
        self._room[:, used : used + more] = signed_columns
        self._largest = np.append(self._largest, np.abs(signed_columns).max(axis=0, initial=0.0))
        self.k += more
        self._point = None

    def solve(self, coef: np.ndarray, intercept: float, masses: np.ndarray, gap: float, precision: float) -> Model:
        """To a gap of ``precision``, by the objective.

        It goes on where it stood if columns are the same, else from a model and feasible masses, ``gap`` apart.
        """
        if self._lead + self.k == 0:  # nothing to choose: no coefficients, and every row at its cap
            return self._model(coef, self.caps)._replace(is_final=True)
        if self._point is None:
            self._choose_band(1 - self.columns @ coef - intercept * self.y, bool(np.any(coef)))
        else:
            precision = min(precision, _NEXT_PRECISION * self._precision)  # what was found so far did not do
            if self._band is None:
                self._narrow(self._point)
        self._precision = precision = max(precision, _MAX_PRECISION)
        while True:
            answer = self._answer(coef, intercept, masses, gap, precision)
            self._point = answer.point
            if self._band is None:
                break
            # Rows off the band are lines to the interior point. Those that have crossed the hinge are not.
            shortfall = 1 - self.columns @ (answer.point.p - answer.point.q) - answer.point.intercept * self.y
            amiss = np.where((shortfall > 0) == (self._fixed > 0), 0.0, self.caps * np.abs(shortfall))
            amiss[self._band] = 0.0
            if not answer.has_stalled and amiss.sum() <= _CROSSING * precision * answer.objective:
                break
            self._widen_band(shortfall, amiss > 0, is_lost=answer.has_stalled)
        whole = self._on_all_rows(answer)
        model = self._better(self._truncated(whole), self._polished(whole))
        return model._replace(is_final=answer.has_stalled or precision == _MAX_PRECISION)

    def _answer(self, coef: np.ndarray, intercept: float, masses: np.ndarray, gap: float, precision: float) -> Answer:
        """The interior point on the rows of the band, from where it stands or from a model and masses."""
        problem, alpha, rows = self.problem, self.problem.penalty, slice(None) if self._band is None else self._band
        # A slice of a band's rows is a copy, in the other order.
        table = np.asfortranarray(self.table[rows])
        base, mass = self.table.T @ self._fixed, float(self._fixed.sum())
        program = Program(table, self._lead, self.y[rows], self.caps[rows], alpha, base, mass)
        if self._point is None and self._centre > 0 and coef.any():
            answer = program.solve(program.centred(coef, intercept, self._centre), precision)
            if not answer.has_stalled or answer.merit < _NEARLY:
                return answer
        if self._point is None:
            even = problem.feasible(self.caps / 2, self.y, self.caps)
            even *= min(1.0, 0.9 / max(problem.excess(largest(self.columns.T @ even)), 1.0))
            if not masses.any():
                masses, gap = self._guessed_masses(coef, intercept)
            gap = max(gap, _MIN_START_GAP)
            share = min(0.5, gap)
            inside = (1 - share) * masses + share * even
            # Correlations are those of all rows: feasible, while the fixed masses have yet to be made up for.
            self._point = program.start(inside[rows], self.columns.T @ inside, coef, intercept, gap)
        return program.solve(self._point, precision)

    def _guessed_masses(self, coef: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
        """Masses for a model that may be a vertex for another alpha, feasible on these columns, and the relative gap.

        The same rows are on the hinge and the same columns stay, if alpha is not far; no masses where there is no rest
        of a vertex to see.
        """
        shortfall = 1 - self.columns @ coef - intercept * self.y
        is_hinge = np.abs(shortfall) <= _ON_HINGE
        masses = self._vertex_masses(is_hinge, (shortfall > 0) & ~is_hinge, self.caps / 2, coef, coef != 0)
        if masses is None or not is_hinge.any():
            return np.zeros(len(self.y)), 1.0
        masses = self.problem.feasible(masses, self.y, self.caps)
        masses /= self.problem.excess(largest(self.columns.T @ masses))
        primal = float(self.caps @ np.maximum(shortfall, 0)) + self.problem.penalty * float(np.abs(coef).sum())
        return masses, min(1.0, max(0.0, 1 - float(masses.sum()) / primal))

    def _choose_band(self, shortfall: np.ndarray, has_model: bool) -> None:
        """The rows that may end on the hinge: those nearest to it, where there is a model and rows are many."""
        self._band, self._fixed = None, np.zeros(len(self.y))
        n_near = max(int(_BAND * len(self.y)), 4 * self.k)
        if has_model and self._centre == 0 and len(self.y) >= _MANY_ROWS and n_near <= len(self.y) // 2:
            self._fix_all_but(np.argpartition(np.abs(shortfall), n_near)[:n_near], shortfall)

    def _narrow(self, point: Point) -> None:
        """Go on with a band only, where all rows were at work so far."""
        self._choose_band(1 - self.columns @ (point.p - point.q) - point.intercept * self.y, True)
        if self._band is not None:
            a, v, s, xi = (each[self._band] for each in (point.a, point.v, point.s, point.xi))
            self._point = point._replace(a=a, v=v, s=s, xi=xi)

    def _widen_band(self, shortfall: np.ndarray, is_amiss: np.ndarray, is_lost: bool) -> None:
        """Twice as many rows and those that crossed; all of them if that is most, or if there was no answer."""
        assert self._band is not None
        self._point = None
        n_near = 2 * len(self._band)
        if is_lost or n_near > len(self.y) // 2:
            self._band, self._fixed = None, np.zeros(len(self.y))
            return
        near = np.argpartition(np.abs(shortfall), n_near)[:n_near]
        self._fix_all_but(np.union1d(near, np.flatnonzero(is_amiss)), shortfall)

    def _fix_all_but(self, band: np.ndarray, shortfall: np.ndarray) -> None:
        self._band = np.sort(band)
        self._fixed = np.where(shortfall > 0, self.caps, 0.0)
        self._fixed[self._band] = 0.0

    def _on_all_rows(self, answer: Answer) -> Answer:
        """The same answer with the rows off the band, whose masses are at their bounds."""
        if self._band is None:
            return answer
        a, is_hinge, is_capped = self._fixed.copy(), np.zeros(len(self.y), dtype=bool), self._fixed > 0
        a[self._band], is_hinge[self._band] = answer.point.a, answer.is_hinge
        is_capped[self._band] = answer.is_capped
        return answer._replace(point=answer.point._replace(a=a), is_hinge=is_hinge, is_capped=is_capped)

    def _better(self, one: Model, other: Model | None) -> Model:
        """The lower objective, and the masses that are worth more."""
        if other is None:
            return one
        model = other if other.primal <= one.primal else one
        worth = [
            self.problem.dual_value(float(m.masses.sum()), largest(self.columns.T @ m.masses)) for m in (one, other)
        ]
        return model._replace(masses=other.masses if worth[1] >= worth[0] else one.masses)

    def objective(self, coef: np.ndarray) -> tuple[float, float]:
        """The best intercept for coefficients of the working columns, and an upper bound on the objective there."""
        used = np.flatnonzero(coef)
        columns = self.columns if len(used) == self.k else self.columns[:, used]
        scores = self.y * (columns @ coef[used])
        intercept = self.problem.best_intercept(scores, self.y, self.caps)
        size = float(np.abs(coef[used]) @ self._largest[used]) if len(used) else 0.0
        slack_error = gamma(len(used) + 12) * size + 4 * UNIT * (1 + abs(intercept)) if len(used) else 0.0
        loss = self.problem.loss(scores, intercept, self.y, self.caps, slack_error)
        return intercept, self.problem.primal_value(loss, float(np.abs(coef).sum())) * (1 + gamma(2 * PAIRWISE))

    def _model(self, coef: np.ndarray, masses: np.ndarray) -> Model:
        """With the best intercept, and masses that are feasible but for their excess."""
        coef = np.where(np.abs(coef) * self._largest > _NO_SCORE, coef, 0.0)
        return Model(coef, *self.objective(coef), self.problem.feasible(masses, self.y, self.caps), False)

    def _truncated(self, answer: Answer) -> Model:
        """The interior point without the coefficients that go to zero; with them only if it cannot go on."""
        point = answer.point
        model = self._model(np.where(answer.is_support, point.p - point.q, 0.0), point.a)
        if answer.has_stalled and not answer.is_support.all():
            whole = self._model(point.p - point.q, point.a)
            return model if model.primal <= whole.primal + answer.gap else whole
        return model

    def _polished(self, answer: Answer) -> Model | None:
        """The vertex that the interior point is near, if it is known which.

        Rows on the hinge S and columns B that stay solve ``W_SB z = 1`` and ``W_SB' a_S = alpha sign(z) - W_CB' u_C``,
        C the rows within the margin; the intercept is a column whose sum is 0. More of one than of the other are solved
        by the least change.
        """
        point, hinge, n_lead = answer.point, np.flatnonzero(answer.is_hinge), self._lead
        coef = np.where(answer.is_support, point.p - point.q, 0.0)
        is_vertex = len(hinge) == n_lead + np.count_nonzero(answer.is_support)
        if not is_vertex and len(hinge) > _FEW_ON_HINGE and answer.gap > _NEARLY * answer.objective:
            return None
        masses = self._vertex_masses(answer.is_hinge, answer.is_capped, point.a, coef, answer.is_support)
        if masses is None:
            return None
        chosen = np.flatnonzero(np.append(np.ones(n_lead, dtype=bool), answer.is_support))
        if len(hinge) and len(chosen):
            z = np.append(np.full(n_lead, point.intercept), coef)[chosen]
            square = self.table[np.ix_(hinge, chosen)]
            change = _least_change(square, 1 - square @ z)
            if change is None:
                return None
            z = z + change
            coef[chosen[n_lead:] - n_lead] = z[n_lead:]
        return self._model(coef, masses)

    def _vertex_masses(
        self, is_hinge: np.ndarray, is_capped: np.ndarray, near: np.ndarray, coef: np.ndarray, is_support: np.ndarray
    ) -> np.ndarray | None:
        """The a of :meth:`_polished`; None where the system is too large."""
        hinge, n_lead = np.flatnonzero(is_hinge), self._lead
        chosen = np.flatnonzero(np.append(np.ones(n_lead, dtype=bool), is_support))
        if max(len(hinge), len(chosen)) > _MAX_POLISHED:
            return None
        masses = np.where(is_capped, self.caps, 0.0)
        if len(hinge) and len(chosen):
            sums = self.problem.penalty * np.sign(np.append(np.zeros(n_lead), coef)) - self.table.T @ masses
            square = self.table[np.ix_(hinge, chosen)]
            here = near[hinge]
            change = _least_change(square.T, sums[chosen] - square.T @ here)
            if change is None:
                return None
            masses[hinge] = here + change
        return masses


def _least_change(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """The shortest solution, or the nearest to one where there is none; None where that would take seconds."""
    if matrix.shape[0] == matrix.shape[1]:
        answer = la.lapack.dgesv(matrix, right)
        if answer[3] == 0 and np.all(np.isfinite(answer[2])):
            return np.asarray(answer[2])
    if matrix.size * min(matrix.shape) > _MAX_LEAST_SQUARES:
        return None
    return la.lstsq(matrix, right, cond=1e-12, check_finite=False, lapack_driver="gelsy")[0]
