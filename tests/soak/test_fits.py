"""Many fits in one process leave no thread, no file and no socket behind, and memory as it was."""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
import traceback
import warnings

import numpy as np
import pytest

from tests.cores_program import clouds
from tests.engines.conftest import eventually
from tests.soak.fits import KINDS, Left, assert_nothing_left, fit_one, settled
from widemargin import GossipSVC, KernelSVC, NuMarginSVC, SparseSVC, cores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
MEBIBYTE = 1 << 20


def core_threads():
    return {thread for thread in threading.enumerate() if thread.name == "widemargin-core"}


def threads_at_work(seconds=10.0):
    """Those that do not end by themselves: they belong to earlier tests, which a warning helps to find."""
    until = time.monotonic() + seconds
    while core_threads() and time.monotonic() < until:
        time.sleep(0.05)
    frames, left = sys._current_frames(), core_threads()
    for thread in left:
        where = "".join(traceback.format_stack(frames[thread.ident])) if thread.ident in frames else ""
        warnings.warn(f"a thread of an earlier test is at work:\n{where}", stacklevel=2)
    return left


@pytest.mark.parametrize("n_fits", [40, pytest.param(200, marks=pytest.mark.long)])
def test_fits_of_all_kinds_leave_nothing(n_fits):
    ends = [fit_one(number) for number in range(2 * len(KINDS))]  # compiles, and imports what is imported late
    before = Left.now()
    ends += [fit_one(number) for number in range(n_fits)]
    # A leak of one tiny fit's rows and state would be a few KiB; of its compiled code or a thread's stack, far more.
    assert_nothing_left(before, settled(before), 24 * MEBIBYTE)
    assert {"gap", "raised", "max_time"} <= set(ends)


def test_fits_on_threads_leave_nothing():
    X, y = clouds(3_000, 20)
    before, others = None, threads_at_work()
    for number in range(12):
        if number == 4:  # all is compiled, and threads have their stacks
            assert eventually(lambda: core_threads() <= others)
            before = Left.now()
        with cores.at_most(4):
            KernelSVC(random_state=number).fit(X, y).predict(X)
    assert eventually(lambda: core_threads() <= others)
    assert_nothing_left(before, settled(before), 24 * MEBIBYTE)


@pytest.mark.long
def test_networks_that_are_simulated_leave_nothing():
    gossip = next(k for k in range(len(KINDS)) if isinstance(KINDS[k](), GossipSVC))
    numbers = [gossip + k * len(KINDS) for k in range(60)]
    for number in numbers[:10]:
        fit_one(number)
    before = Left.now()
    for number in numbers[10:30]:
        fit_one(number)
    assert_nothing_left(before, settled(before), 16 * MEBIBYTE)


@pytest.mark.long
def test_fits_on_a_dask_cluster_leave_nothing():
    distributed = pytest.importorskip("distributed")
    rng = np.random.default_rng(0)
    y = np.where(rng.permutation(200) < 90, 1, -1)
    X = rng.normal(size=(200, 5)) + y[:, None]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        models = [NuMarginSVC(cluster=client), SparseSVC(cluster=client), GossipSVC(cluster=client, max_time=20)]
        for model in models:
            model.fit(X, y)
        before = Left.now()
        for number in range(12):
            models[number % 3].fit(X, y)
        # Workers keep a pool of threads and connections of their own, which may not grow with every fit.
        after = settled(before)
        assert after.files + after.sockets <= before.files + before.sockets + 8
        assert len(after.threads) <= len(before.threads) + 4
        assert after.bytes - before.bytes <= 48 * MEBIBYTE


# -- the counting itself -----------------------------------------------------------------------------------------------


def test_what_is_left_is_noticed():
    threads_at_work()  # the others have ended, and given back memory
    before = Left.now()
    here, there = os.pipe()
    try:
        with pytest.raises(AssertionError, match="files are open"):
            assert_nothing_left(before, Left.now(), MEBIBYTE)
    finally:
        os.close(here)
        os.close(there)
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, name="one that stays")
    thread.start()
    try:
        with pytest.raises(AssertionError, match="one that stays"):
            assert_nothing_left(before, Left.now(), MEBIBYTE)
    finally:
        is_over.set()
        thread.join()
    before = Left.now()  # memory of earlier tests may have been given back meanwhile
    with mmap.mmap(-1, 64 * MEBIBYTE) as kept:  # malloc might give memory that is resident already
        kept.write(b"x" * len(kept))
        with pytest.raises(AssertionError, match="memory has grown"):
            assert_nothing_left(before, Left.now(), MEBIBYTE)
