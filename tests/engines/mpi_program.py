"""What each MPI process of test_mpi.py runs: ``python mpi_program.py CASE``."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
from mpi4py import MPI

from widemargin import (
    DebiasedSparseSVC,
    HardMarginSVC,
    KernelSVC,
    KernelSVCCV,
    MarginDistributionSVC,
    MarginDistributionSVCCV,
    NuMarginSVC,
    NuMarginSVCCV,
    SparseSVC,
    cores,
)
from widemargin.comm.mpi import Mpi
from widemargin.data import make_nonseparable, make_separable, make_sparse_gaussians
from widemargin.engines.mpi import _n_threads
from widemargin.solvers.newton import EntropicNewton

WORLD = MPI.COMM_WORLD


def mine(X, y):
    edges = [len(y) * k // WORLD.size for k in range(WORLD.size + 1)]
    part = slice(edges[WORLD.rank], edges[WORLD.rank + 1])
    return X[part], y[part]


def say(**facts) -> None:
    print(json.dumps({"rank": WORLD.rank, **facts}), flush=True)


def collectives() -> None:
    comm = Mpi(WORLD)
    total = comm.allreduce(np.array([1.0, 10.0]) * (comm.rank + 1))
    lowest = comm.allreduce(np.array([float(-comm.rank)]), "min")
    gathered = comm.gather(np.arange(comm.rank + 1.0))
    text = comm.broadcast(np.frombuffer(b"peers", np.uint8) if comm.rank == 0 else None).tobytes().decode()
    lengths = None if gathered is None else [len(each) for each in gathered]
    say(total=total.tolist(), lowest=lowest.tolist(), lengths=lengths, text=text, scalars=comm.ledger.scalars)


def threads() -> None:
    """On a machine of twelve cores, which ranks share, or of which each has its own."""
    for own in (range(12), range(4 * WORLD.rank, 4 * WORLD.rank + 4), [WORLD.rank]):
        os.sched_getaffinity = lambda _, own=own: set(own)
        with cores.at_most(8):
            say(n_threads=_n_threads(WORLD))


def same_bits() -> None:
    X, y = make_nonseparable(1201, 12, random_state=0)
    for kind, data, settings in (
        (NuMarginSVC, (X, y), {"tol": 1e-5, "random_state": 0}),
        (HardMarginSVC, make_separable(900, 8, random_state=0)[:2], {"tol": 1e-6, "random_state": 0}),
        (SparseSVC, make_sparse_gaussians(1500, 20, random_state=0)[:2], {}),
        (DebiasedSparseSVC, make_sparse_gaussians(1500, 20, random_state=0)[:2], {}),
        (MarginDistributionSVC, (X, y), {"kernel": "linear"}),
        (MarginDistributionSVC, (X, y), {"kernel": "linear", "solver": "svrg", "random_state": 0}),
    ):
        ours = kind(cluster=WORLD, **settings).fit(*mine(*data))
        threads = kind(cluster=WORLD.size, **settings).fit(*data)
        same = bool((ours.coef_ == threads.coef_).all() and (ours.intercept_ == threads.intercept_).all())
        counted_alike = ours.cost_.scalars == threads.cost_.scalars
        say(kind=kind.__name__, same=same, reason=ours.stop_reason_, scalars=counted_alike)


def no_seed() -> None:
    X, y = make_nonseparable(600, 40, random_state=0)
    settings = {"solver": "saddle", "block_size": 4, "tol": 1e-3}
    model = NuMarginSVC(cluster=WORLD, random_state=None, **settings).fit(*mine(X, y))
    say(reason=model.stop_reason_, coef=model.coef_.ravel().tolist())


def go_on_from_rank_0s_folder() -> None:
    """Every rank has a folder of its own, as on machines that share no disk."""
    import warnings

    warnings.simplefilter("ignore")
    X, y = mine(*make_nonseparable(600, 30, random_state=0))
    folder = os.path.join(sys.argv[2], str(WORLD.rank))
    settings = {"solver": "saddle", "block_size": 4, "tol": 1e-12, "random_state": 0, "checkpoint": folder}
    NuMarginSVC(cluster=WORLD, max_iter=5, **settings).fit(X, y)
    second = NuMarginSVC(cluster=WORLD, max_iter=10, **settings).fit(X, y)
    damaged = ""
    if WORLD.rank == 0:
        with open(os.path.join(folder, "fit.checkpoint"), "wb") as file:
            file.write(b"something else")
    try:
        NuMarginSVC(cluster=WORLD, max_iter=10, **settings).fit(X, y)
    except ValueError as error:
        damaged = str(error)
    say(first=second.history_[0]["sweep"], damaged=damaged)


def bad_rows_on_one_rank() -> None:
    X, y = mine(*make_nonseparable(300, 4, random_state=0))
    if WORLD.rank == 1:
        X[0, 0] = np.nan
    try:
        NuMarginSVC(cluster=WORLD).fit(X, y)
    except ValueError as error:
        say(error=str(error))


def failure_on_one_rank() -> None:
    if WORLD.rank == 1:

        def fail(self, state):
            raise RuntimeError("this rank has had enough")

        EntropicNewton.sweep = fail
    NuMarginSVC(nu=0.5, cluster=WORLD, solver="newton", tol=1e-9).fit(*mine(*make_nonseparable(300, 4, random_state=0)))


def search() -> None:
    from sklearn.model_selection import GridSearchCV

    try:
        GridSearchCV(NuMarginSVC(cluster=WORLD), {"nu": [0.3, 0.5]}, cv=2, error_score="raise").fit(
            *mine(*make_nonseparable(300, 4, random_state=0))
        )
    except ValueError as error:
        say(error=str(error))


def useless() -> None:
    """Labels of noise, sorted, so that some ranks hold one class only."""
    import warnings

    X, y = np.random.default_rng(0).normal(size=(240, 3)), np.repeat([0, 1], [200, 40])
    for model in (
        SparseSVC(cluster=WORLD),
        KernelSVC(cluster=WORLD),
        KernelSVC(cluster=WORLD, class_weight="balanced"),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.fit(*mine(X, y))
        say(
            kinds=[each.category.__name__ for each in told],
            counts=[model.training_.weight.sum(), model.training_.n_rows, model.training_.accuracy],
            accuracy=model.score(X, y, np.where(y == 1, 5.0, 1.0) if model.class_weight else None),
        )


def kernels() -> None:
    kernels_same_bits()
    kernel_goes_on()
    perceptron_same_bits()


def kernels_same_bits() -> None:
    """And the objective of one rank."""
    from sklearn.metrics.pairwise import rbf_kernel

    X, y = make_nonseparable(601, 6, random_state=0)
    K = rbf_kernel(X, gamma=0.3)
    for kernel, rows in (("rbf", X), ("linear", X), ("precomputed", K), (narrow, X)):
        settings = {"kernel": kernel, "gamma": 0.3, "tol": 1e-4, "random_state": 0}
        ours = KernelSVC(cluster=WORLD, **settings).fit(*mine(rows, y))
        threads = KernelSVC(cluster=WORLD.size, **settings).fit(rows, y)
        alone = KernelSVC(**settings).fit(rows, y)
        say(
            case="same bits",
            same=bool((ours.decision_function(rows) == threads.decision_function(rows)).all()),
            scalars=ours.cost_.scalars == threads.cost_.scalars,
            reason=ours.stop_reason_,
            objective=bool(np.isclose(ours.certificate_.primal, alone.certificate_.primal, rtol=2e-4)),
        )


def narrow(A, B):
    return np.exp(-0.3 * ((A[:, None] - B[None]) ** 2).sum(axis=2))


def kernel_goes_on() -> None:
    import warnings

    warnings.simplefilter("ignore")
    X, y = mine(*make_nonseparable(600, 6, random_state=0))
    settings = {"cluster": WORLD, "random_state": 0, "checkpoint": os.path.join(sys.argv[2], str(WORLD.rank))}
    KernelSVC(max_iter=5, tol=0.0, **settings).fit(X, y)
    second = KernelSVC(tol=1e-5, **settings).fit(X, y)
    say(
        case="goes on", first=second.history_[0]["sweep"], reason=second.stop_reason_, primal=second.certificate_.primal
    )


def perceptron_same_bits() -> None:
    X, y = make_nonseparable(601, 6, random_state=0)
    for settings in ({"C": 1.0}, {"slack": 0.05}):
        settings = {"solver": "batch-perceptron", "gamma": 0.3, "random_state": 0, **settings}
        ours = KernelSVC(cluster=WORLD, **settings).fit(*mine(X, y))
        threads = KernelSVC(cluster=WORLD.size, **settings).fit(X, y)
        say(
            case="perceptron",
            same=bool((ours.decision_function(X) == threads.decision_function(X)).all()),
            scalars=ours.cost_.scalars == threads.cost_.scalars,
            reason=ours.stop_reason_,
        )


def is_same_search(model, alone) -> bool:
    """Gaps but for rounding: Numba inlines code that it has just compiled and code from its cache differently."""
    gaps = np.allclose(model.cv_results_["gap"], alone.cv_results_["gap"], rtol=1e-6, equal_nan=True)
    are_scores = np.array_equal(model.scores_, alone.scores_, equal_nan=True)
    return bool(gaps and are_scores and model.best_params_ == alone.best_params_)


def choice_by_cross_validation() -> None:
    X, y = make_nonseparable(240, 6, random_state=0)
    X, labels = X + np.arange(240)[:, None] % 7 / 10, np.array(["no", "yes"])[(y > 0).astype(int)]
    options = {"Cs": [0.1, 1.0, 20.0], "gammas": [0.05, 0.5], "cv": 3}
    folder = os.path.join(sys.argv[2], str(WORLD.rank))  # rank 0 alone keeps something there
    alone = KernelSVCCV(**options).fit(X, labels)
    for case in ("first", "again"):
        model = KernelSVCCV(**options, cluster=WORLD, checkpoint=folder).fit(*mine(X, labels))
        say(
            case=case,
            same=is_same_search(model, alone),
            spread=model.spread_,
            gap=model.certificate_.relative,
            files=len(os.listdir(folder)) if os.path.isdir(folder) else 0,
        )


def other_choices() -> None:
    X, y = make_nonseparable(240, 6, random_state=0)
    for kind, options in (
        (NuMarginSVCCV, {"nus": 3}),
        (MarginDistributionSVCCV, {"Cs": [10.0, 1e3], "gammas": [0.1]}),
        (KernelSVCCV, {"Cs": 3, "kernel": "linear"}),
    ):
        alone, model = kind(**options, cv=3).fit(X, y), kind(**options, cv=3, cluster=WORLD).fit(*mine(X, y))
        say(
            case=kind.__name__, same=is_same_search(model, alone), spread=model.spread_, gap=model.certificate_.relative
        )


def bad_choice() -> None:
    X, y = make_nonseparable(60, 4, random_state=0)
    try:
        KernelSVCCV(cv=50, cluster=WORLD).fit(*mine(X, y))
    except ValueError as error:
        say(error=str(error))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
