"""The papers' drawings of ideas, from data: Figure 5 of the saddle paper, Figures 1 and 4 of the batch perceptron's.

    python -m benchmarks.schematic

hulls    two classes in the plane: the set S of differences of their hulls, its nearest point z*, and for some direction
         u the lowest point z_u and the projection w_u of it, never longer than z*
water    responses of rows of Reuters after some steps, in rising order, under water of volume n nu, and p*
basins   the same with a bias: a basin for each class, to one level, as many rows of each under water
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

from benchmarks import _harness as harness
from benchmarks import _kernel_sets as sets
from benchmarks._harness import COLOURS, Report
from benchmarks.baselines import sbp_as_printed as printed
from benchmarks.baselines.kernel_perceptron import Gaussian
from widemargin import HardMarginSVC

QUESTION = __doc__
N_ROWS, STEPS, NU = 400, 300, 0.004


def main() -> None:
    chosen = harness.arguments(QUESTION)
    report = Report("schematic", quick=chosen.quick)
    report.add("hulls", hulls(report))
    K, y = rows(N_ROWS)
    report.add("water", water(report, K, y))
    report.add("basins", basins(report, K, y))


def hulls(report: Report) -> dict[str, Any]:
    """Figure 5 of the saddle paper."""
    rng = np.random.default_rng(3)
    plus, minus = rng.normal(size=(12, 2)) * 0.5 + [2.2, 1.4], rng.normal(size=(12, 2)) * 0.5
    differences = (plus[:, None] - minus[None, :]).reshape(-1, 2)
    model = HardMarginSVC(tol=1e-9).fit(np.vstack([plus, minus]), np.repeat([1.0, -1.0], 12))
    distance, w = model.certificate_.primal, model.coef_[0]
    nearest = w * (distance / np.linalg.norm(w))
    turned = np.deg2rad(18) + np.arctan2(*nearest[::-1])
    u = np.array([np.cos(turned), np.sin(turned)])
    lowest = differences[(differences @ u).argmin()]
    foot = u * float(lowest @ u)
    figure, panel = plt.subplots(figsize=(5.2, 4.4))
    outline = differences[ConvexHull(differences).vertices]
    panel.fill(*outline.T, color=COLOURS[0], alpha=0.15, label="S = hull of + less hull of -")
    panel.plot(*np.array([np.zeros(2), 1.3 * foot]).T, color="0.4", lw=1.0)
    panel.plot(*np.array([lowest, foot]).T, color="0.4", lw=1.0, ls=":")
    for point, name, colour in (
        (np.zeros(2), "o", "0.0"),
        (nearest, "z*", COLOURS[1]),
        (lowest, "$z_u$", COLOURS[0]),
        (foot, "$w_u$", COLOURS[2]),
    ):
        panel.plot(*point, "o", color=colour)
        panel.annotate(name, point, xytext=(5, -12), textcoords="offset points")
    panel.set(aspect="equal", title="Lemma 2: the nearest point of S is the best direction")
    panel.legend(loc="upper left")
    report.picture(figure, "hulls")
    return {"|z*|": distance, "|w_u|": float(np.linalg.norm(foot))}


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A kernel matrix of rows of Reuters, as many of each class."""
    task = sets.task("reuters")
    rng = np.random.default_rng(0)
    chosen = np.concatenate([rng.permutation(np.flatnonzero(task.y == sign))[: n // 2] for sign in (1.0, -1.0)])
    kernel = Gaussian(task.X[chosen], task.gamma)
    return kernel.rows(np.arange(n)).astype(float), task.y[chosen]


def water(report: Report, K: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Figure 1 of the batch perceptron paper."""
    c, _ = responses(K, y, has_bias=False)
    level = printed.level(c, len(c) * NU)
    rising = np.sort(c)
    covered = int((rising < level).sum())
    figure, panels = plt.subplots(2, 1, figsize=(6.0, 4.6), sharex=True, height_ratios=(3, 1))
    shown = np.arange(min(len(c), 4 * covered))
    panels[0].plot(shown, rising[shown], color=COLOURS[0], label="responses $c_i$, in order")
    panels[0].fill_between(
        shown, rising[shown], np.maximum(level, rising[shown]), color=COLOURS[5], alpha=0.5, label=r"water, $n\nu$"
    )
    panels[0].axhline(level, color=COLOURS[1], lw=1.2, label=r"level $\gamma$")
    panels[0].legend()
    panels[1].step(shown, np.where(rising[shown] < level, 1 / covered, 0.0), where="mid", color=COLOURS[2])
    panels[1].set(xlabel="row, in order of its response", ylabel="$p^*$")
    panels[0].set_title(f"Water over {len(c)} rows of Reuters after {STEPS} steps")
    report.picture(figure, "water")
    return {"n": len(c), "nu": NU, "steps": STEPS, "level": level, "rows under water": covered}


def basins(report: Report, K: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Figure 4: the basins of both classes, raised and lowered by b."""
    c, _ = responses(K, y, has_bias=True)
    level, bias = printed.level_and_bias(y, c, len(c) * NU)
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.6), sharey=True)
    covered = []
    for panel, sign, name, colour in zip(panels, (-1.0, 1.0), ("negative", "positive"), COLOURS, strict=False):
        heights = np.sort(c[y == sign] + sign * bias)
        covered.append(int((heights < level - 1e-12).sum()))
        shown = np.arange(min(len(heights), 4 * covered[-1]))
        panel.plot(shown, heights[shown], color=colour, label="$c_i - b$" if sign < 0 else "$c_i + b$")
        panel.fill_between(
            shown, heights[shown], np.maximum(level, heights[shown]), color=COLOURS[5], alpha=0.5, label="water"
        )
        panel.axhline(level, color="0.3", lw=1.2)
        panel.set(title=f"{name} rows: {covered[-1]} under water", xlabel="row, in order")
        panel.legend()
    report.picture(figure, "basins")
    return {"n": len(c), "nu": NU, "steps": STEPS, "level": level, "bias": bias, "rows under water": covered}


def responses(K: np.ndarray, y: np.ndarray, *, has_bias: bool) -> tuple[np.ndarray, printed.Model]:
    """Of the mean iterate of Algorithm 1."""
    model = printed.optimize(K, y, STEPS, NU, np.random.default_rng(0), has_bias=has_bias)
    return y * (K @ (y * model.mean)), model


if __name__ == "__main__":
    main()
