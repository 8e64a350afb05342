"""What ``widemargin tune`` shows of a finished search: tables, or plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widemargin.estimators.searched import Edge, Searched, SearchPoint, UnseenScores

_MOST_POINTS = 5  # that are printed
_NARROW = 90  # columns of a terminal, below which the gap of each point is left out


def show(fit: Any, unseen: UnseenScores, model: Path, report: Path | None) -> None:
    """Print all tables, and where the files are."""
    from widemargin.cli._model import last_step
    from widemargin.cli._say import console
    from widemargin.cli.train import proved, right_and_sizes

    screen = console()
    for each in _tables(last_step(fit.model), unseen, is_narrow=screen.width < _NARROW):
        screen.print(each)
    screen.print(proved(fit, right_and_sizes(fit), model, form=".4f"))
    where = f"Model: {model}." if report is None else f"Model: {model}. Report: {report}."
    screen.print(where, markup=False, soft_wrap=True)


def _tables(estimator: Any, unseen: UnseenScores, *, is_narrow: bool) -> Iterator[Any]:
    from widemargin.cli._say import columns, facts
    from widemargin.estimators.searched import searched

    found = searched(estimator)
    assert found is not None
    size = "1 point" if len(found.points) == 1 else f"{len(found.points)} points"
    yield facts(f"Search: {size}, {estimator.n_splits_} folds, {unseen.scoring}", _about_search(found, estimator.tol))
    if found.best_first:
        titles = ["", *found.chosen.parameters, "score", "std err", "SVs", "state", "gap"]
        lines = [[rank, *_line(point)] for rank, point in found.top(_MOST_POINTS)]
        n_shown = len(titles) - is_narrow
        yield columns(titles[:n_shown], [line[:n_shown] for line in lines], title="The best points")
    yield facts(f"Score on rows that the search has not seen: {unseen.scoring}", _about_unseen(unseen))
    if len(unseen.each) > 1:
        titles = ["outer fold", "rows", "score", "largest class", *unseen.each[0].chosen]
        folds = [
            [str(k + 1), f"{n:,}", f"{score:.4f}", f"{alone:.4f}", *(f"{value:.4g}" for value in chosen.values())]
            for k, (n, score, alone, chosen) in enumerate(unseen.each)
        ]
        yield columns(titles, folds, title="Each outer fold has its own search")


def _about_search(found: Searched, tol: float) -> list[tuple[str, str]]:
    chosen, states = found.chosen, ", ".join(f"{n} {state}" for state, n in found.states.items())
    if not found.best_first:
        why = f"no point was tried; {chosen.in_words} is the middle of the grid"
        return [("not chosen", why), ("points", states)]
    ends = f"folds from {chosen.scores.min():.4f} to {chosen.scores.max():.4f}"
    return [
        ("chosen", chosen.in_words),
        ("state", found.doubt(tol) or chosen.state),
        ("mean over folds", f"{chosen.mean:.4f}, standard error {chosen.error:.4f}, {ends}"),
        ("within one standard error", f"{len(found.near_best)} of {len(found.points)} points"),
        ("points", states),
        *(("at the edge", f"{edge.in_words}, for example {_wider(edge)}") for edge in found.edges),
    ]


def _wider(edge: Edge) -> str:
    """An option with values on both sides of an edge."""
    middle = 10.0 ** round(math.log10(edge.value))
    return f"--{edge.name}s " + ",".join(f"{middle * factor:g}" for factor in (0.1, 1, 10))


def _line(point: SearchPoint) -> list[str]:
    numbers = [f"{value:.4g}" for value in point.parameters.values()]
    scores = [f"{point.mean:.4f}", f"{point.error:.4f}"]
    return [*numbers, *scores, f"{point.n_support:.0f}", point.state, f"{point.gap:.1e}"]


def _about_unseen(unseen: UnseenScores) -> list[tuple[str, str]]:
    from widemargin.estimators.searched import parameters_in_words

    if not unseen.each:
        why = "not scored: interrupted" if unseen.n_splits else "not scored: use --hold-out or --outer"
        return [("score", f"{why}. The best mean over folds above is optimistic.")]
    score = (
        f"{unseen.mean:.4f} on {unseen.n_rows:,} held-out rows  (largest class alone {unseen.largest_class_score:.4f})"
    )
    scores = [one.score for one in unseen.each]
    if len(scores) > 1:
        spread = f"standard deviation {unseen.spread:.4f}, from {min(scores):.4f} to {max(scores):.4f}"
        pairs = [(f"mean of {len(scores)} outer folds", score), ("spread", spread)]
    else:
        pairs = [("score", score)]
        if unseen.spread is not None:
            pairs.append(("standard error", f"{unseen.spread:.4f} (binomial, {unseen.n_rows:,} rows)"))
        pairs.append(("chosen there", parameters_in_words(unseen.each[0].chosen)))
    if unseen.interruption:
        pairs.append(("interrupted", unseen.interruption))
    return [*pairs, ("scored", "a search without these rows"), ("saved", "the model of the search on all rows")]


def plain(fit: Any, unseen: UnseenScores, model: Path, report: Path | None) -> dict[str, Any]:
    """All figures, as plain values."""
    from widemargin.cli._model import last_step, warning
    from widemargin.cli.inspect import finite
    from widemargin.estimators.searched import searched

    estimator = last_step(fit.model)
    found = searched(estimator)
    assert found is not None
    points = [
        {
            "parameters": point.parameters,
            "mean": point.mean,
            "standard_error": point.error,
            "scores": point.scores.tolist(),
            **{name: getattr(point, name) for name in ("n_support", "seconds", "gap", "state")},
        }
        for point in found.points
    ]
    proof, is_scored = estimator.certificate_, bool(unseen.each)
    figures = {
        "warning": dict(warning(fit.model)).get("warning"),
        "model": str(model),
        "report": None if report is None else str(report),
        "scoring": unseen.scoring,
        "best_parameters": estimator.best_params_,
        "best_score": estimator.best_score_,
        "best_index": found.index,
        "points": points,
        "unseen_score": unseen.mean if is_scored else None,
        "unseen_score_spread": unseen.spread if is_scored else None,
        "largest_class_score": unseen.largest_class_score if is_scored else None,
        "n_searches_scored": len(unseen.each),
        "n_outer": unseen.n_splits if unseen.n_splits > 1 else 0,
        "held_out": [each._asdict() for each in unseen.each],
        "certificate": {"primal": proof.primal, "dual": proof.dual, "relative_gap": proof.relative},
        "stop_reason": estimator.stop_reason_,
        "seconds": fit.seconds,
    }
    return dict(finite(figures))
