"""Is this revision as fast as another one? Fits of both in one run, interleaved, the smallest time of each.

``python -m benchmarks.revisions /path/to/other/checkout`` starts one process per checkout, which imports its own
``src``, and lets them take turns: the same fit here, there, here, there. Nothing is written but the table and its JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _harness as harness

QUESTION = __doc__
ROOT = Path(__file__).parents[1]
REPETITIONS = 10
LARGEST_RATIO = 1.03


def cases() -> dict[str, Any]:
    """A fit of each program that guards speed: nu_margin, hard_margin, kernel --only exact, gossip --only ticks."""
    from benchmarks import _sets
    from widemargin import GossipSVC, HardMarginSVC, KernelSVC, NuMarginSVC, max_nu

    def rows(name: str, n: int | None = None) -> tuple[Any, np.ndarray]:
        X, y = _sets.load(name)
        keep = np.sort(np.random.default_rng(0).permutation(len(y))[:n])
        return X[keep], y[keep]

    def nu(name: str) -> Any:
        X, y = rows(name)
        return lambda: NuMarginSVC(nu=0.85 * max_nu(y), random_state=0).fit(X, y)

    def hard(name: str) -> Any:
        X, y = rows(name)
        return lambda: HardMarginSVC(random_state=0).fit(X, y)

    def kernel(name: str, n: int | None, gamma: float, C: float) -> Any:
        X, y = rows(name, n)
        X = X.astype(np.float32)
        return lambda: KernelSVC(C=C, gamma=gamma, solver="exact", random_state=0).fit(X, y)

    def gossip() -> Any:
        X, y = rows("a9a")
        return lambda: GossipSVC(1e-4, n_peers=10, random_state=0).fit(X, y)

    return {
        "nu_margin phishing": lambda: nu("phishing"),
        "nu_margin a9a": lambda: nu("a9a"),
        "hard_margin mushrooms": lambda: hard("mushrooms"),
        "hard_margin separable 20,000 x 128": lambda: hard("separable-20000-128"),
        "kernel phishing": lambda: kernel("phishing", None, 0.1, 1.0),
        "kernel a9a 12,000 rows": lambda: kernel("a9a", 12_000, 0.05, 1.0),
        "kernel ijcnn1 15,000 rows": lambda: kernel("ijcnn1", 15_000, 1.0, 1.0),
        "gossip a9a, ten peers": gossip,
    }


def serve() -> None:
    """In a process of one checkout: read a case's name, fit once, answer with the seconds."""
    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in prepared:
            prepared[name] = cases()[name]()
            prepared[name]()  # compiles
        begin = time.perf_counter()
        model = prepared[name]()
        seconds = time.perf_counter() - begin
        print(json.dumps([seconds, float(model.certificate_.relative), model.n_iter_]), flush=True)


class Checkout:
    """A process that fits with the sources of one checkout; programs and data are those of this one."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.revisions", "--serve"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def fit(self, name: str) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        answer: list[float] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    chosen = harness.arguments(QUESTION, options={"other": {"help": "the other checkout"}})
    report = harness.Report("revisions", quick=chosen.quick)
    there, here = Checkout(Path(chosen.other).resolve()), Checkout(ROOT)
    table, found = [], {}
    for name in cases():
        times = np.array([[there.fit(name), here.fit(name)] for _ in range(2 if chosen.quick else REPETITIONS)])
        before, after = times[:, :, 0].min(axis=0)
        found[name] = {"other": before, "this": after, "ratio": after / before, "gaps": times[0, :, 1].tolist()}
        table.append([name, f"{before:.4f} s", f"{after:.4f} s", f"{after / before:.3f}"])
        print(f"{name}: {before:.4f} s there, {after:.4f} s here, ratio {after / before:.3f}", flush=True)
        report.add("cases", found)
    there.close()
    here.close()
    harness.show("Smallest of ten, interleaved", ["fit", "other", "this", "ratio"], table)
    worst = max(each["ratio"] for each in found.values())
    report.bars(
        [harness.Bar("no fit slower than in the other", f"<= {LARGEST_RATIO}", f"{worst:.3f}", worst <= LARGEST_RATIO)]
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
