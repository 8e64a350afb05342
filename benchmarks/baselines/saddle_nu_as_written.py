"""Saddle-SVC for nu-SVM and Saddle-DSVC to the letter: the loop (12), Rule 2, and Algorithms 3 and 4 round by round.

What happens when they are run as printed: the iterates are right, and what they cost is not what is claimed. The loop
(12) and Rule 2 give the same projection, the optimal one (Lemma 11). But (12) is bounded by 1 / nu rounds, which the
paper calls a constant: at its own alpha = .85 that is .85 min(n1, n2), masses that fall by halves need a fixed part of
it, and each round is an exchange of all clients. On masses that fit under no cap, nu < 1 / n, it divides by zero. The
solver of the library sends 2 + 3b numbers a round for the hard margin instead of 9, and needs two or three passes
for nu.

    server -> clients    i*                                                              round 1
    clients -> server    delta+, delta-                                                  round 1
    server -> clients    the sums of both; clients move w, eta, xi                       round 2
    clients -> server    Z+, Z-                                                          round 2
    server -> clients    the sums of both; clients normalise                             round 3
    for nu, until s+ and s- are 0:  s+, s-, Omega+, Omega- to the server and back        round 4

Reference: Y. Jin, L. Huang, J. Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms, 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from widemargin.compiled.transforms import walsh_hadamard

Look = Callable[[int, np.ndarray, Callable[[np.ndarray], np.ndarray]], bool]  # iteration, w, and what turns w back


class End(NamedTuple):
    """Where a run ended."""

    w: np.ndarray  # in the rotated space
    mass: np.ndarray  # eta and xi, as rows are
    distance: float  # between the points of the reduced hulls
    n_scalars: int  # between server and clients
    projection_rounds: int  # of (12), the most in one iteration


def loop_12(eta: np.ndarray, cap: float) -> tuple[np.ndarray, int]:
    """Rule 3, the loop (12), and its rounds."""
    eta, rounds = eta.copy(), 0
    while (excess := float((eta[eta > cap] - cap).sum())) != 0:
        rounds += 1
        below = eta < cap
        rest = float(eta[below].sum())
        eta[eta >= cap] = cap
        eta[below] *= 1 + excess / rest
    return eta, rounds


def rule_2(eta: np.ndarray, cap: float) -> tuple[np.ndarray, int]:
    """Rule 2: sort, find i* by binary search, cut off and scale; one round."""
    order = np.argsort(eta)
    rising = eta[order]
    n = len(eta)
    tails = np.append(np.cumsum((rising - cap)[::-1])[::-1], 0.0)  # s_i = sum over j >= i of eta_j - cap
    heads = np.append(0.0, np.cumsum(rising))  # Omega_i = sum over j < i
    low, high = 0, n  # indices from 0; the largest that meets both conditions
    while low < high:
        middle = (low + high + 1) // 2
        if rising[middle - 1] * (1 + tails[middle] / heads[middle]) >= cap:  # more must lie at the cap
            high = middle - 1
        else:  # where the tail is below the cap, fewer
            low = middle
    out = np.full(n, cap)
    if low:
        out[:low] = rising[:low] * (1 + tails[low] / heads[low])
    back = np.empty(n)
    back[order] = out
    return back, 1


def offset(plus: np.ndarray, minus: np.ndarray) -> float:
    """b of footnote 2, the plane w.x = b that bisects the two nearest points, w = plus - minus; wrong for nu-SVM."""
    return float((plus - minus) @ (plus + minus)) / 2


@dataclass
class Client:
    """Algorithm 3: what one client keeps of its rows, one class; ``sign`` is +1 for eta and -1 for xi."""

    columns: np.ndarray  # (d, m), rotated
    mass: np.ndarray
    before: np.ndarray
    sign: float

    def delta(self, i: int, theta: float) -> float:
        """Lines 5 and 6."""
        return float(self.columns[i] @ (self.mass + theta * (self.mass - self.before)))

    def moved(self, ahead: np.ndarray, gamma: float, prox: float) -> np.ndarray:
        """Lines 13 and 14, not yet normalised; ``prox`` is d / tau."""
        with np.errstate(divide="ignore"):
            return np.exp((prox * np.log(self.mass) - self.sign * (ahead @ self.columns)) / (gamma + prox))


def prepared(parts: Sequence[tuple[np.ndarray, np.ndarray]], seed: int) -> tuple[list[tuple[Client, Client]], float]:
    """Algorithm 3: the clients of both classes, with the same signs D, and the length by which rows were divided.

    Footnote 3 divides by max ||x||^2; rows of length at most one need max ||x||.
    """
    width = parts[0][0].shape[1]
    d = 1 << (width - 1).bit_length()
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], d)
    length = max(float(np.linalg.norm(X, axis=1).max()) for X, _ in parts)
    totals = {sign: sum(int((y == sign).sum()) for _, y in parts) for sign in (1.0, -1.0)}
    clients = []
    for X, y in parts:
        block = np.zeros((len(y), d))
        block[:, :width] = X / length
        block *= signs
        walsh_hadamard(block)
        both = []
        for sign in (1.0, -1.0):
            columns = np.ascontiguousarray(block[y == sign].T)
            uniform = np.full(columns.shape[1], 1.0 / totals[sign])
            both.append(Client(columns, uniform, uniform, sign))
        clients.append((both[0], both[1]))
    return clients, length


def solve(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    rng: np.random.Generator,
    *,
    epsilon: float,
    beta: float,
    n_iterations: int,
    cap: float | None = None,
    seed: int = 0,
    look: Look | None = None,
) -> End:
    """Algorithm 4 on these clients, rows with labels -1 and +1; ``cap`` is the paper's nu, none for the hard margin.

    ``look`` sees w of every iteration, and ends the run where it says so.
    """
    clients, length = prepared(parts, seed)
    k, d, n = len(clients), clients[0][0].columns.shape[0], sum(len(y) for _, y in parts)
    gamma, q = epsilon * beta / (2 * math.log(n)), math.sqrt(math.log(n))
    prox, sigma = 2 * q * math.sqrt(d * gamma), math.sqrt(d * gamma) / (2 * q)
    theta = 1 - 1 / (d + q * math.sqrt(d / gamma))
    w, scalars, most = np.zeros(d), 0, 0
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], d)
    for t in range(n_iterations):
        if look is not None and look(t, w, partial(unrotated, signs=signs, width=parts[0][0].shape[1], length=length)):
            break
        i = int(rng.integers(d))
        deltas = np.array([[side.delta(i, theta) for side in client] for client in clients]).sum(axis=0)
        scalars += k + 2 * k  # round 1: the index to each, two numbers from each
        before, w = w, w.copy()
        w[i] = (w[i] + sigma * (deltas[0] - deltas[1])) / (sigma + 1)
        ahead = before + d * (w - before)
        moved = [[side.moved(ahead, gamma, prox) for side in client] for client in clients]
        totals = np.array([[mass.sum() for mass in pair] for pair in moved]).sum(axis=0)
        scalars += 2 * k + 2 * k  # round 2: both sums to each, Z+ and Z- from each
        scalars += 2 * k  # round 3: the sums of both to each
        pairs = [[mass / total for mass, total in zip(pair, totals, strict=True)] for pair in moved]
        if cap is not None:
            pairs, rounds = projected_among_clients(pairs, cap)
            scalars += 8 * k * rounds + 4 * k  # round 4: four numbers from each and to each; the last ends it
            most = max(most, rounds)
        for client, pair in zip(clients, pairs, strict=True):
            for side, mass in zip(client, pair, strict=True):
                side.before, side.mass = side.mass, mass
    z = sum(side.sign * (side.columns @ side.mass) for client in clients for side in client)
    mass = np.concatenate([np.concatenate([side.mass for side in client]) for client in clients])
    return End(w, mass, float(np.linalg.norm(z)) * length, scalars, most)


def unrotated(w: np.ndarray, signs: np.ndarray, width: int, length: float) -> np.ndarray:
    """w for the rows as they came: the transform is its own inverse, and lengths were divided."""
    back = w[None, :].copy()
    walsh_hadamard(back)
    return (back[0] * signs)[:width] * length


def projected_among_clients(pairs: list[list[np.ndarray]], cap: float) -> tuple[list[list[np.ndarray]], int]:
    """Lines 25 to 36: the loop (12) over parts, both classes at once, and its rounds."""
    pairs, rounds = [[mass.copy() for mass in pair] for pair in pairs], 0
    while True:
        excess = [sum(float((pair[c][pair[c] > cap] - cap).sum()) for pair in pairs) for c in (0, 1)]
        if max(excess) == 0:
            return pairs, rounds
        rounds += 1
        rest = [sum(float(pair[c][pair[c] < cap].sum()) for pair in pairs) for c in (0, 1)]
        for pair in pairs:
            for c in (0, 1):
                if excess[c] > 0:
                    below = pair[c] < cap
                    pair[c][pair[c] > cap] = cap
                    pair[c][below] *= 1 + excess[c] / rest[c]
