"""``widemargin tune``: C and gamma by cross-validation, with a score on rows that the search has not seen."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from widemargin.cli._input import Data, Label, ZeroBased
from widemargin.cli.train import Precision, Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from widemargin.estimators.searched import Searched, SearchPoint

_MOST_POINTS = 5  # that are printed
_HOLD_OUT = 0.2


class Selection(StrEnum):
    best = "best"
    one_standard_error = "one-standard-error"


class Unseen(NamedTuple):
    """The score of a search on rows that it has not seen, and what it chose."""

    n_rows: int
    score: float
    largest_class: float  # the score of the largest class alone
    chosen: dict[str, float]


def tune(
    data: Data,
    Cs: Annotated[
        str | None, typer.Option("--Cs", help="How many values of C (default 10), or the values: 0.1,1,10.")
    ] = None,
    gammas: Annotated[str | None, typer.Option(help="How many values of gamma (default 5), or the values.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Default: rbf, and linear for over 20,000 rows or 2,000 features.")
    ] = None,
    cv: Annotated[int, typer.Option(min=2, help="Number of folds of the search, stratified and shuffled.")] = 5,
    scoring: Annotated[
        str | None,
        typer.Option(help="A scorer of scikit-learn, such as balanced_accuracy or roc_auc; default: accuracy."),
    ] = None,
    selection: Annotated[
        Selection, typer.Option(help="The best mean score, or the widest margin within one standard error of it.")
    ] = Selection.best,
    refine: Annotated[bool, typer.Option(help="Whether to try points half a step around the best one.")] = True,
    class_weight: Annotated[
        str | None, typer.Option(help='balanced, or a weight for each class: \'{"cat": 2, "dog": 1}\'.')
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Another parameter of KernelSVCCV; may be repeated.")
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.9, help=f"Share of rows for the score (default {_HOLD_OUT:g}); 0 for no score."),
    ] = None,
    outer: Annotated[
        int | None, typer.Option(min=2, help="Nested cross-validation: so many outer folds in place of --hold-out.")
    ] = None,
    scale: Annotated[Scale, typer.Option(help="Scale features, fitted to the rows of each search.")] = Scale.none,
    tol: Annotated[float | None, typer.Option(help="Relative gap at which fits stop.")] = None,
    max_time: Annotated[float | None, typer.Option(help="Seconds after which each search stops.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Where searches run: threads:4, or dask:tcp://host:8786.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed of folds and held-out rows.")] = 0,
    label: Label = "-1",
    zero_based: ZeroBased = False,
    precision: Annotated[
        Precision, typer.Option(help="Type of the features; auto is float32 for files over 256 MiB, else float64.")
    ] = Precision.auto,
    model: Annotated[Path, typer.Option("--model", "--output", help="File of the model.")] = Path("model.wm"),
    report: Annotated[Path | None, typer.Option(help="Write an HTML report with the search to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose C and gamma by cross-validation, train the model on all rows, and score the whole procedure.

    [bold]Example[/bold]:

      widemargin tune rows.csv --label kind --scale standard --report tune.html

      widemargin tune rows.csv --Cs 0.1,1,10,100 --gammas 0.01,0.1 --scoring roc_auc --outer 5

      widemargin tune rows.csv --kernel linear --selection one-standard-error --hold-out 0

    The mean over folds that decides is too good for a score: it is the best of many. So the same search runs again
    without the held-out rows, or without those of each outer fold, and its choice is scored on them. The model that is
    saved comes from the search on all rows. Ctrl-C ends a search with the best point so far.
    """
    from widemargin.cli._cluster import opened
    from widemargin.cli._estimators import parsed, set_cluster
    from widemargin.cli.train import announce, check_kept, fitted, keep, read, write_report

    if outer is not None and hold_out is not None:
        raise ValueError("--outer and --hold-out are two ways to score a search: omit one of them.")
    if cluster == "mpi":
        raise ValueError("--cluster mpi divides rows, and tune needs all of them to make folds: use threads or dask.")
    parameters = parsed(param or [])
    estimator = _estimator(
        parameters, Cs=_grid("--Cs", Cs), gammas=_grid("--gammas", gammas), kernel=kernel, cv=_folds(cv, seed),
        scoring=_scoring(scoring), selection=str(selection), refine=refine, class_weight=_weight(class_weight), tol=tol,
        max_time=max_time,
    )  # fmt: skip
    check_kept(data, model, report)
    with opened(cluster) as place:
        set_cluster(estimator, place.cluster, parameters)
        rows = read(data, label, zero_based, precision, place)
        _set_kernel(estimator, rows, is_given=kernel is not None or gammas is not None or "kernel" in parameters)
        splits = _splits(rows.y, _HOLD_OUT if hold_out is None else hold_out, outer, cv, seed)
        score = _scorer(estimator, rows.y)
        if not as_json:
            announce(data, rows, f"Tuning {type(estimator).__name__}.", place)
        _say_which(0, len(splits))
        fit = fitted(estimator, rows, scale, is_first=True)
        keep(fit, rows, model, None)
        unseen = [] if fit.was_interrupted else list(_unseen(estimator, rows, scale, splits, score))
    if report is not None:
        write_report(fit, rows, report, _note(estimator, unseen, len(splits)))
    if as_json:
        typer.echo(json.dumps(_plain(fit, unseen, len(splits), model)))
    else:
        _show(fit, estimator, unseen, len(splits), model)


