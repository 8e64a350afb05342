"""The passes of the method of multipliers for hulls (:mod:`widemargin.solvers.hull_multipliers`), and its whole steps.

On a hundred rows a step takes a few microseconds of arithmetic, and a hundred times as long if Python calls each of its
products: :func:`solve_few` makes all steps of a small problem in one call, and :func:`solve_by_products` does where
rows are fewer than features.
"""

import numpy as np

from widemargin.compiled.dense import FAST
from widemargin.compiled.jit import compiled

MAX_LEVEL_STEPS = 200
_ROUNDING = 1e-13  # relative: added so that no Hessian is singular


@compiled(fastmath=FAST)
def soften_rows(scores, side, centre, upper, rho, level, mass, is_free):
    """Masses ``centre + rho upper (level - score)`` within bounds, and which of them are within.

    Returns per class the sum of masses, then of the bounds of free rows, and the sum of
    ``(mass - centre) (level - score)``.
    """
    first_level, second_level = level[0], level[1]
    first_total = second_total = first_free = second_free = gain = 0.0
    for i in range(scores.shape[0]):  # selections, as in compiled/projections.py
        is_first = side[i] == 0
        room = (first_level if is_first else second_level) - scores[i]
        bound = upper[i]
        wanted = centre[i] + rho * bound * room
        held = min(max(wanted, 0.0), bound)
        free = (wanted > 0.0) & (wanted < bound)
        mass[i] = held
        is_free[i] = free
        within = bound if free else 0.0
        first_total += held if is_first else 0.0
        second_total += 0.0 if is_first else held
        first_free += within if is_first else 0.0
        second_free += 0.0 if is_first else within
        gain += (held - centre[i]) * room
    return np.array([first_total, second_total, first_free, second_free, gain])


@compiled()
def move_levels(search, sums, rho, precise):
    """One step towards the levels at which masses add up to one; False once they do.

    ``search`` has for each class the level, the bracket, and how far to go where there is none. The sum of masses is
    piecewise linear in the level and increasing, so that Newton's method ends exactly.
    """
    moved = False
    for c in range(2):
        level, low, high, reach = search[c]
        over, bend = sums[c] - 1.0, rho * sums[2 + c]
        if abs(over) <= precise:
            continue
        if over < 0.0:
            low = level
        else:
            high = level
        following = level - over / bend if bend > 0.0 else np.inf
        if not low < following < high or abs(following) == np.inf:
            if high == np.inf:
                following = level + reach
            elif low == -np.inf:
                following = level - reach
            else:
                following = low + (high - low) / 2
            reach *= 4.0
        if low < following < high:
            moved = moved or abs(following - level) > 1e-16 * max(abs(level), abs(following))
            search[c, 0] = following
        search[c, 1], search[c, 2], search[c, 3] = low, high, reach
    return moved


@compiled(fastmath=FAST)
def tilted_sums(mass, is_free, upper, side, tilt):
    """The sum of ``mass tilt``; over free rows, of ``upper`` and of ``upper tilt`` by class, of ``upper tilt^2``."""
    pull = second = first_free = second_free = first_tilt = second_tilt = 0.0
    for i in range(mass.shape[0]):
        is_first = side[i] == 0
        slope = tilt[i]
        within = upper[i] if is_free[i] else 0.0
        pull += mass[i] * slope
        second += within * slope * slope
        first_free += within if is_first else 0.0
        second_free += 0.0 if is_first else within
        first_tilt += within * slope if is_first else 0.0
        second_tilt += 0.0 if is_first else within * slope
    return np.array([pull, first_free, second_free, first_tilt, second_tilt, second])


@compiled()
def _soften(scores, side, centre, upper, rho, level, search, mass, is_free):
    """Masses whose sums are one; ``level`` is where the search begins, and holds the levels afterwards."""
    for c in range(2):
        search[c, 0], search[c, 1], search[c, 2], search[c, 3] = level[c], -np.inf, np.inf, 1.0 / rho
    precise = 1e-14 + 2e-17 * scores.shape[0]
    sums = soften_rows(scores, side, centre, upper, rho, level, mass, is_free)
    for _ in range(MAX_LEVEL_STEPS):
        if not move_levels(search, sums, rho, precise):
            break
        level[0], level[1] = search[0, 0], search[1, 0]
        sums = soften_rows(scores, side, centre, upper, rho, level, mass, is_free)
    return sums[4]


@compiled()
def _mean_tilts(sums):
    means = np.zeros(2)
    for c in range(2):
        if sums[1 + c] > 0.0:
            means[c] = sums[3 + c] / sums[1 + c]
    return means


