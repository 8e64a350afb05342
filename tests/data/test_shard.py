from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.cores import at_most
from widemargin.data.pieces import row_pieces
from widemargin.data.shard import Shard
from widemargin.rounding import gamma


@pytest.fixture
def rows(seed, dtype):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(23, 5))
    X[rng.random(X.shape) < 0.3] = 0.0
    return X.astype(dtype)


@pytest.fixture(params=["whole", "pieces"])
def shard(request, rows, storage):
    """Rows in one block or in several, of which one is empty."""
    rng = np.random.default_rng(9)
    X = (
        storage(rows)
        if request.param == "whole"
        else [storage(rows[a:b]) for a, b in ((0, 4), (4, 4), (4, 17), (17, 23))]
    )
    return Shard(X, rng.choice([-1.0, 1.0], 23), rng.uniform(0.5, 2.0, 23))


SOME = np.array([0, 3, 4, 16, 17, 22])
MASS = np.array([1.0, -2.0, 0.5, 0.0, 3.0, 1.5])


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_sizes(shard, dtype):
    assert (shard.n_rows, shard.n_features) == (23, 5)
    assert shard.dtype == dtype


def test_passes_over_all_rows(shard, rows):
    exact = rows.astype(np.float64)
    w, mass = np.arange(5.0), np.linspace(-1, 1, 23)
    near(shard.scores(w), exact @ w)
    near(shard.combine(mass), exact.T @ mass)
    assert shard.scores(w).dtype == np.float64


def test_lengths_of_rows_are_those_of_float64(shard, rows):
    near(shard.squared_norms(), (rows.astype(np.float64) ** 2).sum(axis=1))


def test_passes_over_some_rows(shard, rows):
    taken = rows[SOME].astype(np.float64)
    v = np.arange(5.0)
    near(shard.combine_rows(SOME, MASS), taken.T @ MASS)
    near(shard.curvature(SOME, MASS, v), taken.T @ (MASS * (taken @ v)))
    near(shard.second_moment(SOME, MASS), (taken * MASS[:, None]).T @ taken)
    near(shard.dense_rows(SOME), taken)


def test_passes_over_no_rows(shard):
    none, nothing = np.empty(0, dtype=np.intp), np.empty(0)
    assert not shard.combine_rows(none, nothing).any()
    assert not shard.curvature(none, nothing, np.ones(5)).any()
    assert not shard.second_moment(none, nothing).any()
    assert shard.dense_rows(none).shape == (0, 5)
    assert shard.take(none).n_rows == 0
    assert not shard.take(none).combine(nothing).any()


def test_take_keeps_labels_and_weights_with_their_rows(shard, rows):
    part = shard.take(SOME)
    near(part.dense_rows(np.arange(len(SOME))), rows[SOME])
    np.testing.assert_array_equal(part.y, shard.y[SOME])
    np.testing.assert_array_equal(part.weight, shard.weight[SOME])


def test_two_of_three_classes(shard, rows):
    classes = np.arange(23) % 3
    three = Shard(shard.X, classes.astype(np.float64), shard.weight)
    pair = three.between(2, 0)
    inside = np.flatnonzero(classes != 1)
    near(pair.dense_rows(np.arange(pair.n_rows)), rows[inside])
    np.testing.assert_array_equal(pair.y, np.where(classes[inside] == 2, 1.0, -1.0))
    np.testing.assert_array_equal(pair.weight, shard.weight[inside])


def test_two_of_two_classes_are_not_copied(shard):
    codes = (np.arange(23) % 2).astype(np.float64)
    pair = Shard(shard.X, codes, shard.weight).between(1, 0)
    assert pair.X is shard.X
    np.testing.assert_array_equal(pair.y, 2 * codes - 1)


# -- pieces on threads -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of a few rows, eight threads, and no work too small for them."""
    for name, value in (("_ENTRIES", 64), ("_MIN_ROWS", 3), ("_SPARSE_ENTRIES", 40), ("_SPARSE_PER_FEATURE", 1)):
        monkeypatch.setattr(f"widemargin.data.shard.{name}", value)
    for name, value in (("_ROWS_PER_SUM", 5), ("_MIN_GROUP_ROWS", 7), ("_PANELS", 1), ("_ADDED_COLUMNS", 4)):
        monkeypatch.setattr(f"widemargin.data.shard.{name}", value)
    monkeypatch.setattr("widemargin.data.pieces._ROWS", 17)
    monkeypatch.setattr("widemargin.cores._MIN_WORK", 1.0)
    monkeypatch.setattr("widemargin.cores.available_threads", lambda: 8)
    row_pieces.cache_clear()
    yield
    row_pieces.cache_clear()


