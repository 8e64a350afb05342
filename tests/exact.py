"""Objectives of models and optima of problems in decimal arithmetic of a hundred digits; nothing uses the library.

Floats become decimals without rounding, and sums of a few thousand products of them lose fewer than fifty of these
digits in all tests, so that what is called exact here is known to over forty. An optimum is a bracket: a feasible point
of each side, found by an interior point or a Newton method, and the objectives of both. Weak duality proves it, whoever
found the points.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

_CONTEXT = decimal.Context(prec=100, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
DIGITS = (100, 250, 700)  # enough for nearly all problems; the last for C times squares of rows up to 1e300
PROVED = Decimal("1e-40")  # width of an optimum's bracket, relative to it
SLACK_PROVED = Decimal("1e-4")  # the same for the slack-constrained machine, whose solver's bounds are far apart
ROUNDING = Decimal("1e-50")  # more than that of any sum of those digits, relative to the sum
_MAX_STEPS = 400


class OracleError(AssertionError):
    """Forty digits were not proved: more digits may help."""


class Bracket(NamedTuple):
    """The optimum lies between the two."""

    low: Decimal
    high: Decimal


def in_decimals(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with all arithmetic on decimals in a hundred digits, or as many as its caller has."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        with decimal.localcontext(_CONTEXT, prec=max(decimal.getcontext().prec, DIGITS[0])):
            return function(*args, **options)

    return wrapped


def exactly(values: Any) -> np.ndarray:
    """The floats of an array or a sparse matrix as decimals, which stay as they are."""
    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    return dense if dense.dtype == object else np.vectorize(lambda value: Decimal(float(value)), otypes=[object])(dense)


def _positive_part(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, Decimal(0))


# -- kernels ---------------------------------------------------------------------------------------------------------


@in_decimals
def kernel_values(kernel: Any, X: Any) -> np.ndarray:
    """``k(x, z)`` of all pairs of rows; a kernel has the fields of the library's ``Kernel``."""
    X = exactly(X)
    if kernel.name in ("rbf", "laplacian"):
        gamma, differences = Decimal(kernel.gamma), X[:, None, :] - X[None, :, :]
        sizes = differences**2 if kernel.name == "rbf" else np.abs(differences)
        return np.vectorize(lambda size: (-gamma * size).exp(), otypes=[object])(sizes.sum(axis=2))
    products = X @ X.T
    if kernel.name == "poly":
        return (Decimal(kernel.gamma) * products + Decimal(kernel.coef0)) ** int(kernel.degree)
    if kernel.name == "cosine":
        lengths = np.array([square.sqrt() or Decimal(1) for square in np.diag(products)])
        return products / np.outer(lengths, lengths)
    assert kernel.name == "linear", kernel.name
    return products


# -- two methods that find points ------------------------------------------------------------------------------------


