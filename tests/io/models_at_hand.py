"""One fitted model of every kind that a file may hold, small; each is fitted once in a process."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler, scale

from widemargin import (
    DebiasedSparseSVC,
    Faults,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    KernelSVCCV,
    MarginDistributionSVC,
    MarginDistributionSVCCV,
    NuMarginSVC,
    NuMarginSVCCV,
    SparseSVC,
    SparseSVCCV,
)

X, Y = load_iris(return_X_y=True)
X = np.ascontiguousarray(scale(X))
NAMES = np.array(["setosa", "versicolor", "virginica"])
OBJECTS = NAMES.astype(object)
TWO = Y > 0  # setosa is apart from the others
FRAME = pd.DataFrame(X, columns=["sepal length", "sepal width", "petal length", "größe"])
SPARSE = sp.csr_matrix(np.where(np.abs(X) > 0.9, X, 0.0))
SPARSE_64 = SPARSE.copy()
SPARSE_64.indices, SPARSE_64.indptr = SPARSE.indices.astype(np.int64), SPARSE.indptr.astype(np.int64)
TREE = {"solver": "partition-merge", "n_partitions": 2, "n_strata": 4, "random_state": 0}

# By name: the estimator, and what it is fitted to.
MODELS: dict[str, tuple[Any, Any, Any]] = {
    "hard, bool": (HardMarginSVC(), X, TWO),
    "hard, text": (HardMarginSVC(cluster=2), X[Y != 1], NAMES[Y[Y != 1]]),
    "nu, three": (NuMarginSVC(), X, Y),
    "nu, weights": (NuMarginSVC(class_weight={0: 2.0, 1: 1.0, 2: 1.0}, random_state=3, nu=0.3), X, Y),
    "kernel, rbf": (KernelSVC(C=10), X, TWO),
    "kernel, three": (KernelSVC(), X, OBJECTS[Y]),
    "kernel, float32": (KernelSVC(), X.astype(np.float32), Y.astype(np.uint8)),
    "kernel, sparse": (KernelSVC(gamma=0.5), SPARSE, Y),
    "kernel, sparse 64": (KernelSVC(gamma=0.5), SPARSE_64, TWO),
    "kernel, poly": (KernelSVC(kernel="poly", degree=2, coef0=1.0), X, Y),
    "kernel, sigmoid": (KernelSVC(kernel="sigmoid", gamma=0.1), X, TWO),
    "kernel, laplacian": (KernelSVC(kernel="laplacian"), X, NAMES[Y]),
    "kernel, cosine": (KernelSVC(kernel="cosine"), X, Y),
    "kernel, precomputed": (KernelSVC(kernel="precomputed"), X @ X.T, Y),
    "kernel, linear": (KernelSVC(kernel="linear"), X, Y.astype(float)),
    "kernel, names": (KernelSVC(max_support=20, random_state=np.random.RandomState(1)), FRAME, NAMES[Y]),
    "perceptron": (KernelSVC(slack=0.1, random_state=0, max_iter=20), X, TWO),
    "perceptron, linear": (KernelSVC(kernel="linear", solver="batch-perceptron", random_state=0), X, TWO),
    "margins": (MarginDistributionSVC(C=100), X, Y),
    "margins, linear": (MarginDistributionSVC(kernel="linear", C=100), X, TWO),
    "margins, tree": (MarginDistributionSVC(**TREE), X, TWO),
    "margins, trees": (MarginDistributionSVC(**TREE), SPARSE, Y),
    "kernel, chosen": (KernelSVCCV(Cs=[1.0, 10.0], gammas=2, cv=3, refine=False), X, NAMES[Y]),
    "nu, chosen": (NuMarginSVCCV(nus=[0.2, 0.3, 1.0], cv=3, refine=False), X, NAMES[Y]),
    "margins, chosen": (MarginDistributionSVCCV(Cs=2, gammas=1, cv=3, refine=False), X, TWO),
    "sparse": (SparseSVC(), X, Y),
    "sparse, path": (SparseSVCCV(n_alphas=4, cv=StratifiedKFold(2, shuffle=True, random_state=0)), X, TWO),
    "debiased": (DebiasedSparseSVC(), X, Y == 2),
    "gossip": (GossipSVC(alpha=1e-2, n_peers=4, topology=nx.cycle_graph(4)), X, Y),
    "gossip, faults": (
        GossipSVC(alpha=1e-2, n_peers=4, faults=Faults(drop=0.1, delay=(0, 1), crash={2: 5}, rejoin={2: 9})),
        X,
        TWO,
    ),
    "gossip, rbf": (GossipSVC(alpha=1e-2, kernel="rbf", gamma=0.1, n_random_features=20, n_peers=3), FRAME, Y),
    "pipe, standard": (make_pipeline(StandardScaler(), NuMarginSVC()), X, NAMES[Y]),
    "pipe, min-max": (make_pipeline(MinMaxScaler(clip=True), KernelSVC()), X, Y),
    "pipe, max-abs": (make_pipeline(MaxAbsScaler(), SparseSVC()), SPARSE, TWO),
    "pipe, robust": (make_pipeline(RobustScaler(), Normalizer(), MarginDistributionSVC(C=100)), X, TWO),
    "pipe, pandas": (
        make_pipeline(StandardScaler(with_std=False).set_output(transform="pandas"), KernelSVC()),
        FRAME,
        Y,
    ),
}


@cache
def fitted(name: str) -> Any:
    """The model of that name. It is shared: do not change it."""
    model, rows, labels = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, labels)


def rows_for(name: str) -> Any:
    """The rows that it was fitted to."""
    return MODELS[name][1]
