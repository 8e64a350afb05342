"""What commands show of a fitted model: its estimator, size and certificate."""

from __future__ import annotations

from itertools import chain
from typing import Any


def last_step(model: Any) -> Any:
    return model[-1] if hasattr(model, "steps") else model


def scaler_of(model: Any) -> Any:
    return model[0] if hasattr(model, "steps") and len(model) > 1 else None


def feature_names(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def size_bytes(estimator: Any) -> int:
    """Bytes of the arrays that a prediction needs, for estimators of scikit-learn, too."""
    names = ("coef_", "intercept_") if hasattr(estimator, "coef_") else ("support_vectors_", "dual_coef_", "intercept_")
    arrays: list[Any] = [getattr(estimator, name, None) for name in names]
    features = getattr(estimator, "_map", None)  # random features of GossipSVC
    arrays += [getattr(features, name, None) for name in ("random_weights_", "random_offset_")]
    parts = [[each.data, each.indices, each.indptr] if hasattr(each, "indptr") else [each] for each in arrays]
    return sum(int(part.nbytes) for part in chain(*parts) if part is not None)


def warning(model: Any) -> list[tuple[str, str]]:
    """Why a model is no better than a constant, as the first line of a table; nothing for other models."""
    from widemargin.estimators.words import useless_in_words

    text = useless_in_words(last_step(model))
    return [("warning", text)] if text else []


def proof(model: Any, seconds: float | None = None) -> list[tuple[str, str]]:
    """Certificate, stop reason and cost of a fit, as names and values."""
    from widemargin.estimators.words import (
        bounds_in_words,
        certificate_in_words,
        cost_in_words,
        duration,
        stop_in_words,
    )
    from widemargin.problems.protocol import gap_as_text

    estimator = last_step(model)
    if hasattr(estimator, "release_"):  # sweeps and cost depend on the rows
        return [("in words", certificate_in_words(estimator)), ("stopped", stop_in_words(estimator))]
    certificate = estimator.certificate_
    low, high = bounds_in_words(certificate, least=9)
    gap = gap_as_text(certificate.relative)
    pairs = [
        ("primal (upper bound)", high),
        ("dual (lower bound)", low),
        ("relative gap", f"{gap}  (tol {estimator.tol:g})"),
        ("in words", certificate_in_words(estimator)),
        ("stopped", f"{estimator.stop_reason_}: {stop_in_words(estimator)}"),
        ("sweeps", f"{estimator.n_iter_:,}"),
    ]
    is_search = hasattr(estimator, "cv_results_")
    if seconds is not None:
        pairs.append(("search and final fit" if is_search else "time", duration(seconds)))
    spent = [f"{'solving' if name == 'time' else name} {value}" for name, value in cost_in_words(estimator.cost_)]
    return [*pairs, ("cost" if seconds is None else "of which", ", ".join(spent) or "nothing was counted")]
