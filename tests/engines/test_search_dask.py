"""Searches by cross-validation on Dask workers: they find what one process finds."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GroupKFold

from tests.estimators.test_kernel_cv_frame import Recorder, assert_same_search
from widemargin import KernelSVCCV, MarginDistributionSVCCV, NuMarginSVCCV
from widemargin.exceptions import PeerLostWarning
from widemargin.strategies import search_files

pytest.importorskip("distributed", reason="needs the dask extra")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
OPTIONS = {"Cs": [0.1, 1.0, 20.0], "gammas": [0.02, 0.2], "cv": 3}


@pytest.fixture(scope="module")
def rows():
    return make_classification(160, 6, n_informative=4, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def alone(rows):
    return KernelSVCCV(**OPTIONS).fit(*rows)


def test_workers_share_the_fits_of_a_search(client, rows, alone, capsys, tmp_path):
    recorder = Recorder()
    model = KernelSVCCV(**OPTIONS, cluster=client, verbose=1, checkpoint=tmp_path).set_callbacks(recorder).fit(*rows)
    assert_same_search(model, alone)
    assert model.spread_ == "tasks"
    assert model.cost_.messages > 0
    assert model.certificate_.relative <= 1e-3
    assert recorder.ended.count("point") == len(model.scores_)
    assert f"point {len(model.scores_)} of {len(model.scores_)}" in capsys.readouterr().err
    # One process goes on from what workers have done.
    assert len(search_files.load(tmp_path)) >= 2
    assert_same_search(KernelSVCCV(**OPTIONS, checkpoint=tmp_path).fit(*rows), alone)


def test_rows_may_be_a_collection(client, rows, alone):
    X, y = rows
    model = KernelSVCCV(**OPTIONS).fit(da.from_array(X, chunks=(50, 6)), da.from_array(y, chunks=50))
    assert_same_search(model, alone)
    np.testing.assert_allclose(model.decision_function(X), alone.decision_function(X), atol=0.1)


@pytest.mark.parametrize(
    "model",
    [NuMarginSVCCV(nus=[0.6, 0.8], cv=3, refine=False), MarginDistributionSVCCV(Cs=[1e2, 1e4], gammas=[0.1], cv=3)],
    ids=["nu", "margin distribution"],
)
def test_workers_share_the_fits_of_other_searches(client, rows, model):
    X, y = rows
    alone = clone(model).fit(X, y)
    for place, data in ((client, (X, y)), (None, (da.from_array(X, chunks=(50, 6)), da.from_array(y, chunks=50)))):
        shared = clone(model).set_params(cluster=place).fit(*data)
        assert_same_search(shared, alone)
        assert shared.spread_ == "tasks"
        assert shared.certificate_.relative <= 1e-3


def test_groups_and_weights_are_those_of_all_rows(client, rows):
    X, y = rows
    weight, groups = np.arange(len(y)) % 3 * 1.0, np.arange(len(y)) % 5
    options = {**OPTIONS, "cv": GroupKFold(3)}
    expected = KernelSVCCV(**options).fit(X, y, sample_weight=weight, groups=groups)
    assert_same_search(KernelSVCCV(**options, cluster=client).fit(X, y, sample_weight=weight, groups=groups), expected)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scoring": "neg_log_loss"}, "needs probabilities"),
        ({"cv": 100}, "cv=100 needs at least as many rows of every class"),
        ({"Cs": [-1.0]}, "positive, finite numbers"),
    ],
)
def test_bad_input_is_refused_in_the_words_of_one_process(client, rows, options, text):
    with pytest.raises(ValueError, match=text):
        KernelSVCCV(**{**OPTIONS, **options}, cluster=client).fit(*rows)


class KillAtFirstPoint(Recorder):
    """A callback that kills a worker."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "point" and "point" not in self.ended:
            os.kill(self.number, signal.SIGKILL)
        super().on_fit_task_end(estimator, context)


def test_a_search_survives_the_loss_of_a_worker(doomed, rows, alone):
    workers = doomed.run(os.getpid)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = KernelSVCCV(**OPTIONS, cluster=doomed)
        model.set_callbacks(KillAtFirstPoint(next(iter(workers.values())))).fit(*rows)
    assert any(issubclass(each.category, PeerLostWarning) for each in told)
    assert_same_search(model, alone)
