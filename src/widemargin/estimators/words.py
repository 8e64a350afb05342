"""What a fit says of itself, in words: how good it is for certain, why it stopped, what it cost; and that as HTML."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html import escape
from typing import Any

from widemargin.ledger import Ledger
from widemargin.problems.protocol import Certificate, rounded

_ROUNDING = 1e-12  # relative gaps that are none
_LOOSE = 0.1  # a gap beyond which a percentage of the upper bound would mislead
_PART = {True: "class against the rest", False: "pair of classes"}
# What lies between the two bounds, and what of the model is near it; by class, the first of its ancestors that is here.
_BRACKETED = {
    "HardMarginSVC": ("The widest possible margin", "the margin of this model is within {} of it"),
    "NuMarginSVC": ("The widest possible margin", "the margin of this model is within {} of it"),
    "DebiasedSparseSVC": (
        "The 1-norm SVM that every machine solves first was solved nearly exactly: of the one with the largest gap "
        "the optimum",
        "its objective is within {} of the best possible",
    ),
    "GossipSVC": (
        "The optimum over the rows of all peers",
        "the model of every peer is within {} of the best possible",
    ),
    "MarginClassifier": ("The optimum", "this model is within {} of the best possible"),
}
_OF_SLACK = ("The highest possible level", "the level that this model reaches is within {} of it")
_STOPPED = {
    "gap": "The gap asked for was reached, and is proved.",
    "max_iter": "The largest number of sweeps was reached before the gap asked for.",
    "max_time": "The time allowed ran out before the gap asked for was reached.",
    "callback": "A callback ended the fit.",
    "interrupted": "The fit was interrupted by hand; the model is the best so far.",
    "overlap": "The hulls of the classes meet, so that there is no margin; the model is the best separator found.",
    "precision": "Rounding leaves no more of the gap to close.",
    "plateau": "The error on rows held out stopped falling.",
    "max_support": "The gap was closed, and the model then made smaller; the bounds are those of the smaller model.",
    "stationary": "The optimality conditions hold; this kernel allows no lower bound.",
    "stop_level": "The tree was left before its last merges, as asked for.",
    "split": "The network fell apart, and its parts ended on their own.",
    "blind": "The last round could debias nothing; coefficients are those from before it.",
}
_COUNTED = {
    "rounds": "rounds of exchange",
    "messages": "messages",
    "scalars": "numbers sent",
    "bytes": "sent",
    "kernel_evaluations": "kernel evaluations",
    "cache_hits": "kernel rows from the cache",
    "cache_misses": "kernel rows not in the cache",
    "lost_peers": "machines lost",
}


def percent(relative: float) -> str:
    """A relative gap as one reads it, in two digits, rounded up; under a hundred-millionth it is only said to be so."""
    if relative < 1e-8:
        return "less than 0.000001%"
    if relative >= 0.1:
        return f"{100 * float(rounded(relative, 3, ROUND_CEILING)):.3g}%"
    up = 100 * Decimal(rounded(relative, 2, ROUND_CEILING))
    return f"{up:.{1 - up.adjusted()}f}%"


def bounds_in_words(certificate: Certificate) -> tuple[str, str]:
    """Lower and upper bound, with as many digits as tell them apart."""
    relative = certificate.relative
    digits = 6 if not _ROUNDING < relative < 1 else min(12, max(4, 2 + math.ceil(-math.log10(relative))))
    return certificate.as_text(digits)


def amount(n_bytes: float) -> str:
    """Bytes as one reads them."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(n_bytes) >= 0.9995 * size:  # or it would be 1e+03 of the next
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def duration(seconds: float) -> str:
    """A time as one reads it."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def is_proved(model: Any) -> bool:
    """Whether the certificate says anything: it has two finite bounds, and the lower one is over zero or at the upper.

    All problems here have objectives that are never negative, so that zero is a lower bound that nobody had to find.
    """
    certificate: Certificate | None = getattr(model, "certificate_", None)
    if certificate is None or not (math.isfinite(certificate.primal) and math.isfinite(certificate.dual)):
        return False
    return certificate.dual > 0 or certificate.relative <= _ROUNDING


def certificate_in_words(model: Any) -> str:
    """One sentence on how near the optimum this fitted model is for certain."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return "This model carries no certificate: nothing is proved of how near the optimum it is."
    if not is_proved(model):
        return f"{_without_proof(model, certificate)} Nothing is proved of how near the optimum this model is."
    what, near = _bracketed(model)
    if certificate.relative <= _ROUNDING:
        return f"{what} is {certificate.primal:.6g}, by both bounds: no model is better, up to rounding."
    low, high = bounds_in_words(certificate)
    if certificate.relative > _LOOSE:
        near = _loosely(near, certificate)
    n_parts = len(getattr(model, "parts_", None) or [])
    of_worst = f" This is the {_PART[model._one_vs_rest]} with the largest gap of {n_parts}." if n_parts > 1 else ""
    return f"{what} lies between {low} and {high}: {near.format(percent(certificate.relative))}.{of_worst}"


def _loosely(near: str, certificate: Certificate) -> str:
    """The same by the ratio of the bounds: a margin is a share of the widest, an objective many times the least."""
    if near.endswith("of it"):
        share = rounded(100 * certificate.dual / certificate.primal, 2, ROUND_FLOOR)
        return near.replace("within {}", f"at least {share}%")
    times = rounded(certificate.primal / certificate.dual, 2, ROUND_CEILING)
    return f"its objective is at most {times} times the best possible"


def _without_proof(model: Any, certificate: Certificate) -> str:
    if getattr(model, "stop_reason_", "") == "overlap":
        return "The margin is zero: the hulls of the classes meet."
    if certificate.dual == -math.inf:
        return f"The objective is {certificate.primal:.4g}, and there is no lower bound."
    return f"The optimum is at most {certificate.primal:.4g}, and no lower bound over zero was found."


def _bracketed(model: Any) -> tuple[str, str]:
    if getattr(model, "slack", None) is not None:
        return _OF_SLACK
    return next(_BRACKETED[each.__name__] for each in type(model).__mro__ if each.__name__ in _BRACKETED)


def stop_in_words(model: Any) -> str:
    """Why the fit ended."""
    reason = getattr(model, "stop_reason_", None)
    return "Not recorded." if reason is None else _STOPPED.get(reason, f"{reason}.")


def cost_in_words(ledger: Ledger) -> list[tuple[str, str]]:
    """Names and amounts of all that was counted and is not zero, the time first."""
    counts = {**ledger.counts(), "lost_peers": ledger.lost_peers}
    found = [("time", duration(sum(ledger.seconds.values())))] if ledger.seconds else []
    found += [(_COUNTED[name], amount(n) if name == "bytes" else f"{n:,}") for name, n in counts.items() if n]
    return found


def fit_as_html(model: Any) -> str:
    """Certificate, stop reason and cost of a fitted model as a table in the colours of the page; "" without one."""
    if not hasattr(model, "certificate_"):
        return ""
    lines = [("certificate", certificate_in_words(model)), ("stopped", stop_in_words(model))]
    if hasattr(model, "n_iter_"):
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
    )
    table = "max-width:46em;margin:.4em 0 0;border-collapse:collapse;border-left:3px solid cornflowerblue;font-size:90%"
    return f"<table class='widemargin-fit' style='{table}'><tbody>{body}</tbody></table>"
