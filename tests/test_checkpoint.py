"""A fit that is killed goes on from its last state; a damaged or foreign state is refused."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import time
import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from widemargin import CheckpointWarning, HardMarginSVC, KernelSVC, NuMarginSVC, SparseSVC, checkpoint
from widemargin.data import make_nonseparable, make_separable
from widemargin.strategies.ranks import Ranks

STATE = checkpoint.FitState("a task", np.array([3, 4, 5], np.uint64), np.ones((1, 3)), np.array([7]))


def limited(kind, sweeps, folder, **settings):
    """A model that is cut off after some sweeps, as by a crash, and says nothing of it."""
    model = kind(max_iter=sweeps, checkpoint=folder, **settings)

    def fit(X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(X, y)

    return fit


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (NuMarginSVC, {"nu": 0.8, "solver": "saddle", "block_size": 8, "random_state": 0}),
        (NuMarginSVC, {"nu": 0.8, "solver": "newton"}),
        (HardMarginSVC, {"solver": "newton"}),
        (NuMarginSVC, {"nu": 0.8, "solver": "saddle", "block_size": 8, "random_state": 0, "cluster": 2}),
    ],
)
def test_goes_on_with_the_bounds_it_had(kind, settings, tmp_path):
    X, y = make_nonseparable(2000, 30, random_state=0) if kind is NuMarginSVC else make_separable(2000, 30)[:2]
    first = limited(kind, 5, tmp_path, tol=1e-9, **settings)(X, y)
    second = limited(kind, 10, tmp_path, tol=1e-9, **settings)(X, y)
    assert second.history_[0]["sweep"] == 6
    assert second.n_iter_ == 10
    # What was proven of the direction holds from the first sweep on.
    assert second.history_[0]["dual"] >= first.certificate_.dual * (1 - 1e-9)


def test_other_data_other_parameters_and_other_estimators_are_refused(tmp_path):
    X, y = make_nonseparable(600, 5, random_state=0)
    limited(NuMarginSVC, 5, tmp_path, tol=1e-12, solver="newton")(X, y)
    for model, rows in (
        (NuMarginSVC(), X + 1e-3),
        (NuMarginSVC(nu=0.5), X),
        (HardMarginSVC(), X),
        (NuMarginSVC(), X[:, :4]),
    ):
        with pytest.raises(ValueError, match="checkpoint belongs to another"):
            model.set_params(checkpoint=tmp_path).fit(rows, y)


def cut_off(folder, X, y, kind=NuMarginSVC, weight=None, **settings):
    """Leave the state of a fit that was cut off after five sweeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(tol=0.0, max_iter=5, checkpoint=folder, **settings).fit(X, y, weight)
    assert checkpoint.load(folder) is not None


def goes_on(folder, X, y, kind=NuMarginSVC, weight=None, **settings):
    """Whether a fit goes on from the state in the folder, and does not say that it belongs to another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(tol=1e-9, max_iter=7, checkpoint=folder, **settings)
        try:
            return model.fit(X, y, weight).n_iter_ >= 5
        except ValueError as error:
            if "The checkpoint belongs to another fit or to other data" not in str(error):
                raise
            return False


def other_data():
    """Rows, labels and weights that look alike, by everything that sums can tell: columns sum to 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    X = np.vstack([X, -X])
    y = (X[:200, 0] + rng.normal(size=200) > 0).astype(int)
    y = np.concatenate([y, 1 - y])
    weight = np.ones(400)
    yield "the same", X, y, weight
    yield "shuffled labels", X, rng.permutation(y), weight
    yield "-X", -X, y, weight
    order = rng.permutation(400)
    yield "rows in another order", X[order], y[order], weight
    yield "the other half first", np.roll(X, 200, axis=0), np.roll(y, 200), weight
    yield "columns in another order", X[:, ::-1], y, weight
    first, second = np.flatnonzero(y == 0)[:2]
    swapped = X.copy()
    swapped[[first, second], 2] = swapped[[second, first], 2]
    yield "two values changed places", swapped, y, weight
    nudged = X.copy()
    nudged[17, 3] = np.nextafter(nudged[17, 3], 9)
    yield "one last bit", nudged, y, weight
    heavier = weight.copy()
    heavier[[3, 4]] = 1.5, 0.5
    yield "other weights", X, y, heavier
    yield "one row fewer", X[:-1], y[:-1], weight[:-1]
    yield "one column more", np.c_[X, np.zeros(400)], y, weight
    yield "other names", X, np.array(["a", "b"])[y], weight


