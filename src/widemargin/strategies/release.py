"""A fit whose only outcome is a model with noise: the analytic Gaussian mechanism around a network of peers.

Members see what members see, and are not protected from each other: the release protects single rows from everybody
who sees nothing but the released model. ``docs/privacy.md`` has the proof.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widemargin.ledger import Ledger
from widemargin.privacy_account import PrivacyAccount
from widemargin.problems.discrete_gaussian import RandomBytes, discrete_gaussian
from widemargin.problems.private_release import Release
from widemargin.solvers.models import Separator
from widemargin.solvers.run import Result
from widemargin.strategies.peers import NetworkOutcome, Peers
from widemargin.strategies.protocol import Outcome, Rows, Watch
from widemargin.strategies.simulation import NOTHING_PROVED


@dataclass(frozen=True)
class PrivateRelease:
    """Run peers to a gap that is fixed beforehand, add noise, and forget everything else.

    The account is charged before the rows are used. If the gap is not certified for all rows, RuntimeError is raised
    and nothing is released.
    """

    peers: Peers
    release: Release
    account: PrivacyAccount

    def run(self, rows: Sequence[Rows], place: Any, watch: Watch) -> Outcome:
        release, classes = self.release, np.asarray(self.peers.known_classes)
        self._check(rows, classes)
        self.account.charge(
            release.epsilon, release.delta, n_rows=release.n_rows, alpha=release.alpha, clip=release.clip
        )
        limits = replace(self.peers.plan.limits, tol=release.tol)
        peers = replace(self.peers, plan=replace(self.peers.plan, limits=limits))
        outcome = peers.run(rows, place, watch)
        self._check_solved(outcome)
        models = np.array([[*result.model.coef, result.model.intercept] for result in outcome.results])
        models = models if self.peers.network.has_constant else models[:, :-1]
        separators = [Separator(*self.peers.network.split(w), {}) for w in with_noise(models, release)]
        results = [Result(each, NOTHING_PROVED, "released", 0, [], Ledger()) for each in separators]
        return Outcome(classes, results, outcome.n_features, release)

    def _check(self, rows: Sequence[Rows], classes: np.ndarray) -> None:
        """Raise ValueError for weights and labels that the proof does not cover."""
        for part in rows:
            if part.weight is not None and not np.all(part.weight == 1):
                raise ValueError("privacy=(epsilon, delta) needs rows of weight 1: a weight changes the sensitivity.")
            unknown = np.setdiff1d(part.y, classes)
            if len(unknown):
                raise ValueError(f"y has the classes {unknown.tolist()}, and classes={classes.tolist()} lacks them.")

    def _check_solved(self, outcome: Outcome) -> None:
        assert isinstance(outcome.extra, NetworkOutcome)
        n_rows = sum(node.n_rows for node in outcome.extra.nodes.values())
        # A relative gap of tol implies the absolute gap for every peer; the one that is largest by the one measure
        # need not be so by the other.
        relative = max(result.certificate.relative for result in outcome.results)
        if not relative <= self.release.tol or n_rows != self.release.n_rows:
            raise RuntimeError(
                "Nothing is released: the peers stopped before all of them had certified a gap of "
                f"{self.release.gap:.1e} for all {self.release.n_rows} rows, which the noise is calibrated to "
                f"(stop reason: {outcome.results[0].stop_reason}). The account stays charged. Raise max_iter or "
                "max_time, or take a larger alpha. That this fit failed depends on the rows: do not publish it."
            )


def with_noise(models: np.ndarray, release: Release, random_bytes: RandomBytes = os.urandom) -> np.ndarray:
    """Models, (problems, d), as multiples of the grid with noise: all that is random are whole numbers.

    The last product rounds, and knows nothing but what is released.
    """
    noise = discrete_gaussian(models.size, random_bytes).reshape(models.shape)
    whole = np.rint(models / release.step).astype(np.int64) + noise
    return np.asarray(whole * release.step)
