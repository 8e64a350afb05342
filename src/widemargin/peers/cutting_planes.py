"""A model of the objective that all peers build together, and the points where it asks for new cuts.

The hinge losses of peer j are  H_j(w) = max over 0 <= a <= m of  A(a) - V(a).w,  so any dual variables of its rows give
a cut, a plane below H_j. The peer with the lowest number minimises

    alpha/2 ||w||^2 + 1/N sum_j max_t (A_jt - V_jt.w)            over the cuts t that it knows of every peer j

by a primal-dual interior-point method, and asks all for new cuts at three points: the best model so far, the minimiser
of the model, and a point on the central path, where the model is above its minimum by a third of the gap. The weights
of the cuts at the minimum are dual variables of all rows. Each peer combines its own cuts with these weights, and sends
the A and V that result. From these, everyone has a lower bound. The hinge losses at points between the best model and
the other two give an upper bound.

The minimiser does not depend on the units of columns, on offsets or on the number of features. So this converges where
ADMM, which knows only the moments of columns, does not. Central points make it fast [1]: with minimisers alone it takes
several times more rounds.

[1] Goffin, Vial: Convex nondifferentiable optimization: a survey focused on the analytic center cutting plane method,
    2002. Teo, Vishwanathan, Smola, Le: Bundle methods for regularized risk minimization, 2010.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from widemargin.problems.protocol import Certificate
from widemargin.rounding import gamma

BEST, CENTRE, MINIMISER = range(3)  # the models of a query
N_QUERIED = 3
_TOWARDS_CENTRE = (0.125, 0.25, 0.5, 1.0)
_TOWARDS_MINIMISER = (0.0625, 0.25, 0.5, 1.0)
# The minimiser times 1 + these. Where rows can be separated the optimum is small beside one loss, and the model must be
# longer by a little more than margins are short of 1, by rounding or because the model of cuts is not exact.
_STRETCHES = (1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)
N_POINTS = len(_TOWARDS_CENTRE) + len(_TOWARDS_MINIMISER) + len(_STRETCHES)
_FEW_CUTS, _CUTS_PER_FEATURE, _MAX_CUTS = 600, 10, 1200  # that are kept of all peers together
_LEAST_CUTS, MOST_CUTS = 60, 400  # of each peer
_QUICK_WORK = 1e8  # multiplications in one step of the interior-point method, for which more are kept
_DROPPED = 3  # times as many of the own cuts are remembered beside these
_MAX_NUMBERS = 1 << 26  # in all cuts
_MAX_WORK = 2e9  # multiplications in one step of the interior-point method, for all problems of a query
_ACTIVE = 1e-4  # of the largest weight: cuts with a smaller one may be dropped
_CENTRAL = 0.3  # of the gap: how far above its minimum the model is at the central point
_MAX_STEPS = 80
_STEP = 0.995  # of the way to the boundary
_LEAST_SLACK = 0.1  # at the first point, of the largest cut at zero
_JITTER = 1e-15  # of the diagonal, times the order of a matrix
_REFINEMENTS = 2
_NEGLIGIBLE = 0.1  # of the largest gap: problems with a smaller one wait
_INNER = 0.01  # of the gap: how precisely the model of the cuts is minimised
_PRECISIONS = 1e-13, 1e-5  # least and most of that
_RANK = 1e-15  # of the largest eigenvalue: smaller ones are rounding errors


class Cut(NamedTuple):
    """``A`` and ``V`` of feasible dual variables of a peer's rows, one for each problem, as float64 has them."""

    sums: np.ndarray  # (problems,): not above the exact A
    vectors: np.ndarray  # (problems, d)
    errors: np.ndarray  # (problems,): largest distance of the exact V


def points_of(models: np.ndarray) -> np.ndarray:
    """The points at which hinge losses are computed, (points, problems, d), from the three models of a query."""
    best, centre, minimiser = models
    points = [best + step * (centre - best) for step in _TOWARDS_CENTRE]
    points += [best + step * (minimiser - best) for step in _TOWARDS_MINIMISER]
    points += [(1.0 + stretch) * minimiser for stretch in _STRETCHES]
    return np.array(points)


