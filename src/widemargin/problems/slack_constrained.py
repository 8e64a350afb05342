"""The slack-constrained SVM: the largest margin under a bound on the total slack.

With y_i the labels, phi_i the rows in the kernel's space, m_i their multiplicities, M = sum_i m_i, and
c_i = y_i <w, phi_i> the responses (the paper's c; its n is M, every m_i is 1),

    maximise over ||w|| <= 1    f(w) = max min_i (c_i + y_i b + xi_i)
                                       over xi >= 0, sum_i m_i xi_i <= M nu, and b where there is an intercept.

f(w) is a water level (gamma) over the responses, f(w) = min_p p.c + M nu max_i p_i / m_i over p in the simplex, with
sum_i p_i y_i = 0 where there is an intercept. Rows form one group, or with an intercept one group per class. P(m) is
the sum of the responses of lowest mass m of each group, added over groups, and a(m) = P'(m) the response at the water's
edge, added likewise. The water covers the mass m of each group where the level of all groups together,

    L(m) = (M nu + P(m)) / m           given the slack per row nu,
    L(m) = groups ||w||^2 / (C P(m))   given C, for w scaled as the best s w,

lies at the edge, a(m-) <= L(m) <= a(m+); then gamma = L / groups, and p* is proportional to the mass covered. The
second line: s = 1 / gamma minimises 0.5 s^2 ||w||^2 + C sum_i m_i max(0, 1 - s c_i - y_i s b), whose derivative by s is
s ||w||^2 - C P(m), and by b the difference of the masses covered. L of the second line can meet the edge inside the
mass of one row, which is then covered in part. With cover = groups m, M nu = gamma cover - P and gamma P = ||w||^2 / C:
the map between the slack and C.

For every p as above: f(w) <= max_w f <= ||sum_i p_i y_i phi_i|| + M nu max_i p_i / m_i.

[1] Cotter, Shalev-Shwartz, Srebro: The Kernelized Stochastic Batch Perceptron, ICML 2012. Sections 3.2 and 3.6; the
    algorithms printed in its Appendix B are not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from widemargin.problems._classes import LARGEST, require_positive

_ROUNDING = 1e-12  # of the slack


class WaterLevel(NamedTuple):
    """The water level over one vector of responses, and the distribution p* that gives a supergradient."""

    level: float  # gamma; +inf where C was given and the best scale along w is 0: then all rows are covered
    bias: float  # b in the units of the responses, the middle of its best interval; 0 without an intercept
    cover: float  # mass covered, over both classes
    share: np.ndarray  # p*, one per row, with sum 1 (with an intercept 1/2 for each class); equal rows share alike


class _Profile(NamedTuple):
    """The sorted responses of one group, with the mass and the sum up to and including each."""

    value: np.ndarray
    mass: np.ndarray
    total: np.ndarray

    def beyond(self) -> np.ndarray:
        return np.append(self.value[1:], np.inf)


@dataclass(frozen=True)
class SlackConstrained:
    """Margin under a bound on the slack: ``slack`` per row (the paper's nu), or the ``C`` that implies one."""

    slack: float | None = None
    C: float | None = None
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        if (self.slack is None) == (self.C is None):
            raise ValueError(f"slack={self.slack} and C={self.C}: give exactly one of them and leave the other None.")

    def check(self, total_positive: float, total_negative: float) -> None:
        """Raise ValueError if the problem has no solution for classes of these total weights."""
        if self.slack is not None and not 0 <= self.slack <= LARGEST:
            raise ValueError(
                f"slack={self.slack:g} is not an amount of slack per row: it must lie in [0, {LARGEST:g}]."
            )
        if self.C is not None:
            require_positive("C", self.C, "the slack")
        weights = f"The class weights are {total_positive:g} and {total_negative:g}"
        if not (total_positive >= 0 and total_negative >= 0 and total_positive + total_negative > 0):
            raise ValueError(f"{weights}: at least one must be over 0.")
        if self.fit_intercept and not (total_positive > 0 and total_negative > 0):
            raise ValueError(
                f"{weights}: with one class only, the intercept and the margin are unbounded. Both must be over 0, or "
                "use fit_intercept=False."
            )

    def water_level(self, c: np.ndarray, y: np.ndarray, weight: np.ndarray, squared_norm: float) -> WaterLevel:
        """The water level over the responses ``c = y <w, phi>`` (without b), all arrays with one entry per row.

        ``squared_norm`` is ||w||^2, used with C only. Where C is given and P <= 0 over all rows (early, or at w = 0),
        the best model along w is 0: the level is +inf, the bias 0, and p* covers as much as balance allows, which is
        the direction of steepest descent at 0. With ``slack`` the level may be negative.
        """
        present = weight > 0
        groups = [present & (y > 0), present & (y <= 0)] if self.fit_intercept else [present]
        if not all(group.any() for group in groups):
            self.check(float(weight @ (y > 0)), float(weight @ (y <= 0)))
        profiles = [_profile(c, weight, group) for group in groups]
        volume = float(weight.sum()) * self.slack if self.slack is not None else 0.0
        joint_level, mass = self._edge(profiles, volume, squared_norm)
        share = np.zeros(len(c))
        for group, profile in zip(groups, profiles, strict=True):
            # In proportion to the weight; rows at the edge share what rows below them leave.
            edge = profile.value[np.searchsorted(profile.mass, mass)]
            start, stop = np.searchsorted(profile.value, edge), np.searchsorted(profile.value, edge, side="right")
            below = profile.mass[start - 1] if start else 0.0
            part = min(1.0, (mass - below) / (profile.mass[stop - 1] - below))
            rows = np.flatnonzero(group & (c <= edge))
            share[rows] = weight[rows] * np.where(c[rows] < edge, 1.0, part) / (len(groups) * mass)
        bias = _bias(profiles, joint_level, mass) if self.fit_intercept else 0.0
        return WaterLevel(joint_level / len(groups), bias, len(groups) * mass, share)

    def _edge(self, profiles: list[_Profile], volume: float, squared_norm: float) -> tuple[float, float]:
        """L and m."""
        mass, low, high, total = _joint(profiles)
        if self.C is None:
            level = (volume + total) / mass
        else:
            target = len(profiles) * squared_norm / self.C  # L P
            level = np.full(len(total), np.inf)
            with np.errstate(over="ignore"):
                np.divide(target, total, out=level, where=total > 0)
        at_edge = (level <= high) & (low < high)
        first = int(np.argmax(at_edge))
        if not at_edge[first]:
            raise ValueError(f"No water level: responses and squared_norm={squared_norm:g} must be finite numbers.")
        if level[first] >= low[first] or self.C is None:
            return float(max(level[first], low[first])), float(mass[first])
        # The edge falls on rows of this response: cover the part of them for which L P is the target.
        before = int(np.searchsorted(low, low[first])) - 1
        below, total_below = (mass[before], total[before]) if before >= 0 else (0.0, 0.0)
        part = below + (target / low[first] - total_below) / low[first]
        return float(low[first]), float(np.clip(part, max(below, np.finfo(float).tiny), mass[first]))

    def implied_slack(self, water: WaterLevel, c: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
        """The slack per row under this level: sum_i m_i max(0, gamma - c_i - y_i b) / M."""
        if water.level == np.inf:
            return np.inf
        return float(weight @ np.maximum(0.0, water.level - c - y * water.bias) / weight.sum())

    def implied_C(self, level: float, cover: float, volume: float, squared_norm: float) -> float:
        """The C for which 1 / gamma is the best scale along w: ||w||^2 / (gamma P), P = gamma cover - M nu.

        ``volume`` is M nu. Infinite where no C is large enough: P <= 0, or no positive finite level.
        """
        total = level * cover - volume if 0 < level < math.inf else 0.0
        return squared_norm / (level * total) if total > _ROUNDING * volume else math.inf

    def primal_value(self, loss: float, size: float) -> float:
        """The upper bound, from ``M nu max_i p_i / m_i`` and ``||sum_i p_i y_i phi_i||`` of p in the simplex.

        For all w, b and xi, the least of c_i + y_i b + xi_i is at most its mean under p,

            <w, v> + b sum_i p_i y_i + sum_i (p_i / m_i) m_i xi_i <= ||v|| + b sum_i p_i y_i + M nu max_i p_i / m_i,

        v = sum_i p_i y_i phi_i, and b, which is free, drops out only where sum_i p_i y_i = 0.
        """
        return size + loss

    def dual_value(self, gain: float, size: float) -> float:
        """``f(w / ||w||)``, from the level of w with the total slack ``M nu ||w||`` and from ``||w||``."""
        return gain / size if size > 0 else -math.inf

    def upper_bound(self, mass: float, squared_norm: float, steepest: float, volume: float) -> float:
        """:meth:`primal_value` of p known up to a factor.

        ``mass`` is the sum of its multiples, ``squared_norm`` = ||sum_i mass_i y_i phi_i||^2, ``steepest`` =
        max_i mass_i / m_i, and ``volume`` is M nu.
        """
        return self.primal_value(volume * steepest, math.sqrt(max(squared_norm, 0.0))) / mass if mass > 0 else math.inf


def _profile(c: np.ndarray, weight: np.ndarray, group: np.ndarray) -> _Profile:
    value, mass = c[group], weight[group]
    if mass.min() < mass.max():
        order = np.argsort(value, kind="stable")
        value, mass = value[order], mass[order]
    else:
        value.sort()
    return _Profile(value, np.cumsum(mass), np.cumsum(mass * value))


def _joint(profiles: list[_Profile]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The masses m at which P(m) of all groups together bends, with a(m-), a(m+) and P(m)."""
    one, two = profiles[0], profiles[-1]
    if one is two:
        return one.mass, one.value, one.beyond(), one.total
    n = min(len(one.mass), len(two.mass))
    if np.array_equal(one.mass[:n], two.mass[:n]):
        low, high = one.value[:n] + two.value[:n], one.beyond()[:n] + two.beyond()[:n]
        return one.mass[:n], low, high, one.total[:n] + two.total[:n]
    both = np.sort(np.concatenate([one.mass, two.mass]), kind="stable")
    mass = both[: np.searchsorted(both, min(one.mass[-1], two.mass[-1]), side="right")]
    first, second = (_read(profile, mass) for profile in profiles)
    low, high, total = (a + b for a, b in zip(first, second, strict=True))
    return mass, low, high, total


def _read(profile: _Profile, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a(m-), a(m+) and P(m) of one group, at masses up to its own."""
    inside = np.searchsorted(profile.mass, mass)
    low = profile.value[inside]
    high = np.append(profile.value, np.inf)[np.searchsorted(profile.mass, mass, side="right")]
    return low, high, profile.total[inside] - low * (profile.mass[inside] - mass)


def _bias(profiles: list[_Profile], joint_level: float, mass: float) -> float:
    """Half the difference of the levels of the second and the first group, which is in the middle of its range."""
    if joint_level == np.inf:
        return 0.0
    (low, high, _), (other_low, other_high, _) = (_read(profile, np.array([mass])) for profile in profiles)
    first = (max(low[0], joint_level - other_high[0]) + min(high[0], joint_level - other_low[0])) / 2
    return float(joint_level / 2 - first)