# -- before ------------------------------------------------------------------------------------------------------------


def _estimator(parameters: dict[str, Any], **options: Any) -> Any:
    """With the parameters that are named on the command line, and those that have an option of their own."""
    from widemargin.cli._estimators import make
    from widemargin.estimators.kernel_cv import KernelSVCCV

    named = {f"--{name.replace('_', '-')}": (name, value) for name, value in options.items()}
    return make(KernelSVCCV, parameters, named)


def _folds(n_folds: int, seed: int) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(n_folds, shuffle=True, random_state=seed)


def _weight(text: str | None) -> Any:
    """Of each class."""
    from widemargin.cli._estimators import parsed

    return None if text is None else parsed([f"w={text}"])["w"]


def _grid(option: str, text: str | None) -> int | list[float] | None:
    """A number of values, or values that are separated by commas."""
    if text is None:
        return None
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < float("inf") for value in values):
        raise ValueError(f"{option} {text} must be a number of values, or positive numbers separated by commas.")
    return int(text) if text.strip().isdecimal() else values


def _scoring(text: str | None) -> str | list[str] | None:
    """One scorer or several, by their names in scikit-learn."""
    from sklearn.metrics import get_scorer_names

    from widemargin.cli._estimators import hint

    if text is None:
        return None
    names, known = [each.strip() for each in text.split(",")], get_scorer_names()
    for name in names:
        if name not in known:
            usual = "accuracy, balanced_accuracy, f1, f1_macro, matthews_corrcoef or roc_auc"
            raise ValueError(f"--scoring {name} is no scorer of scikit-learn, such as {usual}{hint(name, known)}")
    return names[0] if len(names) == 1 else names


def _set_kernel(estimator: Any, rows: Any, *, is_given: bool) -> None:
    from widemargin.cli._estimators import kernel_for
    from widemargin.cli._say import remark

    if estimator.kernel == "precomputed":
        raise ValueError("--kernel precomputed is for kernel matrices: tune reads rows of features.")
    if not is_given:
        kernel, reason = kernel_for(*rows.X.shape)
        estimator.set_params(kernel=kernel)
        remark(f"No --kernel was given: using {kernel}, {reason.removeprefix('with kernel=linear, ')}.")


