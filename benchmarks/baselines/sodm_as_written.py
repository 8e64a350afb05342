"""SODM to the letter: Algorithm 1 without rescaling and without its root, Algorithm 2 over strata; Theorem 1's bounds.

What happens when they are run as printed: Algorithm 1 ends its loop at l = 1, with p parts, and returns their solutions
put one after the other, which solve the problem of no set of rows: the dual's variables go as 1 over the number of
rows, so that the whole's gap there is not small, whatever the parts' was. Merged without rescaling, a part begins from
coefficients p times too large, farther from its optimum than zeros are where p is large. Algorithm 2 prints one step on
each node in a pass (lines 12 to 20: "for j = 1 to K", one draw each), so that an epoch of K steps costs a full
gradient, and takes the drawn rows away for good: w stands still once every node has drawn all of its own. The bounds of
Theorem 1 hold, and are ten times what they bound and more. That of Theorem 2 holds wherever all that it adds up is not
below 0, as with cos tau >= 0: its term 2 U M alone is four times what the model w = 0 lacks, so that it says nothing of
partitions. Its proof drops the labels of Q, and takes rows of one stratum to be within tau, which (7) does not give.

    minimise  d(a) = 1/2 g'Qg + M c / 2 (v ||zeta||^2 + ||beta||^2) + (theta - 1) sum zeta + (theta + 1) sum beta
    over a = (zeta, beta) >= 0,   g = zeta - beta,   Q_ij = y_i y_j k(x_i, x_j),   c = (1 - theta)^2 / (lambda v)

Reference: Y. Wang, N. Cao, T. Zhang, X. Shi, H. Jin: Scalable Optimal Margin Distribution Machine, IJCAI 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from widemargin.compiled.jit import compiled


@dataclass(frozen=True)
class ODM:
    """lambda, theta and v, as the paper has them."""

    lam: float = 8.0
    theta: float = 0.2
    v: float = 0.5

    @property
    def c(self) -> float:
        return (1 - self.theta) ** 2 / (self.lam * self.v)

    def dual(self, Q: np.ndarray, zeta: np.ndarray, beta: np.ndarray, n_rows: int | None = None) -> float:
        """d of (1); ``n_rows`` is M, by default the rows of Q."""
        M, g = n_rows or len(Q), zeta - beta
        ridge = 0.5 * M * self.c * (self.v * float(zeta @ zeta) + float(beta @ beta))
        return 0.5 * float(g @ Q @ g) + ridge + (self.theta - 1) * zeta.sum() + (self.theta + 1) * beta.sum()

    def gradient(self, margins: np.ndarray) -> np.ndarray:
        """The derivative of one row's loss by its margin y w.x: what multiplies y x in (3.3)'s gradients."""
        low = np.where(margins < 1 - self.theta, margins + self.theta - 1, 0.0)
        high = np.where(margins > 1 + self.theta, margins - self.theta - 1, 0.0)
        return self.lam * (low + self.v * high) / (1 - self.theta) ** 2

    def primal(self, w: np.ndarray, margins: np.ndarray) -> float:
        low = np.maximum(0.0, 1 - self.theta - margins)
        high = np.maximum(0.0, margins - 1 - self.theta)
        loss = float((low**2 + self.v * high**2).mean())
        return 0.5 * float(w @ w) + 0.5 * self.lam * loss / (1 - self.theta) ** 2


def descend(
    machine: ODM, Q: np.ndarray, start: np.ndarray, rng: np.random.Generator, *, n_sweeps: int, tol: float = 0.0
) -> tuple[np.ndarray, int]:
    """Dual coordinate descent (3) on all 2 M variables in random order, and its sweeps.

    It ends where no variable moves by more than ``tol``. ``start`` is (zeta; beta), (2, M).
    """
    a = start.copy()
    scores = Q @ (a[0] - a[1])
    ridge, sweeps, most = len(Q) * machine.c, 0, math.inf
    while sweeps < n_sweeps and most > tol:
        most = _sweep(Q, a, scores, rng.permutation(2 * len(Q)), ridge * machine.v, ridge, machine.theta)
        sweeps += 1
    return a, sweeps


@compiled()
def _sweep(Q, a, scores, order, ridge_zeta, ridge_beta, theta):
    most, M = 0.0, Q.shape[0]
    for k in range(order.shape[0]):
        which, i = order[k] // M, order[k] % M
        sign = 1.0 - 2.0 * which
        ridge = ridge_zeta if which == 0 else ridge_beta
        slope = sign * scores[i] + ridge * a[which, i] + theta - sign
        new = max(a[which, i] - slope / (Q[i, i] + ridge), 0.0)
        move = new - a[which, i]
        if move != 0.0:
            a[which, i] = new
            for j in range(M):
                scores[j] += sign * move * Q[i, j]
            most = max(most, abs(move))
    return most


class Level(NamedTuple):
    """Where Algorithm 1 stood after the parts of one level were solved."""

    n_parts: int
    a: np.ndarray  # (2, M), all parts one after the other
    sweeps: int  # of all parts together


def sodm(
    machine: ODM,
    Q: np.ndarray,
    parts: Sequence[np.ndarray],
    p: int,
    rng: np.random.Generator,
    *,
    tol: float,
    has_root: bool = False,
    is_rescaled: bool = False,
) -> list[Level]:
    """Algorithm 1: parts, p^L of them, from the leaves to the last p; with the two things it lacks where asked."""
    members, a, levels = [np.asarray(part) for part in parts], np.zeros((2, len(Q))), []
    while True:
        sweeps = 0
        for part in members:
            a[:, part], n = descend(machine, Q[np.ix_(part, part)], a[:, part], rng, n_sweeps=10_000, tol=tol)
            sweeps += n
        levels.append(Level(len(members), a.copy(), sweeps))
        if len(members) == 1 or (len(members) <= p and not has_root):  # line 16: return [a_1; ...; a_p]
            return levels
        members = [np.concatenate(members[k : k + p]) for k in range(0, len(members), p)]
        if is_rescaled:
            a /= p


def bounds_of_theorem_1(
    machine: ODM, Q: np.ndarray, parts: Sequence[np.ndarray], whole: np.ndarray, apart: np.ndarray
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(5) and (6) at the optima of all rows and of equal parts: what they bound, and the bounds."""
    M, m = len(Q), len(parts[0])
    part_of = np.empty(M, dtype=int)
    for k, part in enumerate(parts):
        part_of[part] = k
    across = float(np.abs(Q[part_of[:, None] != part_of[None, :]]).sum())
    largest = max(float(np.abs(whole).max()), float(np.abs(apart).max()))
    right = largest**2 * (across + M * (M - m) * machine.c)
    gap = machine.dual(Q, *apart) - machine.dual(Q, *whole)
    return (gap, right), (float(((apart - whole) ** 2).sum()), right / (M * machine.c * machine.v))


