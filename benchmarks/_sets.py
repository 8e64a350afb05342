"""Which rows does each benchmark use? Real sets as the paper labels them, synthetic ones by name."""

from __future__ import annotations

import lzma
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks._harness import ROOT
from widemargin import max_nu
from widemargin.data import fetch, make_nonseparable, make_separable, make_sparse_nonseparable
from widemargin.data.fetch import DataNotAvailable

HOLD_OUT = 0.1  # share of test rows where a set has no test split, as in the paper
SEED = 0

# Classes as the paper counts them: label 1 makes n_1, but of iris it is the 50 rows of n_2.
_NEGATIVE = {"iris": 1}

_shared = ROOT.parent / "shared" / "data"
if "WIDEMARGIN_DATA" not in os.environ and _shared.exists():
    os.environ["WIDEMARGIN_DATA"] = str(_shared)


class Rows(NamedTuple):
    """Rows with labels -1 and +1."""

    X: Any
    y: np.ndarray


@cache
def load(name: str) -> Rows:
    """A set by name: a public one, or ``separable-N-D``, ``ball-N-D``, ``nonseparable-N-D``, ``sparse-N-D-PERCENT``.

    The rows of ``madelon`` are scaled to [-1, 1] by feature, and ``iris.scale`` is iris so scaled, as on the page the
    paper took it from; nothing else is scaled.
    """
    kind, *numbers = name.split("-")
    if kind == "separable":
        return Rows(*make_separable(int(numbers[0]), int(numbers[1]), random_state=SEED)[:2])
    if kind == "ball":
        return separable_in_ball(int(numbers[0]), int(numbers[1]), RARITY[int(numbers[1])])
    if kind == "nonseparable":
        return Rows(*make_nonseparable(int(numbers[0]), int(numbers[1]), random_state=SEED))
    if kind == "sparse":
        n, d, percent = map(int, numbers)
        return Rows(*make_sparse_nonseparable(n, d, density=percent / 100, random_state=SEED))
    if name == "svmguide1.t":
        return _svmguide1_test()
    data = _fetch(name.removesuffix(".scale"))
    base = name.removesuffix(".t").removesuffix(".scale")
    is_positive = data.y != _NEGATIVE[base] if base in _NEGATIVE else data.y == 1
    X, y = data.X, np.where(is_positive, 1.0, -1.0)
    if name == "iris.scale" or base == "madelon":
        X = _scaled(X.toarray(), _fetch(base).X.toarray())
    return Rows(X, y)


# Distances to H are .1 + .9 u^(1/k), u uniform: with these k the hulls are as far apart as in Table 1 of the saddle
# paper, .395, .468, .436 and .496.
RARITY = {8: 3.53, 32: 3.45, 128: 2.87, 512: 3.06}


def separable_in_ball(n_rows: int, n_features: int, rarity: float, ratio: float = 0.1) -> Rows:
    """The separable set of the saddle paper, by its description: rows of the unit ball, on both sides of H.

    The smallest distance to H is ``ratio`` times the largest, which is 1. How rows lie between the two the paper does
    not say: uniform distances leave the hulls .2 to .24 apart, half as far as in its Table 1. Here low rows are rarer,
    the rarer the larger ``rarity`` is.
    """
    rng = np.random.default_rng(SEED)
    normal = rng.normal(size=n_features)
    normal /= np.linalg.norm(normal)
    y = np.where(rng.permutation(n_rows) < n_rows // 2, 1.0, -1.0)
    heights = ratio + (1 - ratio) * rng.random(n_rows) ** (1 / rarity)
    heights[heights.argmin()], heights[heights.argmax()] = ratio, 1.0
    along = rng.normal(size=(n_rows, n_features))
    along -= np.outer(along @ normal, normal)
    lengths = rng.random(n_rows) ** (1 / n_features) * np.sqrt(1 - heights**2)
    along *= (lengths / np.linalg.norm(along, axis=1))[:, None]
    return Rows(along + np.outer(y * heights, normal), y)


@cache
def split(name: str) -> tuple[Rows, Rows]:
    """Training and test rows: the published split where there is one, else a fixed tenth held out."""
    train = load(name)
    if name in ("a1a", "a9a", "ijcnn1", "madelon", "w8a"):
        return train, load(f"{name}.t")
    X, X_test, y, y_test = train_test_split(*train, test_size=HOLD_OUT, random_state=SEED, stratify=train.y)
    return Rows(X, y), Rows(X_test, y_test)


def shuffled(rows: Rows) -> Rows:
    """The same rows in a fixed random order, so that ranks hold alike parts."""
    order = np.random.default_rng(SEED).permutation(len(rows.y))
    return Rows(rows.X[order], rows.y[order])


ALPHA = 0.85  # the saddle paper's: this share of the largest feasible nu


def nu_of(y: np.ndarray, alpha: float) -> float:
    """scikit-learn's nu for the paper's alpha: that share of the largest feasible value."""
    return alpha * max_nu(y)


def _fetch(name: str) -> Any:
    try:
        return fetch(name)
    except DataNotAvailable as error:
        sys.exit(f"benchmarks need the data set {name!r}: {error}")


def _svmguide1_test() -> Rows:
    """The copy at hand is no LIBSVM text, as ``fetch`` reads, but a table with commas, a heading and labels first."""
    path = Path(os.environ.get("WIDEMARGIN_DATA", ".")) / "svmguide1.t.xz"
    if not path.exists():
        sys.exit(f"benchmarks need the data set 'svmguide1.t': there is no {path}")
    with lzma.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return Rows(table[:, 1:], np.where(table[:, 0] == 1, 1.0, -1.0))


def _scaled(X: np.ndarray, reference: np.ndarray) -> np.ndarray:
    low, high = reference.min(axis=0), reference.max(axis=0)
    return 2 * (X - low) / np.where(high > low, high - low, 1.0) - 1
