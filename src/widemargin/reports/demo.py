"""Train hard-margin, nu and kernel SVMs on small data, print their certificates, and plot their bounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, make_moons
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, NuSVC

from widemargin.data.files import check_writable
from widemargin.data.synthetic import make_nonseparable, make_separable
from widemargin.estimators.hard_margin import HardMarginSVC
from widemargin.estimators.kernel import KernelSVC
from widemargin.estimators.nu_margin import NuMarginSVC
from widemargin.reports.network import save_figure

ROW = "{:<24} {:<14} {:>25} {:>8} {:>9} {:>13} {:>8} {:>12}"


def jobs() -> Iterator[tuple[str, Any, Any, Any, Any]]:
    """Name, rows, labels, our estimator, and scikit-learn's for the same problem."""
    X, y = load_iris(return_X_y=True)
    yield "iris, setosa / rest", X, y == 0, HardMarginSVC(), SVC(kernel="linear", C=1e10)
    X, y, _ = make_separable(10_000, 128, random_state=0)
    yield "separable 10000 x 128", X, y, HardMarginSVC(), SVC(kernel="linear", C=1e10)
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", StandardScaler().fit_transform(X), y, NuMarginSVC(nu=0.2), NuSVC(nu=0.2, kernel="linear")
    X, y = make_nonseparable(8_000, 64, random_state=0)
    yield "non-separable 8000 x 64", X, y, NuMarginSVC(nu=0.6), NuSVC(nu=0.6, kernel="linear")
    X, y = make_moons(12_000, noise=0.3, random_state=0)
    yield "two moons, 12000 x 2", X, y, KernelSVC(C=10, gamma=2), SVC(C=10, gamma=2)


def seconds_to_fit(model: Any, X: Any, y: Any) -> float:
    begin = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begin


def run(folder: Path) -> None:
    """Run the demonstration, print a table, and save a figure in the folder."""
    picture = folder / "certificates.png"
    check_writable(picture)
    accuracies = "test acc.", "largest class"
    titles = "data", "estimator", "the optimum lies in", "gap", *accuracies, "seconds", "scikit-learn"
    print(ROW.format(*titles) + "\n" + "-" * 120)
    figure, axes = plt.subplots(1, 5, figsize=(18, 3.6), constrained_layout=True)
    for axis, (name, X, y, ours, theirs) in zip(axes, jobs(), strict=True):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
        ours.fit(X_train, y_train)  # compiles on the first run on this machine
        seconds, their_seconds = seconds_to_fit(ours, X_train, y_train), seconds_to_fit(theirs, X_train, y_train)
        proof = ours.certificate_
        largest = max(np.mean(y_test == each) for each in np.unique(y_test))
        accuracies = f"{ours.score(X_test, y_test):.3f}", f"{largest:.3f}"
        numbers = f"{proof.relative:.1e}", *accuracies, f"{seconds:.3f}", f"{their_seconds:.3f}"
        print(ROW.format(name, type(ours).__name__, f"[{', '.join(proof.as_text(8))}]", *numbers))
        draw(axis, name, ours)
    figure.suptitle("The optimum lies between the two curves; training stops when they meet", fontsize=12)
    save_figure(figure, picture, dpi=130)
    print("\nEach optimum provably lies in its interval: a distance of hulls, or the objective of the kernel SVM.")
    print(f"Figure: {picture}")


def draw(axis: Any, name: str, model: Any) -> None:
    ours = [row for row in model.history_ if row["dual"] > 0] or model.history_
    sweeps = [row["sweep"] for row in ours]
    for name_of_bound, colour, label in (("primal", "#1f6feb", "upper bound"), ("dual", "#d1570a", "lower bound")):
        axis.plot(sweeps, [row[name_of_bound] for row in ours], "o-", ms=3, color=colour, label=label)
    axis.set_title(f"{name}\n{type(model).__name__}", fontsize=10)
    axis.set_xlabel("sweep")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
