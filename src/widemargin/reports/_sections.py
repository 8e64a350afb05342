"""The sections of a report on any fitted estimator: each is a heading and what stands below it, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from widemargin.estimators.words import (
    amount,
    bounds_in_words,
    certificate_in_words,
    cost_in_words,
    duration,
    is_proved,
    percent,
    stop_in_words,
)
from widemargin.problems.protocol import Certificate
from widemargin.reports import _figures, _reproduce
from widemargin.reports._figures import Picture
from widemargin.reports._html import Html, element, joined, pairs, shortened, table
from widemargin.reports._scores import Judged
from widemargin.reports._svg import captioned, side_by_side
from widemargin.reports.problem import problem_in_words

_FEWEST_FOR_CURVES = 3  # certified sweeps
_MOST_PARTS = 60
_MOST_FEATURES = 30
_MOST_TABLES = 6  # of coefficients, one for each class
_MOST_PEERS = 30
_LONG = 200  # characters of a parameter


@dataclass
class Subject:
    """What a report is about: the model as given, the estimator at its end, and the rows that it was judged on."""

    model: Any
    estimator: Any
    judged: Judged | None
    n_figures: int = field(default=0)

    def drawn(self, *pictures: Picture) -> Html:
        """Figures with numbers of their own in this page."""
        figures = []
        for picture in pictures:
            self.n_figures += 1
            figures.append(captioned(picture.figure, self.n_figures, picture.label, picture.caption))
        return side_by_side(figures)

    def names_of_parts(self) -> list[str]:
        """Which classes each problem tells apart."""
        classes = [shortened(name, 24) for name in self.estimator.classes_]
        if len(classes) == 2:
            return [f"{classes[1]} against {classes[0]}"]
        if self.estimator._one_vs_rest:
            return [f"{name} against the rest" for name in classes]
        return [f"{one} against {other}" for one, other in combinations(classes, 2)]

    def names_of_features(self) -> list[str]:
        """As the estimator met them, or as the steps before it, which may hand plain arrays on, call what they make."""
        names = getattr(self.estimator, "feature_names_in_", None)
        if names is None and hasattr(self.model, "steps") and hasattr(self.model, "feature_names_in_"):
            with suppress(AttributeError):  # a step that does not know
                names = self.model[:-1].get_feature_names_out()
        numbered = [f"x{j}" for j in range(self.estimator.n_features_in_)]
        return numbered if names is None else [str(name) for name in names]


def certificate(subject: Subject) -> Html:
    """How good the model is for certain, and why the fit ended."""
    model = subject.estimator
    proof, tol = getattr(model, "certificate_", None), getattr(model, "tol", None)
    tiles = []
    if proof is not None and is_proved(model):
        low, high = bounds_in_words(proof)
        tiles += [("proved gap", _briefly(proof.relative)), ("lower bound", low), ("upper bound", high)]
    if tol is not None:
        tiles.append(("gap asked for", f"{100 * tol:g}%"))
    if hasattr(model, "n_iter_"):
        tiles.append((_sweeps(model), f"{model.n_iter_:,}"))
    seconds = getattr(getattr(model, "cost_", None), "seconds", None)
    if seconds:
        tiles.append(("time", duration(sum(seconds.values()))))
    shown = [element("div", element("dt", name), element("dd", value)) for name, value in tiles]
    is_good = proof is not None and is_proved(model) and tol is not None and proof.relative <= tol
    return joined(
        [
            element("p", certificate_in_words(model), class_="verdict good" if is_good else "verdict open"),
            element("p", element("strong", "Why it stopped: "), stop_in_words(model)),
            element("dl", *shown, class_="tiles"),
        ]
    )


def _sweeps(model: Any) -> str:
    return "ticks" if hasattr(model, "graph_") else "rounds" if hasattr(model, "n_machines_") else "sweeps"


def problem(subject: Subject) -> Html:
    """What is optimised, and the parameters that were given."""
    given = _reproduce.changed_parameters(subject.estimator)
    lines = [(name, element("code", shortened(repr(value), _LONG))) for name, value in given.items()]
    said = pairs(lines) if lines else element("p", "All parameters have their default values.")
    head = element("h3", "Parameters that differ from the defaults") if lines else ""
    steps = [element("code", shortened(repr(step), _LONG)) for _, step in getattr(subject.model, "steps", [])[:-1]]
    before = element("p", "Rows go through these steps first: ", *_commas(steps), ".") if steps else ""
    return joined([problem_in_words(subject.estimator), before, head, said])


def _commas(pieces: list[Any]) -> list[Any]:
    return [part for k, piece in enumerate(pieces) for part in ((", " if k else ""), piece)]


def convergence(subject: Subject) -> Html | None:
    """The way to the optimum."""
    model = subject.estimator
    history = getattr(model, "history_", None)
    if not history:
        return element("p", "No certified sweeps are recorded of this fit.")
    parts = _figures.certified(history)
    if not parts:
        last = [(f"{row['sweep']:g}", f"{row['seconds']:.3g}", f"{row['primal']:.6g}") for row in history[-5:]]
        words = "No sweep had two finite bounds; these are the last objectives."
        return joined([element("p", words), table(("sweep", "seconds", "objective"), last)])
    worst = max(parts, key=lambda k: _relative(parts[k][-1]))
    rows = parts[worst]
    names = subject.names_of_parts()
    of = f"Of {len(names)} problems: {names[worst]}, the one with the largest gap at its end."
    said = element("p", of) if len(names) > 1 else ""
    if len(rows) < _FEWEST_FOR_CURVES:
        lines = [
            (f"{row['sweep']:g}", _gap(row), f"{row['dual']:.6g}", f"{row['primal']:.6g}", duration(row["seconds"]))
            for row in rows
        ]
        return joined([said, table(("sweep", "gap", "lower bound", "upper bound", "time"), lines)])
    tol = getattr(model, "tol", None)
    pictures = [_figures.gaps(parts, worst, tol, over) for over in (_sweeps(model), "seconds")]
    what = "margin" if not model._one_vs_rest else "level" if getattr(model, "slack", None) is not None else "objective"
    pictures += [_figures.bounds(rows, over, what) for over in (_sweeps(model), "seconds")]
    return joined([said, subject.drawn(*pictures)])


def _relative(row: Any) -> float:
    return Certificate(row["primal"], row["dual"]).relative


def _gap(row: Any) -> str:
    return _briefly(_relative(row))


def _briefly(relative: float) -> str:
    """A gap for a cell of a table."""
    return percent(relative).replace("less than ", "< ")


def parts(subject: Subject) -> Html | None:
    """The problems of several classes, the worst first."""
    results = getattr(subject.estimator, "parts_", None) or []
    if len(results) < 2:
        return None
    named = sorted(zip(subject.names_of_parts(), results, strict=False), key=lambda each: -each[1].certificate.relative)
    lines = [
        (name, _briefly(part.certificate.relative), *bounds_in_words(part.certificate), part.stop_reason, part.n_iter)
        for name, part in named[:_MOST_PARTS]
    ]
    hidden = len(named) - len(lines)
    more = element("p", f"{hidden} more, with gaps no larger, are in parts_.") if hidden else ""
    head = ("classes", "gap", "lower bound", "upper bound", "stopped by", "sweeps")
    return joined([table(head, lines), more])


def features(subject: Subject) -> Html | None:
    """Coefficients by their size, with what is known of them."""
    model = subject.estimator
    if not hasattr(model, "coef_") or getattr(model, "kernel", "linear") == "rbf":
        return None  # on random features a coefficient means nothing
    coef, names = np.asarray(model.coef_), subject.names_of_features()
    of_parts = subject.names_of_parts() if len(coef) > 1 else [""]
    found: list[Any] = [_about_coefficients(model)]
    tables = getattr(model, "summary", None)
    for k in range(min(len(coef), _MOST_TABLES)):
        if of_parts[k]:
            found.append(element("h3", of_parts[k]))
        found.append(_with_intervals(subject, k) if tables is not None else _plain(subject, coef[k], names))
    if len(coef) > _MOST_TABLES:
        found.append(element("p", f"{len(coef) - _MOST_TABLES} more sets of coefficients are in coef_."))
    return joined(found)


def _about_coefficients(model: Any) -> Html:
    if hasattr(model, "summary"):
        words = (
            "Debiased coefficients of the expected hinge loss. An interval holds its coefficient with the probability "
            f"{model.confidence:g}; of many intervals some will miss."
            if hasattr(model, "standard_error_")
            else "Debiased coefficients. One round on several machines leaves a bias that no interval would cover, so "
            "that there are none."
        )
    elif hasattr(model, "n_features_selected_"):
        n, of = model.n_features_selected_, model.n_features_in_
        words = f"{n} of {of} features have a coefficient; all others are zero exactly."
    else:
        words = "In the units of the features as the estimator met them: sizes compare where these are on one scale."
    return element("p", words)


def _plain(subject: Subject, coef: np.ndarray, names: list[str]) -> Html:
    there = np.flatnonzero(coef)
    shown = there[np.argsort(-np.abs(coef[there]), kind="stable")][:_MOST_FEATURES]
    if not len(shown):
        return element("p", "All coefficients are zero.")
    chosen = [names[j] for j in shown]
    more = element("p", f"The {len(shown)} largest of {len(there)}.") if len(there) > len(shown) else ""
    lines = [(name, f"{coef[j]:.5g}") for name, j in zip(chosen, shown, strict=True)]
    beside = element("div", table(("feature", "coefficient"), lines), more)
    return element("div", subject.drawn(_figures.coefficients(chosen, coef[shown])), beside, class_="beside")


def _with_intervals(subject: Subject, k: int) -> Html:
    summary = subject.estimator.summary()
    summary = summary[k] if isinstance(summary, list) else summary
    columns, values = summary.columns, summary.columns["debiased"]
    shown = np.argsort(-np.abs(values), kind="stable")[:_MOST_FEATURES]
    ends = subject.estimator.coef_interval_[k] if "p-value" in columns else None
    lines = []
    for j in shown:
        line = [summary.names[j] + (" *" if columns["selected"][j] else ""), f"{values[j]:.4f}"]
        if ends is not None:
            p = columns["p-value"][j]
            line += [f"{columns['std err'][j]:.4f}", "< 0.0001" if p < 1e-4 else f"{p:.4f}"]
            line.append("[{:.3f}, {:.3f}]".format(*ends[j]))
        lines.append(line)
    head = ["feature", "estimate", *(["std err", "p-value", "interval"] if ends is not None else [])]
    names, drawn_ends = [summary.names[j] for j in shown], None if ends is None else ends[shown]
    drawn = subject.drawn(_figures.coefficients(names, values[shown], drawn_ends, what="debiased coefficient"))
    hidden = len(values) - len(shown)
    more = [f"The {len(shown)} largest; {hidden} more are in summary()."] if hidden else []
    words = [*more, "* kept in the model.", *(f"{note.rstrip('.')}." for note in summary.notes)]
    return joined([element("div", drawn, table(head, lines), class_="beside"), element("p", " ".join(words))])


def network(subject: Subject) -> Html | None:
    """Peers: who they are, what each has certified, and the way there."""
    model = subject.estimator
    if not hasattr(model, "nodes_"):
        return None
    head = ("peer", "rows", "gap", "consensus error", "sent", "received", "live neighbours")
    lines = [
        (
            number,
            f"{node.n_rows:,}",
            "none" if not np.isfinite(node.gap) else _briefly(node.gap),
            f"{node.consensus_error:.2g}",
            f"{node.messages_sent:,} ({amount(node.bytes_sent)})",
            f"{node.messages_received:,} ({amount(node.bytes_received)})",
            ", ".join(map(str, node.live_neighbours[:8])) + ("…" if len(node.live_neighbours) > 8 else ""),
        )
        for number, node in sorted(model.nodes_.items(), key=lambda each: -each[1].gap)[:_MOST_PEERS]
    ]
    hidden = len(model.nodes_) - len(lines)
    gone = sorted(set(model.graph_) - set(model.nodes_))
    words = [f"Gone at the end: {', '.join(map(str, gone))}."] if gone else []
    words += [f"The {len(lines)} peers with the largest gaps; all {len(model.nodes_)} are in nodes_."] if hidden else []
    drawn = subject.drawn(_figures.peers(model), _figures.way_of_peers(model))
    return joined([drawn, element("p", " ".join(words)) if words else "", table(head, lines)])


def cost(subject: Subject) -> Html:
    """What was counted, and the seconds of each phase."""
    ledger = getattr(subject.estimator, "cost_", None)
    if ledger is None:
        return element("p", "The cost of this fit is not recorded.")
    counted = table(("", ""), cost_in_words(ledger), caption="Counted over all problems and ranks")
    total = sum(ledger.seconds.values())
    lines = []
    for name, seconds in sorted(ledger.seconds.items(), key=lambda each: -each[1]):
        share = seconds / total if total else 0.0
        bar = element("span", "", class_="bar", style=f"--share:{share:.4f}")
        lines.append((name, duration(seconds), joined([bar, f"{100 * share:.0f}%"])))
    phases = table(("phase", "time", "share"), lines, caption="Time per phase, as the first rank saw it")
    return element("div", counted, phases if lines else "", class_="beside")


def size(subject: Subject) -> Html:
    """What a prediction needs."""
    model = subject.estimator
    lines: list[tuple[str, str]] = [("classes", f"{len(model.classes_):,}"), ("features", f"{model.n_features_in_:,}")]
    if hasattr(model, "coef_"):
        lines.append(("coefficients not zero", f"{np.count_nonzero(model.coef_):,} of {np.size(model.coef_):,}"))
    if hasattr(model, "dual_coef_"):
        lines.append(("support vectors", f"{model.dual_coef_.shape[1]:,}"))
    if hasattr(model, "size_bytes"):
        n_bytes = model.size_bytes()
    else:
        n_bytes = sum(getattr(model, name).nbytes for name in ("coef_", "intercept_") if hasattr(model, name))
    lines.append(("size of its arrays", amount(n_bytes)))
    return pairs(lines)


def reproduction(subject: Subject) -> Html:
    """How to fit it again."""
    words = "Versions and platform are those of the process that made this report."
    lines = element("pre", element("code", _reproduce.code(subject.model)))
    return joined([lines, pairs(_reproduce.circumstances(subject.estimator)), element("p", words, class_="small")])


def scores(subject: Subject) -> Html | None:
    """How often the model is right on the rows given, and how far they lie on the right side."""
    if subject.judged is None:
        return None
    numbers, confusion, by_class = subject.judged.scores()
    margins = subject.drawn(subject.judged.margins())
    left, right = element("div", numbers, confusion), element("div", margins, by_class)
    return joined([element("p", subject.judged.remark()), element("div", left, right, class_="beside")])


# Headings, in the order of the page; a section that has nothing to say is left out.
SECTIONS: tuple[tuple[str, str, Callable[[Subject], Html | None]], ...] = (
    ("certificate", "How good it is", certificate),
    ("problem", "The problem", problem),
    ("network", "The network", network),
    ("convergence", "The way to the optimum", convergence),
    ("parts", "The problems of all classes", parts),
    ("scores", "On the rows given", scores),
    ("features", "Features", features),
    ("size", "Size of the model", size),
    ("cost", "Cost", cost),
    ("reproduce", "To fit it again", reproduction),
)
