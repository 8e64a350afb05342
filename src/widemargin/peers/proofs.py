"""Bounds on the objective from sums over peers, which allow for rounding."""

from typing import NamedTuple

import numpy as np

from widemargin.peers.cutting_planes import Cut, points_of
from widemargin.peers.records import About, Answer, HingeCosts, Query, Snapshot
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.problems.protocol import Certificate
from widemargin.rounding import gamma


class Proof(NamedTuple):
    """A model with its exact objective and a lower bound, for the rows of these members."""

    model: np.ndarray  # (problems, d)
    certificates: list[Certificate]  # one for each problem
    members: frozenset[int]
    total: float = 0.0  # of the weights of all their rows
    is_stuck: bool = False  # whether rounding keeps the gap open

    @property
    def worst(self) -> Certificate:
        return max(self.certificates, key=lambda certificate: certificate.relative)


class Lower(NamedTuple):
    """Lower bounds of all problems."""

    bounds: np.ndarray
    lost: np.ndarray  # how much rounding takes of each


def lower_bounds(problem: MeanHinge, cuts: list[Cut], total: float) -> Lower:
    """The lower bound of each problem from a cut of every peer.

    The exact V is a sum over k peers, each of which is off by its own error, and rounds to the computed one within
    ``gamma(k)`` of the sum of lengths. The bound itself is a difference of two terms, after ten operations at most.
    """
    k, d = len(cuts), cuts[0].vectors.shape[1]
    loss = gamma(d + 2 * k + 16)
    gains = np.sum([cut.sums for cut in cuts], axis=0) / total
    lengths = np.linalg.norm(np.sum([cut.vectors for cut in cuts], axis=0), axis=1)
    errors = np.sum([cut.errors + gamma(k) * np.linalg.norm(cut.vectors, axis=1) for cut in cuts], axis=0)
    lower, lost = [], []
    for gain, length, error in zip(gains.tolist(), lengths.tolist(), errors.tolist(), strict=True):
        size = ((length + error) * (1 + loss) / total) ** 2 * (1 + loss)
        bound = problem.dual_value(gain * (1 - loss), size) - loss * gain
        lower.append(max(bound, 0.0))  # no loss is negative
        lost.append(problem.dual_value(gain, (length / total) ** 2) - bound)
    return Lower(np.array(lower), np.array(lost))


class Candidates(NamedTuple):
    """Models and bounds of their objectives."""

    models: np.ndarray  # (models, problems, d)
    values: np.ndarray  # (models, problems)


def upper_bounds(problem: MeanHinge, models: np.ndarray, costs: np.ndarray, total: float, n_peers: int) -> Candidates:
    """Upper bounds of the objective of models, (models, problems, d), from the sums of their hinge losses.

    All terms are positive: a square of d terms, a sum over peers, a total and five operations more. A model that
    overflows, as one between two huge ones, has the bound infinity.
    """
    loss = gamma(models.shape[2] + 2 * n_peers + 16)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("mkj,mkj->mk", models, models)
        values = np.vectorize(problem.primal_value, otypes=[float])(costs / total, squares) * (1 + loss)
    return Candidates(models, np.fmin(values, np.inf))


def of_snapshots(problem: MeanHinge, snapshots: list[Snapshot]) -> tuple[float, Lower]:
    """The total weight of all rows, and the bound from the dual variables in snapshots."""
    total = sum(snapshot.total for snapshot in snapshots)
    cuts = [snapshot.dual for snapshot in snapshots]
    return total, lower_bounds(problem, cuts, total) if total > 0 else Lower(np.zeros(0), np.zeros(0))


def of_costs(
    problem: MeanHinge, total: float, proposal: About, model: np.ndarray, records: list[HingeCosts]
) -> Candidates:
    """The objective of a proposal, from the costs of all."""
    _, number, digest = proposal
    of_proposal = [
        each.costs[(each.proposals == number) & (each.digests == digest).all(axis=1)][-1] for each in records
    ]
    return upper_bounds(problem, model[None], np.sum(of_proposal, axis=0)[None], total, len(records))


def of_answers(problem: MeanHinge, total: float, query: Query, answers: list[Answer]) -> tuple[Lower, Candidates]:
    """Both bounds from the answers of all; what rounding takes includes the allowances in their costs."""
    bounds, lost = lower_bounds(problem, [answer.combined for answer in answers], total)
    costs = np.sum([answer.costs for answer in answers], axis=0)
    allowance = np.sum([answer.allowances.min(axis=0) for answer in answers], axis=0) / total
    points = upper_bounds(problem, points_of(query.models), costs, total, len(answers))
    return Lower(bounds, lost + allowance), points
