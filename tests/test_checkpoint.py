"""A fit that is killed goes on from its last state; a damaged or foreign state is refused."""

from __future__ import annotations

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
from sklearn.exceptions import ConvergenceWarning

from widemargin import HardMarginSVC, NuMarginSVC, checkpoint
from widemargin.data import make_nonseparable, make_separable

STATE = checkpoint.FitState("a task", np.array([3.0, 4.0]), np.ones((1, 3)), np.array([7]))


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
        (NuMarginSVC, {"solver": "saddle", "block_size": 8, "random_state": 0}),
        (NuMarginSVC, {"solver": "newton"}),
        (HardMarginSVC, {"solver": "newton"}),
        (NuMarginSVC, {"solver": "saddle", "block_size": 8, "random_state": 0, "cluster": 2}),
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
    limited(NuMarginSVC, 5, tmp_path, tol=1e-12)(X, y)
    for model, rows in (
        (NuMarginSVC(), X + 1e-3),
        (NuMarginSVC(nu=0.5), X),
        (HardMarginSVC(), X),
        (NuMarginSVC(), X[:, :4]),
    ):
        with pytest.raises(ValueError, match="checkpoint belongs to another"):
            model.set_params(checkpoint=tmp_path).fit(rows, y)


def test_round_trip_and_absence(tmp_path):
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path / "deep" / "folder", STATE)
    again = checkpoint.load(tmp_path / "deep" / "folder")
    assert again.task == STATE.task
    for name in ("marks", "directions", "sweeps"):
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