def _solver(A: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The function that solves ``A X = B`` for a symmetric positive definite A, by elimination without pivots."""
    A, n = A.copy(), len(A)
    columns = []
    for k in range(n):
        if not A[k, k] > 0:
            raise OracleError("a matrix lost so many digits that it is not positive definite")
        columns.append(A[k + 1 :, k] / A[k, k])
        A[k + 1 :, k + 1 :] -= np.outer(columns[k], A[k, k + 1 :])

    def solve(B: np.ndarray) -> np.ndarray:
        B = B.copy()
        for k in range(n):
            B[k + 1 :] -= np.multiply.outer(columns[k], B[k])
        for k in reversed(range(n)):
            B[k] = (B[k] - A[k, k + 1 :] @ B[k + 1 :]) / A[k, k]
        return B

    return solve


class _Point(NamedTuple):
    """An iterate: x, what is left to the upper bounds, the multipliers of E, of 0 and of the upper bounds."""

    x: np.ndarray
    s: np.ndarray
    b: np.ndarray
    z: np.ndarray
    t: np.ndarray

    def moved(self, step: _Point, part: Decimal = Decimal(1)) -> _Point:
        """Along a step, up to this part of the way to where one of the bounds is met, and no further than the step."""
        bounded = [(v, d) for name in "xszt" for v, d in zip(getattr(self, name), getattr(step, name), strict=True)]
        length = part * min([Decimal(1), *(-v / d for v, d in bounded if d < 0)])
        return _Point(*(value + length * change for value, change in zip(self, step, strict=True)))

    @property
    def mu(self) -> Decimal:
        return (self.x @ self.z + self.s @ self.t) / (2 * len(self.x))


def _interior_points(
    H: np.ndarray, q: np.ndarray, E: np.ndarray, e: np.ndarray, upper: np.ndarray, x: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Iterates x and multipliers of E that approach the least ``x'Hx / 2 - q'x`` with ``E x = e, 0 <= x <= upper``.

    Mehrotra's predictor and corrector; ``x`` is the first iterate, between the bounds.
    """
    mu = x.max()
    at = _Point(x, upper - x, np.full(len(e), Decimal(0)), mu / x, mu / (upper - x))
    for _ in range(_MAX_STEPS):
        step_to = _newton(at, H, q, E, e)
        ahead = step_to(Decimal(0), Decimal(0))
        target = at.mu * max((at.moved(ahead).mu / at.mu) ** 3, Decimal("1e-20"))
        at = at.moved(step_to(target - ahead.x * ahead.z, target - ahead.s * ahead.t), Decimal("0.99"))
        yield at.x, at.b


def _newton(at: _Point, H: np.ndarray, q: np.ndarray, E: np.ndarray, e: np.ndarray) -> Callable[..., _Point]:
    """The function that gives Newton's step to ``x z = lower, s t = higher`` and to what the problem asks for."""
    x, s, b, z, t = at
    residual, missing = H @ x - q - E.T @ b - z + t, e - E @ x
    solve = _solver(H + np.diag(z / x + t / s))
    across = solve(E.T)
    solve_multipliers = _solver(E @ across)

    def step_to(lower: Any, higher: Any) -> _Point:
        free = solve(-residual + (lower - x * z) / x - (higher - s * t) / s)
        db = solve_multipliers(missing - E @ free)
        dx = free + across @ db
        return _Point(dx, -dx, db, (lower - x * z - z * dx) / x, (higher - s * t + t * dx) / s)

    return step_to


def _first_proved(brackets: Iterator[Bracket], scale: Decimal = Decimal(0)) -> Bracket:
    """The best bounds so far, once they are close; ``scale`` is what an optimum of 0 is measured by."""
    low, high = Decimal("-Infinity"), Decimal("Infinity")
    for bracket in brackets:
        low, high = max(low, bracket.low), min(high, bracket.high)
        size = max(abs(high), scale)
        if high - low <= PROVED * size:
            if low - high > ROUNDING * size:
                raise OracleError(f"the oracle contradicts itself: {low} > {high}")
            return Bracket(low - ROUNDING * size, high + ROUNDING * size)
    raise OracleError(f"the oracle failed: {low} <= optimum <= {high}")


# -- hard margin and nu ----------------------------------------------------------------------------------------------


def masses_at_most(y: np.ndarray, weight: np.ndarray, nu: float | None) -> np.ndarray:
    """The largest mass of each row in the two (reduced) hulls; a nu over the largest possible is that one."""
    with decimal.localcontext(_CONTEXT):
        weight = exactly(weight)
        if nu is None:
            return np.where(weight > 0, Decimal(1), Decimal(0))
        cap = 2 / (Decimal(float(nu)) * weight.sum())
        least = max(1 / weight[y > 0].sum(), 1 / weight[y < 0].sum())
        assert cap >= least * (1 - Decimal("1e-12"))
        return np.minimum(max(cap, least) * weight, Decimal(1))


@in_decimals
def margin(X: Any, y: np.ndarray, most: np.ndarray, coef: np.ndarray) -> Decimal:
    """The signed distance between the supporting hyperplanes of the hulls along a direction; 0 along none."""
    w = exactly(coef)
    length = (w @ w).sqrt()
    if not length:
        return Decimal(0)
    scores, total = exactly(X) @ w, Decimal(0)
    for sign in (1, -1):
        left = Decimal(1)
        for i in sorted(np.flatnonzero((y == sign) & (most > 0)), key=lambda i: sign * scores[i]):
            taken = min(left, most[i])
            total += taken * sign * scores[i]
            left -= taken
    return total / length


@in_decimals
def hull_distance(X: Any, y: np.ndarray, most: np.ndarray) -> Bracket:
    """The distance between the hulls; where they meet, the upper bound is below 1e-40 of their radius."""
    present = most > 0
    points, y, most = exactly(X)[present], y[present], most[present]
    points = points - points.mean(axis=0)
    size = np.abs(points).max() or Decimal(1)
    signed = points / size * y[:, None]
    # A class whose bounds add up to 1 is a point, and an interior method needs an interior.
    is_point = {sign: most[y == sign].sum() <= 1 + PROVED for sign in (1, -1)}
    free = np.array([not is_point[sign] for sign in y])
    mass = np.where(free, Decimal(0), most)
    for sign in (1, -1):
        mass[y == sign] /= mass[y == sign].sum() or Decimal(1)

    def brackets() -> Iterator[Bracket]:
        if not free.any():
            yield bracket(mass)
            return
        E = np.array([np.where(y[free] == sign, Decimal(1), Decimal(0)) for sign in (1, -1) if not is_point[sign]])
        rows, fixed = signed[free], mass @ signed
        upper = np.where(most[free] < 1, most[free], Decimal(2))  # a bound of 1 never binds
        for x, _ in _interior_points(
            rows @ rows.T, -(rows @ fixed), E, np.full(len(E), Decimal(1)), upper, upper / (2 * upper.sum())
        ):
            whole = mass.copy()
            whole[free] = x
            yield bracket(whole)

    def bracket(mass: np.ndarray) -> Bracket:
        for sign in (1, -1):  # onto the hull: to a sum of 1 within the bounds
            mine = y == sign
            x = mass[mine] / max(mass[mine].sum(), Decimal(1))
            room = most[mine] - x
            mass[mine] = x + room * ((1 - x.sum()) / (room.sum() or Decimal(1)))
        w = mass @ signed
        return Bracket(max(Decimal(0), margin_of(w)), (w @ w).sqrt())

    def margin_of(w: np.ndarray) -> Decimal:
        return margin(points / size, y, most, w)

    low, high = _first_proved(brackets(), Decimal(1))
    return Bracket(low * size, high * size)


# -- hinge losses ----------------------------------------------------------------------------------------------------


def _best_intercept(scores: np.ndarray, y: np.ndarray, caps: np.ndarray) -> Decimal:
    """The intercept of least hinge loss: of the kinks in order, the first at which the slope is not negative."""
    kinks, slope = y - scores, -caps[y > 0].sum()
    for i in sorted(range(len(y)), key=lambda i: kinks[i]):
        slope += caps[i]
        if slope >= 0:
            break
    return kinks[i]


def _hinge(scores: np.ndarray, y: np.ndarray, caps: np.ndarray) -> Decimal:
    return caps @ _positive_part(1 - y * scores)


@in_decimals
def hinge_optimum(K: np.ndarray, y: np.ndarray, caps: np.ndarray, fit_intercept: bool) -> Bracket:
    """The optimum of ``||w||^2 / 2 + sum_i caps_i hinge_i`` for rows with these inner products."""
    return _hinge_solution(K, y, caps, fit_intercept)[0]


def _hinge_solution(
    K: np.ndarray, y: np.ndarray, caps: np.ndarray, fit_intercept: bool
) -> tuple[Bracket, np.ndarray, Decimal]:
    """The bracket, and the alpha and the intercept that prove it."""
    present = caps > 0
    K, signs, caps = K[np.ix_(present, present)], y[present], caps[present]
    n, whole = len(signs), np.full(len(y), Decimal(0))
    y = exactly(signs)
    centred = K - 2 * K.mean(axis=0)[:, None] + K.mean() if fit_intercept else K
    size = np.diag(centred).max() or Decimal(1)
    Q = np.outer(y, y) * K
    E = y[None, :] if fit_intercept else np.empty((0, n), dtype=object)
    upper = caps * size
    intercept = Decimal(0)

    def brackets() -> Iterator[Bracket]:
        nonlocal intercept
        for x, _ in _interior_points(
            Q / size, np.full(n, Decimal(1)), E, np.full(len(E), Decimal(0)), upper, np.minimum(upper / 2, Decimal(1))
        ):
            alpha = np.minimum(x / size, caps)
            if fit_intercept:
                totals = {sign: alpha[signs == sign].sum() for sign in (1, -1)}
                alpha = alpha * np.array([min(totals.values()) / totals[sign] for sign in signs])
            scores = K @ (alpha * y)
            intercept = _best_intercept(scores, y, caps) if fit_intercept else Decimal(0)
            squared = (alpha * y) @ scores
            whole[present] = alpha
            # Scaled up until no row has a loss: where C is huge, digits that are lost in a loss outweigh the norm.
            least = (y * (scores + intercept)).min() * (1 - ROUNDING)
            without_loss = squared / 2 / least**2 if least > 0 else Decimal("Infinity")
            with_loss = squared / 2 + _hinge(scores + intercept, y, caps)
            yield Bracket(alpha.sum() - squared / 2, min(with_loss, without_loss))

    return _first_proved(brackets()), whole, intercept


@in_decimals
def hinge_objective(squared_norm: Decimal, scores: np.ndarray, y: np.ndarray, caps: np.ndarray) -> Decimal:
    """``||w||^2 / 2 + sum_i caps_i hinge_i`` of a model; scores include the intercept."""
    return squared_norm / 2 + _hinge(scores, exactly(y), caps)


@in_decimals
def sparse_optimum(X: Any, y: np.ndarray, caps: np.ndarray, alpha: Decimal, fit_intercept: bool) -> Bracket:
    """The optimum of ``alpha ||beta||_1 + sum_i caps_i hinge_i``."""
    present = caps > 0
    X, y, caps = exactly(X)[present], exactly(y[present]), caps[present]
    sizes = np.array([np.abs(column - (column.mean() if fit_intercept else 0)).max() or Decimal(1) for column in X.T])
    Z, penalty, (n, p) = X / sizes, alpha / sizes, X.shape
    E = np.column_stack([(Z * y[:, None]).T, np.diag(np.full(p, Decimal(1)))])
    e, start = penalty, np.concatenate([caps / 2, penalty])
    if fit_intercept:
        E, e = np.vstack([E, np.concatenate([y, np.full(p, Decimal(0))])]), np.append(e, Decimal(0))

    def brackets() -> Iterator[Bracket]:
        q = np.concatenate([np.full(n, Decimal(1)), np.full(p, Decimal(0))])
        for x, multipliers in _interior_points(np.full((n + p, n + p), Decimal(0)), q, E, e, 2 * start, start):
            a, beta = np.minimum(x[:n], caps), -multipliers[:p]
            if fit_intercept:
                totals = {sign: a[y == sign].sum() for sign in (1, -1)}
                a = a * np.array([min(totals.values()) / totals[int(sign)] for sign in y])
            a = a / max(Decimal(1), (np.abs((a * y) @ Z) / penalty).max())
            scores = Z @ beta
            intercept = _best_intercept(scores, y, caps) if fit_intercept else Decimal(0)
            yield Bracket(a.sum(), penalty @ np.abs(beta) + _hinge(scores + intercept, y, caps))

    return _first_proved(brackets())


@in_decimals
def sparse_objective(X: Any, y: np.ndarray, caps: np.ndarray, alpha: Decimal, coef: Any, intercept: float) -> Decimal:
    """``alpha ||beta||_1 + sum_i caps_i hinge_i`` of a model."""
    coef = exactly(coef)
    return alpha * np.abs(coef).sum() + _hinge(exactly(X) @ coef + Decimal(float(intercept)), exactly(y), caps)


# -- slack -----------------------------------------------------------------------------------------------------------


@in_decimals
def slack_level(c: np.ndarray, y: np.ndarray, weight: np.ndarray, volume: Decimal, fit_intercept: bool) -> Decimal:
    """The highest water level over responses ``c`` with this volume: ``max_b min_i (c_i + y_i b + xi_i)``."""
    groups = [np.flatnonzero((weight > 0) & (y == sign)) for sign in (1, -1)]
    groups = groups if fit_intercept else [np.concatenate(groups)]
    # Cover the same mass of every group, row by row of lowest response, for as long as that lowers the level.
    order = [sorted(group, key=lambda i: c[i]) for group in groups]
    place, left, mass, total, best = [0] * len(order), [weight[rows[0]] for rows in order], Decimal(0), Decimal(0), None
    while all(k < len(rows) for k, rows in zip(place, order, strict=True)):
        taken = min(left)
        mass += taken
        total += taken * sum(c[rows[k]] for k, rows in zip(place, order, strict=True))
        level = (volume + total) / mass
        best = level if best is None else min(best, level)
        for g, rows in enumerate(order):
            left[g] -= taken
            if not left[g]:
                place[g] += 1
                left[g] = weight[rows[place[g]]] if place[g] < len(rows) else Decimal(0)
    assert best is not None
    return best / len(groups)


@in_decimals
def slack_optimum(K: np.ndarray, y: np.ndarray, weight: np.ndarray, slack: float, fit_intercept: bool) -> Bracket:
    """The highest level that a unit vector reaches, to few digits.

    The models of all C are those of all slacks: the C whose solution has this slack is found by bisection.
    """
    weight, signs = exactly(weight), exactly(y)
    volume = weight.sum() * Decimal(float(slack))
    low, high, least, most = Decimal("-Infinity"), Decimal("Infinity"), Decimal("1e-30"), Decimal("1e30")
    for _ in range(60):
        C = (least * most).sqrt()
        _, alpha, intercept = _hinge_solution(K, y, C * weight, fit_intercept)
        scores = K @ (alpha * signs)
        norm = ((alpha * signs) @ scores).sqrt()
        low = max(low, slack_level(signs * scores / (norm or 1), y, weight, volume, fit_intercept))
        steepest = (alpha[weight > 0] / weight[weight > 0]).max()
        high = min(high, (norm + volume * steepest) / alpha.sum())
        if high - low <= SLACK_PROVED * abs(high):
            return Bracket(low, high)
        used = _hinge(scores + intercept, signs, weight)
        least, most = (C, most) if used > volume * norm else (least, C)
    raise OracleError(f"the oracle failed: {low} <= optimum <= {high}")


# -- margin distribution ---------------------------------------------------------------------------------------------


class MarginLoss(NamedTuple):
    """Squared losses of margins below ``low`` and over ``high``, of ``steep`` and ``v`` times as much curvature."""

    steep: np.ndarray
    low: Decimal
    high: Decimal
    v: Decimal

    def value(self, margins: np.ndarray) -> Decimal:
        short, long = _positive_part(self.low - margins), _positive_part(margins - self.high)
        return self.steep @ (short**2 + self.v * long**2) / 2


@in_decimals
def margin_loss(weight: Any, C: float, deadband: float, overshoot_weight: float) -> MarginLoss:
    weight, theta = exactly(weight), Decimal(deadband)
    steep = weight * Decimal(C) / (weight.sum() * (1 - theta) ** 2)
    return MarginLoss(steep, 1 - theta, 1 + theta, Decimal(overshoot_weight))


@in_decimals
def margin_optimum(K: np.ndarray, y: np.ndarray, loss: MarginLoss) -> Bracket:
    """The optimum of ``||w||^2 / 2`` and the losses; a constant feature is part of K."""
    present, signs = loss.steep > 0, exactly(y)
    Q = (np.outer(signs, signs) * K)[np.ix_(present, present)]
    loss = loss._replace(steep=loss.steep[present])

    def primal(g: np.ndarray) -> Decimal:
        return g @ (Q @ g) / 2 + loss.value(Q @ g)

    def brackets() -> Iterator[Bracket]:
        g = np.full(len(Q), Decimal(0))
        for _ in range(_MAX_STEPS):
            margins = Q @ g
            steep = np.where(margins < loss.low, loss.steep, np.where(margins > loss.high, loss.v * loss.steep, 0))
            pull = steep * (np.where(margins < loss.low, loss.low, loss.high) - margins)
            squares = np.array([p * p / s if p else Decimal(0) for p, s in zip(pull, steep, strict=True)])
            linear = np.where(pull > 0, loss.low, loss.high) @ pull
            value = primal(g)
            yield Bracket(linear - (squares.sum() + pull @ (Q @ pull)) / 2, value)
            active = np.flatnonzero(steep)
            step = -g
            system = Q[np.ix_(active, active)] + np.diag(1 / steep[active])
            aim = np.where(margins < loss.low, loss.low, loss.high)[active]
            step[active] += _solver(system)(aim)
            length = Decimal(1)
            while primal(g + length * step) > value and length > PROVED:
                length /= 2
            g = g + length * step

    return _first_proved(brackets())


@in_decimals
def margin_objective(squared_norm: Decimal, scores: np.ndarray, y: np.ndarray, loss: MarginLoss) -> Decimal:
    return squared_norm / 2 + loss.value(exactly(y) * scores)
