"""A fit in words: how good it provably is, why it stopped, what it cost; and the same as HTML."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from widemargin.estimators.registry import OPTIMUM, Bracket, descriptor_of
from widemargin.ledger import COMPILING, Ledger
from widemargin.problems.polytope import OVERLAP_SHARE
from widemargin.problems.protocol import Certificate, rounded

if TYPE_CHECKING:
    from widemargin.strategies.training import TrainingCounts

# The largest margin that hulls which overlap may have.
NO_MARGIN = f"{OVERLAP_SHARE:g} of the radius of the rows (columns scaled to equal spread)"
_ROUNDING = 1e-12  # a relative gap below this is rounding
_ALL_DIGITS = 17  # of a float64
_LOOSE = 0.1  # relative gap from which a percentage of the upper bound would mislead
_NOTICEABLE = 0.05  # seconds of compilation, or of loading compiled code
_UNEQUAL = 1.5  # times its fair share from which the largest class suggests weights
_STOPPED = {
    "gap": "The gap is at most tol, which is proved.",
    "max_iter": "max_iter sweeps were done before the gap reached tol.",
    "max_time": "max_time ran out before the gap reached tol.",
    "callback": "A callback stopped the fit.",
    "interrupted": "The fit was interrupted by Ctrl-C; the model is the best so far.",
    "overlap": "The convex hulls of the classes overlap, so there is no margin; the model is the best separator found.",
    "undecided": "Rounding leaves undecided whether the convex hulls of the classes overlap; the model is the best "
    "separator found.",
    "precision": "Rounding keeps the gap from closing any further.",
    "plateau": "The hold-out error stopped falling.",
    "max_support": "The gap reached tol, then the model was reduced; the bounds are those of the smaller model.",
    "stationary": "The optimality conditions hold; this kernel allows no lower bound.",
    "stop_level": "The tree stopped before its last merges, as stop_level demands.",
    "split": "The network split, and its parts stopped separately.",
    "released": "The fit reached the gap that its noise is calibrated to; nothing else about it is published.",
    "rounds": "All rounds of debiasing were done, from 1-norm SVMs that were solved to tol.",
    "pilot": "Debiasing began with a 1-norm SVM whose gap is above tol.",
    "blind": "The last round could not debias anything; the coefficients are those of the round before.",
}
_COUNTED = {
    "rounds": "communication rounds",
    "messages": "messages",
    "scalars": "numbers sent",
    "bytes": "sent",
    "kernel_evaluations": "kernel evaluations",
    "cache_hits": "kernel rows from the cache",
    "cache_misses": "kernel rows not in the cache",
    "lost_peers": "machines lost",
}


def numbered_features(n_features: int) -> list[str]:
    """Names of features that have none: x0, x1, ..., as scikit-learn has them."""
    return [f"x{k}" for k in range(n_features)]


def percent(relative: float) -> str:
    """A relative gap as a percentage of two digits, rounded up."""
    if relative < 1e-8:
        return "less than 0.000001%"
    if relative > 1:  # how far over means nothing
        return "over 100%"
    if relative >= 0.1:
        return f"{100 * float(rounded(relative, 3, ROUND_CEILING)):.3g}%"
    up = 100 * Decimal(rounded(relative, 2, ROUND_CEILING))
    return f"{up:.{1 - up.adjusted()}f}%"


def bounds_in_words(certificate: Certificate, least: int = 4) -> tuple[str, str]:
    """Lower and upper bound, with as many digits as tell their gap; all of them where the gap is that of rounding."""
    relative = certificate.relative
    if not relative < 1:
        return certificate.as_text(max(least, 6))
    few = _ALL_DIGITS if relative == 0 else 2 + math.ceil(-math.log10(relative))
    return certificate.as_text(min(_ALL_DIGITS, max(least, few)))


def amount(n_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(n_bytes) >= 0.9995 * size:  # or it would be 1e+03 of the next
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def members_in_words(model: Any) -> str:
    """Whose rows the model that a peer saved stands for."""
    total, n = sum(node.n_rows for node in model.nodes_.values()), len(model.nodes_)
    members = f"{n} member{'' if n == 1 else 's'}"
    if not is_proved(model):
        return f"There is no certificate: peer {model.peer_} knew {members} with {total:,} rows"
    return f"The model stands for the {total:,} rows of {members}, as they state them; peer {model.peer_} saved it"


def is_proved(model: Any) -> bool:
    """Whether the certificate proves anything: both bounds are finite, and the lower one is positive or tight.

    No objective is ever negative, so zero is a trivial lower bound.
    """
    certificate: Certificate | None = getattr(model, "certificate_", None)
    if certificate is None or not (math.isfinite(certificate.primal) and math.isfinite(certificate.dual)):
        return False
    return certificate.dual > 0 or certificate.relative <= _ROUNDING


def certificate_in_words(model: Any) -> str:
    """One sentence on how near the optimum this fitted model provably is."""
    certificate = getattr(model, "certificate_", None)
    if hasattr(model, "release_"):
        return str(model.release_.in_words())
    if certificate is None:
        return "This model has no certificate: nothing is proved about its distance to the optimum."
    if not is_proved(model):
        return f"{_without_proof(model, certificate)} Nothing is proved about its distance to the optimum."
    bracket = bracket_of(model)
    if certificate.relative <= _ROUNDING:
        best = f"no model has a better {bracket.quantity}"
        return f"{bracket.what} is {certificate.primal:.6g}, by both bounds: {best}, up to rounding."
    low, high = bounds_in_words(certificate)
    text = f"{bracket.what} lies between {low} and {high}: {_nearness(bracket, certificate)}."
    n_parts = len(getattr(model, "parts_", None) or [])
    return text if n_parts < 2 else f"{text} Of {n_parts} {model._parts.kind} this is the one with the largest gap."


def _nearness(bracket: Bracket, certificate: Certificate) -> str:
    """How near the model is: by the relative gap, or by the ratio of bounds that are far apart."""
    if certificate.relative <= _LOOSE:
        return bracket.near.format(percent(certificate.relative))
    if bracket.is_maximised:
        share = rounded(100 * certificate.dual / certificate.primal, 2, ROUND_FLOOR)
        return bracket.near.replace("within {}", f"at least {share}%")
    times = rounded(certificate.primal / certificate.dual, 2, ROUND_CEILING)
    return f"its objective is at most {times} times the best possible"


def _without_proof(model: Any, certificate: Certificate) -> str:
    if getattr(model, "stop_reason_", "") == "overlap":
        return f"The convex hulls of the classes overlap: no margin is over {NO_MARGIN}."
    if certificate.dual == -math.inf:
        return f"The objective is {certificate.primal:.4g}, and there is no lower bound."
    return f"The optimum is at most {certificate.primal:.4g}, and no positive lower bound was found."


def bracket_of(model: Any) -> Bracket:
    descriptor = descriptor_of(type(model))
    bracket = OPTIMUM if descriptor is None else descriptor.bracket
    return bracket(model) if callable(bracket) else bracket


def stop_in_words(model: Any) -> str:
    reason = getattr(model, "stop_reason_", None)
    certificate, tol = getattr(model, "certificate_", None), getattr(model, "tol", 0.0)
    is_at_tol = certificate is not None and certificate.relative <= tol
    if hasattr(model, "peer_") and is_at_tol and reason in ("max_iter", "max_time"):
        return f"{reason} was reached; the gap is at most tol, but not all peers had met, or certified it."
    return "Not recorded." if reason is None else _STOPPED.get(reason, f"{reason}.")


def useless_in_words(model: Any, *, with_advice: bool = True) -> str:
    """Why a fitted model is no better than a constant, with figures and what to change; "" if it is not."""
    counts: TrainingCounts | None = getattr(model, "training_", None)
    if counts is not None and counts.only_class is None and not counts.is_worse_than_largest_class:
        return ""
    what = _missing_part(model)
    if counts is None:  # an older file, or rows that nobody could count
        claim = f"{what}, so it gives all rows one class" if what else ""
    elif counts.only_class is not None:
        gives = f"gives class {model.classes_[counts.only_class]} for {_rows_in_words(counts)}"
        claim = f"{what} and {gives}" if what else gives
    else:
        claim = f"is worse than the largest class alone on {_rows_in_words(counts)}"
    if not claim:
        return ""
    figures = "" if counts is None else f": training accuracy {accuracy_in_words(model)}"
    advice = f" Try {', or '.join(_remedies(model, counts))}." if with_advice else ""
    return f"{type(model).__name__} {claim}{figures}.{advice}"


def _missing_part(model: Any) -> str:
    """What a model without any influence of its features lacks; "" for others."""
    if hasattr(model, "dual_coef_") and not np.any(model.dual_coef_):
        return "has no support vector"
    if hasattr(model, "coef_") and not np.any(model.coef_):
        return "has no coefficient"
    counts = getattr(model, "training_", None)
    return "uses constant columns only" if counts is not None and counts.are_columns_constant else ""


def _rows_in_words(counts: TrainingCounts) -> str:
    if counts.n_counted == counts.n_rows:
        return f"all {counts.n_rows:,} training rows"
    return f"all of {counts.n_counted:,} training rows drawn at random from {counts.n_rows:,}"


def _remedies(model: Any, counts: TrainingCounts | None) -> list[str]:
    """The estimator's own advice; before it, what holds for all: columns that vary, and weights of equal classes."""
    advice: list[str] = model._remedies()
    if counts is not None and counts.are_columns_constant:
        return ["columns that are not constant", *advice]
    are_unequal = counts is not None and counts.largest_class_share > _UNEQUAL / len(model.classes_)
    can_be_weighted = model.get_params(deep=False).get("class_weight", "none") is None
    return ["class_weight='balanced'", *advice] if are_unequal and can_be_weighted else advice