@pytest.mark.parametrize("kind", [NuMarginSVC, KernelSVC, SparseSVC])
def test_data_are_known_by_their_content(kind, tmp_path):
    settings = {"block_size": 2, "solver": "saddle"} if kind is NuMarginSVC else {}
    (_, X, y, weight), *others = other_data()
    cut_off(tmp_path, X, y, kind, weight, **settings)
    saved = (tmp_path / "fit.checkpoint").read_bytes()
    for name, other, labels, weights in others:
        assert not goes_on(tmp_path, other, labels, kind, weights, **settings), name
        assert (tmp_path / "fit.checkpoint").read_bytes() == saved, name
    assert goes_on(tmp_path, X, y, kind, weight, **settings)


@pytest.mark.parametrize("n_ranks", [None, 2, 3])
@pytest.mark.parametrize("kind", [NuMarginSVC, KernelSVC])
def test_storage_and_ranks_make_no_difference(kind, n_ranks, tmp_path):
    settings = {"block_size": 2, "solver": "saddle"} if kind is NuMarginSVC else {}
    _, X, y, weight = next(other_data())
    X = np.where(np.abs(X) > 0.5, X, 0.0).astype(np.float32)
    weight[::7] = 0.0  # rows that are left out keep their numbers
    cut_off(tmp_path, X.astype(np.float64), y, kind, weight, **settings)
    saved = (tmp_path / "fit.checkpoint").read_bytes()
    for rows in (X, sp.csr_matrix(X), sp.csr_matrix(X.astype(np.float64)), np.where(X == 0, -X, X)):
        assert goes_on(tmp_path, rows, y, kind, weight, cluster=n_ranks, **settings)
        (tmp_path / "fit.checkpoint").write_bytes(saved)


def shifted(constant):
    return lambda A, B: A @ B.T + constant


def test_other_settings_of_the_problem_are_refused(tmp_path):
    (_, X, y, _), *_ = other_data()
    y = y + (X[:, 1] > 0)  # three classes
    for k, (first, second) in enumerate(
        [
            ({}, {"C": 2.0}),
            ({}, {"gamma": 0.3}),
            ({}, {"kernel": "laplacian"}),
            ({}, {"class_weight": "balanced"}),
            ({"kernel": shifted(1.0)}, {"kernel": shifted(2.0)}),
        ]
    ):
        folder = tmp_path / str(k)
        cut_off(folder, X, y, KernelSVC, **first)
        assert not goes_on(folder, X, y, KernelSVC, **second), second
        assert goes_on(folder, X, y, KernelSVC, **{**first, "cache_size": 10}), first


def test_a_file_of_an_earlier_version_is_refused(tmp_path):
    checkpoint.save(tmp_path, STATE)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"checkpoint 2", b"checkpoint 1"))
    with pytest.raises(ValueError, match="not a checkpoint of this version of widemargin"):
        NuMarginSVC(checkpoint=tmp_path).fit([[0.0], [1.0]], [0, 1])


# -- folders and disks -------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_used_is_an_error_before_the_fit(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "taken" / "fit.checkpoint").mkdir(parents=True)
    monkeypatch.setattr(Ranks, "run", lambda *arguments: pytest.fail("the fit has begun"))
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper", "/proc/no/folder", tmp_path / "taken"):
        with pytest.raises(ValueError, match=r"cannot be used: .*Choose a folder|not a regular file"):
            NuMarginSVC(checkpoint=folder).fit([[0.0], [1.0]], [0, 1])