def every_pass(shard):
    """The results of all passes over a shard, by name."""
    rng = np.random.default_rng(3)
    n, d = shard.n_rows, shard.n_features
    w, mass, side = rng.normal(size=d), rng.normal(size=n), (shard.y < 0).astype(np.intp)
    some = np.flatnonzero(rng.random(n) < 0.6)
    taken = shard.take(some)
    high, low = shard.accurate_sums(mass, side)
    return {
        "scores": shard.scores(w),
        "combine": shard.combine(mass),
        "combine_signs": shard.combine_signs(mass),
        "combine_rows": shard.combine_rows(some, mass[some]),
        "curvature": shard.curvature(some, mass[some], w),
        "second_moment": shard.second_moment(some, mass[some]),
        "squared_norms": shard.squared_norms(),
        "squared_distances": shard.squared_distances(np.abs(w), w),
        "column_extremes": np.stack(shard.column_extremes()),
        "column_sizes": shard.column_sizes(),
        "accurate_scores": shard.accurate_scores(w, 0.25),
        "accurate_sums": np.stack([high + low, low * 0 + high]),
        "dense_rows": shard.dense_rows(some),
        "dense_columns": shard.dense_columns(np.array([4, 0, 2])),
        "content_hash": np.array([shard.content_hash(np.arange(n))], np.uint64),
        "take": taken.dense_rows(np.arange(taken.n_rows)),
        "depths": np.array([shard.combine_depth, shard.scores_depth, shard.n_sums]),
    }


def by_numpy(X, y):
    """The same in NumPy, from dense rows in float64."""
    rng = np.random.default_rng(3)
    n, d = X.shape
    w, mass = rng.normal(size=d), rng.normal(size=n)
    some = rng.random(n) < 0.6
    Z, m = X[some], mass[some]
    sums = np.stack([X[y > 0].T @ mass[y > 0], X[y < 0].T @ mass[y < 0]])
    return {
        "scores": X @ w,
        "combine": X.T @ mass,
        "combine_signs": np.stack([X.T @ np.maximum(mass, 0.0), X.T @ np.minimum(mass, 0.0)]),
        "combine_rows": Z.T @ m,
        "curvature": Z.T @ (m * (Z @ w)),
        "second_moment": (Z.T * m) @ Z,
        "squared_norms": (X**2).sum(axis=1),
        "squared_distances": ((np.abs(w) * (X - w)) ** 2).sum(axis=1),
        "column_extremes": np.stack([X.min(axis=0), X.max(axis=0)]),
        "column_sizes": np.abs(X).max(axis=0),
        "accurate_scores": X @ w - 0.25,
        "accurate_sums": np.stack([sums, sums]),
        "dense_rows": Z,
        "dense_columns": X[:, [4, 0, 2]],
        "take": Z,
    }


@pytest.fixture(params=[(131, 5), (77, 70)], ids=["tall", "wide"])
def many_rows(request, dtype):
    rng = np.random.default_rng(5)
    X = rng.normal(size=request.param)
    X[rng.random(X.shape) < 0.4] = 0.0
    X[10:30] = 0.0
    X[40] = rng.normal(size=X.shape[1])
    return X.astype(dtype)