def accuracy_in_words(model: Any) -> str:
    """The training accuracy beside that of the largest class alone, under the weights of the fit; "" if not known."""
    counts: TrainingCounts | None = getattr(model, "training_", None)
    if counts is None:
        return ""
    text = beside_largest_class(counts.accuracy, counts.weight / counts.weight.sum())
    if counts.weight.sum() != counts.n_counted:
        text += ", by the weights of the fit"
    return text if counts.n_counted == counts.n_rows else f"{text}, on {counts.n_counted:,} of {counts.n_rows:,} rows"


def beside_largest_class(accuracy: float, shares: np.ndarray, form: str = ".2%") -> str:
    """An accuracy, and that of the largest class alone on the same rows; ``shares`` are those of all classes."""
    return f"{accuracy:{form}}, the largest class alone {shares.max():{form}}"


def cost_in_words(ledger: Ledger) -> list[tuple[str, str]]:
    """Names and amounts of everything that was counted and is not zero; time first, without that of compilation."""
    counts = {**ledger.counts(), "lost_peers": ledger.lost_peers}
    compiling = ledger.seconds.get(COMPILING, 0.0)
    found = [("time", duration(sum(ledger.seconds.values()) - compiling))] if ledger.seconds else []
    if compiling >= _NOTICEABLE:
        found.append(("compilation", duration(compiling)))
    found += [(_COUNTED[name], amount(n) if name == "bytes" else f"{n:,}") for name, n in counts.items() if n]
    return found