@compiled()
def _step(rows, side, upper, is_free, rho, gradient):
    """Solve ``(I + scatter of free rows) step = -gradient``, in the smaller of the two forms."""
    n, d = rows.shape
    m = 0
    for i in range(n):
        m += 1 if is_free[i] else 0
    if m == 0:
        return -gradient
    means = np.zeros((2, d))
    total = np.zeros(2)
    for i in range(n):
        if is_free[i]:
            c = side[i]
            total[c] += upper[i]
            for j in range(d):
                means[c, j] += upper[i] * rows[i, j]
    for c in range(2):
        if total[c] > 0.0:
            means[c] /= total[c]
    free = np.empty((m, d))
    k = 0
    for i in range(n):
        if is_free[i]:
            root = np.sqrt(rho * upper[i])
            for j in range(d):
                free[k, j] = root * (rows[i, j] - means[side[i], j])
            k += 1
    small = m < d
    system = np.dot(free, free.T) if small else np.dot(free.T, free)
    target = np.dot(free, gradient) if small else gradient.copy()
    size = system.shape[0]
    unit = np.empty(size)
    for j in range(size):
        system[j, j] += 1.0
        unit[j] = np.sqrt(system[j, j])
    for j in range(size):
        for k in range(size):
            system[j, k] /= unit[j] * unit[k]
        system[j, j] += _ROUNDING
    solved = np.linalg.solve(system, target / unit) / unit
    return np.dot(free.T, solved) - gradient if small else -solved


@compiled()
def lowest_sum(scores, side, upper):
    """The least sum of ``mass score`` over masses within bounds that add up to one in each class."""
    order = np.argsort(scores)
    left = np.ones(2)
    least = 0.0
    for k in range(order.shape[0]):
        i = order[k]
        held = min(upper[i], left[side[i]])
        least += held * scores[i]
        left[side[i]] -= held
    return least


@compiled()
def _line_search(
    scores, tilt, along, squared, slope, side, upper, centre, rho, level, search, mass, is_free, tried
):  # fmt: skip
    """The zero of the derivative along a direction with these scores: Newton's method within a bracket.

    Masses, levels and the scores in ``tried`` are those of the length that is returned, with their gain.
    """
    drift = _mean_tilts(tilted_sums(mass, is_free, upper, side, tilt))
    length, low, high, at, gain = 1.0, 0.0, np.inf, 0.0, 0.0
    for _ in range(30):
        for i in range(scores.shape[0]):
            tried[i] = scores[i] + length * tilt[i]
        level += (length - at) * drift
        at = length
        gain = _soften(tried, side, centre, upper, rho, level, search, mass, is_free)
        sums = tilted_sums(mass, is_free, upper, side, tilt)
        means = _mean_tilts(sums)
        rise = along + length * squared - sums[0]
        bend = squared + rho * (sums[5] - sums[3] * means[0] - sums[4] * means[1])
        if abs(rise) <= 0.1 * abs(slope):
            break
        if rise < 0.0:
            low = length
        else:
            high = length
        following = length - rise / bend if bend > 0.0 else np.inf
        middle = (low + high) / 2 if high < np.inf else 4 * low
        length = following if low < following < min(high, 10 * middle) else middle
    return at, gain


@compiled()
def _moved_centre(centre, mass, rho, is_settled, n_inner, rules):
    """Make the masses the centre if the inner problem is solved well enough; returns the next rho.

    A centre that was reached in few steps was near, and the next may lie farther away; or it was too far.
    """
    growth, largest_rho, few_inner, _ = rules
    if not is_settled:
        return rho / growth
    centre[:] = mass
    return min(rho * growth, largest_rho) if n_inner <= few_inner else rho


@compiled()
def _has_ended(scores, side, upper, squared_distance, squared_norm, tol, near):
    """Whether the gap is at most ``tol``, or the points are ``near`` while no margin is known."""
    distance, norm = np.sqrt(max(squared_distance, 0.0)), np.sqrt(max(squared_norm, 0.0))
    # At the optimum w = z: before they agree the gap is not worth a look.
    if (norm > 0.0 and abs(distance - norm) <= 0.1 * distance) or distance <= near:
        margin = lowest_sum(scores, side, upper) / norm if norm > 0.0 else 0.0
        return distance - margin <= tol * distance or (margin <= 0.0 and distance <= near)
    return False


