"""How fast is a search over C and gamma with cross-validation, and are its scores those of exact fits?

    python -m benchmarks.selection --sets "usps odd/even" spambase
    python -m benchmarks.selection --quick

Six values of C, five of gamma, five folds: KernelSVCCV beside GridSearchCV with scikit-learn's SVC, and with that of
scikit-learn-intelex where it can be imported, each on two cores and on the same folds. With several classes all solve
one class against the rest (peers in OneVsRestClassifier); pairs of classes, as SVC solves them, are stated beside it.
Scores of some points are compared with those of fits by LIBSVM at a violation of 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import _harness as harness
from benchmarks._cores_runs import INTELEX, OURS, SKLEARN, Contestant, interleaved
from benchmarks._harness import Bar, Report
from benchmarks._selection_runs import SETS, SEVERAL_CLASSES, exact_scores, search
from benchmarks.cores import libraries, ratio, seconds

N_THREADS = 2
LIMIT = 3_600.0  # seconds of one search
ASKED = {SKLEARN: 15.0, INTELEX: 5.0}  # times faster
ASKED_OF = {"pendigits": {SKLEARN: 4.0, INTELEX: 2.0}}
NEAR = 0.002  # of the score of a fold by an exact fit


def standard_error(scores: np.ndarray) -> float:
    return float(scores.std(ddof=1) / np.sqrt(len(scores)))


def near_exact(found: dict[str, Any], exact: list[float]) -> float:
    """The largest difference between the scores of folds at the best point and those of exact fits."""
    at = int(np.argmax(found["scores"].mean(axis=1)))
    return float(np.abs(found["scores"][at] - exact).max())


def main() -> None:
    chosen = harness.arguments(
        __doc__,
        options={
            "--sets": {"nargs": "+", "choices": list(SETS), "default": list(SETS)},
            "--repeats": {"type": int, "default": 1},
            "--alone": {"action": "store_true", "help": "without peers"},
        },
    )
    report, n_rows = Report("selection", quick=chosen.quick), 800 if chosen.quick else None
    names = [OURS] if chosen.alone else libraries(OURS, SKLEARN, INTELEX)
    contestants = {name: Contestant(name, N_THREADS) for name in names}
    results: dict[str, Any] = {}
    for data in chosen.sets:
        for multi_class in ("rest", "pairs") if data in SEVERAL_CLASSES else ("pairs",):
            name = f"{data}, {multi_class}" if data in SEVERAL_CLASSES else data
            found = interleaved(
                contestants, search, data, multi_class, n_rows, N_THREADS, repeats=chosen.repeats, limit=LIMIT
            )
            ours = found[OURS]
            if ours is not None:
                exact = contestants[OURS].ask(exact_scores, data, multi_class, n_rows, ours["best"], limit=LIMIT)
                found["exact"] = exact
            results[name] = found
            report.add("searches", results)
            print(name, {each: seconds(found[each]) for each in names}, flush=True)
    for contestant in contestants.values():
        contestant.close()
    rows = [
        [name, found[OURS]["n"], found[OURS]["d"], found[OURS]["n_classes"], *(seconds(found[each]) for each in names)]
        + [ratio(found.get(each), found[OURS]) for each in names[1:]]
        for name, found in results.items()
    ]
    head = [
        "set",
        "rows",
        "features",
        "classes",
        *(f"{each}, s" for each in names),
        *(f"/ {each}" for each in names[1:]),
    ]
    harness.show("Seconds of a search", head, rows)
    report.bars([bar for name, found in results.items() for bar in bars(name, found, names[1:])])


def bars(name: str, found: dict[str, Any], peers: list[str]) -> list[Bar]:
    ours = found[OURS]
    apart = near_exact(ours, found["exact"]["scores"])
    out = [Bar(f"{name}: fold scores from those of exact fits", f"<= {NEAR:g}", f"{apart:.4f}", apart <= NEAR)]
    for peer in peers:
        if found[peer] is None:
            continue
        if not name.endswith("pairs"):
            times, asked = ratio(found[peer], ours) or 0.0, ASKED_OF.get(name.split(",")[0], ASKED)[peer]
            out.append(Bar(f"{name}: times faster than {peer}", f">= {asked:g}", f"{times:.1f}", times >= asked))
        apart = abs(found[peer]["best_score"] - ours["best_score"])
        error = standard_error(ours["scores"][int(np.argmax(ours["scores"].mean(axis=1)))])
        out.append(Bar(f"{name}: score from that of {peer}", f"<= {error:.4f}", f"{apart:.4f}", apart <= error))
    return out


if __name__ == "__main__":
    main()
