"""Fits whose bits ``test_cores.py`` compares: ``python cores_program.py NAME... -- THREADS...``; prints a JSON object.

It runs with the settings of a user, who does not limit BLAS to one thread. For every name and number of threads it has
a digest of the model and its predictions, and the largest number of pieces that threads had to share.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings

import numpy as np
import scipy.sparse as sp

from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
    cores,
)


def clouds(n, d, n_classes=2, shift=1.0, dtype=np.float64):
    rng = np.random.default_rng(n + d)
    y = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, d))
    X[np.arange(n), y] += shift * np.sqrt(d)
    return X.astype(dtype), y


def sparse_clouds(n, d):
    X, y = clouds(n, d)
    X[np.random.default_rng(0).random(X.shape) < 0.8] = 0.0
    return sp.csr_matrix(X), y


TALL, SMALL = (120_000, 30), (5_000, 30)
CASES = {
    "rbf": (lambda: KernelSVC(), lambda: clouds(*SMALL)),
    "rbf in float32": (lambda: KernelSVC(), lambda: clouds(*SMALL, dtype=np.float32)),
    "rbf of sparse rows": (lambda: KernelSVC(), lambda: sparse_clouds(*SMALL)),
    "polynomial": (lambda: KernelSVC(kernel="poly"), lambda: clouds(*SMALL)),
    "several classes": (lambda: KernelSVC(), lambda: clouds(*SMALL, n_classes=4)),
    "one against the rest": (lambda: KernelSVC(multi_class="rest"), lambda: clouds(*SMALL, n_classes=4)),
    "batch perceptron": (lambda: KernelSVC(solver="batch-perceptron"), lambda: clouds(*SMALL)),
    "linear": (lambda: KernelSVC(kernel="linear"), lambda: clouds(*TALL)),
    "linear in float32": (lambda: KernelSVC(kernel="linear"), lambda: clouds(*TALL, dtype=np.float32)),
    "linear of sparse rows": (lambda: KernelSVC(kernel="linear"), lambda: sparse_clouds(*TALL)),
    "nu": (lambda: NuMarginSVC(nu=0.3), lambda: clouds(*TALL)),
    "nu by saddle points": (lambda: NuMarginSVC(nu=0.3, solver="saddle"), lambda: clouds(*TALL)),
    "nu by Newton": (lambda: NuMarginSVC(nu=0.3, solver="newton"), lambda: clouds(*TALL)),
    "hard margin": (lambda: HardMarginSVC(), lambda: clouds(*TALL, shift=4.0)),
    "margin distribution": (lambda: MarginDistributionSVC(), lambda: clouds(*SMALL)),
    "margin distribution, linear": (lambda: MarginDistributionSVC(kernel="linear"), lambda: clouds(*TALL)),
    "svrg": (lambda: MarginDistributionSVC(kernel="linear", solver="svrg"), lambda: clouds(*TALL)),
    "tree": (
        lambda: MarginDistributionSVC(solver="partition-merge", n_partitions=4),
        lambda: clouds(*SMALL),
    ),
    "sparse": (lambda: SparseSVC(alpha=0.01), lambda: clouds(*TALL)),
    "sparse, chosen": (lambda: SparseSVCCV(n_alphas=3, cv=2), lambda: clouds(*TALL)),
    "debiased": (lambda: DebiasedSparseSVC(alpha=0.01), lambda: clouds(*TALL)),
    "gossip": (lambda: GossipSVC(n_peers=3, max_iter=30), lambda: clouds(*TALL)),
}


def fitted(model, X, y):
    """The model, with a seed if it takes one."""
    return model.set_params(**{"random_state": 0} if "random_state" in model.get_params() else {}).fit(X, y)


def digest(model, X) -> str:
    """Of all fitted numbers that do not tell the time, and of the scores of rows."""
    told = hashlib.sha256()
    for name in sorted(vars(model)):
        value = getattr(model, name)
        value = value.toarray() if sp.issparse(value) else value
        if name.endswith("_") and isinstance(value, np.ndarray) and value.dtype != object:
            told.update(name.encode() + np.ascontiguousarray(value).tobytes())
    told.update(repr((model.n_iter_, model.certificate_, model.stop_reason_)).encode())
    told.update(np.ascontiguousarray(model.decision_function(X)).tobytes())
    return told.hexdigest()[:16]


def main(names, numbers):
    most_pieces, begin = 0, cores._Job.__init__

    def count(job, do, pieces):
        nonlocal most_pieces
        most_pieces = max(most_pieces, len(pieces))
        begin(job, do, pieces)

    cores._Job.__init__ = count
    said = {}
    for name in names:
        make, rows = CASES[name]
        (X, y), said[name] = rows(), {}
        for number in numbers:
            most_pieces = 0
            with warnings.catch_warnings(), cores.at_most(number):
                warnings.simplefilter("ignore")
                said[name][number] = digest(fitted(make(), X, y), X), most_pieces
    print(json.dumps(said))


if __name__ == "__main__":
    end = sys.argv.index("--")
    main(sys.argv[1:end], [int(each) for each in sys.argv[end + 1 :]])
