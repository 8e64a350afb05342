"""Compilation between processes: one at a time, but no process waits for one that was stopped."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from widemargin.compiled import jit
from widemargin.compiled.clock import CLOCK

fcntl = pytest.importorskip("fcntl", reason="no locks between processes here")

FUNCTIONS = """
from widemargin.compiled.jit import compiled

@compiled()
def inner(x):
    return x + 1

@compiled()
def outer(x):
    return 2 * inner(x)
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """Two compiled functions in a file of their own, one of which calls the other, and the folder of their cache."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(jit, "_lock_path", lambda: tmp_path / "lock")
    path = tmp_path / "functions_to_compile.py"
    path.write_text(FUNCTIONS)
    spec = importlib.util.spec_from_file_location("functions_to_compile", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept(functions):
    return list(Path(functions.outer._cache.cache_path).glob("functions_to_compile*.nbi"))


def test_private_names_of_numba_are_where_jit_expects_them():
    from numba import njit
    from numba.core import caching

    moved = "Numba moved {}: adapt compiled/jit.py, the only file that uses it."
    assert hasattr(caching, "NullCache"), moved.format("caching.NullCache")
    found: Any = njit(lambda x: x)
    assert isinstance(found._cache, caching.NullCache), moved.format("Dispatcher._cache, or its default")
    assert callable(found.compile), moved.format("Dispatcher.compile")


def test_what_is_compiled_is_kept_on_disk(functions):
    assert functions.outer(1) == 4
    assert kept(functions)
    assert jit._holds_lock is None


def test_the_clock_runs_while_something_compiles_and_at_no_other_time(functions):
    begin = CLOCK.seconds
    started = time.perf_counter()
    functions.outer(1)
    elapsed = time.perf_counter() - started
    assert 0 < CLOCK.seconds - begin <= elapsed
    after = CLOCK.seconds
    functions.outer(2)
    assert CLOCK.seconds == after


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_something_else_in_the_place_of_the_lock_does_no_harm_and_gets_none(functions, tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock = tmp_path / "lock"
    lock.mkdir() if kind == "folder" else lock.symlink_to(victim)
    assert functions.outer(1) == 4
    assert kept(functions) == []
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("is_stopped", [True, False])
def test_nobody_waits_for_a_process_that_was_stopped_while_it_compiled(functions, tmp_path, monkeypatch, is_stopped):
    monkeypatch.setattr(jit, "_LOCK_TIMEOUT", 0.2)
    hold = textwrap.dedent(f"""
        import fcntl, time
        file = open({str(tmp_path / "lock")!r}, "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        print("held", flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        if is_stopped:
            holder.send_signal(signal.SIGSTOP)
        try:
            assert functions.outer(1) == 4
            # The other may be writing: neither this function nor the one it calls is written.
            assert kept(functions) == []
        finally:
            holder.kill()
    assert functions.outer(1.5) == 5.0
    assert kept(functions)
