"""The sections of a report on any fitted estimator: each function returns what its template shows, or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from widemargin.estimators import words
from widemargin.estimators.searched import Searched, UnseenScores, searched
from widemargin.reports import _figures, _reproduce
from widemargin.reports._figures import Picture, relative_gap
from widemargin.reports._html import Html, Shared, Table, shortened
from widemargin.reports._scores import Scored
from widemargin.reports._svg import inline
from widemargin.reports.problem import problem_in_words
from widemargin.reports.search import is_drawable
from widemargin.strategies.parts import Parts

_MIN_CURVE_POINTS = 3
_MAX_PARTS = 60
_MAX_FEATURES = 30
_MAX_COEFFICIENT_TABLES = 6
_MAX_PEERS = 30
_MAX_PARAMETER_LENGTH = 200
_MAX_SEARCH_POINTS = 10

Content = dict[str, Any]


@dataclass
class Subject:
    """What a report is about: the model as given, its final estimator, and the rows that it was scored on."""

    model: Any
    estimator: Any
    scored: Scored | None
    unseen: UnseenScores | None = None
    n_figures: int = 0

    def drawn(self, *pictures: Picture) -> list[tuple[Html, str]]:
        """Figures as SVG with ids that are unique in the page, and their captions."""
        self.n_figures += len(pictures)
        first = self.n_figures - len(pictures) + 1
        return [(inline(each.figure, f"f{first + k}-", each.label), each.caption) for k, each in enumerate(pictures)]

    def names_of_parts(self) -> list[str]:
        parts: Parts = self.estimator._parts
        return parts.names(self.estimator.classes_)

    def names_of_features(self) -> list[str]:
        """The names that the estimator was given, or those that the steps before it produce; else numbers."""
        names = getattr(self.estimator, "feature_names_in_", None)
        if names is None and hasattr(self.model, "steps") and hasattr(self.model, "feature_names_in_"):
            with suppress(AttributeError):  # a step without get_feature_names_out
                names = self.model[:-1].get_feature_names_out()
        return words.numbered_features(self.estimator.n_features_in_) if names is None else list(map(str, names))


def certificate(subject: Subject) -> Content:
    model = subject.estimator
    proof, tol, tiles = getattr(model, "certificate_", None), getattr(model, "tol", None), []
    if hasattr(model, "release_"):
        return _release(model)
    if proof is not None and words.is_proved(model):
        low, high = words.bounds_in_words(proof)
        tiles += [("proved gap", _gap(proof.relative)), ("lower bound", low), ("upper bound", high)]
    if tol is not None:
        tiles.append(("gap asked for", f"{100 * tol:g}%"))
    if hasattr(model, "training_"):
        counts, form = model.training_, ".4f" if hasattr(model, "cv_results_") else ".2%"  # as scores of a search
        tiles.append(("training accuracy", f"{counts.accuracy:{form}}"))
        tiles.append(("largest class alone", f"{counts.largest_class_share:{form}}"))
    if hasattr(model, "n_iter_"):
        tiles.append((_sweeps(model), f"{model.n_iter_:,}"))
    seconds = getattr(getattr(model, "cost_", None), "seconds", None)
    if seconds:
        tiles.append(("time", words.duration(sum(seconds.values()))))
    is_good = proof is not None and words.is_proved(model) and tol is not None and proof.relative <= tol
    is_good = is_good and not words.useless_in_words(model)
    verdict, stop = words.certificate_in_words(model), words.stop_in_words(model)
    return {"verdict": verdict, "is_good": is_good, "stop": stop, "tiles": tiles}


def _release(model: Any) -> Content:
    """Instead of a certificate, which depends on the rows: what was known before any row was seen."""
    terms = model.release_
    tiles = [("epsilon", f"{terms.epsilon:g}"), ("delta", f"{terms.delta:g}"), ("rows", f"{terms.n_rows:,}")]
    tiles += [
        ("noise", f"{terms.sigma:.3g}"),
        ("expected loss above the optimum, at most", f"{terms.expected_excess:.2g}"),
    ]
    verdict, stop = words.certificate_in_words(model), words.stop_in_words(model)
    return {"verdict": verdict, "is_good": True, "stop": stop, "tiles": tiles}


def _sweeps(model: Any) -> str:
    return "ticks" if hasattr(model, "graph_") else "rounds" if hasattr(model, "n_machines_") else "sweeps"


def _gap(relative: float) -> str:
    return words.percent(relative).replace("less than ", "< ")


def problem(subject: Subject) -> Content:
    steps = [step for _, step in getattr(subject.model, "steps", [])[:-1]]
    given = _reproduce.changed_parameters(subject.estimator)
    return {
        **problem_in_words(subject.estimator),
        "steps": [shortened(repr(step), _MAX_PARAMETER_LENGTH) for step in steps],
        "parameters": [(name, shortened(repr(value), _MAX_PARAMETER_LENGTH)) for name, value in given.items()],
    }


def search(subject: Subject) -> Content | None:
    """The points of a search by cross-validation, the best first."""
    found = searched(subject.estimator)
    if found is None:
        return None
    chosen, ranked = found.chosen, found.best_first
    tiles = [(name, f"{value:.4g}") for name, value in chosen.parameters.items()]
    if not ranked:
        return {"tiles": tiles, "note": "No point was tried on all folds: this one is the middle of the grid."}
    tiles += [("mean score", f"{chosen.mean:.4f}"), ("standard error", f"{chosen.error:.4f}")]
    tiles.append(("folds", f"{chosen.scores.min():.3f}–{chosen.scores.max():.3f}"))
    tiles.append(("state", chosen.state))
    tiles.append(("within one standard error", f"{len(found.near_best)} of {len(found.points)}"))
    lines = []
    for rank, point in found.top(_MAX_SEARCH_POINTS):
        numbers = [f"{value:.4g}" for value in point.parameters.values()]
        scores = [f"{point.mean:.4f}", f"{point.error:.4f}"]
        lines.append((rank, *numbers, *scores, point.state, f"{point.n_support:.0f}", _gap(point.gap)))
    head = ("", *chosen.parameters, "mean score", "std. error", "state", "support vectors", "gap")
    pictures = [_figures.search_scores(found), _figures.search_costs(found)] if is_drawable(found) else []
    return {
        "tiles": tiles,
        "note": _about_search(found, subject),
        "figures": subject.drawn(*pictures),
        "best": Table(head, lines, f"The best of {len(ranked)} points with a score"),
        "folds": _outer_folds(subject.unseen),
    }


def _about_search(found: Searched, subject: Subject) -> str:
    doubt = found.doubt(subject.estimator.tol)
    sentences = [*(f"{edge.in_words}." for edge in found.edges), *([doubt] if doubt else [])]
    if "estimated" in found.states:
        sentences.append(
            "An estimated score is that of fits which stopped when their predictions no longer changed, before the gap "
            "was at tol."
        )
    sentences += [*found.unusual, "A gap bounds the objective of a fit, not its score."]
    is_scored = subject.unseen is not None and bool(subject.unseen.each)
    advice = "Score the search on other rows, by cross_val_score or widemargin tune --outer 5."
    honest = "The score on unseen rows is at the top." if is_scored else advice
    return " ".join([*sentences, "The best mean of many points is optimistic.", honest])


def _outer_folds(unseen: UnseenScores | None) -> Table | None:
    """The score of each outer fold, if there are several."""
    if unseen is None or len(unseen.each) < 2:
        return None
    lines = [
        (str(k), *(f"{value:.4g}" for value in chosen.values()), f"{score:.4f}", f"{alone:.4f}", f"{n:,}")
        for k, (n, score, alone, chosen) in enumerate(unseen.each, 1)
    ]
    head = ("outer fold", *unseen.each[0].chosen, "score", "largest class", "rows")
    return Table(head, lines, f"Each outer fold has its own search: {unseen.scoring} on the rows of the fold")


def scores_of_search(unseen: UnseenScores) -> Content:
    """The scores of a search on rows that it has not seen, for the top of the page."""
    if not unseen.each:
        return {"tiles": [], "note": "Interrupted: the search was not scored on unseen rows."}
    name, spread = unseen.scoring.replace("_", " "), unseen.spread
    score = f"{unseen.mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}")
    tiles = [(f"{name} on unseen rows", score), ("largest class alone", f"{unseen.largest_class_score:.4f}")]
    n_folds, rows = len(unseen.each), f"{unseen.n_rows:,} rows"
    if n_folds > 1:
        what = f"The mean of {n_folds} outer folds, {rows} in all, each scored by a search without it"
        how = "; ± is the standard deviation over folds."
    else:
        what = f"{name.capitalize()} on {rows} held out of the search"
        how = "." if spread is None else "; ± is the binomial standard error."
    sentences = [f"{what}{how}", "The saved model was searched and fitted on all rows."]
    if unseen.interruption:
        sentences.append(f"Interrupted: {unseen.interruption}.")
    return {"tiles": tiles, "note": " ".join(sentences)}


def convergence(subject: Subject) -> Content:
    model = subject.estimator
    history = getattr(model, "history_", None)
    if not history:
        return {"note": "No certified sweeps of this fit are recorded."}
    parts = _figures.certified(history)
    if not parts:
        last = [(f"{row['sweep']:g}", f"{row['seconds']:.3g}", f"{row['primal']:.6g}") for row in history[-5:]]
        note = "No sweep had two finite bounds; these are the last objectives."
        return {"note": note, "sweeps": Table(("sweep", "seconds", "objective"), last)}
    worst = max(parts, key=lambda k: relative_gap(parts[k][-1]))
    rows, names = parts[worst], subject.names_of_parts()
    note = f"{names[worst]}: of {len(names)} subproblems, the one with the largest gap." if len(names) > 1 else ""
    if len(rows) < _MIN_CURVE_POINTS:
        lines = []
        for row in rows:
            ends = f"{row['dual']:.6g}", f"{row['primal']:.6g}"
            lines.append((f"{row['sweep']:g}", _gap(relative_gap(row)), *ends, words.duration(row["seconds"])))
        return {"note": note, "sweeps": Table(("sweep", "gap", "lower bound", "upper bound", "time"), lines)}
    pictures = [_figures.gaps(parts, worst, getattr(model, "tol", None), over) for over in (_sweeps(model), "seconds")]
    what = words.bracket_of(model).quantity
    pictures += [_figures.bounds(rows, over, what) for over in (_sweeps(model), "seconds")]
    return {"note": note, "figures": subject.drawn(*pictures)}


def parts(subject: Subject) -> Content | None:
    """The subproblems of several classes, the largest gap first."""
    results = getattr(subject.estimator, "parts_", None) or []
    if len(results) < 2:
        return None
    named = sorted(zip(subject.names_of_parts(), results, strict=False), key=lambda each: -each[1].certificate.relative)
    lines = [
        (name, _gap(part.certificate.relative), *words.bounds_in_words(part.certificate), part.stop_reason, part.n_iter)
        for name, part in named[:_MAX_PARTS]
    ]
    hidden = len(named) - len(lines)
    head = ("classes", "gap", "lower bound", "upper bound", "stopped by", "sweeps")
    return {"parts": Table(head, lines), "note": f"{hidden} more, with smaller gaps, are in parts_." if hidden else ""}


def features(subject: Subject) -> Content | None:
    """The largest coefficients, with intervals if there are any."""
    model = subject.estimator
    if not hasattr(model, "coef_") or getattr(model, "kernel", "linear") == "rbf":
        return None  # coefficients of random features mean nothing
    coef = np.asarray(model.coef_)
    titles = subject.names_of_parts() if len(coef) > 1 else [""]
    describe = _with_intervals if hasattr(model, "coef_debiased_") else _plain
    hidden = len(coef) - _MAX_COEFFICIENT_TABLES
    return {
        "note": _about_coefficients(model),
        "sets": [{"title": titles[k], **describe(subject, k)} for k in range(min(len(coef), _MAX_COEFFICIENT_TABLES))],
        "more": f"{hidden} more sets of coefficients are in coef_." if hidden > 0 else "",
    }


def _about_coefficients(model: Any) -> str:
    if hasattr(model, "standard_error_"):
        return (
            "Debiased coefficients of the expected hinge loss. Each interval covers its coefficient with probability "
            f"{model.confidence:g}; among many intervals some will miss."
        )
    if hasattr(model, "coef_debiased_"):
        return "Debiased coefficients. One round on several machines leaves a bias, so that there are no intervals."
    if hasattr(model, "n_features_selected_"):
        selected = f"{model.n_features_selected_} of {model.n_features_in_} features"
        return f"{selected} have a coefficient; all others are exactly zero."
    return "In the units of the features that the estimator was given: compare sizes only if these have one scale."


def _plain(subject: Subject, k: int) -> Content:
    coef, names = np.asarray(subject.estimator.coef_)[k], subject.names_of_features()
    nonzero = np.flatnonzero(coef)
    shown = nonzero[np.argsort(-np.abs(coef[nonzero]), kind="stable")][:_MAX_FEATURES]
    if not len(shown):
        return {"note": "All coefficients are zero."}
    return {
        "figures": subject.drawn(_figures.coefficients([names[j] for j in shown], coef[shown])),
        "coefficients": Table(("feature", "coefficient"), [(names[j], f"{coef[j]:.5g}") for j in shown]),
        "more": f"The {len(shown)} largest of {len(nonzero)}." if len(nonzero) > len(shown) else "",
    }


def _with_intervals(subject: Subject, k: int) -> Content:
    summary = subject.estimator.summary(subject.names_of_features())
    summary = summary[k] if isinstance(summary, Sequence) else summary
    shown = slice(_MAX_FEATURES)
    columns = {heading: values[shown] for heading, values in summary.columns.items()}
    head, ends = ["feature", "estimate"], None
    if "p-value" in columns:
        head += ["std err", "p-value", "BH", "interval"]
        low, high = (values for heading, values in columns.items() if "[" in heading or "]" in heading)
        ends = np.column_stack([low, high])
    lines = []
    for j, name in enumerate(summary.names[shown]):
        line = [name + (" *" if columns["selected"][j] else ""), f"{columns['debiased'][j]:.4f}"]
        if ends is not None:
            p_values = ["< 0.0001" if p < 1e-4 else f"{p:.4f}" for p in (columns["p-value"][j], columns["BH"][j])]
            line += [f"{columns['std err'][j]:.4f}", *p_values, "[{:.3f}, {:.3f}]".format(*ends[j])]
        lines.append(line)
    names, values = summary.names[shown], columns["debiased"]
    hidden = len(summary.names) - len(lines)
    more = [f"The {len(lines)} largest; {hidden} more are in summary()."] if hidden else []
    return {
        "figures": subject.drawn(_figures.coefficients(names, values, ends, what="debiased coefficient")),
        "coefficients": Table(head, lines),
        "note": " ".join([*more, "* kept in the model.", *(f"{note.rstrip('.')}." for note in summary.notes)]),
    }


def network(subject: Subject) -> Content | None:
    model = subject.estimator
    if not hasattr(model, "nodes_"):
        return None
    if hasattr(model, "peer_"):
        return _members(subject)
    lines = [
        (
            number,
            f"{node.n_rows:,}",
            _gap(node.gap) if np.isfinite(node.gap) else "none",
            f"{node.consensus_error:.2g}",
            f"{node.messages_sent:,} ({words.amount(node.bytes_sent)})",
            f"{node.messages_received:,} ({words.amount(node.bytes_received)})",
            ", ".join(map(str, node.live_neighbours[:8])) + ("…" if len(node.live_neighbours) > 8 else ""),
        )
        for number, node in sorted(model.nodes_.items(), key=lambda each: -each[1].gap)[:_MAX_PEERS]
    ]
    gone = sorted(set(model.graph_) - set(model.nodes_))
    note = [f"Lost during the fit: {', '.join(map(str, gone))}."] if gone else []
    if len(lines) < len(model.nodes_):
        note.append(f"The {len(lines)} peers with the largest gaps; all {len(model.nodes_)} are in nodes_.")
    head = ("peer", "rows", "gap", "consensus error", "sent", "received", "live neighbours")
    figures = subject.drawn(_figures.peers(model), _figures.way_of_peers(model))
    return {"figures": figures, "note": " ".join(note), "peers": Table(head, lines)}


def _members(subject: Subject) -> Content:
    """The network as the peer that saved the model knew it: the rows of others, not their gaps or traffic."""
    model, own = subject.estimator, subject.estimator.nodes_[subject.estimator.peer_]
    largest_first = sorted(model.nodes_.items(), key=lambda each: (-each[1].n_rows, each[0]))
    lines = [
        (number, f"{node.n_rows:,}", f"{node.consensus_error:.2g}", f"{len(node.live_neighbours):,}")
        for number, node in largest_first[:_MAX_PEERS]
    ]
    n_more = len(model.nodes_) - len(lines)
    note = [f"The {len(lines)} members with the most rows; all {len(model.nodes_)} are in nodes_."] if n_more else []
    sent, received = words.amount(own.bytes_sent), words.amount(own.bytes_received)
    note.append(
        f"Peer {model.peer_} sent {own.messages_sent:,} messages ({sent}) and received {own.messages_received:,} "
        f"({received}). Gaps and traffic of the others are not known here."
    )
    head = ("member", "rows", "distance from the mean model", "live neighbours")
    table = Table(head, lines, f"{words.members_in_words(model)}.")
    return {"figures": subject.drawn(_figures.way_of_peers(model)), "note": " ".join(note), "peers": table}


def cost(subject: Subject) -> Content:
    ledger = getattr(subject.estimator, "cost_", None)
    if ledger is None:
        return {"note": "The cost of this fit is not recorded."}
    total = sum(ledger.seconds.values()) or 1.0
    lines = [
        (name, words.duration(seconds), Shared(seconds / total, "bar", beside=f"{100 * seconds / total:.0f}%"))
        for name, seconds in sorted(ledger.seconds.items(), key=lambda each: -each[1])
    ]
    return {
        "counted": Table((), words.cost_in_words(ledger), "Total over all subproblems and ranks"),
        "phases": Table(("phase", "time", "share"), lines, "Time per phase, measured on the first rank"),
    }


def size(subject: Subject) -> Content:
    model = subject.estimator
    lines: list[tuple[str, str]] = [("classes", f"{len(model.classes_):,}"), ("features", f"{model.n_features_in_:,}")]
    if hasattr(model, "coef_"):
        lines.append(("nonzero coefficients", f"{np.count_nonzero(model.coef_):,} of {np.size(model.coef_):,}"))
    if hasattr(model, "dual_coef_"):
        lines.append(("support vectors", f"{model.dual_coef_.shape[1]:,}"))
    if hasattr(model, "size_bytes"):
        n_bytes = model.size_bytes()
    else:
        n_bytes = sum(getattr(model, name).nbytes for name in ("coef_", "intercept_") if hasattr(model, name))
    return {"lines": [*lines, ("size of its arrays", words.amount(n_bytes))]}


def reproduce(subject: Subject) -> Content:
    return {
        "code": _reproduce.code(subject.model),
        "circumstances": _reproduce.circumstances(subject.estimator),
        "note": "Versions and platform are those of the process that made this report.",
    }


def scores(subject: Subject) -> Content | None:
    if subject.scored is None:
        return None
    return {**subject.scored.content(), "figures": subject.drawn(subject.scored.margins())}


# Anchor (also the name of the template), heading and content, in the order of the page; None leaves a section out.
SECTIONS: tuple[tuple[str, str, Callable[[Subject], Content | None]], ...] = (
    ("certificate", "How good it is", certificate),
    ("problem", "The problem", problem),
    ("search", "The search", search),
    ("network", "The network", network),
    ("convergence", "Convergence", convergence),
    ("parts", "Subproblems", parts),
    ("scores", "Scores on the given rows", scores),
    ("features", "Features", features),
    ("size", "Size of the model", size),
    ("cost", "Cost", cost),
    ("reproduce", "Reproduce this fit", reproduce),
)
