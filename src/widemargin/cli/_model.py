"""A fitted model as the command line speaks of it: its estimator, its size, its problem, its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROBLEMS = {
    "HardMarginSVC": (
        "the widest margin between classes that do not overlap: the distance between their convex hulls",
        "min ½‖w‖²  with  y(w·x + b) ≥ 1 for all rows",
    ),
    "NuMarginSVC": (
        "the widest margin that leaves a share of the rows inside it: the distance between the reduced convex hulls",
        "min ½‖w‖² − νρ + (1/n) Σ δ  with  y(w·x + b) ≥ ρ − δ, δ ≥ 0",
    ),
    "KernelSVC": (
        "the best balance of a wide margin and a small hinge loss, in the feature space of a kernel",
        "min ½‖w‖² + C Σ max(0, 1 − y(w·φ(x) + b))",
    ),
    "MarginDistributionSVC": (
        "all margins near 1: those that are too short cost, and so do those that are too long",
        "min ½‖w‖² + C/(2n(1−θ)²) Σ [(1−θ−F)₊² + v(F−1−θ)₊²],  F = y(w·φ(x) + b)",
    ),
    "SparseSVC": (
        "a linear classifier of few features: the penalty makes all other coefficients zero exactly",
        "min (1/n) Σ max(0, 1 − y(w·x + b)) + α‖w‖₁",
    ),
    "DebiasedSparseSVC": (
        "the coefficients of the least expected hinge loss, with a confidence interval for each",
        "min E max(0, 1 − y(x·β + b))",
    ),
    "GossipSVC": (
        "one linear classifier for the rows of peers that keep them and write to their neighbours",
        "min α/2 ‖w‖² + (1/N) Σ max(0, 1 − y w·x)",
    ),
}
OF_SLACK = (
    "the highest level that a unit vector reaches over all rows when slack may be added to them",
    "max over ‖w‖ ≤ 1, ξ ≥ 0 with a given mean:  min [y(w·φ(x) + b) + ξ]",
)


def last_step(model: Any) -> Any:
    """The estimator itself, also of a pipeline."""
    return model[-1] if hasattr(model, "steps") else model


def scaler_of(model: Any) -> Any:
    """What scales the features before the estimator sees them, or None."""
    return model[0] if hasattr(model, "steps") and len(model) > 1 else None


def feature_names(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def problem_of(estimator: Any) -> tuple[str, str]:
    """What an estimator solves, in words and as a formula."""
    if getattr(estimator, "slack", None) is not None:
        return OF_SLACK
    return next(PROBLEMS[kind.__name__] for kind in type(estimator).__mro__ if kind.__name__ in PROBLEMS)


def size_bytes(estimator: Any) -> int:
    """Bytes of the arrays that a prediction needs, of ours and of scikit-learn's alike."""
    names = ("coef_", "intercept_") if hasattr(estimator, "coef_") else (
        "support_vectors_", "dual_coef_", "intercept_", "random_weights_", "random_offset_",
    )  # fmt: skip
    arrays = [getattr(estimator, name, None) for name in names]
    return sum(_bytes(array) for array in arrays if array is not None)


def _bytes(array: Any) -> int:
    parts = [getattr(array, name) for name in ("data", "indices", "indptr")] if hasattr(array, "indptr") else [array]
    return sum(int(part.nbytes) for part in parts)


def proof(model: Any, seconds: float | None = None) -> list[tuple[str, str]]:
    """Names and values of the certificate of a fit, why it ended and what it cost."""
    from widemargin.estimators._in_words import certificate_in_words, cost_in_words, duration, stop_in_words

    estimator = last_step(model)
    certificate = estimator.certificate_
    pairs = [
        ("primal (upper bound)", f"{certificate.primal:.9g}"),
        ("dual (lower bound)", f"{certificate.dual:.9g}"),
        ("relative gap", f"{certificate.relative:.2e}  (tol {estimator.tol:g})"),
        ("in words", certificate_in_words(estimator)),
        ("stopped", f"{estimator.stop_reason_}: {stop_in_words(estimator)}"),
        ("sweeps", f"{estimator.n_iter_:,}"),
    ]
    if seconds is not None:
        pairs.append(("seconds", duration(seconds)))
    spent = [f"{name} {value}" for name, value in cost_in_words(estimator.cost_)]
    return [*pairs, ("cost", ", ".join(spent) or "nothing was counted")]


def file_size(path: Path) -> int:
    return path.stat().st_size