def test_a_full_disk_is_an_error_before_the_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(Ranks, "run", lambda *arguments: pytest.fail("the fit has begun"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"checkpoint='.*' cannot be used: No space left on device. Choose a folder"):
        NuMarginSVC(checkpoint=tmp_path).fit([[0.0], [1.0]], [0, 1])
    assert list(tmp_path.iterdir()) == []


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("cluster", [None, 2])
@pytest.mark.parametrize("fault", ["fsync", "replace", "open"])
def test_a_disk_that_fills_up_warns_once_and_the_fit_goes_on(tmp_path, monkeypatch, cluster, fault):
    X, y = make_nonseparable(600, 5, random_state=0)
    settings = {
        "nu": 0.5,
        "solver": "saddle",
        "block_size": 4,
        "tol": 1e-9,
        "max_iter": 40,
        "random_state": 0,
        "cluster": cluster,
    }
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        alone = NuMarginSVC(**settings).fit(X, y)
    n_others = len(told)
    checked = checkpoint.check_folder

    def check_and_fill(folder):
        checked(folder)
        monkeypatch.setattr(os, fault, full)

    monkeypatch.setattr(checkpoint, "check_folder", check_and_fill)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = NuMarginSVC(**settings, checkpoint=tmp_path).fit(X, y)
    monkeypatch.undo()
    kinds = [each.category for each in told]
    assert kinds.count(CheckpointWarning) == 1
    assert len(kinds) == 1 + n_others
    (said,) = (each for each in told if each.category is CheckpointWarning)
    assert "No space left on device" in str(said.message)
    assert said.filename == __file__
    assert model.n_iter_ == alone.n_iter_
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_with_room_again_is_used_again(tmp_path, monkeypatch):
    saver = checkpoint.Saver(tmp_path, checkpoint.save)
    saver.save(STATE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.warns(CheckpointWarning, match="No space"):
            saver.save(STATE._replace(task="lost"))
    assert checkpoint.load(tmp_path).task == "a task"
    saver.save(STATE._replace(task="later"))
    assert checkpoint.load(tmp_path).task == "later"


def test_round_trip_and_absence(tmp_path):
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path / "deep" / "folder", STATE)
    again = checkpoint.load(tmp_path / "deep" / "folder")
    assert again.task == STATE.task
    for name in ("data", "directions", "sweeps"):
        np.testing.assert_array_equal(getattr(again, name), getattr(STATE, name))


@pytest.mark.parametrize("cut", [0, 5, 30, 60, -1])
def test_a_truncated_file_is_refused(tmp_path, cut):
    checkpoint.save(tmp_path, STATE)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"not a checkpoint|damaged"):
        checkpoint.load(tmp_path)


def test_every_flipped_byte_is_noticed(tmp_path):
    checkpoint.save(tmp_path, STATE)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for position in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        file.write_bytes(bytes(damaged))
        with pytest.raises(ValueError, match=r"not a checkpoint|damaged"):
            checkpoint.load(tmp_path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_with_the_right_checksum_is_refused(tmp_path, kind):
    """Anyone can make a checksum right, and choose how an archive is packed."""
    checkpoint.save(tmp_path, STATE._replace(directions=np.random.default_rng(0).normal(size=(1, 3000))))
    (file,) = tmp_path.iterdir()
    whole, head = file.read_bytes(), len(checkpoint._MAGIC)
    plain, packed = zipfile.ZipFile(io.BytesIO(whole[head + checkpoint._DIGEST :])), io.BytesIO()
    with zipfile.ZipFile(packed, "w", kind) as archive:
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
    for at in range(400, 20_000, 1500):
        payload = bytearray(packed.getvalue())
        payload[at : at + 300] = bytes(300)
        file.write_bytes(whole[:head] + hashlib.sha256(payload).digest() + payload)
        with pytest.raises(ValueError, match="does not contain the state of a fit"):
            checkpoint.load(tmp_path)


def test_a_failed_write_leaves_the_last_good_state(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, STATE)

    def fail(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        checkpoint.save(tmp_path, STATE._replace(task="another"))
    assert checkpoint.load(tmp_path).task == STATE.task
    assert len(list(tmp_path.iterdir())) == 1


PROGRAM = """
import sys
from widemargin import NuMarginSVC
from widemargin.data import make_nonseparable
X, y = make_nonseparable(3000, 40, random_state=0)
model = NuMarginSVC(solver="saddle", block_size=1, tol=0.0, max_iter=1_000_000, checkpoint=sys.argv[1])
model.fit(X, y)
"""


def test_a_killed_process_leaves_a_state_to_go_on_from(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    try:
        deadline = time.monotonic() + 90
        while checkpoint.load(tmp_path) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait(timeout=20)
    state = checkpoint.load(tmp_path)
    assert state is not None
    X, y = make_nonseparable(3000, 40, random_state=0)
    model = NuMarginSVC(checkpoint=tmp_path).fit(X, y)
    assert model.stop_reason_ == "gap"
    assert model.n_iter_ >= state.sweeps[0]
