"""The linear C-SVM through its dual: coordinate descent over rows, then Newton steps on the rows that are free.

    maximise over alpha   sum(alpha) - 0.5 ||z||^2,   z = sum_i alpha_i y_i x_i,   0 <= alpha_i <= cap_i

**Coordinate passes** [1]. Row by row the best alpha_i, with z kept beside it; rows that stay at a bound are passed over
(shrinking). The intercept is a multiplier of sum(alpha y) = 0: within a pass it is a constant feature of size sigma,
and after each pass its centre moves, b += sigma^2 sum(alpha y), so that what it converges to is not regularised. On
ranks every one passes over its own rows as if the others did the same, and the changes are added up [2].

**Newton steps** [3]. The method of multipliers holds alpha near a centre and moves the centre to where that led:

    minimise over w, b   0.5 ||w||^2 + sum_i max over a_i in [0, cap_i] of  a_i r_i - (a_i - centre_i)^2 / (2 rho cap_i)
    slack      r_i = 1 - y_i (w.x_i + b)         masses     a_i = centre_i + rho cap_i r_i, within bounds
    gradient   w - z,  -sum(a y)                 Hessian    I + rho sum over free rows of cap_i x_i x_i',  and so for b

Free rows are those whose mass is within its bounds. They are few in the end, so that steps get cheaper, and while they
are many a sample of them will do for the Hessian. Where there are few enough features to form it, these steps are all
that is needed, from the answer of a sample on. Where there are more, passes come first, and steps with conjugate
gradients take over when passes stall, or at once where an earlier model has given a direction but no alphas.

Both are bounded alike: w with its intercept from above, the masses with balanced classes from below.

On ranks: a pass costs one exchange of d numbers; a Newton step one for the gradient, two with an intercept, one of d^2
for the Hessian or of d for each step of conjugate gradients, and a handful of single numbers for the line search.

[1] Hsieh, Chang, Lin, Keerthi, Sundararajan: A Dual Coordinate Descent Method for Large-scale Linear SVM, 2008.
[2] Ma, Smith, Jaggi, Jordan, Richtarik, Takac: Adding vs. Averaging in Distributed Primal-Dual Optimization, 2015.
[3] Yan, Li: An Efficient Augmented Lagrangian Method for Support Vector Machine, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin.comm._protocol import Communicator
from widemargin.compiled._jit import compiled
from widemargin.compiled.dense import FAST
from widemargin.data.shard import Shard
from widemargin.problems._protocol import Certificate
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers._protocol import Separator
from widemargin.solvers.newton import conjugate_gradients

_ROUGH = 1e-4  # precision of scale and intercept where they will move anyway
_LARGEST_START_RHO = 4.0  # masses of a direction found elsewhere are ambiguous within a quarter of the margin
_LARGEST_RHO = 1e10
_CERTIFIED_PASSES = 3  # the first ones; later a certificate comes after every other pass over all rows
_ROUNDING = 1e-13  # relative: what keeps a Hessian from being singular


@dataclass(frozen=True, eq=False)
class Rows:
    """One rank's part of the problem."""

    problem: HingeL2
    shard: Shard
    comm: Communicator
    upper: np.ndarray  # the cap of each alpha
    rng: np.random.Generator  # this rank's own

    def combine(self, signed: np.ndarray) -> np.ndarray:
        """``sum_i signed_i x_i`` over all ranks."""
        return self.comm.allreduce(self.shard.combine(signed))


class Softened(NamedTuple):
    """The masses that a centre and rho give for some slacks; sums are those of all ranks."""

    signed: np.ndarray  # y_i a_i
    is_free: np.ndarray
    positive: float  # sum of the masses of each class
    negative: float
    loss: float  # sum of cap_i max(0, r_i)
    gain: float  # sum of (a_i - centre_i) r_i: what moving the centre is worth
    free_cap: float  # sum of the caps of free rows


