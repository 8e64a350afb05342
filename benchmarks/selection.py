"""How fast is a search over C and gamma with cross-validation, and are its scores those of exact fits?

    python -m benchmarks.selection --sets "usps odd/even" spambase
    python -m benchmarks.selection --quick

Six values of C, five of gamma, five folds: KernelSVCCV beside GridSearchCV with scikit-learn's SVC, and with that of
scikit-learn-intelex where it can be imported, each on two cores and on the same folds. With several classes all solve
one class against the rest (peers in OneVsRestClassifier); pairs of classes, as SVC solves them, are stated beside it.
Scores of folds at the best point are compared with those of fits by LIBSVM at a violation of 1e-6; at all points, with
those of SVC as it is. "a9a" is a search with ten values of C on all of its rows, beside one fit.

A run adds its sets to those of earlier runs, each as it ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import _figures as figures
from benchmarks import _harness as harness
from benchmarks._cores_runs import INTELEX, OURS, SKLEARN, Contestant, interleaved
from benchmarks._harness import Bar
from benchmarks._selection_runs import SETS, SEVERAL_CLASSES, exact_scores, search, whole
from benchmarks.cores import Section, libraries, ratio, seconds

N_THREADS = 2
LIMIT = 3_600.0  # seconds of one search
ASKED = {SKLEARN: 15.0, INTELEX: 5.0}  # times faster
ASKED_OF = {"pendigits": {SKLEARN: 4.0, INTELEX: 2.0}}
NEAR = 0.002  # of the score of a fold by an exact fit
WHOLE = "a9a"
MOST_FITS = 40.0  # times of one fit that a search on the whole of a9a may take
QUICK_ROWS = 800


def main() -> None:
    chosen = harness.arguments(
        __doc__,
        options={
            "--sets": {"nargs": "+", "choices": [*SETS, WHOLE], "default": [*SETS, WHOLE]},
            "--repeats": {"type": int, "default": 1},
            "--alone": {"action": "store_true", "help": "without peers"},
        },
    )
    report = Section("selection", quick=chosen.quick, folder="selection")
    n_rows = QUICK_ROWS if chosen.quick else None
    names = [OURS] if chosen.alone else libraries(OURS, SKLEARN, INTELEX)
    contestants = {name: Contestant(name, N_THREADS) for name in names}
    results = report.read("searches")
    for name, (data, multi_class) in _searches(chosen.sets).items():
        arguments = data, multi_class, n_rows
        found = interleaved(contestants, search, *arguments, N_THREADS, repeats=chosen.repeats, limit=LIMIT)
        best = found[OURS]["points"][found[OURS]["best_index"]]
        found["exact"] = contestants[OURS].ask(exact_scores, *arguments, best, limit=LIMIT)
        results[name] = found
        report.add("searches", results)
        print(name, {each: seconds(found[each]) for each in names}, flush=True)
    if WHOLE in chosen.sets:
        report.add("whole", interleaved({OURS: contestants[OURS]}, whole, n_rows, repeats=1, limit=LIMIT)[OURS])
    for contestant in contestants.values():
        contestant.close()
    _show(report)


def _searches(sets: list[str]) -> dict[str, tuple[str, str]]:
    """A set and how it is divided into problems, for each name of a search."""
    out = {}
    for data in sets:
        if data in SEVERAL_CLASSES:
            out |= {f"{data}, {each}": (data, each) for each in ("rest", "pairs")}
        elif data != WHOLE:
            out[data] = data, "pairs"
    return out


def _aligned(ours: dict[str, Any], peer: dict[str, Any]) -> np.ndarray:
    """The scores of a peer in our order of points."""
    by_point = {tuple(sorted(point.items())): line for point, line in zip(peer["points"], peer["scores"], strict=True)}
    return np.array([by_point[tuple(sorted(point.items()))] for point in ours["points"]])


def _apart(found: dict[str, Any]) -> float:
    """The largest difference between the scores of folds at the best point and those of exact fits."""
    if not found["exact"]:
        return np.nan
    return float(np.abs(np.subtract(found[OURS]["scores"][found[OURS]["best_index"]], found["exact"]["scores"])).max())


def _farthest(found: dict[str, Any]) -> float:
    """The largest difference between the scores of folds and those of SVC, at any point."""
    if not found.get(SKLEARN):
        return np.nan
    scores = np.array(found[OURS]["scores"], dtype=np.float64)
    return float(np.nanmax(np.abs(scores - _aligned(found[OURS], found[SKLEARN]))))


def _show(report: Section) -> None:
    """Tables, the figure and bars, of all that was ever found."""
    results, found = report.read("searches"), report.read("whole")
    names = [each for each in (OURS, SKLEARN, INTELEX) if any(each in one for one in results.values())]
    head = ["set", "rows", "features", "classes", *(f"{each}, s" for each in names)]
    head += [*(f"/ {each}" for each in names[1:]), "skipped", "score farthest from SVC's"]
    rows = []
    for name, one in results.items():
        ours = one[OURS]
        row = [name, ours["n"], ours["d"], ours["n_classes"], *(seconds(one.get(each)) for each in names)]
        row += [*(ratio(one.get(each), ours) for each in names[1:]), ours["states"].get("skipped", 0)]
        rows.append([*row, _farthest(one)])
    if rows:
        harness.show("Seconds of a search", head, rows)
        figures.draw_selection(report, results, OURS, names[1:])
    bars = [bar for name, one in results.items() for bar in _bars(name, one, names[1:])]
    if found:
        bars += _bars_of_whole(found)
    report.bars(bars)


def _bars(name: str, found: dict[str, Any], peers: list[str]) -> list[Bar]:
    ours, best, out = found[OURS], found[OURS]["best_index"], []
    scores = np.array(ours["scores"], dtype=np.float64)
    apart = _apart(found)
    out.append(Bar(f"{name}: fold scores from those of exact fits", f"<= {NEAR:g}", f"{apart:.4f}", apart <= NEAR))
    error = float(scores[best].std(ddof=1) / np.sqrt(scores.shape[1]))
    for peer in peers:
        if not found.get(peer):
            continue
        if not name.endswith("pairs"):
            times, asked = ratio(found[peer], ours) or 0.0, ASKED_OF.get(name.split(",")[0], ASKED)[peer]
            out.append(Bar(f"{name}: times faster than {peer}", f">= {asked:g}", f"{times:.1f}", times >= asked))
        apart = abs(found[peer]["best_score"] - ours["best_score"])
        out.append(Bar(f"{name}: score from that of {peer}", f"<= {error:.4f}", f"{apart:.4f}", apart <= error))
    return out


def _bars_of_whole(found: dict[str, Any]) -> list[Bar]:
    times, most = found["seconds"] / found["one"]["seconds"], found["cache MiB"] + 2 * found["MiB of rows"]
    return [
        Bar("whole a9a: fits in whose time it is searched", f"<= {MOST_FITS:g}", f"{times:.1f}", times <= MOST_FITS),
        Bar("whole a9a: MiB", f"<= {most:.0f}", f"{found['MiB']:.0f}", found["MiB"] <= most),
    ]


if __name__ == "__main__":
    main()
