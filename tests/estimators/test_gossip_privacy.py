"""GossipSVC(privacy=...): what is released, what is not, and what is refused before any row is used."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import LinearSVC

from tests.problems_at_hand import overlapping
from widemargin import Faults, GossipSVC, PrivacyAccount, load, save
from widemargin.cli.inspect import described
from widemargin.estimators.words import fit_as_html
from widemargin.problems.private_release import Release
from widemargin.reports import report
from widemargin.strategies import release as release_module
from widemargin.strategies.peers import Peers

N, ALPHA = 240, 0.05
TERMS = {"alpha": ALPHA, "privacy": (1.0, 1e-5), "classes": [-1, 1], "n_peers": 4}


@pytest.fixture
def account(tmp_path):
    path = tmp_path / "account.json"
    PrivacyAccount.create(path, 10.0, 1e-3)
    return path


@pytest.fixture
def silent(monkeypatch):
    """A mechanism whose noise is so large that the models do not show: what then depends on rows has leaked."""
    monkeypatch.setattr(release_module, "with_noise", lambda models, release: np.ones_like(models))


def rows(seed=0, n=N):
    X, y = overlapping(seed, n=n, shift=0.8)
    return X, y.astype(int)


def n_charged(path):
    return len(json.loads(path.read_text())["releases"])


def exact(X, y, clip, alpha=ALPHA, fit_intercept=True):
    """The minimiser on clipped rows, by LIBLINEAR."""
    X = np.hstack([X, np.ones((len(X), 1))]) if fit_intercept else X
    X = X * np.minimum(1, clip / np.linalg.norm(X, axis=1))[:, None]
    options = {"loss": "hinge", "fit_intercept": False, "tol": 1e-9, "max_iter": 1_000_000, "random_state": 0}
    return LinearSVC(C=1 / (alpha * len(y)), **options).fit(X, y).coef_[0]


# -- what is released --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.7, 3.0, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_model_is_the_minimiser_on_clipped_rows_with_noise(account, clip, fit_intercept):
    X, y = rows()
    model = GossipSVC(**TERMS, clip=clip, account=account, fit_intercept=fit_intercept).fit(X, y)
    release = model.release_
    found = np.append(model.coef_[0], model.intercept_) if fit_intercept else model.coef_[0]
    assert release == Release(1.0, 1e-5, clip, ALPHA, N, len(found))
    off = (found - exact(X, y, clip, fit_intercept=fit_intercept)) / release.sigma
    assert np.linalg.norm(off) < 6 * np.sqrt(len(found))  # fails once in far more than 10^12 runs
    assert np.linalg.norm(off) > 1e-4
    assert fit_intercept or model.intercept_ == [0.0]
    assert np.array_equal(np.rint(found / release.step) * release.step, found)


def test_without_noise_it_is_the_minimiser_to_the_stated_gap(account, monkeypatch):
    monkeypatch.setattr(release_module, "with_noise", lambda models, release: models)
    X, y = rows()
    model = GossipSVC(**TERMS, clip=2.0, account=account).fit(X, y)
    apart = np.linalg.norm(np.append(model.coef_[0], model.intercept_) - exact(X, y, 2.0))
    assert apart <= np.sqrt(2 * model.release_.gap / ALPHA) + 1e-6


def test_no_seed_repeats_the_noise(account):
    X, y = rows()
    model = GossipSVC(**TERMS, account=account, random_state=0)
    first = model.fit(X, y).coef_
    np.random.seed(0)  # noqa: NPY002
    assert not np.allclose(first, clone(model).fit(X, y).coef_, rtol=0, atol=1e-3 * model.release_.sigma)
    assert n_charged(account) == 2


@pytest.mark.parametrize("storage", ["dense", "csr", "csr with duplicates", "float32"])
def test_rows_are_clipped_however_they_are_stored(account, monkeypatch, storage):
    seen = []

    def stop(self, parts, *more):
        seen.append((self, parts))
        raise ZeroDivisionError

    monkeypatch.setattr(Peers, "run", stop)
    X, y = rows()
    X[0], X[1], X[2] = 1e30, 1e-30, 0.0
    if storage == "csr with duplicates":
        matrix = sp.csr_matrix(np.hstack([X, X]))  # each entry in two halves of twice the size
        X = sp.csr_matrix((matrix.data, matrix.indices % X.shape[1], matrix.indptr), X.shape)
    else:
        X = {"dense": np.asarray, "csr": sp.csr_matrix, "float32": np.float32}[storage](X)
    with pytest.raises(ZeroDivisionError):
        GossipSVC(**TERMS, clip=1.5, account=account).fit(X, y)
    (peers, parts), lengths = seen[0], []
    for part in parts:
        held = peers.network.encode(part, np.array([-1, 1])).X
        held = held.toarray() if sp.issparse(held) else held
        assert held.dtype == np.float64
        lengths += [float(np.sqrt(sum(float(x) ** 2 for x in row))) for row in held.astype(np.longdouble)]
    assert len(lengths) == N
    assert max(lengths) <= 1.5
    assert np.mean(np.array(lengths) > 1.4999) > 0.2


def test_several_classes_share_one_release(account):
    X, y = rows()
    y = np.where(X[:, 1] > 1, "c", np.where(y > 0, "a", "b"))
    model = GossipSVC(**TERMS | {"classes": ["d", "a", "b", "c"]}, account=account).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]  # also the one without rows
    assert model.coef_.shape == (4, X.shape[1])
    assert model.release_.n_problems == 4
    two = GossipSVC(**TERMS | {"classes": ["a", "not a"]}, account=account).fit(X, np.where(y == "a", "a", "not a"))
    assert model.release_.sensitivity == pytest.approx(2 * two.release_.sensitivity, rel=1e-5)
    assert n_charged(account) == 2


def test_rows_of_one_class_are_no_error(account):
    """That would tell which labels there are."""
    X, y = rows()
    model = GossipSVC(**TERMS, account=account).fit(X, np.ones_like(y))
    assert model.classes_.tolist() == [-1, 1]


def test_random_features_and_shards_may_be_used(account):
    X, y = rows()
    terms = {name: value for name, value in TERMS.items() if name != "n_peers"}
    model = GossipSVC(**terms, account=account, kernel="rbf", gamma=0.3, n_random_features=8)
    model.fit_shards([(X[:50], y[:50]), (X[50:], y[50:])])
    assert model.release_.n_features == 9
    assert model.release_.n_rows == N
    assert set(model.predict(X)) <= {-1, 1}


# -- what is left of the rows ------------------------------------------------------------------------------------------


def objects_in(value, path="model"):
    """Everything that an object refers to, with the way to it."""
    yield path, value
    if isinstance(value, dict):
        for key, each in value.items():
            yield from objects_in(each, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, each in enumerate(value):
            yield from objects_in(each, f"{path}[{number}]")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for name, each in vars(value).items():
            yield from objects_in(each, f"{path}.{name}")


def pickled(model):
    """What a fit keeps, without the peers, which no pickle has."""
    return vars(pickle.loads(pickle.dumps(model)))


VARIANTS = {
    "dense": {},
    "sparse": {},
    "rbf": {"kernel": "rbf", "gamma": 0.5, "n_random_features": 6},
    "lossy": {"faults": Faults(drop=0.2)},
    "by label": {"shards": "by-label"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_but_for_the_noisy_model_nothing_depends_on_the_rows(account, tmp_path, silent, capfd, variant):
    """Two sets of rows that share nothing but their shape leave the same bytes, wherever one looks."""
    left = []
    for seed in (0, 1):
        X, y = rows(seed)
        y = y if seed else np.where(y > 0, -1, 1)
        X = sp.csr_matrix(X * (np.abs(X) > 0.5)) if variant == "sparse" else X
        model = GossipSVC(**TERMS, account=account, **VARIANTS[variant])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model.fit(X, y)
        save(model, tmp_path / "model.wm")
        left.append(
            {
                "said": [str(each.message) for each in said],
                "printed": capfd.readouterr(),
                "attributes": {path: repr(value) for path, value in objects_in(vars(model)) if "0x" not in repr(value)},
                "pickle": pickletools.optimize(pickle.dumps(model)),
                "saved": (tmp_path / "model.wm").read_bytes(),
                "report": re.sub(r"20\d\d-\d\d-\d\d( \d\d:\d\d)?", "DATE", report(model).html),
                "inspect": described(model),
                "notebook": fit_as_html(model),
                "parameters": repr(model),
            }
        )
    first, second = left
    for name in first:
        assert first[name] == second[name], name
    assert first["said"] == []
    assert "certificate" not in first["inspect"]


def test_a_fit_that_keeps_something_would_be_noticed(account, tmp_path, silent):
    """The comparison above tells fits without privacy apart by each of its means."""
    models = [GossipSVC(ALPHA, n_peers=4).fit(*rows(seed)) for seed in (0, 1)]
    assert len({pickle.dumps(model) for model in models}) == 2
    assert len({fit_as_html(model) for model in models}) == 2
    attributes = [{path: repr(value) for path, value in objects_in(pickled(model))} for model in models]
    differing = {path for path in attributes[0] if attributes[0][path] != attributes[1].get(path)}
    for name in ("coef_", "nodes_", "history_", "certificate_", "training_", "parts_"):
        assert any(f"'{name}'" in path for path in differing), name


def test_no_array_of_the_model_has_the_size_of_the_rows(account):
    X, y = rows()
    model = GossipSVC(**TERMS, account=account).fit(X, y)
    sizes = {path: value.shape for path, value in objects_in(vars(model)) if isinstance(value, np.ndarray)}
    assert sizes
    assert all(N not in shape for shape in sizes.values())
    names = {name for name in vars(model) if name.endswith("_")}
    missing = {"nodes_", "graph_", "consensus_", "training_", "_peers", "_last_network"}
    assert not missing & set(vars(model))
    assert names >= {"coef_", "intercept_", "classes_", "release_", "n_features_in_"}
    assert (model.certificate_.primal, model.certificate_.dual, model.n_iter_, model.history_) == (1.0, 0.0, 0, [])
    assert (model.stop_reason_, model.cost_.messages, model.cost_.seconds) == ("released", 0, {})


def test_a_fit_without_privacy_leaves_nothing_behind(account):
    X, y = rows()
    model = GossipSVC(ALPHA, n_peers=4).fit(X, y)
    assert hasattr(model, "training_")
    model.set_params(**TERMS, account=account).fit(X, y)
    assert not {"nodes_", "graph_", "consensus_", "training_", "_peers", "_last_network"} & set(vars(model))
    model.set_params(privacy=None, classes=None, account=None).fit(X, y)
    assert not hasattr(model, "release_")
    assert model.nodes_


def test_a_saved_model_has_its_terms_and_not_the_account(account, tmp_path):
    X, y = rows()
    model = GossipSVC(**TERMS, account=account).fit(X, y)
    save(model, tmp_path / "model.wm")
    restored = load(tmp_path / "model.wm")
    assert restored.release_ == model.release_
    assert restored.account is None
    assert np.array_equal(restored.coef_, model.coef_)
    assert str(account).encode() not in (tmp_path / "model.wm").read_bytes()
    assert f"{model.release_.expected_excess:.2g} above the optimum" in report(restored).html


# -- a fit that fails --------------------------------------------------------------------------------------------------

FAILURES = {
    "ticks": {"max_iter": 3},
    "time": {"max_time": 1e-3},
    "a peer is lost": {"faults": Faults(crash={2: 5})},
    "two parts": {"faults": Faults(partition=[(1, 10**6, [0, 1])]), "max_iter": 60},
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_fit_that_does_not_reach_the_gap_releases_nothing(account, failure):
    X, y = rows()
    model = GossipSVC(**TERMS, account=account, **FAILURES[failure])
    with pytest.raises(RuntimeError, match="Nothing is released"):
        model.fit(X, y)
    assert not {"coef_", "intercept_", "release_", "nodes_", "certificate_", "history_"} & set(vars(model))
    assert n_charged(account) == 1  # before the rows were used
    assert not any(value.shape and len(value) == N for _, value in objects_in(vars(model)) if hasattr(value, "shape"))


def test_a_gap_above_the_stated_one_releases_nothing(account, monkeypatch):
    """Also if the peers say that they have done what they were asked."""
    asked, run = [1e-4, 1e-9], Peers.run
    monkeypatch.setattr(Release, "tol", property(lambda self: asked[0]))

    def loose(self, *arguments):
        outcome = run(self, *arguments)
        assert outcome.results[0].stop_reason == "gap"
        asked.pop(0)
        return outcome

    monkeypatch.setattr(Peers, "run", loose)
    model = GossipSVC(**TERMS, account=account)
    with pytest.raises(RuntimeError, match="Nothing is released"):
        model.fit(*rows())
    assert not hasattr(model, "coef_")


def test_nothing_is_solved_without_budget(account, monkeypatch):
    X, y = rows()
    GossipSVC(**TERMS | {"privacy": (9.5, 1e-5)}, account=account).fit(X, y)
    monkeypatch.setattr(Peers, "run", lambda *arguments: pytest.fail("the rows were used"))
    model = GossipSVC(**TERMS, account=account)
    with pytest.raises(ValueError, match="exceeds what is left"):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED = {
    "epsilon": ({"privacy": (0.0, 1e-5)}, "must be epsilon and delta"),
    "delta": ({"privacy": (1.0, 1.0)}, "must be epsilon and delta"),
    "NaN": ({"privacy": (float("nan"), 1e-5)}, "must be epsilon and delta"),
    "one number": ({"privacy": (1.0,)}, "pair of numbers"),
    "three": ({"privacy": (1.0, 1e-5, 2)}, "pair of numbers"),
    "text": ({"privacy": ("much", 1e-5)}, "pair of numbers"),
    "None": ({"privacy": (None, 1e-5)}, "pair of numbers"),
    "a number": ({"privacy": 1.0}, "privacy"),
    "clip": ({"clip": 0.0}, "clip"),
    "infinite clip": ({"clip": float("inf")}, "clip"),
    "small alpha": ({"alpha": 1e-9}, "too small"),
    "large epsilon": ({"privacy": (60.0, 1e-5)}, "precision of the noise"),
    "class_weight": ({"class_weight": "balanced"}, "class_weight"),
    "push-sum": ({"solver": "push-sum"}, "only 'admm'"),
    "tol": ({"tol": 1e-2}, "privacy sets the gap"),
    "gamma": ({"kernel": "rbf"}, "depends on the rows"),
    "verbose": ({"verbose": 1}, "progress line"),
    "no classes": ({"classes": None}, "give all classes"),
    "one class": ({"classes": [1, 1]}, "two different labels"),
    "no account": ({"account": None}, "adds up all releases"),
    "no such account": ({"account": "none.json"}, "no privacy account"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_proof_does_not_cover_is_refused(account, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Peers, "run", lambda *arguments: pytest.fail("the rows were used"))
    change, match = REFUSED[name]
    model = GossipSVC(**TERMS | {"account": account} | change)
    with pytest.raises(ValueError, match=match):
        model.fit(*rows())
    assert n_charged(account) == 0
    assert not hasattr(model, "coef_")


def test_weights_labels_and_further_rows_are_refused(account):
    X, y = rows()
    model = GossipSVC(**TERMS, account=account)
    for weight in (np.full(N, 2.0), np.arange(N) % 2.0):
        with pytest.raises(ValueError, match="rows of weight 1"):
            model.fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="lacks them"):
        model.fit(X, np.where(np.arange(N) == 7, 5, y))
    with pytest.raises(ValueError, match="one release per network"):
        model.partial_fit(X, y)
    assert n_charged(account) == 0
    model.fit(X, y, sample_weight=np.ones(N))
    with pytest.raises(ValueError, match="one release per network"):
        model.partial_fit(X, y)
    assert n_charged(account) == 1


def test_callbacks_are_refused(account):
    from sklearn.callback import ProgressBar

    with pytest.raises(ValueError, match="no callbacks"):
        GossipSVC(**TERMS, account=account).set_callbacks(ProgressBar()).fit(*rows())
    assert n_charged(account) == 0


@pytest.mark.parametrize("unused", [{"clip": 2.0}, {"classes": [0, 1]}, {"account": os.devnull}], ids=str)
def test_parameters_without_effect_are_refused(unused):
    with pytest.raises(ValueError, match="no effect with privacy=None"):
        GossipSVC(**unused).fit(*rows())


def test_commands_refuse_it():
    from widemargin.cli._estimators import find, make

    with pytest.raises(ValueError, match="in Python"):
        make(find("gossip").estimator, {"privacy": [1.0, 1e-5]}, {})