@pytest.mark.parametrize("cuts", [[], [1, 2, 2, 60]], ids=["whole", "blocks"])
@pytest.mark.usefixtures("small_pieces")
def test_passes_in_pieces_have_the_same_bits_on_any_number_of_threads(many_rows, storage, cuts):
    X, rng = many_rows, np.random.default_rng(6)
    y, weight = rng.choice([-1.0, 1.0], len(X)), rng.uniform(0.5, 2.0, len(X))
    blocks = [storage(X[a:b]) for a, b in zip([0, *cuts], [*cuts, len(X)], strict=True)]
    shard = Shard(blocks if cuts else blocks[0], y, weight)
    with at_most(1):
        alone = every_pass(shard)
    for n_threads in (2, 3, 8):
        with at_most(n_threads):
            for name, found in every_pass(shard).items():
                assert found.tobytes() == alone[name].tobytes(), name
    for name, expected in by_numpy(X.astype(np.float64), y).items():
        np.testing.assert_allclose(alone[name], expected, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.usefixtures("small_pieces")
def test_sums_are_off_by_no_more_than_their_depth(storage, dtype):
    """Positive numbers: the relative error of a sum is at most gamma of the depth."""
    X = np.random.default_rng(0).uniform(1, 2, size=(900, 3)).astype(dtype)
    mass = np.random.default_rng(1).uniform(1, 2, size=900)
    shard = Shard(storage(X), np.ones(900), np.ones(900))
    exact = [sum(Fraction(float(x)) * Fraction(float(m)) for x, m in zip(column, mass, strict=True)) for column in X.T]
    assert shard.combine_depth < 900
    for found, right in zip(shard.combine(mass), exact, strict=True):
        assert abs(Fraction(float(found)) / right - 1) <= Fraction(gamma(shard.combine_depth))


def test_rows_are_cut_by_stored_entries():
    """A few long rows are as much work as many short ones."""
    X = sp.random(6000, 500, 0.01, "csr", random_state=0)
    long = sp.random(1200, 500, 1.0, "csr", random_state=0)
    shard = Shard(sp.vstack([X, long], "csr"), np.ones(7200), np.ones(7200))
    entries = np.add.reduceat(np.diff(shard.X.indptr), [cut.where.start for cut in shard._cuts])
    assert len(entries) > 1
    assert entries.max() <= (1 << 18) + 500


def test_sparse_or_not():
    X = np.eye(3)
    assert not Shard(X, np.ones(3), np.ones(3)).is_sparse
    assert Shard(sp.csr_matrix(X), np.ones(3), np.ones(3)).is_sparse


# -- hashes ------------------------------------------------------------------------------------------------------------

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(x):
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = ((x ^ (x >> 33)) * factor) & WORD
    return x ^ (x >> 33)


def bits(value):
    return int(np.float64(value).view(np.uint64))


def hash_by_definition(X, numbers, y, weight):
    total = 0
    for row, number, label, mass in zip(X, numbers, y, weight, strict=True):
        content = sum(mixed((bits(v) + (j + 1) * GOLDEN) & WORD) for j, v in enumerate(row) if v)
        key = mixed((int(number) + 1) * GOLDEN & WORD)
        for each in (bits(label), bits(mass), content):
            key = mixed((key + each) & WORD)
        total += key
    return total & WORD


def test_the_hash_of_the_content(shard, rows):
    numbers = np.arange(100, 123)
    assert shard.content_hash(numbers) == hash_by_definition(rows, numbers, shard.y, shard.weight)


def test_hashes_of_parts_add_up_however_rows_are_divided(shard):
    numbers, whole = np.arange(23), shard.content_hash(np.arange(23))
    rng = np.random.default_rng(0)
    for _ in range(5):
        owner = rng.integers(0, 4, 23)
        parts = [np.flatnonzero(owner == k) for k in range(4)]
        assert sum(shard.take(part).content_hash(numbers[part]) for part in parts) & WORD == whole


def test_entries_may_be_stored_in_any_order_and_zeros_may_be_stored():
    X = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, -1.0]])
    y, weight, numbers = np.array([1.0, -1.0]), np.ones(2), np.arange(2)
    expected = Shard(X, y, weight).content_hash(numbers)
    stored = sp.csr_matrix((np.array([3.0, 2.0, -0.0, -1.0]), np.array([2, 1, 0, 2]), np.array([0, 2, 4])), (2, 3))
    assert Shard(stored, y, weight).content_hash(numbers) == expected
    assert Shard(np.where(X == 0, -0.0, X), y, weight).content_hash(numbers) == expected


def test_whatever_is_changed_the_hash_changes():
    rng = np.random.default_rng(0)
    numbers, y, weight = np.arange(30), rng.choice([0.0, 1.0], 30), rng.uniform(1, 2, 30)
    X = rng.integers(-2, 3, size=(30, 4)).astype(np.float64)  # many equal entries, and equal rows
    X[:10] = X[10:20]
    seen = {Shard(X, y, weight).content_hash(numbers)}
    changed = 1
    for i in range(30):
        for j in range(4):
            for value in (X[i, j] + 1, np.nextafter(X[i, j], 9), -X[i, j] if X[i, j] else 5.0):
                other = X.copy()
                other[i, j] = value
                seen.add(Shard(other, y, weight).content_hash(numbers))
                changed += 1
        seen.add(Shard(X, np.where(numbers == i, 2.0, y), weight).content_hash(numbers))
        seen.add(Shard(X, y, np.where(numbers == i, 3.0, weight)).content_hash(numbers))
        changed += 2
        for k in range(i):
            order = numbers.copy()
            order[[i, k]] = k, i
            if (X[i] != X[k]).any() or y[i] != y[k] or weight[i] != weight[k]:
                seen.add(Shard(X[order], y[order], weight[order]).content_hash(numbers))
                changed += 1
    assert len(seen) == changed
