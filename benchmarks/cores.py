"""How fast are fits on 1 to 16 cores, on small sets and on odd shapes, and how do they grow?

    python -m benchmarks.cores --threads 1,2,4,8,16 --only kernel
    python -m benchmarks.cores --only small,shapes

Every library runs in a process of its own for each number of cores, bound to them; they are asked in turn, and seconds
are medians after a first round that compiles. Ours stops at a certified gap of 1e-3, peers by their own tolerance of
1e-3. Peers: scikit-learn, and scikit-learn-intelex (float32 rows) where it can be imported; what is not there is left
out. Sections:

    kernel    the kernel C-SVM beside intelex's on each number of cores; predictions, own speed-up, kernel values
    rows      2,000,000 x 50 float32: linear fits on each number of cores, and the share of checking rows; the sparse
              SVM on 500,000 rows of covtype
    nu        nu-SVM for several nu beside NuSVC (at most 12,000 rows), intelex's (over 20,000) and LinearSVC; a fit of
              a peer is stopped after 25 seconds
    small     iris, wine, breast cancer, digits, 100 x 20: all beside their counterparts; one row predicted
    shapes    one row against 100,000, unequal classes, duplicated rows, sorted rows, beside SVC
    growth    seconds and memory against the number of rows of covtype, with exponents
    floor     seconds that the kernel values would take at the speed of products and exponentials here

``--draw`` only shows tables and draws pictures of what earlier runs have left. Results of each section are a file of
their own in ``results/cores``; a run on some numbers of threads keeps what others have found, also beside it.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from benchmarks import _cores_nu as nus
from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks._cores_runs import (
    INTELEX,
    OURS,
    SHAPES,
    SKLEARN,
    Contestant,
    growth_fit,
    interleaved,
    kernel_fit,
    kernel_objective,
    rows_fit,
    shape_fit,
    speeds,
)
from benchmarks._harness import Bar, Report
from benchmarks._kernel_runs import commit

LIMIT = 240.0  # seconds of one fit
GROWTH_LIMIT = 40.0  # seconds of a fit, after which a method is not asked for more rows
KERNEL_SETS = {
    "a9a-exact": ("pairs",),
    "ijcnn1": ("pairs",),
    "mnist8-bias": ("pairs",),
    "usps": ("pairs", "rest"),
    "w8a": ("pairs",),
    "covtype-50k": ("pairs",),
}
# How many times faster than intelex's on so many cores, and than ourselves on one.
ASKED = {
    "a9a-exact": {1: 4, 2: 3, 16: 1.8},
    "ijcnn1": {1: 5, 2: 3.75, 16: 2.5},
    "mnist8-bias": {1: 3, 2: 2.25, 16: 1.3},
    "usps": {1: 3, 2: 2.25},
    "w8a": {1: 5, 2: 3.75},
    "covtype-50k": {1: 4, 2: 3},
}
SPEED_UP = {"mnist8-bias": 7, "a9a-exact": 6, "ijcnn1": 4}
PREDICTION = 3
ROWS_SPEED_UP = 3.5
TALL_SPARSE, TALL_SPARSE_ROWS = "sparse, 500,000 x 54 of covtype", 500_000
TALL_SPARSE_SECONDS = {"1": 4.0, "2": 2.5}  # by the number of cores
NU_LIMIT = 25.0  # seconds of a peer's fit; where it takes longer its time is at least this
NUSVC_ROWS, INTELEX_ROWS = 12_000, 20_000  # NuSVC is asked up to the one, intelex's NuSVC beyond the other
NU_INTELEX = 50  # times faster than intelex's
NU_SMALL = 0.01  # seconds of NuSVC under which ours may take NU_SMALL_TIMES as long
NU_SMALL_TIMES = 3
GROWTH_SIZES = (1_000, 4_000, 16_000, 64_000, 100_000, 250_000, 500_000)
MOST_ROWS = {"rbf": 100_000, "SVC": 100_000}
GROWTH = {
    OURS: ("nu .3", "linear", "margin distribution", "sparse", "rbf"),
    SKLEARN: ("LinearSVC", "SVC", "NuSVC"),
    INTELEX: ("SVC",),
}


class Section(Report):
    """A section in a file of its own, which grows by what each run finds."""

    def __init__(self, name: str, *, quick: bool, folder: str = "cores") -> None:
        super().__init__(folder, quick=quick)
        self.name, self._path = name, self.folder / f"{name}.json"
        before = json.loads(self._path.read_text(encoding="utf8")) if self._path.exists() else {}
        self._content = {**before, **self._content}
        self._content["machine"] |= {"commit": commit()}

    def read(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self._content.get(section, {})
        return found

    def add(self, section: str, content: Any) -> None:
        """Write the section, with what other runs have found in the meantime: on other cores some run side by side."""
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = json.loads(self._path.read_text(encoding="utf8")) if self._path.exists() else {}
            self._content[section] = content
            self._content = _merged(before, self._content)
            text = json.dumps(self._content, indent=1, default=harness._plain, allow_nan=True)
            self._path.write_text(text + "\n", encoding="utf8")


def _merged(before: Any, now: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(now, dict):
        return now
    return {**before, **{key: _merged(before.get(key), each) for key, each in now.items()}}


def libraries(*wanted: str) -> list[str]:
    """Those that are installed."""
    return [name for name in wanted if name != INTELEX or find_spec("sklearnex") is not None]


def seconds(found: dict[str, Any] | None) -> float | None:
    return None if found is None else float(found["seconds"])


def ratio(peer: dict[str, Any] | None, ours: dict[str, Any] | None, key: str = "seconds") -> float | None:
    return None if peer is None or ours is None else float(peer[key] / ours[key])


# -- kernel ------------------------------------------------------------------------------------------------------------


def kernel(chosen: Any) -> None:
    section = Section("kernel", quick=chosen.quick)
    n_rows = 3_000 if chosen.quick else None
    found = section.read("fits")
    for n_threads in chosen.threads:
        contestants = {name: Contestant(name, n_threads) for name in libraries(OURS, INTELEX)}
        for data in chosen.sets or KERNEL_SETS:
            for multi_class in KERNEL_SETS[data]:
                name = data if len(KERNEL_SETS[data]) == 1 else f"{data}, {multi_class}"
                ask = (kernel_fit, data, multi_class, n_rows)
                answers = interleaved(contestants, *ask, repeats=chosen.repeats, limit=LIMIT)
                if data != "usps" and n_threads == max(chosen.threads):
                    for who, answer in answers.items():
                        truth = contestants[who].ask(kernel_objective, limit=LIMIT) if answer else None
                        found.setdefault(name, {}).setdefault("truth", {})[who] = truth
                found.setdefault(name, {})[str(n_threads)] = answers
                section.add("fits", found)
                show = [f"{who} {harness.text(seconds(answer))}" for who, answer in answers.items()]
                print(f"{name}, {n_threads} threads: {', '.join(show)} s", flush=True)
        for contestant in contestants.values():
            contestant.close()
    show_kernel(section)


def show_kernel(section: Section) -> None:
    found = section.read("fits")
    if not found:
        return
    head = [
        "set",
        "cores",
        "ours",
        "intelex",
        "times",
        "speed-up",
        "K / n^2",
        "error",
        "its",
        "predict",
        "its",
        "times",
    ]
    rows, bars = [], []
    for name, by_threads in found.items():
        alone = by_threads.get("1", {}).get(OURS)
        for n_threads in sorted((key for key in by_threads if key.isdigit()), key=int):
            ours, peer = by_threads[n_threads].get(OURS), by_threads[n_threads].get(INTELEX)
            if ours is None:
                continue
            times, faster = ratio(peer, ours), ratio(peer, ours, "predict_seconds")
            speed_up = ratio(alone, ours)
            error, predicted = (peer or {}).get("test_error"), (peer or {}).get("predict_seconds")
            rows.append(
                [name, int(n_threads), ours["seconds"], seconds(peer), times, speed_up, ours["kernel values / n^2"],
                 ours["test_error"], error, ours["predict_seconds"], predicted, faster]
            )  # fmt: skip
            data, n = name.split(",")[0], int(n_threads)
            if times is not None and n in ASKED[data]:
                asked = ASKED[data][n]
                bars.append(Bar(f"{name}, {n} cores", f"{asked:g} times", f"{times:.3g}", times >= asked))
            if faster is not None:
                bars.append(
                    Bar(f"{name}, {n} cores, predictions", f"{PREDICTION} times", f"{faster:.3g}", faster >= PREDICTION)
                )
            if n == 16 and data in SPEED_UP and speed_up is not None:
                asked = SPEED_UP[data]
                bars.append(Bar(f"{name}, from 1 to 16 cores", f"{asked} times", f"{speed_up:.3g}", speed_up >= asked))
    harness.show("Kernel C-SVM, gap 1e-3 (ours) and tol=1e-3 (intelex)", head, rows)
    section.bars(bars)
    figures.draw_cores_kernel(section, found, OURS, INTELEX)


# -- rows --------------------------------------------------------------------------------------------------------------


def rows(chosen: Any) -> None:
    section = Section("rows", quick=chosen.quick)
    shape = (100_000, 50) if chosen.quick else (2_000_000, 50)
    found = section.read("fits")
    for n_threads in chosen.threads:
        ours, peer = Contestant(OURS, n_threads), Contestant(SKLEARN, n_threads)
        for name in ("nu", "nu .3", "nu .5", "linear", "margin distribution"):
            answers = interleaved({OURS: ours}, rows_fit, name, *shape, repeats=chosen.repeats, limit=LIMIT)
            found.setdefault(name, {})[str(n_threads)] = answers[OURS]
        ask = growth_fit, "sparse", shape[0] if chosen.quick else TALL_SPARSE_ROWS
        answers = interleaved({OURS: ours}, *ask, repeats=chosen.repeats, limit=LIMIT)
        found.setdefault(TALL_SPARSE, {})[str(n_threads)] = answers[OURS]
        if n_threads == min(chosen.threads):  # it has one thread
            answers = interleaved({SKLEARN: peer}, rows_fit, "LinearSVC", *shape, repeats=1, limit=LIMIT)
            found.setdefault("LinearSVC", {})[str(n_threads)] = answers[SKLEARN]
        section.add("fits", found)
        ours.close()
        peer.close()
    table, bars = [], []
    for name, by_threads in found.items():
        for n_threads in sorted(by_threads, key=int):
            each, speed_up = by_threads[n_threads], ratio(by_threads.get("1"), by_threads[n_threads])
            share = each["checking_seconds"] / each["seconds"] if each and "checking_seconds" in each else None
            table.append([name, int(n_threads), seconds(each), speed_up, share])
            if name == TALL_SPARSE and n_threads in TALL_SPARSE_SECONDS and each is not None:
                asked, taken = TALL_SPARSE_SECONDS[n_threads], each["seconds"]
                bars.append(Bar(f"{name}, {n_threads} cores", f"{asked:g} s", f"{taken:.3g} s", taken <= asked))
            elif n_threads == "16" and speed_up is not None and name not in ("LinearSVC", TALL_SPARSE):
                bars.append(Bar(name, f"{ROWS_SPEED_UP} times", f"{speed_up:.3g}", speed_up >= ROWS_SPEED_UP))
    harness.show("{:,} x {} float32".format(*shape), ["fit", "cores", "s", "speed-up", "share of checking"], table)
    section.bars(bars)


# -- nu ----------------------------------------------------------------------------------------------------------------


def nu(chosen: Any) -> None:
    section, n_threads = Section("nu", quick=chosen.quick), chosen.threads[0]
    found = section.read(f"fits on {n_threads}")
    ours, sklearn, *intelex = (Contestant(name, n_threads) for name in libraries(OURS, SKLEARN, INTELEX))
    for data in chosen.sets or (nus.SMALL_SETS[:2] if chosen.quick else nus.SETS):
        n, d = sklearn.ask(nus.shape, data, limit=LIMIT)
        linear = interleaved({SKLEARN: sklearn}, nus.linear_fit, data, repeats=1, limit=LIMIT)[SKLEARN]
        found[data] = {"n": n, "d": d, "LinearSVC": linear, "fits": {}}
        peers = {SKLEARN: sklearn} if n <= NUSVC_ROWS else {}
        if n > INTELEX_ROWS and intelex:
            peers = {INTELEX: intelex[0]}
        for share in nus.SHARES:
            fits = interleaved({OURS: ours}, nus.nu_fit, data, share, repeats=1, limit=LIMIT)
            fits |= interleaved(peers, nus.nu_fit, data, share, repeats=1, limit=NU_LIMIT)
            found[data]["fits"][str(share)] = fits
            section.add(f"fits on {n_threads}", found)
    for contestant in (ours, sklearn, *intelex):
        contestant.close()
    show_nu(section, n_threads)


def show_nu(section: Section, n_threads: int) -> None:
    rows, bars, found = [], [], section.read(f"fits on {n_threads}")
    if not found:
        return
    for data, each in found.items():
        linear = each["LinearSVC"]["seconds"]
        for share, fits in each["fits"].items():
            claim, mine = f"{data}, {share} of the largest", fits[OURS]
            if mine is None:
                bars.append(Bar(claim, "gap or overlap", f"over {LIMIT:g} s", False))
                continue
            peer = next((name for name in fits if name != OURS), None)
            theirs = None if peer is None else seconds(fits[peer])
            text = None if peer is None else harness.at_most(theirs, NU_LIMIT)
            reasons = ", ".join(mine["stop_reasons"])
            rows.append([data, share, mine["seconds"], reasons, mine["gap"], peer, text, linear])
            bars.append(Bar(claim, "gap or overlap", reasons, set(mine["stop_reasons"]) <= {"gap", "overlap"}))
            if peer is not None:
                times = (NU_LIMIT if theirs is None else theirs) / mine["seconds"]
                is_small = peer == SKLEARN and theirs is not None and theirs < NU_SMALL
                asked = NU_INTELEX if peer == INTELEX else 1 / NU_SMALL_TIMES if is_small else 1
                sign = "at least " if theirs is None else ""
                bars.append(Bar(f"{claim}, {peer}", f"{asked:.3g} times", f"{sign}{times:.3g}", times >= asked))
            if data == "w8a" and share == "0.85":
                bars.append(_no_slower(f"{claim}, LinearSVC", mine["seconds"], linear, NU_SMALL_TIMES))
    head = ["set", "share", "ours s", "ends by", "gap", "peer", "its NuSVC s", "LinearSVC s"]
    harness.show(f"nu-SVM, {n_threads} core(s)", head, rows)
    section.bars(bars)


# -- small -------------------------------------------------------------------------------------------------------------


def small(chosen: Any) -> None:
    """All in this process, in turn; as small as these sets are, its number of threads does not matter."""
    section, found = Section("small", quick=chosen.quick), {}
    for data, (X, y) in _small_sets().items():
        models = _small_models(len(np.unique(y)))
        runs: dict[str, list[float]] = {name: [] for name in models}
        one_row: dict[str, list[float]] = {name: [] for name in models}
        for number in range(3 if chosen.quick else 12):
            for name, make in models.items():
                with harness.quietly():
                    begin = time.perf_counter()
                    model = make().fit(X, y)
                    taken = time.perf_counter() - begin
                begin = time.perf_counter()
                for _ in range(20):
                    model.predict(X[:1])
                if number:  # the first compiles
                    runs[name].append(taken)
                    one_row[name].append((time.perf_counter() - begin) / 20)
        found[data] = {name: {"seconds": median(runs[name]), "one row": median(one_row[name])} for name in models}
        section.add("fits", found)
    for key, title in (("seconds", "Small sets: milliseconds of a fit"), ("one row", "Milliseconds of one prediction")):
        table = [[name, *(1e3 * found[data][name][key] for data in found)] for name in models]
        harness.show(title, ["", *found], table)
    bars = []
    for data, each in found.items():
        for kernel_ in ("rbf", "linear"):
            pairs, rest = each[f"KernelSVC {kernel_}"], each[f"KernelSVC {kernel_}, rest"]
            svc, over = each[f"SVC {kernel_}"], each[f"OvR(SVC {kernel_})"]
            bars += [
                _no_slower(f"{data}, {kernel_}, rest beside OvR(SVC)", rest["seconds"], over["seconds"], 1.0),
                _no_slower(f"{data}, {kernel_}, pairs beside SVC", pairs["seconds"], svc["seconds"], 2.0),
                _no_slower(f"{data}, {kernel_}, one row beside SVC", pairs["one row"], svc["one row"], 1.0),
            ]
    first = found["100 x 20"]["KernelSVC rbf"]["seconds"]
    bars.append(Bar("100 x 20, rbf", "1.5 ms", f"{1e3 * first:.3g} ms", first <= 1.5e-3))
    section.bars(bars)


def _no_slower(claim: str, ours: float, peer: float, times: float) -> Bar:
    return Bar(claim, f"{times:g} times", f"{ours / peer:.3g}", ours <= times * peer)


def _small_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
    from sklearn.preprocessing import StandardScaler

    loaders = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
    found = {name: load(return_X_y=True) for name, load in loaders.items()}
    found = {name: (StandardScaler().fit_transform(X), y) for name, (X, y) in found.items()}
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 20))
    return {**found, "100 x 20": (X, (X[:, 0] + 0.5 * rng.normal(size=100) > 0).astype(int))}


def _small_models(n_classes: int) -> dict[str, Callable[[], Any]]:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC, LinearSVC, NuSVC

    from widemargin import KernelSVC, NuMarginSVC

    models: dict[str, Callable[[], Any]] = {}
    for kernel_ in ("rbf", "linear"):
        models[f"KernelSVC {kernel_}"] = lambda kernel_=kernel_: KernelSVC(kernel=kernel_)
        models[f"KernelSVC {kernel_}, rest"] = lambda kernel_=kernel_: KernelSVC(kernel=kernel_, multi_class="rest")
        models[f"SVC {kernel_}"] = lambda kernel_=kernel_: SVC(kernel=kernel_)
        models[f"OvR(SVC {kernel_})"] = lambda kernel_=kernel_: OneVsRestClassifier(SVC(kernel=kernel_))
    models["NuMarginSVC nu=.1"] = lambda: NuMarginSVC(nu=0.1)
    models["NuSVC nu=.1"] = lambda: NuSVC(kernel="linear", nu=0.1)
    models["LinearSVC"] = lambda: LinearSVC()
    return models


# -- shapes ------------------------------------------------------------------------------------------------------------


def shapes(chosen: Any) -> None:
    section, found = Section("shapes", quick=chosen.quick), {}
    contestants = {name: Contestant(name, chosen.threads[0]) for name in libraries(OURS, SKLEARN, INTELEX)}
    for name in SHAPES[1:3] if chosen.quick else SHAPES:
        found[name] = interleaved(contestants, shape_fit, name, repeats=chosen.repeats, limit=LIMIT)
        section.add(f"fits on {chosen.threads[0]}", found)
    for contestant in contestants.values():
        contestant.close()
    table = [[name, *(seconds(each.get(who)) for who in contestants)] for name, each in found.items()]
    harness.show(f"Shapes, {chosen.threads[0]} core(s), seconds", ["", *contestants], table)
    section.bars(
        [_no_slower(name, each[OURS]["seconds"], each[SKLEARN]["seconds"], 1.0) for name, each in found.items()
         if each[OURS] and each[SKLEARN]]
    )  # fmt: skip


# -- growth ------------------------------------------------------------------------------------------------------------


def growth(chosen: Any) -> None:
    section, n_threads = Section("growth", quick=chosen.quick), chosen.threads[0]
    found = section.read(f"fits on {n_threads}")
    sizes = GROWTH_SIZES[:3] if chosen.quick else GROWTH_SIZES
    contestants = {name: Contestant(name, n_threads) for name in libraries(*GROWTH)}
    is_over: set[str] = set()
    for n in sizes:
        for who, contestant in contestants.items():
            for method in GROWTH[who]:
                name = method if who == OURS else f"{method} ({who})"
                if name in is_over or n > MOST_ROWS.get(method, n):
                    continue
                answer = interleaved({who: contestant}, growth_fit, method, n, repeats=1, limit=3 * GROWTH_LIMIT)[who]
                if answer is None or answer["seconds"] > GROWTH_LIMIT:
                    is_over.add(name)
                found.setdefault(name, {})[str(n)] = answer
                print(f"{n:>7} rows, {name}: {harness.text(seconds(answer))} s", flush=True)
        section.add(f"fits on {n_threads}", found)
    for contestant in contestants.values():
        contestant.close()
    table = []
    for name, by_size in found.items():
        cells = [seconds(by_size.get(str(n))) for n in sizes]
        most = max((each["MiB"] or 0.0 for each in by_size.values() if each), default=0.0)
        table.append([name, *cells, exponent(by_size), most])
    harness.show(f"Growth, covtype, {n_threads} core(s)", ["", *(f"{n:,}" for n in sizes), "exponent", "MiB"], table)
    section.add("exponents", {name: exponent(by_size) for name, by_size in found.items()})
    draw_growth(section, n_threads)


def exponent(by_size: dict[str, Any]) -> float | None:
    """The slope of log seconds over log rows, from 4,000 rows on: smaller fits are mostly calls."""
    points = [(int(n), each["seconds"]) for n, each in by_size.items() if each and int(n) >= 4_000]
    return float(np.polyfit(*np.log(np.array(points).T), 1)[0]) if len(points) > 1 else None


def draw_growth(section: Section, n_threads: int = 1) -> None:
    found = section.read(f"fits on {n_threads}")
    if found:
        figures.draw_cores_growth(section, found, exponent, n_threads)


# -- floor -------------------------------------------------------------------------------------------------------------


def floor(chosen: Any) -> None:
    """From the fits of the section ``kernel``, at the speeds that are measured now."""
    section, fits, found = Section("floor", quick=chosen.quick), Section("kernel", quick=chosen.quick).read("fits"), {}
    for n_threads in chosen.threads:
        contestant = Contestant(OURS, n_threads)
        for name, by_threads in fits.items():
            fit = by_threads.get(str(n_threads), {}).get(OURS)
            if fit is None:
                continue
            speed = contestant.ask(speeds, fit["d"], limit=LIMIT)
            value = fit["d"] / speed["products"] + 1 / speed["exp"]  # seconds of a kernel value
            least = value * fit["n"] * fit["n_support"]
            found[f"{name}, {n_threads} cores"] = {
                "seconds": fit["seconds"],
                "G products/s": speed["products"] / 1e9,
                "G exp/s": speed["exp"] / 1e9,
                "its kernel values s": value * fit["kernel_evaluations"],
                "n x support vectors s": least,
                "share of the first": value * fit["kernel_evaluations"] / fit["seconds"],
                "share of the second": least / fit["seconds"],
            }
        contestant.close()
        section.add("floor", found)
    if not found:
        sys.exit("The section floor needs the fits of the section kernel: run that first, on the same machine.")
    head = list(next(iter(found.values())))
    table = [[name, *each.values()] for name, each in found.items()]
    harness.show("Seconds of the kernel values alone, at the speed of this machine", ["", *head], table)


SECTIONS = {
    "kernel": kernel,
    "rows": rows,
    "nu": nu,
    "small": small,
    "shapes": shapes,
    "growth": growth,
    "floor": floor,
}


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    chosen = harness.arguments(
        __doc__ or "",
        SECTIONS,
        options={
            "--threads": {"type": numbers, "default": [1], "help": "numbers of cores, with commas between them"},
            "--sets": {
                "type": lambda text: text.split(","),
                "help": "of kernel or nu, with commas between them (default: all)",
            },
            "--repeats": {"type": int, "default": 3, "help": "runs after the first (default: 3)"},
            "--draw": {"action": "store_true", "help": "only show and draw what was found before"},
        },
    )
    if chosen.draw:
        show_kernel(Section("kernel", quick=chosen.quick))
        show_nu(Section("nu", quick=chosen.quick), chosen.threads[0])
        draw_growth(Section("growth", quick=chosen.quick), chosen.threads[0])
        return
    for name in chosen.only:
        SECTIONS[name](chosen)


if __name__ == "__main__":
    main()
