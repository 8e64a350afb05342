"""Threads: the same bits on any number of them, the limits a user sets, forks, Ctrl-C, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from tests.cores_program import CASES
from tests.engines.conftest import eventually
from tests.problems_at_hand import overlapping
from widemargin import KernelSVC, MarginDistributionSVC, NuMarginSVC, SparseSVC, SparseSVCCV, api, cores, pauses
from widemargin.comm.solo import Solo
from widemargin.comm.threads import on_ranks
from widemargin.engines import inline
from widemargin.problems.hinge_l2 import HingeL2
from widemargin.solvers.multipliers import Multipliers
from widemargin.threadpoolctl_private import blas_libraries

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "LOKY_MAX_CPU_COUNT"}
ENOUGH = 1e9  # work that is worth sharing
NUMBERS = ["1", "2", "3", "8"]
has_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs os.sched_setaffinity")
has_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def python(*arguments: str, **environment: str) -> str:
    """What a new process prints that has no limits of threads but these; it must end by itself, and quietly."""
    inherited = {name: value for name, value in os.environ.items() if name not in LIMITS}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def script(code: str, **environment: str) -> str:
    return python("-c", textwrap.dedent(code), **environment).strip()


# -- the same bits -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_threads():
    """For every case and number of threads: a digest, and how many pieces were shared."""
    return json.loads(python(str(ROOT / "tests" / "cores_program.py"), *CASES, "--", *NUMBERS))


@pytest.mark.parametrize("case", CASES)
def test_bits_do_not_depend_on_the_number_of_threads(by_threads, case):
    digests = {number: digest for number, (digest, _) in by_threads[case].items()}
    assert list(digests) == NUMBERS
    assert len(set(digests.values())) == 1, digests


@pytest.mark.parametrize("case", CASES)
def test_rows_are_shared(by_threads, case):
    n_pieces = {number: n for number, (_, n) in by_threads[case].items()}
    assert n_pieces["1"] == 0, "one thread shares with none"
    assert min(n_pieces[number] for number in NUMBERS[1:]) > 1


@pytest.mark.parametrize("limits", [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2"}])
def test_bits_do_not_depend_on_the_environment(by_threads, limits):
    cases = ["rbf", "linear", "nu", "margin distribution"]  # products of all kinds
    said = json.loads(python(str(ROOT / "tests" / "cores_program.py"), *cases, "--", "2", **limits))
    assert {case: said[case]["2"][0] for case in cases} == {case: by_threads[case]["2"][0] for case in cases}


# -- sharing pieces ----------------------------------------------------------------------------------------------------


def test_every_piece_is_done_once_by_several_threads():
    pieces, names, meeting = list(range(40)), set(), threading.Barrier(8, timeout=60)
    done = np.zeros(40, np.intp)

    def do(piece):
        names.add(threading.current_thread().name)
        if piece < 8:
            meeting.wait()  # broken unless eight threads are at work
        done[piece] += 1

    with cores.at_most(8):
        cores.each(do, pieces, ENOUGH)
    assert (done == 1).all()
    assert names == {threading.current_thread().name, "widemargin-core"}


@pytest.mark.parametrize(("n", "n_pieces", "work"), [(1, 5, ENOUGH), (4, 1, ENOUGH), (4, 5, 1.0), (4, 0, ENOUGH)])
def test_little_work_stays_in_the_calling_thread(n, n_pieces, work):
    names = []
    with cores.at_most(n):
        cores.each(lambda _: names.append(threading.current_thread()), range(n_pieces), work)
    assert names == [threading.current_thread()] * n_pieces


@pytest.mark.parametrize("is_helper", [False, True])
def test_an_error_in_a_piece_is_raised_once_the_others_are_done(is_helper):
    caller, both_begun, n_ended = threading.current_thread(), threading.Barrier(2, timeout=60), []

    def do(piece):
        if piece < 2:
            both_begun.wait()
        if (threading.current_thread() is not caller) == is_helper:
            raise ZeroDivisionError("told to fail")
        n_ended.append(piece)

    with cores.at_most(2), pytest.raises(ZeroDivisionError, match="told to fail"):
        cores.each(do, range(1000), ENOUGH)
    n_then = len(n_ended)
    assert n_then < 1000
    cores.each(lambda _: None, range(10), ENOUGH)
    assert len(n_ended) == n_then


def test_helpers_have_the_context_of_the_caller_but_neither_its_clock_nor_its_threads():
    seen, meeting = {}, threading.Barrier(2, timeout=60)

    def do(piece):
        meeting.wait()
        seen[threading.current_thread().name] = np.geterr()["over"], cores.n_threads(), pauses.is_time_up(1e9)

    clock = pauses.Clock(Solo(), lambda: "time")
    with np.errstate(over="raise"), cores.at_most(2), clock.running(), pytest.raises(pauses.TimeIsUp):
        cores.each(do, range(2), ENOUGH, may_end=True)
    caller = threading.current_thread().name
    assert seen == {caller: ("raise", 2, True), "widemargin-core": ("raise", 1, False)}


def test_pieces_may_share_pieces():
    sums = np.zeros((6, 50))

    def outer(row):
        cores.each(lambda column: sums.__setitem__((row, column), row * column), range(50), ENOUGH)

    with cores.at_most(4):
        cores.each(outer, range(6), ENOUGH)
    np.testing.assert_array_equal(sums, np.outer(np.arange(6), np.arange(50)))


def test_callers_side_by_side_share_one_pool(monkeypatch):
    monkeypatch.setattr(cores, "_pool", cores._Pool())
    monkeypatch.setattr(cores, "available_threads", lambda: 4)
    most, counted = [0], threading.Lock()
    rows = np.zeros((8, 64))

    def fit(number):
        def do(piece):
            with counted:
                most[0] = max(most[0], len(cores._pool._threads))
            rows[number, piece] += 1

        for _ in range(20):
            cores.each(do, range(64), ENOUGH)

    callers = [threading.Thread(target=fit, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (rows == 20).all()
    assert 1 <= most[0] <= 3
    assert eventually(lambda: cores._pool._n_valid == 0)


def test_where_no_thread_can_be_started_the_caller_works_alone(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    pool = cores._Pool()
    monkeypatch.setattr(cores, "_pool", pool)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []
    with cores.at_most(4):
        cores.each(done.append, range(10), ENOUGH)
    assert done == list(range(10))
    assert pool._tickets.empty()


def test_idle_threads_end():
    with cores.at_most(6):
        cores.each(lambda _: None, range(100), ENOUGH)
    assert eventually(lambda: "widemargin-core" not in {thread.name for thread in threading.enumerate()})
    assert not cores._pool._threads
    assert cores._pool._tickets.empty()


class Rows:
    """Something that a piece refers to."""


@pytest.mark.parametrize("fails", [False, True])
def test_threads_that_wait_keep_no_rows(fails):
    def share():
        rows, meeting = Rows(), threading.Barrier(2, timeout=60)

        def do(piece, rows=rows):
            meeting.wait()
            if fails and threading.current_thread().name == "widemargin-core":
                raise ZeroDivisionError

        try:
            with cores.at_most(2):
                cores.each(do, range(2), ENOUGH)
        except ZeroDivisionError:
            pass
        return weakref.ref(rows)

    gc.disable()
    try:
        kept = share()
        assert eventually(lambda: kept() is None)
    finally:
        gc.enable()


# -- limits ------------------------------------------------------------------------------------------------------------

SAY = "from widemargin import cores; print(cores.available_threads())"


@has_affinity
def test_affinity_is_a_limit_also_when_it_changes():
    code = """
        import os
        from widemargin import cores

        cores.available_threads()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(cores.available_threads())
    """
    assert script(code) == "1"


def test_the_environment_is_a_limit():
    n_cores = int(script("import joblib; print(joblib.cpu_count(only_physical_cores=True))"))
    assert script(SAY) == str(n_cores)
    assert script(SAY, OMP_NUM_THREADS="1") == "1"
    assert script(SAY, OMP_NUM_THREADS="2") == str(min(2, len(os.sched_getaffinity(0))))


def test_threadpoolctl_is_a_limit():
    code = """
        from threadpoolctl import threadpool_limits
        from widemargin import cores

        before = cores.available_threads()
        with threadpool_limits(1):
            assert cores.available_threads() == 1
            with cores.one_blas_thread():
                assert cores.n_threads() == 1
        assert cores.available_threads() == before
    """
    script(code)


def test_workers_of_joblib_divide_the_cores():
    code = """
        from joblib import Parallel, cpu_count, delayed
        from widemargin import cores

        if __name__ == "__main__":
            said = Parallel(n_jobs=2)(delayed(cores.available_threads)() for _ in range(2))
            assert max(said) <= max(1, cpu_count() // 2), said
    """
    script(code)


def test_ranks_and_folds_divide_the_threads_of_the_caller():
    with cores.at_most(8):
        assert on_ranks(1, lambda comm: cores.n_threads()) == [8]
        assert on_ranks(3, lambda comm: cores.n_threads()) == [2, 2, 2]
        assert on_ranks(9, lambda comm: cores.n_threads()) == [1] * 9
        assert inline.map_items(2, lambda shared, item: cores.n_threads(), None, [1, 2, 3]) == [4, 4, 4]
        assert inline.map_items(None, lambda shared, item: cores.n_threads(), None, [1, 2]) == [8, 8]


@pytest.mark.xdist_group("dask")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_workers_of_dask_in_one_process_use_their_own_threads(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs the dask extra")
    from widemargin.strategies.ranks import Ranks

    seen, run_on_rank = [], Ranks.run_on_rank

    def look(self, *arguments, **options):
        seen.append(cores.n_threads())
        return run_on_rank(self, *arguments, **options)

    monkeypatch.setattr(Ranks, "run_on_rank", look)
    monkeypatch.setattr(cores, "available_threads", lambda: 16)
    options = {"n_workers": 2, "threads_per_worker": 3, "processes": False, "dashboard_address": None}
    X, y = overlapping(0, n=60)
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        NuMarginSVC(cluster=client).fit(X, y)
        assert seen == [3, 3]
        from widemargin.engines.dask import map_items

        assert map_items(client, lambda shared, item: cores.n_threads(), None, [1, 2]) == [3, 3]


# -- BLAS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def blas():
    """A library of BLAS on three threads, if only in name."""
    library = blas_libraries()[0]
    before = library.get()
    library.set(3)
    yield library
    library.set(before)


def test_libraries_are_set_from_any_thread_and_all_are_found(blas):
    import scipy.linalg.cython_blas  # noqa: F401  compiled code calls this one
    from threadpoolctl import threadpool_info

    assert len(blas_libraries()) == sum(each["user_api"] == "blas" for each in threadpool_info())
    assert len(blas_libraries()) == len(cores._blas._found()), "a library was loaded after the first fit"
    with cores.one_blas_thread():
        pass  # this thread was the first to set a number
    inside = []
    thread = threading.Thread(target=lambda: _note(inside, blas))
    thread.start()
    thread.join()
    assert inside == [1]
    assert blas.get() == 3


def _note(inside, blas):
    with cores.one_blas_thread():
        inside.append(blas.get())


def test_products_have_one_blas_thread_until_the_last_block_ends(blas):
    is_inside, may_leave = threading.Event(), threading.Event()

    def other():
        with cores.one_blas_thread():
            is_inside.set()
            may_leave.wait(60)

    thread = threading.Thread(target=other)
    with cores.one_blas_thread():
        assert blas.get() == 1
        thread.start()
        assert is_inside.wait(60)
    assert blas.get() == 1
    may_leave.set()
    thread.join()
    assert blas.get() == 3


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_blas_threads_are_restored_after_errors(blas, error):
    with pytest.raises(error), cores.one_blas_thread():
        raise error
    assert blas.get() == 3


def test_a_block_that_did_not_say_that_it_ended_is_forgotten(blas):
    cores._blas.enter(cores._Block())
    assert blas.get() == 1
    with cores.one_blas_thread():
        assert blas.get() == 1
    assert blas.get() == 3


class PerThread:
    """A library in which each thread has its own number, as MKL."""

    is_per_thread = True

    def __init__(self):
        self._local = threading.local()

    def get(self):
        return getattr(self._local, "number", 4)

    def set(self, number):
        self._local.number = number


def test_where_each_thread_has_its_own_number_all_that_help_have_one(monkeypatch):
    library, seen, meeting = PerThread(), [], threading.Barrier(3, timeout=60)
    monkeypatch.setattr(cores._blas, "_libraries", [library])
    monkeypatch.setattr(cores, "_pool", cores._Pool())

    def do(piece):
        meeting.wait()
        seen.append(library.get())

    with cores.at_most(3), cores.one_blas_thread():
        cores.each(do, range(3), ENOUGH)
    assert seen == [1, 1, 1]
    assert library.get() == 4


WAYS = {
    "ranks": lambda X, y: NuMarginSVC(cluster=2).fit(X, y),
    "tree": lambda X, y: MarginDistributionSVC(solver="partition-merge", n_partitions=2, cluster=2).fit(X, y),
    "folds": lambda X, y: SparseSVCCV(n_alphas=3, cv=2, cluster=2).fit(X, y),
    "further rows": lambda X, y: KernelSVC().partial_fit(X, y, classes=np.unique(y)).partial_fit(X[::2], y[::2]),
    "solve": lambda X, y: api.solve(Multipliers(), HingeL2(C=1.0), X, y, ranks=2),
    "an error": lambda X, y: _fails(X, y),
}


def _fails(X, y):
    with pytest.raises(ValueError, match="at least 2 classes"):
        SparseSVC().fit(X, np.ones(len(y)))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_a_fit_has_one_blas_thread(monkeypatch, blas, way):
    numbers, init = {blas.get()}, pauses.Clock.__init__

    def look(self, *arguments):
        numbers.add(blas.get())
        init(self, *arguments)

    monkeypatch.setattr(pauses.Clock, "__init__", look)
    WAYS[way](*overlapping(0, n=60))
    assert numbers <= {1, 3}
    assert way == "an error" or 1 in numbers
    assert blas.get() == 3


def test_predictions_have_one_blas_thread(monkeypatch, blas):
    X, y = overlapping(0, n=60)
    model = NuMarginSVC().fit(X, y)
    numbers, scores = [], type(model)._scores

    def noted(self, X):
        numbers.append(blas.get())
        return scores(self, X)

    monkeypatch.setattr(type(model), "_scores", noted)
    model.predict(X)
    assert numbers == [1]
    assert blas.get() == 3


# -- forks, threads, Ctrl-C, and the end -------------------------------------------------------------------------------

FIT = """
    import os, signal, sys, threading, time, warnings
    import numpy as np
    from tests.cores_program import clouds, digest
    from widemargin import KernelSVC, cores

    X, y = clouds(3000, 20)

    def fit(_=None):
        with cores.at_most(4):
            return digest(KernelSVC(random_state=0).fit(X, y), X)
"""


def fitting(code: str) -> str:
    return script(textwrap.dedent(FIT) + textwrap.dedent(code))


def test_fits_side_by_side_in_one_process_have_the_same_bits():
    code = """
    from concurrent.futures import ThreadPoolExecutor
    alone = fit()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fit, range(8))) == [alone] * 8
    from joblib import Parallel, delayed
    assert Parallel(n_jobs=3, backend="threading")(delayed(fit)() for _ in range(6)) == [alone] * 6
    """
    fitting(code)


@has_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_fork_after_a_fit_and_while_one_runs():
    code = """
    import multiprocessing
    from widemargin.threadpoolctl_private import blas_libraries

    warnings.simplefilter("ignore")
    before = [each.get() for each in blas_libraries()]
    alone = fit()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(fit, range(4)) == [alone] * 4
    is_over = threading.Event()

    def keep_fitting():
        while not is_over.is_set():
            fit()

    thread = threading.Thread(target=keep_fitting)
    thread.start()
    for _ in range(10):
        time.sleep(.05)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that hangs is killed, and that is an error
            is_right = [each.get() for each in blas_libraries()] == before and fit() == alone
            os._exit(0 if is_right else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    is_over.set()
    thread.join()
    assert [each.get() for each in blas_libraries()] == before
    """
    fitting(code)


def test_workers_of_joblib_have_the_same_bits():
    code = """
    from joblib import Parallel, delayed
    from tests.cores_program import CASES, fitted
    make, rows = CASES["rbf"]
    work = lambda: digest(fitted(make(), *rows()), rows()[0])
    assert set(Parallel(n_jobs=2)(delayed(work)() for _ in range(2))) == {work()}
    """
    fitting(code)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal elsewhere")
def test_ctrl_c_ends_a_fit_on_threads_soon():
    code = """
    X, y = clouds(60_000, 20, shift=.1)
    warnings.simplefilter("ignore")
    threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with cores.at_most(4):
        model = KernelSVC(C=100.0, tol=1e-9, max_time=200).fit(X, y)
    assert model.stop_reason_ == "interrupted", model.stop_reason_
    time.sleep(2 * cores._IDLE_SECONDS)
    assert "widemargin-core" not in {thread.name for thread in threading.enumerate()}
    """
    fitting(code)


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal elsewhere")
@pytest.mark.parametrize("where", ["in its own piece", "while it waits"])
def test_ctrl_c_is_raised_when_the_pieces_that_have_begun_are_done(where):
    code = f"""
    both, is_pressed, ended = threading.Barrier(2), threading.Event(), []
    main, where = threading.current_thread(), {where!r}

    def do(piece):
        both.wait(60)
        if threading.current_thread() is main:
            while where == "in its own piece":
                time.sleep(.01)
            return
        time.sleep(.3)  # by now the other thread waits
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(.5)
        ended.append(piece)

    try:
        with cores.at_most(2):
            cores.each(do, range(2), 1e9)
    except KeyboardInterrupt:
        assert len(ended) == 1
    else:
        raise AssertionError("Ctrl-C was not heard")
    done = []
    with cores.at_most(2):
        cores.each(done.append, range(100), 1e9)
    assert sorted(done) == list(range(100))
    """
    fitting(code)


def test_the_interpreter_ends_while_others_fit_and_fits_at_its_end():
    code = """
    import atexit
    alone = fit()

    def at_exit():
        assert fit() == alone
        print("the last fit")

    atexit.register(at_exit)
    threading.Thread(target=lambda: [fit() for _ in range(1000)], daemon=True).start()
    time.sleep(.2)
    """
    assert fitting(code) == "the last fit"