def _splits(
    y: np.ndarray, hold_out: float, outer: int | None, cv: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows for a search, and rows to score its choice on; each search has rows of every class for all of its folds."""
    import numpy as np
    from sklearn.model_selection import StratifiedShuffleSplit

    share = hold_out if outer is None else 1 / outer
    classes, counts = np.unique(y, return_counts=True)
    least = int(counts.min())
    n_held_out = int(np.ceil(share * least))
    if least - n_held_out < cv or least < (outer or 0) or 0 < share * len(y) < len(classes):
        how = f"--hold-out {hold_out:g}" if outer is None else f"--outer {outer}"
        takes = f"; {how} takes {n_held_out} of them, and the rest is" if share else ", which is"
        raise ValueError(
            f"Class {classes[counts.argmin()]} has {least} of {len(y)} rows{takes} too few for --cv {cv}: use fewer "
            f"folds{', or --hold-out 0 for no score' if share else ''}."
        )
    if not share:
        return []
    if outer is not None:
        return list(_folds(outer, seed).split(y, y))
    return list(StratifiedShuffleSplit(1, test_size=hold_out, random_state=seed).split(y, y))


def _scorer(estimator: Any, y: np.ndarray) -> Callable[[Any, Any, np.ndarray], float]:
    """The scorer that decides; one that does not suit the labels is an error before any fit."""
    import numpy as np
    from sklearn.metrics import check_scoring

    score: Callable[[Any, Any, np.ndarray], float] = check_scoring(estimator, scoring=_deciding(estimator))
    try:
        score(_largest_class(y), np.zeros((len(y), 1)), y)
    except ValueError as error:
        advice = "choose another, such as balanced_accuracy or f1_macro"
        raise ValueError(f"--scoring {_deciding(estimator)} does not suit these labels ({error}): {advice}.") from None
    return score


def _deciding(estimator: Any) -> str | None:
    """The first of several scorers decides."""
    name: str | None = estimator.scoring[0] if isinstance(estimator.scoring, list) else estimator.scoring
    return name


def _largest_class(y: np.ndarray) -> Any:
    """A model that gives the largest class for all rows."""
    import numpy as np
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="most_frequent").fit(np.zeros((len(y), 1)), y)


# -- searches ----------------------------------------------------------------------------------------------------------


def _say_which(k: int, n_splits: int) -> None:
    from widemargin.cli._say import remark

    if n_splits:
        part = "all rows" if k == 0 else "without the held-out rows" if n_splits == 1 else f"without outer fold {k}"
        remark(f"Search {k + 1} of {n_splits + 1}: {part}.")


def _unseen(
    estimator: Any, rows: Any, scale: Scale, splits: Sequence[tuple[np.ndarray, np.ndarray]], score: Any
) -> Iterator[Unseen]:
    """The same search without some rows, scored on these; ends with a search that is interrupted."""
    import warnings

    from sklearn.base import clone

    from widemargin.cli._model import last_step
    from widemargin.cli.train import fitted

    for k, (train, test) in enumerate(splits):
        _say_which(k + 1, len(splits))
        search = clone(estimator)
        if estimator.checkpoint is not None:
            search.set_params(checkpoint=f"{estimator.checkpoint}-without-{k + 1}")
        fit = fitted(search, rows._replace(X=rows.X[train], y=rows.y[train]), scale, is_first=True)
        if fit.was_interrupted:
            return
        X, y = rows.X[test], rows.y[test]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these rows have no column names
            ours, alone = (float(score(each, X, y)) for each in (fit.model, _largest_class(rows.y[train])))
        yield Unseen(len(test), ours, alone, last_step(fit.model).best_params_)


# -- afterwards --------------------------------------------------------------------------------------------------------


def _show(fit: Any, estimator: Any, unseen: Sequence[Unseen], n_splits: int, path: Path) -> None:
    from widemargin.cli._say import console
    from widemargin.cli.train import proved, right_and_sizes

    for each in (*_tables(estimator, unseen, n_splits), proved(fit, right_and_sizes(fit), path)):
        console().print(each)


def _tables(estimator: Any, unseen: Sequence[Unseen], n_splits: int) -> Iterator[Any]:
    from widemargin.cli._say import columns, facts
    from widemargin.estimators.searched import searched

    found = searched(estimator)
    assert found is not None
    name = _deciding(estimator) or "accuracy"
    yield facts(f"Search: {len(found.points)} points, {estimator.n_splits_} folds, {name}", _about_search(found))
    if found.best_first:
        titles = ["", *found.chosen.parameters, "mean", "std err", "support vectors", "gap", "state"]
        lines = [[rank, *_line(point)] for rank, point in found.top(_MOST_POINTS)]
        yield columns(titles, lines, title="The best points")
    yield facts(f"Score on rows that the search has not seen: {name}", _about_unseen(unseen, n_splits, name))
    if len(unseen) > 1:
        titles = ["outer fold", "rows", "score", "largest class alone", *unseen[0].chosen]
        folds = [
            [str(k + 1), f"{n:,}", f"{score:.4f}", f"{alone:.4f}", *(f"{value:.4g}" for value in chosen.values())]
            for k, (n, score, alone, chosen) in enumerate(unseen)
        ]
        yield columns(titles, folds, title="Each outer fold has its own search")


def _about_search(found: Searched) -> list[tuple[str, str]]:
    chosen = found.chosen
    pairs = [("chosen", chosen.in_words)]
    if found.best_first:
        ends = f"folds from {chosen.scores.min():.4f} to {chosen.scores.max():.4f}"
        pairs += [
            ("mean over folds", f"{chosen.mean:.4f}, standard error {chosen.error:.4f}, {ends}"),
            ("within one standard error", f"{len(found.near_best)} of {len(found.points)} points"),
        ]
    pairs.append(("points", ", ".join(f"{n} {state}" for state, n in found.states.items())))
    return [*pairs, *(("at the edge", text) for text in found.edges)]


def _line(point: SearchPoint) -> list[str]:
    numbers = [f"{value:.4g}" for value in point.parameters.values()]
    scores = [f"{point.mean:.4f}", f"{point.error:.4f}"]
    return [*numbers, *scores, f"{point.n_support:.0f}", f"{point.gap:.1e}", point.state]


def _about_unseen(unseen: Sequence[Unseen], n_splits: int, name: str) -> list[tuple[str, str]]:
    import numpy as np

    from widemargin.estimators.searched import parameters_in_words

    if not unseen:
        why = "not scored: interrupted" if n_splits else "not scored: use --hold-out or --outer"
        return [("score", f"{why}. The mean over folds above is the best of many, and so too good.")]
    score, alone = np.mean([(each.score, each.largest_class) for each in unseen], axis=0).tolist()
    n_rows = sum(each.n_rows for each in unseen)
    pairs = [("score", f"{score:.4f} on {n_rows:,} held-out rows  (largest class alone: {alone:.4f})")]
    if len(unseen) > 1:
        each = np.array([one.score for one in unseen])
        spread = f"standard deviation {each.std(ddof=1):.4f}, from {each.min():.4f} to {each.max():.4f}"
        pairs = [(f"mean of {len(unseen)}", pairs[0][1]), ("spread", spread)]
    else:
        if name == "accuracy":
            pairs.append(("standard error", f"{np.sqrt(score * (1 - score) / n_rows):.4f}, from so many rows alone"))
        pairs.append(("chosen there", parameters_in_words(unseen[0].chosen)))
    if len(unseen) < n_splits:
        pairs.append(("interrupted", f"{len(unseen)} of {n_splits} outer folds were scored"))
    return [*pairs, ("what is scored", "the same search on the other rows; the saved model is from all rows")]


def _note(estimator: Any, unseen: Sequence[Unseen], n_splits: int) -> str | None:
    """What the report says of the score."""
    if not unseen:
        return None
    name = _deciding(estimator) or "accuracy"
    (what, score), *more = _about_unseen(unseen, n_splits, name)
    spread = f", {more[0][1]}" if len(unseen) > 1 else ""
    return f"On rows that the search has not seen ({name}), {what}: {score}{spread}. It is that of {more[-1][1]}."


def _plain(fit: Any, unseen: Sequence[Unseen], n_splits: int, path: Path) -> dict[str, Any]:
    """All figures, as plain values."""
    from widemargin.cli._model import last_step, warning
    from widemargin.cli.inspect import finite
    from widemargin.estimators.searched import searched

    model = last_step(fit.model)
    found = searched(model)
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
    proof = model.certificate_
    plain = {
        "warning": dict(warning(fit.model)).get("warning"),
        "model": str(path),
        "scoring": _deciding(model) or "accuracy",
        "best_parameters": model.best_params_,
        "best_score": model.best_score_,
        "best_index": found.index,
        "points": points,
        "held_out": [each._asdict() for each in unseen],
        "n_outer": n_splits,
        "certificate": {"primal": proof.primal, "dual": proof.dual, "relative_gap": proof.relative},
        "stop_reason": model.stop_reason_,
        "seconds": fit.seconds,
    }
    return dict(finite(plain))