@compiled()
def solve_few(rows, side, upper, centre, w, level, rho, n_inner, rules, tol, near, max_steps, mass, is_free):
    """Steps until the gap is at most ``tol``, or the points are ``near`` while no margin is known.

    ``rows`` are ``y_i (x_i - mean)``, ``rules`` are the growth of rho, its largest value, and how many steps at one
    centre are few and most. In place on ``centre``, ``w``, ``level``, ``mass`` and ``is_free``; returns rho, the steps
    at this centre, what moving it is worth, and the number of steps.
    """
    max_inner = rules[3]
    search = np.empty((2, 4))
    scores = np.dot(rows, w)
    tried = np.empty_like(scores)
    gain = _soften(scores, side, centre, upper, rho, level, search, mass, is_free)
    z = np.dot(mass, rows)
    for step in range(max_steps):
        error = 0.0
        for j in range(w.shape[0]):
            error += (w[j] - z[j]) ** 2
        settled = error <= gain
        if settled or n_inner >= max_inner:
            rho, n_inner = _moved_centre(centre, mass, rho, settled, n_inner, rules), 0
            gain = _soften(scores, side, centre, upper, rho, level, search, mass, is_free)
            z = np.dot(mass, rows)
        gradient = w - z
        direction = _step(rows, side, upper, is_free, rho, gradient)
        tilt = np.dot(rows, direction)
        slope, along, squared = np.dot(gradient, direction), np.dot(w, direction), np.dot(direction, direction)
        length, gain = _line_search(scores, tilt, along, squared, slope, side, upper, centre, rho, level, search, mass,
                                    is_free, tried)  # fmt: skip
        w += length * direction
        scores, tried = tried, scores
        z = np.dot(mass, rows)
        n_inner += 1
        if _has_ended(scores, side, upper, np.dot(z, z), np.dot(w, w), tol, near):
            return rho, n_inner, gain, step + 1
    return rho, n_inner, gain, max_steps


@compiled()
def _step_by_products(products, side, upper, is_free, rho, lag, slopes):
    """:func:`_step` as coefficients of rows, from those of the gradient and its scores ``slopes``."""
    free = np.flatnonzero(is_free)
    m = free.shape[0]
    change = -lag
    total = np.zeros(2)
    for k in range(m):
        total[side[free[k]]] += upper[free[k]]
    share, root, mean = np.empty(m), np.empty(m), np.zeros(2)
    for k in range(m):
        i = free[k]
        share[k], root[k] = upper[i] / total[side[i]], np.sqrt(rho * upper[i])
        mean[side[i]] += share[k] * slopes[i]
    by_class = np.zeros((m, 2))  # products of each row with the mean of each class
    between = np.zeros((2, 2))  # and of the means
    for a in range(m):
        for b in range(m):
            by_class[a, side[free[b]]] += share[b] * products[free[a], free[b]]
        for c in range(2):
            between[side[free[a]], c] += share[a] * by_class[a, c]
    system, target, unit = np.empty((m, m)), np.empty(m), np.empty(m)
    for a in range(m):
        i = free[a]
        for b in range(m):
            j = free[b]
            centred = products[i, j] - by_class[a, side[j]] - by_class[b, side[i]] + between[side[i], side[j]]
            system[a, b] = root[a] * root[b] * centred
        target[a] = root[a] * (slopes[i] - mean[side[i]])
    for a in range(m):
        system[a, a] = max(system[a, a], 0.0) + 1.0
        unit[a] = np.sqrt(system[a, a])
    for a in range(m):
        for b in range(m):
            system[a, b] /= unit[a] * unit[b]
        system[a, a] += _ROUNDING
    if m > 0:
        pull = root * (np.linalg.solve(system, target / unit) / unit)
        sums = np.zeros(2)
        for k in range(m):
            sums[side[free[k]]] += pull[k]
        for k in range(m):
            change[free[k]] += pull[k] - sums[side[free[k]]] * share[k]
    return change


@compiled()
def solve_by_products(
    products, side, upper, centre, coef, level, rho, n_inner, rules, tol, near, max_steps, mass, is_free
):  # fmt: skip
    """:func:`solve_few` where rows are fewer than features, from the inner products of all pairs of rows.

    In place on ``coef``: w is the sum of ``coef_i rows_i``, as z is that of ``mass_i rows_i``.
    """
    max_inner = rules[3]
    search = np.empty((2, 4))
    scores = np.dot(products, coef)
    tried = np.empty_like(scores)
    gain = _soften(scores, side, centre, upper, rho, level, search, mass, is_free)
    of_z = np.dot(products, mass)
    for step in range(max_steps):
        settled = np.dot(coef - mass, scores - of_z) <= gain
        if settled or n_inner >= max_inner:
            rho, n_inner = _moved_centre(centre, mass, rho, settled, n_inner, rules), 0
            gain = _soften(scores, side, centre, upper, rho, level, search, mass, is_free)
            of_z = np.dot(products, mass)
        lag = coef - mass
        change = _step_by_products(products, side, upper, is_free, rho, lag, scores - of_z)
        tilt = np.dot(products, change)
        slope, along, squared = np.dot(lag, tilt), np.dot(coef, tilt), np.dot(change, tilt)
        length, gain = _line_search(scores, tilt, along, squared, slope, side, upper, centre, rho, level, search, mass,
                                    is_free, tried)  # fmt: skip
        coef += length * change
        scores, tried = tried, scores
        of_z = np.dot(products, mass)
        n_inner += 1
        if _has_ended(scores, side, upper, np.dot(mass, of_z), np.dot(coef, scores), tol, near):
            return rho, n_inner, gain, step + 1
    return rho, n_inner, gain, max_steps
