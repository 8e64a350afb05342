"""Every estimator among the tools of scikit-learn that take an estimator."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
)

MODELS = {
    "HardMarginSVC": HardMarginSVC(),
    "NuMarginSVC": NuMarginSVC(cluster=2),
    "KernelSVC": KernelSVC(),
    "KernelSVC linear": KernelSVC(kernel="linear"),
    "MarginDistributionSVC": MarginDistributionSVC(C=10.0),
    "SparseSVC": SparseSVC(),
    "SparseSVCCV": SparseSVCCV(n_alphas=4, cv=2),
    "DebiasedSparseSVC": DebiasedSparseSVC(alpha=0.01),
    "GossipSVC": GossipSVC(alpha=1e-2, n_peers=2, tol=1e-2),
}
ALL = pytest.mark.parametrize("name", list(MODELS))
# What these are about is tested for hard margin and nu in test_base.py.
OTHERS = pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("Hard", "Nu"))])


def data(n=90, shift=2.0):
    """Two classes that two of four columns tell apart."""
    rng = np.random.default_rng(0)
    y = np.where(rng.permutation(n) < n // 2, "yes", "no")
    X = rng.normal(size=(n, 4))
    X[:, :2] += shift * np.where(y == "yes", 1.0, -1.0)[:, None]
    return X, y


def rows_for(name):
    """Separable rows for a hard margin; for debiasing, classes that overlap: it looks at the rows within the margin."""
    return data(shift=5.0) if name == "HardMarginSVC" else data(200, 1.4) if name.startswith("Debiased") else data()


def grid_of(model):
    names = {"tol": [1e-1, 1e-2]}
    return {"rule": ["best", "one-standard-error"]} if isinstance(model, SparseSVCCV) else names


@OTHERS
def test_clone_keeps_parameters_and_drops_the_fit(name):
    X, y = rows_for(name)
    model = clone(MODELS[name]).fit(X, y)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again, "classes_")


@OTHERS
def test_search_in_a_pipeline_on_threads(name):
    X, y = rows_for(name)
    pipeline = make_pipeline(StandardScaler(), clone(MODELS[name]))
    step = pipeline.steps[-1][0]
    grid = {f"{step}__{key}": values for key, values in grid_of(MODELS[name]).items()}
    with joblib.parallel_backend("threading"):
        search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.best_estimator_[-1].stop_reason_
    assert cross_val_score(clone(MODELS[name]), X, y, cv=2).min() > 0.9


@ALL
def test_calibration_gives_probabilities_that_agree_with_the_scores(name):
    X, y = rows_for(name)
    model = CalibratedClassifierCV(clone(MODELS[name]), cv=2, ensemble=False).fit(X, y)
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    scores = model.calibrated_classifiers_[0].estimator.decision_function(X)
    order = np.argsort(scores)
    assert (np.diff(probability[order, 1]) >= -1e-12).all()
    assert model.score(X, y) > 0.9


@ALL
def test_stacking_and_voting_with_another_library_s_model(name):
    X, y = rows_for(name)
    members = [("ours", clone(MODELS[name])), ("theirs", LogisticRegression())]
    assert StackingClassifier(members, cv=2).fit(X, y).score(X, y) > 0.9
    assert VotingClassifier(members, voting="hard").fit(X, y).score(X, y) > 0.9


@ALL
def test_permutation_importance_finds_the_columns_that_matter(name):
    X, y = rows_for(name)
    model = clone(MODELS[name]).fit(X, y)
    importance = permutation_importance(model, X, y, n_repeats=2, random_state=0).importances_mean
    assert importance[:2].max() > importance[2:].max()


@ALL
def test_frames_go_through_a_pipeline_whose_steps_give_frames(name):
    X, y = rows_for(name)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    scale = ColumnTransformer([("scaled", StandardScaler(), ["a", "b"])], remainder="passthrough")
    pipeline = make_pipeline(scale, clone(MODELS[name])).set_output(transform="pandas").fit(frame, pd.Series(y))
    assert list(pipeline[-1].feature_names_in_) == ["scaled__a", "scaled__b", "remainder__c", "remainder__d"]
    assert pipeline.score(frame, y) > 0.9
    with pytest.warns(UserWarning, match="feature names"):
        pipeline[-1].predict(X)


@ALL
def test_weights_are_routed_through_a_pipeline_and_a_search(name):
    X, y = rows_for(name)
    # Rows whose label is turned and that weigh nothing: only a fit that gets the weights is not misled by them.
    turned = np.where(y == "yes", "no", "yes")
    X, y, weight = np.vstack([X, X]), np.concatenate([y, turned]), np.repeat([1.0, 0.0], len(y))
    mixed = np.random.default_rng(0).permutation(len(y))
    X, y, weight = X[mixed], y[mixed], weight[mixed]
    with config_context(enable_metadata_routing=True):
        asking = clone(MODELS[name]).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asking)
        pipeline.fit(X, y, sample_weight=weight)
        assert pipeline.score(X, y, sample_weight=weight) > 0.95
        search = GridSearchCV(asking, grid_of(asking), cv=2).fit(X, y, sample_weight=weight)
        assert search.best_score_ > 0.9
        silent = GridSearchCV(clone(MODELS[name]), grid_of(asking), cv=2)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            silent.fit(X, y, sample_weight=weight)


@OTHERS
def test_pickle_keeps_the_model(name):
    X, y = rows_for(name)
    model = clone(MODELS[name]).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.certificate_ == model.certificate_
    assert again.get_params() == model.get_params()


@ALL
def test_joblib_keeps_the_model_and_maps_its_arrays(name, tmp_path):
    X, y = rows_for(name)
    model = clone(MODELS[name]).fit(X, y)
    joblib.dump(model, tmp_path / "model.joblib")
    mapped = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    np.testing.assert_array_equal(mapped.decision_function(X), model.decision_function(X))


@OTHERS
def test_progress_bar(name, capsys):
    pytest.importorskip("rich", reason="scikit-learn's ProgressBar needs rich")
    from sklearn.callback import ProgressBar

    X, y = rows_for(name)
    clone(MODELS[name]).set_callbacks(ProgressBar()).fit(X, y)
    shown = capsys.readouterr().out
    assert f"{type(MODELS[name]).__name__} - fit" in shown
    assert "100%" in shown


@ALL
def test_one_against_the_rest_by_scikit_learn(name):
    rng = np.random.default_rng(1)
    y = rng.permutation(90) % 3
    X = rng.normal(size=(90, 3)) + (9.0 if name == "HardMarginSVC" else 3.0) * np.eye(3)[y]
    assert OneVsRestClassifier(clone(MODELS[name])).fit(X, y).score(X, y) > 0.85


@pytest.mark.parametrize("name", ["SparseSVC", "SparseSVCCV", "DebiasedSparseSVC"])
def test_select_from_model_keeps_the_columns_that_matter(name):
    X, y = rows_for(name)
    kept = SelectFromModel(clone(MODELS[name])).fit(X, y).get_support()
    assert kept[:2].any()
    assert kept.sum() < 4