def fit_as_html(model: Any) -> str:
    """Certificate, stop reason and cost of a fitted model as a table in the colours of the page; "" without one."""
    if not hasattr(model, "certificate_"):
        return ""
    lines = [
        ("warning", useless_in_words(model)),
        ("certificate", certificate_in_words(model)),
        ("stopped", stop_in_words(model)),
        ("training accuracy", accuracy_in_words(model)),
    ]
    if hasattr(model, "n_iter_") and not hasattr(model, "release_"):
        lines.append(("sweeps", f"{model.n_iter_:,}"))
    cost = getattr(model, "cost_", None)
    if cost is not None:
        spent = (value if name == "time" else f"{value} {name}" for name, value in cost_in_words(cost))
        lines.append(("cost", ", ".join(spent)))
    cell = "padding:.25em .6em;text-align:left;vertical-align:top;color:inherit;background:transparent"
    body = "".join(
        f"<tr><th scope='row' style='{cell};font-weight:600'>{escape(name)}</th>"
        f"<td style='{cell};white-space:normal'>{escape(value)}</td></tr>"
        for name, value in lines
        if value
    )
    table = "max-width:46em;margin:.4em 0 0;border-collapse:collapse;border-left:3px solid cornflowerblue;font-size:90%"
    return f"<table class='widemargin-fit' style='{table}'><tbody>{body}</tbody></table>"
