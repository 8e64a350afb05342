"""No bound of any estimator is false in exact arithmetic, whatever the rows, their units and the parameters.

Every way to solve a problem meets settings that differ from a plain one along a single axis, each extreme once, and
then settings drawn at random along all axes. A ValueError that refuses an extreme is an answer; anything else is not.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils import compute_sample_weight

from tests.properties.cases import check
from tests.properties.cases import rows as small_rows
from tests.truths import Rows, false_claims, part_of, relative_distance, truth
from widemargin import GossipSVC, HardMarginSVC, KernelSVC, MarginDistributionSVC, NuMarginSVC, SparseSVC
from widemargin.kernels import precision
from widemargin.kernels.on_cpu import RowsOnCPU
from widemargin.solvers.block_dual import BlockDual
from widemargin.solvers.dual_descent import DualDescent
from widemargin.solvers.multipliers import Multipliers


class Setting(NamedTuple):
    """One fit: what rows, in which form, and which parameters."""

    shape: str = "overlapping"
    offset: float = 0.0
    scale: float = 1.0
    C: float = 1.0
    tol: float = 1e-8
    dtype: str = "float64"
    storage: str = "dense"
    weights: str = "ones"
    ranks: int | None = None
    seed: int = 0


AXES: dict[str, tuple[Any, ...]] = {
    "shape": ("overlapping", "separable", "grid", "repeated", "flat", "units", "wide"),
    "offset": (0.0, 1.0, 1e4, 1e6, 1e8),
    "scale": (1.0, 1e-150, 1e-70, 1e-30, 1e-8, 1e8, 1e30, 1e70, 1e150),
    "C": (1.0, 1e-40, 1e-6, 1e4, 1e8, 1e12, 1e40),
    "tol": (1e-8, 1e-3, 1e-15, 0.0),
    "dtype": ("float64", "float32"),
    "storage": ("dense", "csr"),
    "weights": ("ones", "some", "large"),
    "ranks": (None, 2, 3),
}


def rows_of(setting: Setting) -> Rows:
    """Fourteen rows of three columns, give or take a few."""
    rng = np.random.default_rng(setting.seed)
    n, d = (8, 6) if setting.shape == "wide" else (14, 3)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = 1, -1
    if setting.shape == "separable":
        X[:, 0] = y * (0.5 + rng.random(n))
    elif setting.shape == "grid":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif setting.shape == "repeated":
        X[n // 2 :], y[n // 2 :] = X[: n // 2], y[: n // 2]
    elif setting.shape == "flat":  # a constant column, and one that repeats another
        X[:, 1], X[:, 2] = 3.0, -2 * X[:, 0]
    elif setting.shape == "units":
        X *= 10.0 ** np.arange(-3, 6, 3)
    most = 1e30 if setting.dtype == "float32" else np.inf
    X = ((X + setting.offset) * np.clip(setting.scale, 1 / most, most)).astype(setting.dtype)
    weight = {"ones": np.ones(n), "some": rng.integers(0, 4, n) / 2, "large": 1e6 * rng.random(n)}[setting.weights]
    weight[:2] = np.maximum(weight[:2], 0.5)
    return Rows(sp.csr_matrix(X) if setting.storage == "csr" else X, y, weight)


class DescentSVC(KernelSVC):
    """The linear C-SVM by coordinate descent, which otherwise needs many columns."""

    def _solver(self) -> Any:
        return DualDescent()


class MultipliersSVC(KernelSVC):
    """The linear C-SVM by the method of multipliers alone."""

    def _solver(self) -> Any:
        return Multipliers()


class BlockSVC(KernelSVC):
    """The kernel C-SVM on working sets, which otherwise needs many rows."""

    def _solver(self) -> Any:
        return BlockDual(stationary=self.tol)


def _kernel_svc(make: type[KernelSVC] = KernelSVC, max_iter: int = 200, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: make(
        C=at.C, tol=at.tol, cluster=at.ranks, max_iter=max_iter, max_time=1, random_state=0, **parameters
    )


def _margins(max_iter: int = 500, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: MarginDistributionSVC(
        C=at.C, tol=at.tol, cluster=at.ranks, max_iter=max_iter, max_time=1, random_state=0, **parameters
    )


def _hull(make: type, max_iter: int = 200, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: make(tol=at.tol, cluster=at.ranks, max_iter=max_iter, max_time=1, random_state=0, **parameters)


def _sparse(**parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: SparseSVC(tol=at.tol, cluster=at.ranks, max_iter=200, max_time=1, **parameters)


def _gossip(max_iter: int, **parameters: Any) -> Callable[[Setting], Any]:
    return lambda at: GossipSVC(1 / (20 * at.C), tol=at.tol, n_peers=at.ranks or 1, max_iter=max_iter, **parameters)


WAYS: dict[str, Callable[[Setting], Any]] = {
    "hard auto": _hull(HardMarginSVC),
    "hard active-set": _hull(HardMarginSVC, solver="active-set"),
    "hard newton": _hull(HardMarginSVC, solver="newton"),
    "hard saddle": _hull(HardMarginSVC, 20, solver="saddle"),
    "nu auto": _hull(NuMarginSVC),
    "nu newton": _hull(NuMarginSVC, nu=0.35, solver="newton"),
    "nu saddle": _hull(NuMarginSVC, 20, solver="saddle"),
    "linear": _kernel_svc(kernel="linear"),
    "linear descent": _kernel_svc(DescentSVC, kernel="linear"),
    "linear multipliers": _kernel_svc(MultipliersSVC, kernel="linear", fit_intercept=False),
    "rbf": _kernel_svc(),
    "rbf on working sets": _kernel_svc(BlockSVC),
    "rbf wide": _kernel_svc(gamma=1e-4),
    "laplacian": _kernel_svc(kernel="laplacian", fit_intercept=False),
    "poly": _kernel_svc(kernel="poly", degree=2, coef0=1.0),
    "cosine": _kernel_svc(kernel="cosine"),
    "few support vectors": _kernel_svc(max_support=4),
    "perceptron": _kernel_svc(max_iter=30, solver="batch-perceptron"),
    "perceptron linear": _kernel_svc(max_iter=30, solver="batch-perceptron", kernel="linear", fit_intercept=False),
    "slack": _kernel_svc(slack=0.2),
    "margins linear": _margins(kernel="linear"),
    "margins svrg": _margins(100, kernel="linear", solver="svrg"),
    "margins rbf": _margins(),
    "margins wide": _margins(gamma=1e-4),
    "margins newton": _margins(solver="newton", fit_intercept=False),
    "margins descent": _margins(solver="dual-descent", kernel="linear", overshoot_weight=0.0),
    "margins tree": _margins(solver="partition-merge", n_partitions=2, n_strata=2),
    "sparse": _sparse(),
    "sparse of much": _sparse(alpha=1e-3),
    "sparse without intercept": _sparse(alpha=0.05, fit_intercept=False),
    "gossip": _gossip(60),
    "gossip push-sum": _gossip(40, solver="push-sum", fit_intercept=False),
}

PLAIN = Setting()
ONE_AXIS = [PLAIN._replace(**{axis: value}) for axis, values in AXES.items() for value in values[1:]]
# These take more sweeps to come as close as rounding allows than a test has time for.
SLOW = ("saddle", "perceptron", "slack", "svrg", "push-sum")


def settings_of(way: str, n_random: int) -> list[Setting]:
    """The settings that one way to solve is tried at."""
    rng = np.random.default_rng(zlib.crc32(way.encode()))
    drawn = [[values[rng.integers(len(values))] for values in AXES.values()] for _ in range(n_random)]
    return [PLAIN, *ONE_AXIS, *(Setting(*values, seed=k + 1) for k, values in enumerate(drawn))]


def fitted(model: Any, rows: Rows) -> Any:
    """The model after a fit, which may warn; None where the fit was refused."""
    is_weighted = (rows.weight != 1).any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            return model.fit(rows.X, rows.y, rows.weight if is_weighted else None)
        except ValueError:
            return None


def falsehoods(model: Any, rows: Rows) -> list[str]:
    """What a fitted model says that is not so."""
    found = false_claims(model.certificate_, model.history_, truth(model, rows))
    if model.stop_reason_ == "gap" and not model.certificate_.relative <= model.tol:
        found.append(f"stop: the gap is {model.certificate_.relative:.2e}, tol={model.tol:g}")
    if model.stop_reason_ == "overlap" and (apart := relative_distance(model, rows)) > 1e-11:
        found.append(f"stop: overlap, and the hulls are {apart:.2e} of the radius of equilibrated rows apart")
    return found


def outcome(way: str, setting: Setting) -> tuple[str, list[str]]:
    """The stop reason, or "refused", and what was false."""
    rows = rows_of(setting)
    model = fitted(WAYS[way](setting), rows)
    return ("refused", []) if model is None else (model.stop_reason_, falsehoods(model, rows))


@pytest.mark.parametrize("n_random", [2, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("way", list(WAYS))
def test_no_claim_is_false(way, n_random):
    false, refused, settings = [], 0, settings_of(way, n_random)
    for setting in settings:
        reason, claims = outcome(way, setting)
        refused += reason == "refused"
        false += [f"{_changed(setting)} {reason}: {claim}" for claim in claims]
    assert not false, f"{len(false)} false claims of {way}, such as\n" + "\n".join(false[:20])
    assert refused <= len(settings) / 2


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine"])
def test_no_claim_is_false_of_sweeps_in_float32_that_are_confirmed_in_part(kernel, monkeypatch):
    monkeypatch.setattr(precision, "_MAX_FLOAT64_ROWS", 0)
    seen, times = [], RowsOnCPU.times

    def counting(self, points, coef, *, exact=False):
        seen.append((self.dtype, exact, self.n_rows))
        return times(self, points, coef, exact=exact)

    monkeypatch.setattr(RowsOnCPU, "times", counting)
    false = []
    for setting in settings_of(kernel, 4):
        rows = rows_of(setting)
        model = fitted(_kernel_svc(BlockSVC, kernel=kernel)(setting), rows)
        claims = [] if model is None else falsehoods(model, rows)
        false += [f"{_changed(setting)} {model.stop_reason_}: {claim}" for claim in claims]
    assert not false, "\n".join(false[:20])
    assert any(dtype == np.float32 and exact and n_rows < 8 for dtype, exact, n_rows in seen)


@pytest.mark.parametrize("tol", [1e-15, 0.0])
@pytest.mark.parametrize("way", [way for way in WAYS if not any(word in way for word in SLOW)])
def test_a_gap_that_rounding_keeps_open_ends_the_fit_and_is_small(way, tol):
    for shape in ("overlapping", "separable"):
        rows = rows_of(Setting(shape))
        model = fitted(WAYS[way](Setting(tol=tol)).set_params(max_iter=100_000, max_time=10), rows)
        assert model.stop_reason_ in ("gap", "precision", "overlap", "max_support"), f"{shape}: {model.stop_reason_}"
        if model.stop_reason_ in ("gap", "precision") and way != "few support vectors":
            assert model.certificate_.relative <= 1e-10, f"{shape}: an allowance of {model.certificate_.relative:.1e}"


@pytest.mark.parametrize("n_examples", [6, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize("way", list(WAYS))
def test_no_claim_is_false_for_few_whole_numbers(way, n_examples):
    """Rows that repeat, vanish or lie on one line, of which many optima are not unique."""

    def claim(data, setting):
        X = ((data.X + setting["offset"]) * setting["scale"]).astype(data.X.dtype)
        rows = Rows(X, data.sign.astype(int), data.weight)
        model = fitted(WAYS[way](Setting(**setting)), rows)
        assert model is None or not falsehoods(model, rows)

    axes = st.fixed_dictionaries(
        {name: st.sampled_from(AXES[name]) for name in ("offset", "scale", "C", "tol", "ranks")}
    )
    check(claim, n_examples, data=small_rows(dtypes=("float64", "float32")), setting=axes)


CLASSES = {
    "hard": HardMarginSVC(),
    "nu": NuMarginSVC(tol=1e-6, class_weight="balanced"),
    "linear": KernelSVC(kernel="linear", tol=1e-6),
    "rbf": KernelSVC(tol=1e-6, class_weight={0: 3.0}),
    "margins": MarginDistributionSVC(tol=1e-6),
    "sparse": SparseSVC(class_weight="balanced"),
    "gossip": GossipSVC(0.01, n_peers=2, max_iter=100),
}


@pytest.mark.parametrize("name", list(CLASSES))
def test_no_claim_is_false_for_any_of_three_classes(name):
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(18, 2)), np.arange(18) % 3
    X[label == 1] += 4.0
    X[label == 2] -= 4.0
    model = fitted(clone(CLASSES[name]), Rows(X, label, np.ones(18)))
    weight = compute_sample_weight(getattr(model, "class_weight", None), label)
    for k, (positive, negative) in enumerate(model._parts.pairs):
        chosen = np.isin(label, (positive, negative)) if negative is not None else np.full(18, True)
        rows = Rows(X[chosen], np.where(label[chosen] == positive, 1, -1), weight[chosen])
        part = part_of(model, k)
        if hasattr(part, "dual_coef_"):  # of all support vectors, by their places among all rows
            mine = chosen[part.support_]
            part.support_ = np.searchsorted(np.flatnonzero(chosen), part.support_[mine])
            part.dual_coef_ = part.dual_coef_[:, mine]
        if name == "gossip":
            part.history_ = []  # which is that of the worst class at every tick
        assert not falsehoods(part, rows)


@pytest.mark.parametrize("solver", ["admm", "push-sum"])
def test_no_claim_of_any_peer_is_false(solver):
    for setting in (PLAIN, PLAIN._replace(offset=1e4), PLAIN._replace(weights="large"), PLAIN._replace(C=1e4)):
        rows = rows_of(setting)
        model = fitted(GossipSVC(1 / (20 * setting.C), n_peers=4, solver=solver, max_iter=60), rows)
        for node in model.nodes_.values():
            model.coef_, model.intercept_ = node.coef_, node.intercept_
            assert node.certificate is None or not false_claims(node.certificate, [], truth(model, rows))


def test_a_precomputed_kernel_is_taken_as_it_is():
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (14, 3)).astype(float)
    y = np.where(X[:, 0] + 0.1 > 0, 1, -1)
    for model in (KernelSVC(kernel="precomputed", C=1e4, tol=1e-12), MarginDistributionSVC(kernel="precomputed")):
        rows = Rows(X @ X.T, y, np.ones(14))  # of whole numbers, without rounding
        assert not falsehoods(fitted(model, rows), rows)


def _changed(setting: Setting) -> dict[str, Any]:
    return {name: value for name, value in setting._asdict().items() if value != getattr(PLAIN, name)}