class Passes(NamedTuple):
    """What coordinate passes keep."""

    curvature: np.ndarray  # ||x_i||^2 + sigma^2
    sigma2: float
    n_rows: float  # of all ranks
    signed_sum: float  # sum(alpha y)
    is_active: np.ndarray
    top: float  # beyond these gradients a row at a bound is passed over
    bottom: float
    spread: float  # between the extreme gradients when last certified
    n_sweeps: int
    n_passed: float  # rows since the last certificate, of all ranks
    n_stalled: int  # certificates since the gap was last halved
    reference: float  # the gap then


class State(NamedTuple):
    rows: Rows
    w: np.ndarray
    intercept: float
    slack: np.ndarray
    centre: np.ndarray  # alpha
    rho: float
    soft: Softened
    z: np.ndarray
    n_inner: int  # Newton steps since the centre moved
    passes: Passes | None  # None once Newton steps are taken
    best: tuple[np.ndarray, float]  # coef and intercept
    certificate: Certificate
    is_fresh: bool  # whether the certificate is of this sweep


@dataclass(frozen=True)
class DualDescent:
    """Dual coordinate descent and the method of multipliers for the linear C-SVM."""

    direct_features: int = 512  # up to here the Hessian is formed
    start_per_feature: int = 32  # rows of the sample whose answer is the start
    hessian_per_feature: int = 64  # free rows that make up a Hessian, at most
    rho_growth: float = 4.0
    few_inner: int = 2  # Newton steps at one centre after which rho grows
    most_inner: int = 8  # and after which it shrinks
    patience: int = 3  # certified passes that do not halve the gap before Newton steps take over
    cg_residual: float = 0.1

    def start(self, problem: HingeL2, shard: Shard, comm: Communicator, rng: np.random.Generator, warm=None) -> State:
        upper = problem.caps(shard.weight)
        positive = shard.y > 0
        totals = comm.allreduce(np.array([shard.weight[positive].sum(), shard.weight[~positive].sum()]))
        problem.check(*totals)
        rows = Rows(problem, shard, comm, upper, np.random.default_rng([comm.rank, int(rng.integers(2**63))]))
        if warm is None and shard.n_features <= self.direct_features:
            warm = self._answer_of_a_sample(rows, rng)
        # Without an earlier direction, the difference of the means.
        w = rows.combine(shard.y * shard.weight / totals[np.where(positive, 0, 1)]) if warm is None else warm
        scores = shard.scores(w)
        point = problem.primal_point(scores, shard.y, shard.weight, float(w @ w), comm.allreduce, precision=_ROUGH)
        w, scores = point.scale * w, point.scale * scores
        slack = 1 - shard.y * (scores + point.intercept)
        # Halfway up every cap, and as sharp as masses and direction agree the better: w = z at the optimum.
        centre, rho = upper / 2, 1.0
        soft, z = _soften(rows, slack, centre, rho)
        while warm is not None and rho < _LARGEST_START_RHO:
            sharper, its_z = _soften(rows, slack, centre, 2 * rho)
            if np.linalg.norm(its_z - w) >= np.linalg.norm(z - w):
                break
            rho, soft, z = 2 * rho, sharper, its_z
        best, nothing = (w, point.intercept), Certificate(np.inf, -np.inf)
        state = State(rows, w, point.intercept, slack, centre, rho, soft, z, 0, None, best, nothing, True)
        state = _bound(state)
        return self._begin_passes(state) if warm is None and shard.n_features > self.direct_features else state

    def _answer_of_a_sample(self, rows: Rows, rng: np.random.Generator) -> np.ndarray | None:
        """The direction that a small share of all rows asks for; None where rows are too few to leave any out."""
        shard, comm = rows.shard, rows.comm
        n_rows = comm.allreduce(np.array([float(shard.n_rows)]))[0]
        stride = int(n_rows // max(self.start_per_feature * shard.n_features, 2048))
        if stride < 4:
            return None
        chosen = np.sort(rows.rng.choice(shard.n_rows, -(-shard.n_rows // stride), replace=False))
        sample = shard.take(chosen)
        totals = comm.allreduce(np.array([sample.weight[sample.y > 0].sum(), sample.weight[sample.y < 0].sum()]))
        if not totals.all():
            return None
        # Fewer rows, each of more weight.
        state = self.start(replace(rows.problem, C=rows.problem.C * stride), sample, comm, rng)
        for _ in range(20):
            if state.certificate.relative <= 0.05:
                break
            state = self.sweep(state)
        return state.best[0]

    def certify(self, state: State) -> Certificate | None:
        return state.certificate if state.is_fresh else None

    def verdict(self, state: State) -> str | None:
        return None

    def direction(self, state: State) -> np.ndarray:
        return state.best[0]

    def extract(self, state: State) -> Separator:
        n_support = state.rows.comm.allreduce(np.array([float(np.count_nonzero(state.soft.signed))]))[0]
        return Separator(*state.best, {"n_support": int(n_support)})

    def sweep(self, state: State) -> State:
        return self._newton_step(state) if state.passes is None else self._pass(state)

    # -- Newton steps ------------------------------------------------------------------------------------------------

    def _newton_step(self, state: State) -> State:
        state = self._move_centre(state)
        rows, soft, rho = state.rows, state.soft, state.rho
        imbalance = soft.positive - soft.negative if rows.problem.fit_intercept else 0.0
        gradient = np.append(state.w - state.z, -imbalance)
        step = self._direction(state, gradient)
        slope = float(gradient @ step)
        tilt = rows.shard.y * (rows.shard.scores(step[:-1]) + step[-1])
        along, squared = float(state.w @ step[:-1]), float(step[:-1] @ step[:-1])
        # What is minimised is convex and piecewise quadratic along the step: Newton's method within a bracket.
        length, low, high = 1.0, 0.0, np.inf
        for _ in range(30):
            local = line_sums(state.slack, tilt, state.centre, rows.upper, rho, length)
            pull, curvature = rows.comm.allreduce(local)
            derivative = along + length * squared - pull
            if abs(derivative) <= 0.1 * abs(slope):
                break
            low, high = (length, high) if derivative < 0 else (low, length)
            bend = squared + curvature
            following = length - derivative / bend if bend > 0 else np.inf
            middle = (low + high) / 2 if high < np.inf else 4 * low
            length = following if low < following < min(high, 10 * middle) else middle
        slack = state.slack - length * tilt
        w, intercept = state.w + length * step[:-1], state.intercept + length * step[-1]
        soft, z = _soften(rows, slack, state.centre, rho)
        return _bound(
            state._replace(w=w, intercept=float(intercept), slack=slack, soft=soft, z=z, n_inner=state.n_inner + 1)
        )

    def _move_centre(self, state: State) -> State:
        """Make the masses the new centre once the error of the inner problem is below what that gains."""
        soft, rho = state.soft, state.rho
        error = float(np.sum((state.w - state.z) ** 2))
        if state.rows.problem.fit_intercept and soft.positive != soft.negative:
            bend = rho * soft.free_cap
            error += (soft.positive - soft.negative) ** 2 / bend if bend > 0 else np.inf
        is_settled = error <= soft.gain
        if not is_settled and state.n_inner < self.most_inner:
            return state
        # A centre that was reached in few steps was near, and the next may lie farther away; or it was too far.
        growth = self.rho_growth if state.n_inner <= self.few_inner else 1.0
        rho = min(rho * growth, _LARGEST_RHO) if is_settled else rho / self.rho_growth
        centre = np.abs(soft.signed) if is_settled else state.centre
        soft, z = _soften(state.rows, state.slack, centre, rho)
        return state._replace(centre=centre, rho=rho, soft=soft, z=z, n_inner=0)

    def _direction(self, state: State, gradient: np.ndarray) -> np.ndarray:
        """Solve Hessian times step = -gradient, the intercept last."""
        rows, n_features = state.rows, len(gradient) - 1
        shard, comm = rows.shard, rows.comm
        free = np.flatnonzero(state.soft.is_free)
        n_free = float(comm.allreduce(np.array([float(len(free))]))[0])
        stride = max(1, int(n_free // max(self.hessian_per_feature * n_features, 8192)))
        free = free[int(rows.rng.integers(stride)) :: stride]
        mass = rows.upper[free] * (state.rho * stride)
        sums = comm.allreduce(np.append(shard.combine_rows(free, mass), mass.sum()))
        border, corner = sums[:-1], sums[-1]
        if not rows.problem.fit_intercept:
            border, corner = np.zeros(n_features), 1.0
        elif corner == 0:
            corner = max(abs(gradient[-1]) * state.rho, 1e-300)  # nothing bends: as far as masses change within
        corner *= 1 + _ROUNDING

        if n_features <= self.direct_features:
            hessian = np.empty((n_features + 1, n_features + 1))
            moment = comm.allreduce(shard.second_moment(free, mass).ravel())
            hessian[:-1, :-1] = moment.reshape(n_features, n_features)
            hessian[np.diag_indices(n_features)] += 1.0 + _ROUNDING * moment.max(initial=0.0)
            hessian[-1, :-1] = hessian[:-1, -1] = border
            hessian[-1, -1] = corner
            return -np.linalg.solve(hessian, gradient)

        def product(v: np.ndarray) -> np.ndarray:
            spread = comm.allreduce(shard.curvature(free, mass, v[:-1]))
            return np.append(v[:-1] + spread + border * v[-1], border @ v[:-1] + corner * v[-1])

        return conjugate_gradients(product, -gradient, self.cg_residual, 250)[0]

    # -- coordinate passes -------------------------------------------------------------------------------------------

    def _begin_passes(self, state: State) -> State:
        rows = state.rows
        shard, norms = rows.shard, rows.shard.squared_norms()
        local = np.array([norms @ shard.weight, shard.weight.sum(), float(shard.n_rows)])
        weighted, weight, n_rows = rows.comm.allreduce(local)
        sigma2 = float(weighted / weight) if rows.problem.fit_intercept else 0.0
        is_active, gap = rows.upper > 0, state.certificate.gap
        passes = Passes(norms + sigma2, sigma2, n_rows, 0.0, is_active, np.inf, -np.inf, np.inf, 0, 0.0, 0, gap)
        return state._replace(centre=np.zeros(len(norms)), w=np.zeros_like(state.w), passes=passes)

    def _pass(self, state: State) -> State:
        """One pass over the active rows in random order."""
        rows, passes = state.rows, state.passes
        assert passes is not None
        shard, comm = rows.shard, rows.comm
        alpha, is_active = state.centre.copy(), passes.is_active.copy()
        before = np.append(state.w, state.intercept + passes.sigma2 * passes.signed_sum)
        # [2]: others change w as much as this rank does, so steps are shorter by their number, and changes are added.
        rules = (float(comm.size), passes.sigma2, passes.top, passes.bottom)
        moving, extremes = before.copy(), np.array([-np.inf, np.inf])
        active = np.flatnonzero(is_active)
        for block, inside, where in shard._within_blocks(active):
            begin = int(active[where.start] - inside[0])
            part = slice(begin, begin + block.shape[0])
            numbers = (shard.y[part], rows.upper[part], passes.curvature[part], alpha[part], is_active[part])
            _descend(block, rows.rng.permutation(inside), *numbers, moving, extremes, *rules)
        local = np.concatenate([(moving - before) / comm.size, [shard.y @ alpha, float(len(active))]])
        *change, signed_sum, n_passed = comm.allreduce(local)
        moving = before + change
        bottom, top = comm.allreduce(extremes[::-1] * [1, -1], "min") * [1, -1]
        passes = passes._replace(
            signed_sum=float(signed_sum),
            is_active=is_active,
            top=top if top > 0 else np.inf,
            bottom=bottom if bottom < 0 else -np.inf,
            n_sweeps=passes.n_sweeps + 1,
            n_passed=passes.n_passed + n_passed,
        )
        state = state._replace(w=moving[:-1], intercept=float(moving[-1]), centre=alpha, passes=passes, is_fresh=False)
        # A certificate costs about as much as a pass over all rows.
        is_due = passes.n_sweeps <= _CERTIFIED_PASSES or passes.n_passed >= 2 * passes.n_rows
        is_due = is_due or top - bottom <= 0.1 * passes.spread
        return self._certify_passes(state) if is_due else state

    def _certify_passes(self, state: State) -> State:
        """Bounds for the alphas of the last pass; rows passed over come back if their gradient says so."""
        rows, passes = state.rows, state.passes
        assert passes is not None
        shard, alpha = rows.shard, state.centre
        scores = shard.scores(state.w)
        gradient = shard.y * (scores + state.intercept) - 1
        at_rest = (alpha <= 0) & (gradient > passes.top) | (alpha >= rows.upper) & (gradient < passes.bottom)
        point = rows.problem.primal_point(
            scores,
            shard.y,
            shard.weight,
            float(state.w @ state.w),
            rows.comm.allreduce,
            near=state.intercept,
            precision=max(_ROUGH * min(1.0, state.certificate.relative), 1e-11),
        )
        # Softened by nothing the masses are the alphas themselves.
        soft, z = _soften(rows, -gradient, alpha, 0.0)
        scaled = state._replace(w=point.scale * state.w, intercept=point.intercept, soft=soft, z=z)
        bounded = _bound(scaled, point.value)
        gap = bounded.certificate.gap
        is_halved = gap <= passes.reference / 2
        passes = passes._replace(
            is_active=~at_rest & (rows.upper > 0),
            spread=passes.top - passes.bottom,
            n_passed=0.0,
            n_stalled=0 if is_halved else passes.n_stalled + 1,
            reference=gap if is_halved else passes.reference,
        )
        if passes.n_stalled < self.patience:
            return bounded._replace(w=z, intercept=state.intercept, passes=passes)
        slack = 1 - shard.y * (point.scale * scores + point.intercept)
        soft, z = _soften(rows, slack, alpha, 1.0)
        return bounded._replace(slack=slack, rho=1.0, soft=soft, z=z, passes=None)


def _soften(rows: Rows, slack: np.ndarray, centre: np.ndarray, rho: float) -> tuple[Softened, np.ndarray]:
    signed, is_free = np.empty(len(slack)), np.empty(len(slack), dtype=np.bool_)
    sums = rows.comm.allreduce(soften_rows(slack, rows.shard.y, centre, rows.upper, rho, signed, is_free))
    return Softened(signed, is_free, *map(float, sums)), rows.combine(signed)


def _bound(state: State, primal: float | None = None) -> State:
    """Bring both sides of the certificate up to date; ``primal`` is the objective at w, if it is known."""
    rows, soft, best = state.rows, state.soft, state.certificate
    problem = rows.problem
    if primal is None:
        primal = problem.primal_value(soft.loss / problem.C, float(state.w @ state.w))
    positive, negative = problem.balance_factors(soft.positive, soft.negative)
    z = state.z
    if positive != negative:
        of_positive = rows.combine(np.maximum(soft.signed, 0.0))
        z = positive * of_positive + negative * (state.z - of_positive)
    total, squared = positive * soft.positive + negative * soft.negative, float(z @ z)
    factor = problem.best_factor(total, squared)
    dual = problem.dual_value(factor * total, factor**2 * squared)
    certificate = Certificate(min(best.primal, primal), max(best.dual, dual))
    model = (state.w, state.intercept) if primal < best.primal else state.best
    return state._replace(certificate=certificate, best=model, is_fresh=True)


# -- inner loops -----------------------------------------------------------------------------------------------------


@compiled(fastmath=FAST)
def soften_rows(slack, y, centre, upper, rho, signed, is_free):
    """Masses ``centre + rho upper slack`` within bounds, times y, and which of them are within.

    Returns the sum of the masses of each class, of ``upper max(0, slack)``, of ``(mass - centre) slack`` and of the
    bounds of free rows.
    """
    positive = negative = loss = gain = free_cap = 0.0
    for i in range(slack.shape[0]):
        bound = upper[i]
        wanted = centre[i] + rho * bound * slack[i]
        mass = min(max(wanted, 0.0), bound)
        free = (wanted > 0.0) & (wanted < bound)
        signed[i] = mass * y[i]
        is_free[i] = free
        positive += mass if y[i] > 0.0 else 0.0
        negative += 0.0 if y[i] > 0.0 else mass
        loss += bound * max(slack[i], 0.0)
        gain += (mass - centre[i]) * slack[i]
        free_cap += bound if free else 0.0
    return np.array([positive, negative, loss, gain, free_cap])


@compiled(fastmath=FAST)
def line_sums(slack, tilt, centre, upper, rho, length):
    """Sum of ``mass tilt`` where slacks are ``slack - length tilt``, and minus its derivative by the length."""
    pull = bend = 0.0
    for i in range(slack.shape[0]):
        bound = upper[i]
        wanted = centre[i] + rho * bound * (slack[i] - length * tilt[i])
        pull += min(max(wanted, 0.0), bound) * tilt[i]
        bend += bound * tilt[i] * tilt[i] if (wanted > 0.0) & (wanted < bound) else 0.0
    return np.array([pull, rho * bend])


def _descend(block: Any, *arguments: Any) -> None:
    """One compiled pass over the rows of a block."""
    if sp.issparse(block):
        descend_csr(np.asarray(block.data), np.asarray(block.indices), np.asarray(block.indptr), *arguments)
    else:
        descend_dense(np.asarray(block), *arguments)


@compiled()
def _best_step(gradient, alpha, upper, curvature, top, bottom, extremes):
    """The best change of one alpha, and whether its row is to be passed over from now on."""
    if alpha <= 0.0:
        if gradient > top:
            return 0.0, True
        violation = min(gradient, 0.0)
    elif alpha >= upper:
        if gradient < bottom:
            return 0.0, True
        violation = max(gradient, 0.0)
    else:
        violation = gradient
    extremes[0] = max(extremes[0], violation)
    extremes[1] = min(extremes[1], violation)
    if violation == 0.0:
        return 0.0, False
    if curvature <= 0.0:  # a row of zeros
        return (upper if gradient < 0.0 else 0.0) - alpha, False
    return min(max(alpha - gradient / curvature, 0.0), upper) - alpha, False


@compiled()
def descend_csr(
    data, indices, indptr, order, y, upper, norms, alpha, is_active, w, extremes, n_ranks, sigma2, top, bottom
):
    """Coordinate steps in the given order; the last entry of ``w`` is the intercept."""
    intercept = w[-1]
    for k in range(order.shape[0]):
        i = order[k]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        score = intercept
        for j in range(begin, end):
            score += data[j] * w[np.uint64(indices[j])]
        change, is_passed = _best_step(
            y[i] * score - 1.0, alpha[i], upper[i], n_ranks * norms[i], top, bottom, extremes
        )
        if is_passed:
            is_active[i] = False
        elif change != 0.0:
            alpha[i] += change
            push = n_ranks * change * y[i]
            for j in range(begin, end):
                w[np.uint64(indices[j])] += push * data[j]
            intercept += push * sigma2
    w[-1] = intercept


@compiled(fastmath=FAST)
def descend_dense(X, order, y, upper, norms, alpha, is_active, w, extremes, n_ranks, sigma2, top, bottom):
    """The twin of :func:`descend_csr`."""
    d = X.shape[1]
    intercept = w[-1]
    for k in range(order.shape[0]):
        i = order[k]
        score = intercept
        for j in range(d):
            score += X[i, j] * w[j]
        change, is_passed = _best_step(
            y[i] * score - 1.0, alpha[i], upper[i], n_ranks * norms[i], top, bottom, extremes
        )
        if is_passed:
            is_active[i] = False
        elif change != 0.0:
            alpha[i] += change
            push = n_ranks * change * y[i]
            for j in range(d):
                w[j] += push * X[i, j]
            intercept += push * sigma2
    w[-1] = intercept
