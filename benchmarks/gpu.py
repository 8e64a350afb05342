"""Is the kernel SVM on a GPU right, near what the card can do, and how long does it take from NumPy arrays?

    python -m benchmarks.gpu                           all sections, one after the other
    python -m benchmarks.gpu --only check,speed        some of them; each writes its own file

Sections: check (every primitive beside float64 or its twin, on inputs drawn anew), speed (kernel times coefficients,
beside measured ceilings), fits (to a certified gap of 1e-3), cold (the first fit of a new process), classes (ten
digits), forest (half a million rows: parameters by rows held out, then the fit, and that of the batch perceptron
paper), perceptron (the same problem by the paper's own method). Times of fits are wall-clock medians from arrays in
host memory to the fitted model, with all compiled code loaded before. The CPU's times beside them are those of
``benchmarks.kernel`` on its own machine, which is another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from benchmarks import _harness as harness
from benchmarks import _kernel_sets as sets
from benchmarks._harness import RESULTS, ROOT, Bar, Report
from benchmarks._kernel_sets import Task
from widemargin import KernelSVC
from widemargin.kernels import torch_cuda, torch_tensors
from widemargin.kernels.functions import Kernel
from widemargin.kernels.on_torch import RowsOnTorch
from widemargin.kernels.torch_graphs import Graph
from widemargin.kernels.torch_tensors import Form, Side
from widemargin.kernels.vectors import Dual

QUESTION = __doc__
GAP = 1e-3
FITS = {"a9a-exact": 0.05, "ijcnn1": 0.09, "mnist8-bias": 0.10}  # seconds
FOREST, FOREST_ERROR, PAPER_FOREST = 2.0, 0.0165, 5.0
SPEED = {(522_910, 54): 2_300.0, (60_000, 717): 360.0}  # rows and features: G kernel values/s
COLD = 10.0
REPEATS = 5
N_CHOICE, N_HELD_OUT = 200_000, 20_000
N_MEASURED = 10  # columns of the forest that are measurements; the others are zeros and ones
# Features as they are, and with zeros and ones that count as much as so many metres.
GRID = {
    1.0: [(1e-4, 10.0), (1e-4, 100.0)],
    50.0: [(gamma, C) for gamma in (5e-5, 1e-4, 2e-4) for C in (10.0, 100.0)],
    100.0: [(gamma, C) for gamma in (3e-5, 5e-5, 1e-4) for C in (10.0, 100.0)],
    200.0: [(gamma, C) for gamma in (3e-5, 5e-5) for C in (10.0, 100.0)],
}
PAPER_HOURS = 35.0  # LIBSVM on the forest, by the batch perceptron paper


class Section(Report):
    """A report whose sections are files of their own, so that each can be measured again alone."""

    def __init__(self, name: str) -> None:
        super().__init__("gpu", quick=False)
        self._name = name
        self._content["machine"] |= card()

    def add(self, section: str, content: Any) -> None:
        self._content[section] = content
        text = json.dumps(self._content, indent=1, default=harness._plain, allow_nan=True)
        (self.folder / f"{self._name}.json").write_text(text + "\n", encoding="utf8")


def card() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_GiB": properties.total_memory / 2**30,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between them")
    parser.add_argument("--first-fit", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.first_fit:
        first_fit()
        return
    for name in chosen.only.split(","):
        if name not in SECTIONS:
            parser.error(f"--only {name}: there are {', '.join(SECTIONS)}")
        print(f"\n== {name}", flush=True)
        SECTIONS[name](Section(name))


# -- check -------------------------------------------------------------------------------------------------------------


def check(report: Section) -> None:
    """Primitives beside float64 on the same rows, or beside their twins; every run draws other inputs."""
    seed = int(time.time())
    generator = torch.Generator("cuda").manual_seed(seed)
    found: dict[str, Any] = {"seed": seed}
    bars = []
    errors = {
        **kernel_errors(generator),
        **vector_errors(generator),
        **side_by_side_errors(generator),
        **row_errors(seed),
    }
    for name, (error, bound) in errors.items():
        found[name] = {"error": error, "bound": bound}
        bars.append(Bar(name, f"<= {bound:g}", f"{error:.1e}", error <= bound))
    report.add("check", found)
    report.bars(bars)


def normal(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.float64)


def relative(ours: torch.Tensor, true: torch.Tensor) -> float:
    return float((ours.double() - true).norm() / true.norm())


FORMS = {
    "rbf": Form(torch_tensors.RBF, 0.04),
    "linear": Form(torch_tensors.LINEAR, 0.5),
    "poly": Form(torch_tensors.POLY, 0.01, 1.0, 3),
    "sigmoid": Form(torch_tensors.SIGMOID, 0.01, 0.1),
    "laplacian": Form(torch_tensors.LAPLACIAN, -0.05),
}


def kernel_errors(generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """Kernel values and their products with coefficients, for widths that take each of the ways through the code."""
    errors = {}
    for width in (64, 128, 768):
        for name, form in FORMS.items():
            half = torch.float32 if name == "laplacian" else torch.float16
            sides = []
            for n in (3001, 1025):
                X = (normal(generator, n, width) / np.sqrt(width / 16)).to(half)
                exact = Side(X.double(), -0.5 * form.scale * (X.double() ** 2).sum(dim=1))
                sides.append((Side(X, exact.term.float()), exact))
            (rows, rows64), (points, points64) = sides
            coef, several = normal(generator, 1025), normal(generator, 1025, 3)
            true, true_several = (torch_tensors.times(rows64, points64, each, form) for each in (coef, several))
            where = f"{name}, {width} columns"
            values = torch_tensors.values(rows64, points64, form)
            # Relative to the sizes of the terms: sums of either sign may be small by chance.
            sizes, sizes_several = (values.abs() @ each.abs() for each in (coef, several))
            found, found_several = (torch_cuda.times(rows, points, each, form) for each in (coef, several))
            exact = torch_cuda.times(rows64, points64, coef, form)
            errors |= {
                f"{where}: values": (relative(torch_cuda.values(rows, points, form), values), 3e-6),
                f"{where}: times": (float((found - true).norm() / sizes.norm()), 1e-6),
                f"{where}: times three": (float((found_several - true_several).norm() / sizes_several.norm()), 1e-6),
                f"{where}: in float64": (float((exact - true).norm() / sizes.norm()), 1e-14),
            }
    return errors


def vector_errors(generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """The search for rows, the problem of a working set, the loss: each beside its twin."""
    errors = {}
    n = 100_003
    y = torch.where(normal(generator, n) > 0, 1.0, -1.0).double()
    low, response = torch.where(y > 0, 0.0, -2.0).double(), normal(generator, n)
    high, third = low + 2.0, torch.rand(n, generator=generator, device="cuda")
    beta = torch.where(third < 0.4, low, torch.where(third < 0.8, high, low + third))
    is_kept = torch.rand(n, generator=generator, device="cuda") < 0.01
    middle = torch.tensor(0.1, dtype=torch.float64, device="cuda")
    dual, kept = Dual(y - response, beta, low, high), is_kept.nonzero()[:500, 0]
    ours = torch_cuda.scan(dual, kept, middle, 64)
    true = torch_tensors.scan(dual, kept, middle, 64)
    there = true[0] > -torch.inf
    same = [
        (ours[0] == true[0]).all(),
        (ours[1][there] == true[1][there]).all(),
        ours[2] == true[2],
        ours[3] == true[3],
    ]
    errors["scan: differences"] = float(sum(not bool(each) for each in same)), 0.0
    chosen = [module.choose(*true[:2], kept, 512) for module in (torch_cuda, torch_tensors)]
    errors["choose: differences"] = float((chosen[0] != chosen[1]).sum()), 0.0
    working = chosen[0]
    some = Dual(*(each[working] for each in dual))
    stay = [module.keep(working, some, 500) for module in (torch_cuda, torch_tensors)]
    errors["keep: differences"] = float((stay[0] != stay[1]).sum()), 0.0
    sums = [module.HingeSums(response, y, third.double())(0.7, 0.1) for module in (torch_cuda, torch_tensors)]
    errors["loss and slopes"] = float(np.abs(sums[0] / sums[1] - 1).max()), 1e-12
    for size in (1024, 701):
        X = normal(generator, size, 10)
        K = torch.exp(-0.1 * torch.cdist(X, X) ** 2).float()
        few = slice(0, size)
        tol, zero = torch.tensor(1e-3, dtype=torch.float64, device="cuda"), torch.zeros((), dtype=torch.float64)
        for is_tied in (True, False):
            start = torch.zeros(size, dtype=torch.float64, device="cuda")
            arguments = (K, Dual(y[few].clone(), start, low[few], high[few]), tol, zero.cuda(), is_tied, 100_000)
            answers = [module.solve(*arguments) for module in (torch_cuda, torch_tensors)]
            losses = [float(0.5 * b @ K.double() @ b - y[few] @ b) for b, _, _ in answers]
            b, pull, _ = answers[0]
            name = f"working set of {size}, {'pairs' if is_tied else 'singles'}"
            errors[f"{name}: objective"] = abs(losses[0] / losses[1] - 1), 1e-3
            errors[f"{name}: pull"] = float((pull - (y[few] - K.double() @ b)).abs().max()), 1e-4
            outside = torch.maximum(b - high[few], low[few] - b).max()
            errors[f"{name}: outside its bounds"] = max(0.0, float(outside)), 0.0
            if is_tied:
                errors[f"{name}: sum of coefficients"] = abs(float(b.sum())), 1e-9
    return errors


def side_by_side_errors(generator: torch.Generator) -> dict[str, tuple[float, float]]:
    """Kept kernel values, as several problems read them: numbers of rows and of working sets that fill no block."""
    errors = {}
    for n, size in ((5003, 1024), (901, 397)):
        values = torch.zeros((n, -(-n // 4) * 4), dtype=torch.float32, device="cuda")
        values[:, :n] = normal(generator, n, n)
        order = torch.rand(3, n, generator=generator, device="cuda").argsort(dim=1)
        working, change = order[:, :size].contiguous(), normal(generator, 3, size)
        change[1, ::3], change[2] = 0.0, 0.0  # rows that have not changed
        where = f"{size} of {n} rows"
        gathered = [module.gather(values, working) for module in (torch_cuda, torch_tensors)]
        errors[f"{where}: gathered values, differences"] = float((gathered[0] != gathered[1]).sum()), 0.0
        before = normal(generator, 3, n)
        pulls = [before.clone(), before.clone()]
        torch_cuda.subtract(values, working, change, pulls[0])
        torch_tensors.subtract(values.double(), working, change, pulls[1])
        errors[f"{where}: pulls"] = relative(pulls[0] - before, pulls[1] - before), 1e-6
        errors[f"{where}: pulls without changes"] = float((pulls[0][2] != before[2]).sum()), 0.0
    return errors


def row_errors(seed: int) -> dict[str, tuple[float, float]]:
    """Rows as users give them, rounded: what is the error of a kernel value beside the rows themselves?"""
    rng, errors = np.random.default_rng(seed), {}
    data = {
        "whole numbers": rng.integers(-1000, 1000, (5000, 20)) / 100.0,
        "pixels": rng.integers(0, 256, (5000, 40)) / 255.0,
        "normal, far from zero": rng.normal(size=(5000, 50)) + 100.0,
    }
    for what, X in data.items():
        gamma = 1 / (X.shape[1] * X.var())
        for precision, bound in (("float16", 2e-3), ("float32", 2e-5)):
            rows = RowsOnTorch(Kernel("rbf", gamma), X, precision=precision)
            errors[f"{what}, {precision}: kernel value"] = rows.largest_error, bound
            points, coef = rows.points(np.arange(0, 5000, 7)), rng.normal(size=715)
            errors[f"{what}, {precision}: exact"] = (
                relative(torch.from_numpy(rows.times(points, coef, exact=True)), direct(X, points.X, coef, gamma)),
                1e-10,
            )
    return errors


def direct(X: np.ndarray, Z: np.ndarray, coef: np.ndarray, gamma: float) -> torch.Tensor:
    """By differences, in float64, on the host."""
    return torch.from_numpy(
        np.concatenate([np.exp(-gamma * ((row - Z) ** 2).sum(axis=1)) @ coef[:, None] for row in X])
    )


# -- speed -------------------------------------------------------------------------------------------------------------


@triton.jit
def exponentials(x, out, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    total = value
    for _ in range(TIMES):
        value = torch_cuda._exp2(-value, True)
        total += value
    tl.store(out + at, total)


def milliseconds(job: Callable[[], Any], times: int = 20) -> float:
    """Device time of a job: the median of five, each a run of some, started as one; of 1, started as it is."""
    job()
    torch.cuda.synchronize()
    graph, runs = job if times == 1 else Graph(lambda: [job() for _ in range(times)]), []
    graph()
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph()
        end.record()
        torch.cuda.synchronize()
        runs.append(begin.elapsed_time(end) / times)
    return float(np.median(runs))


def speed(report: Section) -> None:
    """Kernel times coefficients on the shapes of two sets, beside what the card does of exponentials and products."""
    x = torch.rand(1 << 26, device="cuda")
    out = torch.empty_like(x)
    exp_rate = x.numel() * 256 / milliseconds(lambda: exponentials[(x.numel() // 1024,)](x, out, 256, 1024), 2) / 1e6
    A = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    flops = 2 * 8192**3 / milliseconds(lambda: A @ A, 5) / 1e6  # G/s
    found: dict[str, Any] = {"exp2 G/s": exp_rate, "fp16 product TFLOP/s": flops / 1e3}
    bars, table = [], []
    for (n, d), asked in SPEED.items():
        rate, width, exact = rates(n, d)
        shares = {"of exp2": rate / exp_rate, "of products": rate * 2 * width / flops}
        found[f"{n} x {d}"] = {"G values/s": rate, "columns": width, **shares, "in float64, G values/s": exact}
        table.append([f"{n:,} x {d}", rate, *shares.values(), exact])
        bars.append(Bar(f"{n:,} x {d}: G kernel values/s", f">= {asked:g}", f"{rate:.0f}", rate >= asked))
    report.add("speed", found)
    harness.show("Kernel times vector", ["shape", "G/s", "of exp2", "of products", "float64 G/s"], table)
    report.bars(bars)


def rates(n: int, d: int) -> tuple[float, int, float]:
    """G kernel values/s with 1,024 points, the columns of the product, and the rate in float64 with more points."""
    X = np.random.default_rng(0).integers(0, 256, (n, d)).astype(np.float32) / 255
    rows = RowsOnTorch(Kernel("rbf", 1 / d), X)
    places = torch.randperm(n, device="cuda")
    points, some = rows.stored.right[places[:1024]], rows.points(places[:8192])
    coef = torch.randn(8192, device="cuda", dtype=torch.float64)
    few = coef[:1024].clone()
    fast = milliseconds(lambda: torch_cuda.times(rows.stored.left, points, few, rows.stored.form))
    exact = milliseconds(lambda: rows.times(some, coef, exact=True), 1)
    return n * 1024 / fast / 1e6, rows.stored.left.matrix.shape[1], n * 8192 / exact / 1e6


# -- fits --------------------------------------------------------------------------------------------------------------


def timed_fits(task: Task, repeats: int = REPEATS, **settings: Any) -> tuple[dict[str, Any], KernelSVC]:
    """Warm fits from arrays of the host; the first is not counted."""
    settings = {"device": "cuda", "tol": GAP, "random_state": 0, "max_time": 60.0, **settings}
    walls = []
    for _ in range(repeats + 1):
        model = KernelSVC(C=task.C, gamma=task.gamma, fit_intercept=task.fit_intercept, **settings)
        begin = time.perf_counter()
        model.fit(task.X, task.y)
        torch.cuda.synchronize()
        walls.append(time.perf_counter() - begin)
    model.predict(task.X_test)
    begin = time.perf_counter()
    error = float(np.mean(model.predict(task.X_test) != task.y_test))
    n = len(task.y)
    found = {
        "seconds": float(np.median(walls[1:])),
        "runs": walls[1:],
        "first": walls[0],
        "n": n,
        "gap": model.certificate_.relative,
        "stop": model.stop_reason_,
        "violation": np.max(model.violation_),
        "test_error": error,
        "predict_seconds": time.perf_counter() - begin,
        "n_support": len(model.support_),
        "kernel_evaluations / n^2": model.cost_.kernel_evaluations / n**2,
        "largest_kernel_error": np.max(model.kernel_error_),
        "phases": model.cost_.seconds,
        "curve": [[row["seconds"], row["violation"], 1 - row["dual"] / row["primal"]] for row in model.history_],
    }
    return found, model


def fits(report: Section) -> None:
    """To a certified gap, by either precision, beside the CPU's times."""
    cpu = json.loads((RESULTS / "kernel" / "exact.json").read_text(encoding="utf8"))
    found: dict[str, Any] = {"cpu machine": cpu["machine"]}
    bars, table = [], []
    for name, asked in FITS.items():
        task = sets.task(name)
        beside = {who: each["seconds"] for who, each in cpu["exact"][name].items()}
        found[name] = {"cpu": beside}
        for precision in ("float16", "float32"):
            found[name][precision], _ = timed_fits(task, precision=precision)
            each = found[name][precision]
            report.add("fits", found)
            cells = [each["seconds"], each["gap"], 100 * each["test_error"], each["n_support"]]
            cells += [each["kernel_evaluations / n^2"], each["largest_kernel_error"]]
            peers = [beside.get("ours, 1"), beside.get("intelex SVC, 1"), beside.get("SVC")]
            table.append([f"{name}, {precision}", *cells, *peers])
        seconds, gap = found[name]["float16"]["seconds"], found[name]["float16"]["gap"]
        bars.append(Bar(f"{name}: seconds to a gap of {GAP:g}", f"<= {asked:g}", f"{seconds:.3f}", seconds <= asked))
        bars.append(Bar(f"{name}: certified gap", f"<= {GAP:g}", f"{gap:.1e}", gap <= GAP))
    head = ["set", "s", "gap", "error %", "SV", "K / n^2", "K error", "ours, CPU", "intelex", "SVC"]
    harness.show("Fits", head, table)
    report.bars(bars)


