"""Progress lines, and Ctrl-C: the real one, sent to a real process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from widemargin.callbacks import ProgressLine, first_interrupt_kept
from widemargin.problems.protocol import Certificate

# -- in this process -------------------------------------------------------------------------------------------------


def test_the_first_interrupt_is_a_flag_and_the_second_raises():
    before = signal.getsignal(signal.SIGINT)
    assert before is signal.default_int_handler
    with first_interrupt_kept(True) as interruption:
        assert not interruption
        signal.raise_signal(signal.SIGINT)
        assert interruption
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_afterwards_ctrl_c_is_as_it_was_even_if_the_inside_fails():
    with pytest.raises(ZeroDivisionError), first_interrupt_kept(True):
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_it_is_not_wanted_ctrl_c_raises():
    with pytest.raises(KeyboardInterrupt), first_interrupt_kept(False):
        signal.raise_signal(signal.SIGINT)


def test_somebody_else_s_handler_is_left_alone():
    seen = []
    signal.signal(signal.SIGINT, lambda *arguments: seen.append(1))
    try:
        with first_interrupt_kept(True) as interruption:
            signal.raise_signal(signal.SIGINT)
            assert not interruption
        assert seen == [1]
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_in_another_thread_nothing_is_changed():
    outcome = []

    def task():
        with first_interrupt_kept(True) as interruption:
            outcome.append((bool(interruption), signal.getsignal(signal.SIGINT) is signal.default_int_handler))

    thread = threading.Thread(target=task)
    thread.start()
    thread.join(timeout=10)
    assert outcome == [(False, True)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_one_line_that_is_overwritten():
    stream = Terminal()
    line = ProgressLine("Name", 1e-3, stream)
    line.show(1, Certificate(12345.678, 0.5), 0.1, is_last=True)
    line.show(2, Certificate(1.0, 0.9), 0.2, is_last=True)
    first, second = stream.getvalue().split("\r")[1:]
    assert len(second.rstrip("\n")) >= len(first.rstrip("\n"))  # nothing of the longer line is left over
    assert "gap 1.00e-01 (tol 1e-03)" in second
    assert "[0.9, 1]" in second


def test_a_file_gets_a_line_of_its_own_and_not_for_every_sweep():
    stream = io.StringIO()
    line = ProgressLine("Name", 1e-3, stream)
    for sweep in range(50):
        line.show(sweep, Certificate(1.0, 0.5), 0.0)
    line.show(50, Certificate(1.0, 1.0), 0.0, is_last=True)
    lines = stream.getvalue().splitlines()
    assert 2 <= len(lines) < 10
    assert "sweep   50" in lines[-1]
    assert "\r" not in stream.getvalue()


# -- a real process --------------------------------------------------------------------------------------------------

CHILD = """
import json, sys, threading, warnings
import numpy as np
from widemargin import HardMarginSVC, NuMarginSVC

class Marker:
    # Says on stdout that the fit is under way.
    def __init__(self): self.is_new = True
    def setup(self, estimator, context): pass
    def teardown(self, estimator, context): pass
    def on_fit_task_begin(self, estimator, context): pass
    def on_fit_task_end(self, estimator, context):
        if self.is_new and context.task_name == "sweep":
            self.is_new = False
            print("fitting", flush=True)

rng = np.random.default_rng(0)
y = np.repeat([-1, 1], 400)
X = rng.normal(size=(800, 20)) + 0.5 * y[:, None]
endless = dict(solver="saddle", block_size=1, tol=0.0, max_iter=10**6, random_state=0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.simplefilter("ignore", RuntimeWarning)
    try:
        {fit}
        told = {{"stop_reason": model.stop_reason_, "coef_shape": list(model.coef_.shape),
                "is_finite": bool(np.isfinite(model.coef_).all()), "dual": model.certificate_.dual,
                "primal": model.certificate_.primal, "accuracy": model.score(X, y)}}
    except KeyboardInterrupt:
        told = {{"raised": "KeyboardInterrupt"}}
told["warnings"] = sorted({{each.category.__name__ for each in caught}})
told["threads"] = [thread.name for thread in threading.enumerate() if thread.name.startswith("widemargin")]
print(json.dumps(told), flush=True)
"""


def interrupted(fit):
    """Run the child, send it SIGINT once it fits, which it does for ever, and return what it says at its end."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(fit=fit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    # A child that never says anything must not hold up the test.
    watchdog = threading.Timer(120, child.kill)
    watchdog.start()
    try:
        assert child.stdout.readline() == "fitting\n", child.stderr.read()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=100)
        assert child.returncode == 0, err
        return json.loads(out.splitlines()[-1])
    finally:
        watchdog.cancel()
        if child.poll() is None:
            child.kill()
            child.wait(timeout=10)


@pytest.mark.parametrize("cluster", [None, 2])
def test_ctrl_c_keeps_the_best_model_so_far_and_warns(cluster):
    told = interrupted(f"model = NuMarginSVC(cluster={cluster}, **endless).set_callbacks(Marker()).fit(X, y)")
    assert told["stop_reason"] == "interrupted"
    assert told["warnings"] == ["InterruptedFitWarning"]
    assert told["coef_shape"] == [1, 20]
    assert told["is_finite"]
    assert told["dual"] <= told["primal"]
    assert told["accuracy"] > 0.5
    assert told["threads"] == []


def test_ctrl_c_on_several_classes_ends_all_of_them():
    told = interrupted(
        "y = np.arange(800) % 3; X = X + 3 * np.eye(3, 20)[y]; "
        "model = NuMarginSVC(**endless).set_callbacks(Marker()).fit(X, y)"
    )
    assert told["stop_reason"] == "interrupted"
    assert told["coef_shape"] == [3, 20]
    assert told["is_finite"]


SEARCH = (
    "from sklearn.model_selection import GridSearchCV; "
    "model = GridSearchCV(NuMarginSVC(cluster={cluster}, **endless).set_callbacks(Marker()), {{'nu': [0.5, 0.6]}}, "
    "cv=2, n_jobs=1).fit(X, y)"
)


@pytest.mark.parametrize("cluster", [None, 2])
def test_ctrl_c_inside_a_search_ends_the_search(cluster):
    told = interrupted(SEARCH.format(cluster=cluster))
    assert told["raised"] == "KeyboardInterrupt"
    assert told["threads"] == []


def test_ctrl_c_inside_a_pipeline_ends_the_pipeline():
    told = interrupted(
        "from sklearn.pipeline import make_pipeline; "
        "model = make_pipeline(NuMarginSVC(**endless).set_callbacks(Marker())).fit(X, y)"
    )
    assert told["raised"] == "KeyboardInterrupt"