def combined(cuts: list[Cut], weights: np.ndarray, like: np.ndarray) -> Cut:
    """The cut with these weights, (cuts, problems), of others; a sum above 1 is reduced to 1.

    The exact combination of the exact dual variables is feasible. A sum of k products is off by ``gamma(k)`` of the sum
    of their sizes, and dividing by the total of the weights by two more roundings.
    """
    if not cuts:
        return Cut(np.zeros(len(like)), np.zeros_like(like), np.zeros(len(like)))
    loss = gamma(len(cuts) + 8)
    weights = weights / np.maximum(1.0, weights.sum(axis=0) * (1 + loss))
    sums, vectors, errors = (np.array(values) for values in zip(*cuts, strict=True))
    sizes = np.sqrt(np.einsum("tkj,tkj->tk", vectors, vectors)) * (1 + gamma(like.shape[1] + 4))
    error = np.einsum("tk,tk->k", weights, errors + loss * sizes) * (1 + loss)
    vector = np.einsum("tk,tkj->kj", weights, vectors)
    return Cut(np.einsum("tk,tk->k", weights, sums) * (1 - loss), vector, error)


@dataclass
class CutTable:
    """The cuts of all peers that one peer knows, by peer and by a number that the peer gave to it."""

    me: int
    by_peer: dict[int, dict[int, Cut]] = field(default_factory=dict)
    _used: set[tuple[int, int]] = field(default_factory=set)  # by the last query
    _dropped: dict[int, Cut] = field(default_factory=dict)  # the last of the own cuts that are not in ``by_peer``

    def add(self, peer: int, new: list[tuple[int, Cut]]) -> None:
        """Add cuts with their numbers; if there are too many, drop old ones, first those the last query did not use.

        The newest half stays. After many queries at one optimum nearly all old cuts have a weight, and new cuts would
        be dropped before any query has seen them. When rows change, nobody would then learn where the new optimum is.
        """
        cuts = self.by_peer.setdefault(peer, {})
        cuts.update(new)
        vectors = new[0][1].vectors
        d = vectors.shape[1]
        of_all = max(min(_FEW_CUTS + _CUTS_PER_FEATURE * d, _MAX_CUTS), int(_QUICK_WORK / d**2))
        of_all = min(of_all, _MAX_NUMBERS // vectors.size)
        most = min(max(of_all // len(self.by_peer), _LEAST_CUTS), MOST_CUTS)
        if len(cuts) <= most:
            return
        old = sorted(cuts)[: -(most // 2)]
        for number in sorted(old, key=lambda each: ((peer, each) in self._used, each))[: len(cuts) - most]:
            cut = cuts.pop(number)
            if peer == self.me:
                self._dropped[number] = cut
        for number in list(self._dropped)[: -min(_DROPPED * most, max(1, of_all - most))]:
            del self._dropped[number]

    def own(self) -> dict[int, Cut]:
        """The own cuts, including recently dropped ones: the proposer knows other records, and may still weigh them.

        If a peer lacks one of its own cuts, its answers lack it, too, and the lower bound does not improve.
        """
        return {**self._dropped, **self.by_peer.get(self.me, {})}

    def forget(self, peer: int) -> None:
        """Forget the cuts of a peer that has other rows now."""
        self.by_peer.pop(peer, None)
        if peer == self.me:
            self._dropped.clear()

    def forget_others(self) -> None:
        """Forget all but the own cuts, which others may still weigh."""
        self.by_peer = {peer: cuts for peer, cuts in self.by_peer.items() if peer == self.me}

    def note_use(self, owners: np.ndarray, numbers: np.ndarray, weights: np.ndarray) -> None:
        """Keep the cuts with large weights when others are dropped."""
        is_active = (weights > _ACTIVE * weights.max(axis=0, initial=0.0)).any(axis=1)
        self._used = set(zip(owners[is_active].tolist(), numbers[is_active].tolist(), strict=True))

    def of(self, members: Collection[int]) -> list[tuple[int, int, Cut]]:
        """All cuts of these peers, with peer and number."""
        return [(peer, n, cut) for peer in sorted(members) for n, cut in self.by_peer.get(peer, {}).items()]


def ask(
    cuts: list[tuple[int, int, Cut]], alpha: float, total: float, best: np.ndarray, certificates: list[Certificate]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The models, owners, cuts and weights of a query, from cuts with their owners and numbers, and the best model.

    Problems with large gaps come first, and those that are left wait for the next query.
    """
    owners, numbers = (np.array([each[k] for each in cuts], dtype=np.int64) for k in (0, 1))
    groups = np.unique(owners, return_inverse=True)[1]
    models, weights = np.array([best] * N_QUERIED), np.zeros((len(cuts), len(best)))
    relative = np.array([each.relative for each in certificates])
    of_one = len(cuts) * min(len(cuts), best.shape[1]) ** 2
    for k in np.argsort(-relative)[: max(1, int(_MAX_WORK // of_one))]:
        if relative[k] < _NEGLIGIBLE * relative.max():
            break
        sums, vectors = np.array([cut.sums[k] for *_, cut in cuts]), np.array([cut.vectors[k] for *_, cut in cuts])
        precision = min(max(_INNER * relative[k], _PRECISIONS[0]), _PRECISIONS[1])
        try:
            with np.errstate(all="ignore"):
                found = minimise(sums / total, vectors / total, groups, alpha, certificates[k].gap, precision)
        except la.LinAlgError:
            continue
        if np.isfinite(found.model).all() and np.isfinite(found.central).all():
            models[CENTRE, k], models[MINIMISER, k], weights[:, k] = found.central, found.model, found.weights
    used = weights.any(axis=1)
    return models, owners[used], numbers[used], weights[used]


class Minimum(NamedTuple):
    """The minimum of a model."""

    model: np.ndarray
    weights: np.ndarray  # of the cuts
    central: np.ndarray  # the point on the central path


class _Path(NamedTuple):
    excess: float  # over the minimum of the model, at most
    model: np.ndarray


def minimise(
    sums: np.ndarray, vectors: np.ndarray, groups: np.ndarray, alpha: float, gap: float, precision: float
) -> Minimum:
    """The minimum of a model of cuts that belong to ``groups``, which are numbered from 0.

    ``gap`` is the present one, for the central point; ``precision`` that of the minimum, relative to it.
    """
    reduced, back = vectors, None
    if vectors.shape[1] > len(sums):
        # The model depends on inner products of cuts only: a factor of their matrix has fewer columns.
        values, basis = la.eigh(vectors @ vectors.T, check_finite=False)
        present = values > _RANK * values[-1]
        scale, basis = np.sqrt(values[present]), basis[:, present]
        reduced, back = basis * scale, basis / scale
    weights, path = _follow(sums, reduced, groups, alpha, precision)
    model = (weights @ vectors) / alpha
    central = next((each.model for each in path if each.excess <= _CENTRAL * gap), None)
    if central is None:
        return Minimum(model, weights, model)
    return Minimum(model, weights, central if back is None else (back @ central) @ vectors)


def _follow(
    sums: np.ndarray, vectors: np.ndarray, groups: np.ndarray, alpha: float, precision: float
) -> tuple[np.ndarray, list[_Path]]:
    """Weights of the best lower bound, and the points of the path.

        minimise  alpha/2 ||w||^2 + sum_g x_g    subject to   z_i = x_g(i) - A_i + V_i.w >= 0

    with weights t_i >= 0 that add up to 1 in each group, alpha w = V't, and t_i z_i = mu on the path. A cut of zeros is
    added to each group: no loss is negative.
    """
    n_cuts, n_groups = len(sums), int(groups.max()) + 1
    sums, groups = np.concatenate([sums, np.zeros(n_groups)]), np.concatenate([groups, np.arange(n_groups)])
    vectors = np.vstack([vectors, np.zeros((n_groups, vectors.shape[1]))])
    n, d = vectors.shape
    largest = float(sums.max()) or 1.0

    def by_group(values: np.ndarray) -> np.ndarray:
        return np.bincount(groups, values, n_groups)

    model, heights = np.zeros(d), np.zeros(n_groups)
    np.maximum.at(heights, groups, sums)
    heights += _LEAST_SLACK * largest
    slack, weights = heights[groups] - sums, 1.0 / by_group(np.ones(n))[groups]
    best, best_weights, path = -np.inf, np.zeros(n), list[_Path]()
    for _ in range(_MAX_STEPS):
        off_sums, off_slack = 1.0 - by_group(weights), heights[groups] - sums + vectors @ model - slack
        off_model = weights @ vectors - alpha * model
        feasible = weights / np.maximum(1.0, by_group(weights))[groups]
        gain, vector = float(sums @ feasible), feasible @ vectors
        size = float(vector @ vector) / alpha
        scale = 1.0 if gain >= size else gain / size
        if (value := scale * gain - 0.5 * scale**2 * size) > best:
            best, best_weights = value, scale * feasible
        excess = 0.5 * alpha * float(model @ model) + float(heights.sum()) - best
        path.append(_Path(excess, model))
        if not excess > precision * abs(best):
            break
        ratio = weights / slack
        ratios = by_group(ratio)
        means = sp.csr_matrix((ratio / ratios[groups], (groups, np.arange(n))), (n_groups, n)) @ vectors
        centred = vectors - means[groups]  # eliminates the heights
        solve = _inverse(centred * np.sqrt(ratio)[:, None], alpha)
        if solve is None:
            break
        mu = float(weights @ slack) / n
        newton, correction = 0.0, np.zeros(n)
        for is_corrector in (False, True):
            target = newton * mu - weights * slack - correction
            push = target / slack - ratio * off_slack
            rise = (by_group(push) - off_sums) / ratios
            push = push - ratio * rise[groups]
            step = solve(off_model + push @ centred + off_sums @ means)
            change = centred @ step
            weights_step, slack_step = push - ratio * change, change + rise[groups] + off_slack
            length = min(_length(weights, weights_step), _length(slack, slack_step))
            if not is_corrector:
                ahead = float((weights + length * weights_step) @ (slack + length * slack_step)) / n
                newton, correction = min(max((ahead / mu) ** 3, 1e-8), 0.9), weights_step * slack_step
        length = min(1.0, _STEP * length)
        weights, slack = weights + length * weights_step, slack + length * slack_step
        model, heights = model + length * step, heights + length * (rise - means @ step)
        is_sound = bool(np.isfinite(model).all()) and float(weights.min()) > 0 and float(slack.min()) > 0
        if not is_sound:
            break
    return best_weights[:n_cuts], path


def _inverse(factor: np.ndarray, alpha: float) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function that solves  (alpha I + B'B) x = r,  B the factor; None if float64 does not allow it."""
    matrix = factor.T @ factor
    order = len(matrix)
    matrix[np.diag_indices(order)] += alpha
    scale = 1.0 / np.sqrt(np.diagonal(matrix))  # columns of any unit
    matrix = matrix * scale[:, None] * scale
    matrix[np.diag_indices(order)] += _JITTER * order
    try:
        cholesky = la.cho_factor(matrix, check_finite=False)
    except (la.LinAlgError, ValueError):
        return None

    def solve(right: np.ndarray) -> np.ndarray:
        x = scale * la.cho_solve(cholesky, scale * right, check_finite=False)
        for _ in range(_REFINEMENTS):
            left = right - alpha * x - (factor @ x) @ factor
            x = x + scale * la.cho_solve(cholesky, scale * left, check_finite=False)
        return np.asarray(x)

    return solve


def _length(values: np.ndarray, step: np.ndarray) -> float:
    """The largest step up to 1 that leaves all values at least zero."""
    falls = step < 0
    return min(1.0, float((values[falls] / -step[falls]).min())) if falls.any() else 1.0