# -- cold --------------------------------------------------------------------------------------------------------------


def first_fit() -> None:
    """Child: seconds of the first fit of this process, and of the second."""
    task = sets.task("ijcnn1")
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        KernelSVC(C=task.C, gamma=task.gamma, device="cuda", random_state=0).fit(task.X, task.y)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(seconds))


def cold(report: Section) -> None:
    """A new process, with nothing compiled by Triton before, and with what an earlier process has left on disk."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in ("nothing compiled", "compiled before"):
            environment = {**os.environ, "TRITON_CACHE_DIR": folder}
            begin = time.perf_counter()
            command = [sys.executable, "-m", "benchmarks.gpu", "--first-fit"]
            out = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
            whole = time.perf_counter() - begin
            first, second = json.loads(out.stdout.splitlines()[-1])
            found[state] = {"first fit": first, "second fit": second, "whole process": whole}
    report.add("cold", found)
    harness.show(
        "First fit", ["", "first fit s", "second fit s", "process s"], [[k, *v.values()] for k, v in found.items()]
    )
    report.bars(
        [
            Bar(
                f"first fit of a process, {state}",
                f"<= {COLD:g}",
                f"{each['first fit']:.1f}",
                each["first fit"] <= COLD,
            )
            for state, each in found.items()
        ]
    )


# -- ten classes -------------------------------------------------------------------------------------------------------


def classes(report: Section) -> None:
    """All ten digits, in pairs; the rows go to the device once."""
    train, test = (sets._sets._fetch(f"mnist_{part}") for part in ("train", "test"))
    task = Task("mnist10", sets._pixels(train.X), train.y, sets._pixels(test.X), test.y, 0.02, 10.0, True)
    found, _ = timed_fits(task, repeats=3, max_time=None)  # with a limit, pairs would be fitted one after the other
    report.add("classes", found)
    cells = [found["seconds"], found["gap"], 100 * found["test_error"], found["n_support"], found["predict_seconds"]]
    harness.show("MNIST, ten classes, C = 10", ["s", "gap", "error %", "SV", "prediction s"], [cells])


# -- forest ------------------------------------------------------------------------------------------------------------


def forest(report: Section) -> None:
    """Parameters by training rows held out, then both fits of all rows; test rows choose nothing."""
    whole = sets.task("forest-bias")
    tried = []
    for weight, pairs in GRID.items():
        X, held_out = weighted(whole.X[:N_CHOICE], weight), weighted(whole.X[-N_HELD_OUT:], weight)
        for gamma, C in pairs:
            few = Task("forest", X, whole.y[:N_CHOICE], held_out, whole.y[-N_HELD_OUT:], gamma, C, True)
            model = KernelSVC(C=C, gamma=gamma, device="cuda", tol=1e-2, random_state=0, max_time=10.0)
            begin = time.perf_counter()
            with harness.quietly():
                model.fit(few.X, few.y)
            seconds = time.perf_counter() - begin
            error = float(np.mean(model.predict(few.X_test) != few.y_test))
            cells = {"weight of zeros and ones": weight, "gamma": gamma, "C": C, "error": error, "seconds": seconds}
            tried.append({**cells, "n_support": len(model.support_), "stop": model.stop_reason_})
    tried.sort(key=lambda each: each["error"])
    found: dict[str, Any] = {"tried": tried, "paper: LIBSVM, hours": PAPER_HOURS}
    report.add("forest", found)
    harness.show("Rows held out", list(tried[0]), [list(each.values()) for each in tried[:10]])
    best = tried[0]
    X, X_test = (weighted(each, best["weight of zeros and ones"]) for each in (whole.X, whole.X_test))
    chosen = whole._replace(X=X, X_test=X_test, gamma=best["gamma"], C=best["C"])
    for name, task in {"chosen": chosen, "paper": whole}.items():
        found[name], _ = timed_fits(task, repeats=REPEATS if name == "chosen" else 3)
        report.add("forest", found)
    rows = [
        [
            name,
            each["seconds"],
            each["gap"],
            100 * each["test_error"],
            each["n_support"],
            each["kernel_evaluations / n^2"],
        ]
        for name, each in ((name, found[name]) for name in ("chosen", "paper"))
    ]
    harness.show("Forest", ["parameters", "s", "gap", "error %", "SV", "K / n^2"], rows)
    seconds, error, paper = found["chosen"]["seconds"], found["chosen"]["test_error"], found["paper"]["seconds"]
    report.bars(
        [
            Bar("forest, parameters by rows held out: seconds", f"<= {FOREST:g}", f"{seconds:.2f}", seconds <= FOREST),
            Bar("forest: test error", f"<= {FOREST_ERROR:.2%}", f"{error:.2%}", error <= FOREST_ERROR),
            Bar("forest, sigma^2 = 5000: seconds", f"<= {PAPER_FOREST:g}", f"{paper:.2f}", paper <= PAPER_FOREST),
        ]
    )


PERCEPTRON_SECONDS = 300.0


def perceptron(report: Section) -> None:
    """The paper's Forest, C = 10,000, by the batch perceptron: once for C, and once for the slack that it prints."""
    task = sets.task("forest-bias")
    few = sets.part_of(task, 20_000, 5_000)
    found: dict[str, Any] = {}
    for who, slack in (("SBP, C", None), ("SBP, slack", sets.PAPER_NU[task.name])):
        settings = {"solver": "batch-perceptron", "slack": slack, "device": "cuda", "random_state": 0}
        model = KernelSVC(C=task.C, gamma=task.gamma, fit_intercept=True, max_iter=10**7, **settings)
        with harness.quietly():
            model.set_params(max_time=5.0).fit(few.X, few.y)  # compiles
            begin = time.perf_counter()
            model.set_params(max_time=PERCEPTRON_SECONDS).fit(task.X, task.y)
            seconds = time.perf_counter() - begin
        found[who] = {
            "seconds": seconds,
            "n": len(task.y),
            "test_error": float(np.mean(model.predict(task.X_test) != task.y_test)),
            "n_support": len(model.support_),
            "kernel_evaluations / n^2": model.cost_.kernel_evaluations / len(task.y) ** 2,
            "stop": model.stop_reason_,
            "gap": model.certificate_.relative,
            "slack_": model.slack_,
            "C_": model.C_,
            "phases": model.cost_.seconds,
            "settings": {"C": task.C, "gamma": task.gamma, "seconds": PERCEPTRON_SECONDS},
        }
        report.add("perceptron", found)
    keys = ("seconds", "test_error", "n_support", "kernel_evaluations / n^2", "stop", "gap")
    rows = [[key, *(each[key] for each in found.values())] for key in keys]
    harness.show("Forest by the batch perceptron", ["", *found], rows)


def weighted(X: np.ndarray, weight: float) -> np.ndarray:
    """The same rows with other zeros and ones."""
    X = X.copy()
    X[:, N_MEASURED:] *= weight
    return X


SECTIONS = {
    "check": check,
    "speed": speed,
    "fits": fits,
    "cold": cold,
    "classes": classes,
    "forest": forest,
    "perceptron": perceptron,
}


if __name__ == "__main__":
    main()