class Theorem2(NamedTuple):
    """What Theorem 2 bounds, and with what."""

    differences: list[float]  # d_k less d, of every part
    bound: float
    trivial: float  # -d: what w = 0 lacks, d being at most 0
    tau: float  # the least angle between rows of different strata
    across: int  # C: pairs of rows in different strata


def bound_of_theorem_2(
    machine: ODM, Q: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray], groups: np.ndarray, whole: np.ndarray,
    apart: np.ndarray,
) -> Theorem2:  # fmt: skip
    """At the optima of all rows and of the parts, each of its own problem; ``groups`` are the strata of the rows."""
    M, K = len(Q), y[:, None] * y * Q
    is_across = groups[:, None] != groups
    squared = float(K[0, 0])  # r^2 of a shift-invariant kernel
    cosine = float(np.clip(K[is_across].max() / squared, -1.0, 1.0)) if is_across.any() else 1.0
    largest = max(float(np.abs(whole).max()), float(np.abs(apart).max()))
    n_across = int(is_across.sum())
    of_angles = 0.5 * largest**2 * (M**2 * squared + squared * cosine * (2 * n_across - M**2))
    bound = largest**2 * M**2 * machine.c + 2 * largest * M + of_angles
    best = machine.dual(Q, *whole)
    values = [machine.dual(Q[np.ix_(part, part)], *apart[:, part]) for part in parts]
    return Theorem2([value - best for value in values], bound, -best, math.acos(cosine), n_across)


def dsvrg(
    machine: ODM,
    X: np.ndarray,
    y: np.ndarray,
    nodes: Sequence[np.ndarray],
    step: float,
    n_epochs: int,
    rng: np.random.Generator,
) -> list[float]:
    """Algorithm 2 on nodes made of strata, one step on each in an epoch; the objective after every epoch.

    The auxiliary arrays R_j shrink by a row a step, and a node whose R_j is empty is passed over: after as many epochs
    as it has rows there is nothing left to draw, and w stands still.
    """
    w, left = np.zeros(X.shape[1]), [list(rng.permutation(node)) for node in nodes]
    found = [machine.primal(w, y * (X @ w))]
    for _ in range(n_epochs):
        at = w.copy()
        slopes = machine.gradient(y * (X @ at)) * y
        full = at + X.T @ slopes / len(y)  # line 9
        for rows in left:
            if rows:
                i = rows.pop()
                here = float(machine.gradient(np.array([y[i] * (X[i] @ w)]))[0]) * y[i]
                w = w - step * ((w + here * X[i]) - (at + slopes[i] * X[i]) + full)
        found.append(machine.primal(w, y * (X @ w)))
    return found


def strata_of(K: np.ndarray, n_strata: int) -> np.ndarray:
    """The stratum of every row, by equations (7) and (8) on a kernel matrix."""
    landmarks = [0]
    for _ in range(n_strata - 1):
        inverse = np.linalg.pinv(K[np.ix_(landmarks, landmarks)])
        across = K[np.ix_(landmarks, range(len(K)))]
        value = np.einsum("ij,ik,kj->j", across, inverse, across)
        value[landmarks] = math.inf
        landmarks.append(int(value.argmin()))
    norms = np.diag(K)
    return (norms[:, None] - 2 * K[:, landmarks] + norms[landmarks]).argmin(axis=1)


def strata(K: np.ndarray, n_strata: int, n_parts: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Parts drawn from the strata without replacement."""
    nearest = strata_of(K, n_strata)
    parts: list[list[int]] = [[] for _ in range(n_parts)]
    turn = 0
    for stratum in range(n_strata):
        for i in rng.permutation(np.flatnonzero(nearest == stratum)):
            parts[turn % n_parts].append(int(i))
            turn += 1
    return [np.array(part) for part in parts]
