"""Small data sets, and a way to run a solver on them without an estimator."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from widemargin import NuMarginSVC
from widemargin.comm.solo import Solo
from widemargin.comm.threads import Meeting, RankAborted, Threads
from widemargin.data.shard import Shard
from widemargin.problems.polytope import NuMargin, largest_nu
from widemargin.solvers.run import Limits, run

PAPER_SHARE = 0.85  # the paper's alpha: nu as a share of the largest


@dataclass(frozen=True)
class PaperNu(NuMargin):
    """The nu-SVM at the paper's share of the largest nu, whatever the weights of the classes are."""

    nu: float = PAPER_SHARE

    def resolve_nu(self, total_positive, total_negative):
        return self.nu * largest_nu(total_positive, total_negative)


class PaperNuSVC(NuMarginSVC):
    """NuMarginSVC at the paper's nu of each pair of classes."""

    def _problem(self):
        return PaperNu()


def separable(seed, n=40, d=4, gap=2.0, offset=0.0):
    """Two clouds, a clear way apart; labels in random order, of unequal numbers."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < max(1, 2 * n // 5), 1.0, -1.0)
    X = rng.normal(size=(n, d))
    # Far enough for every cloud: the gap is added beyond the largest reach of either.
    X[:, 0] += y * (np.abs(X[:, 0]).max() + gap / 2)
    return X + offset, y


def overlapping(seed, n=50, d=4, shift=1.0):
    """Two clouds that overlap, yet whose reduced hulls at the paper's nu do not."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.permutation(n) < 2 * n // 5, 1.0, -1.0)
    X = rng.normal(size=(n, d)) + shift * y[:, None]
    return X, y


def on_ranks(n_ranks, task):
    """``task(comm)`` on so many threads; what each rank returned, in order. The first error of a rank is raised."""
    if n_ranks == 1:
        return [task(Solo())]
    meeting = Meeting(n_ranks)
    outcomes, errors = {}, {}

    def rank(number):
        try:
            outcomes[number] = task(Threads(number, meeting))
        except BaseException as error:
            errors[number] = error
            meeting.abort()

    threads = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(n_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a rank hangs"
    causes = [error for error in errors.values() if not isinstance(error, RankAborted)]
    if causes:
        raise causes[0]
    return [outcomes[number] for number in range(n_ranks)]


def part_of(X, y, weight, rank, n_ranks):
    """The consecutive rows of one rank, of equal number."""
    begin, end = len(y) * rank // n_ranks, len(y) * (rank + 1) // n_ranks
    return Shard(X[begin:end], y[begin:end], weight[begin:end])


def solve(solver, problem, X, y, weight=None, *, ranks=1, tol=1e-7, max_iter=3000, seed=0, warm=None, watch=None):
    """Run a solver on all ranks; the results by rank."""
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    limits = Limits(tol, max_iter)

    def on_rank(comm):
        shard = part_of(X, np.asarray(y, dtype=np.float64), weight, comm.rank, ranks)
        return run(solver, problem, shard, comm, limits, np.random.default_rng(seed), warm=warm, watch=watch)

    return on_ranks(ranks, on_rank)


def assert_brackets(history, exact, slack=1e-9):
    """Every certified sweep holds ``exact`` between its bounds."""
    assert history, "no sweep was certified"
    for row in history:
        assert row["dual"] <= exact * (1 + slack), f"sweep {row['sweep']}: dual {row['dual']!r} over {exact!r}"
        assert row["primal"] >= exact * (1 - slack), f"sweep {row['sweep']}: primal {row['primal']!r} under {exact!r}"
