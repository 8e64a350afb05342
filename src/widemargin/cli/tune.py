"""``widemargin tune``: C and gamma by cross-validation, with a score on rows that the search has not seen."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widemargin.cli._input import Data, Label, ZeroBased
from widemargin.cli.train import Precision, Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from widemargin.estimators.searched import Unseen

_HOLD_OUT = 0.2
_MAX_RATIO_OF_SPANS = 100  # between columns, before a remark


class Kernel(StrEnum):
    rbf = "rbf"
    linear = "linear"
    poly = "poly"
    sigmoid = "sigmoid"
    laplacian = "laplacian"
    cosine = "cosine"


class Selection(StrEnum):
    best = "best"
    one_standard_error = "one-standard-error"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"
    auto = "auto"


def tune(
    data: Data,
    Cs: Annotated[
        str | None,
        typer.Option("--Cs", help="How many values of C (default 10), or the values: 0.1,1,10; one is 10.0."),
    ] = None,
    gammas: Annotated[
        str | None, typer.Option(help="How many values of gamma (default 5), or the values: 0.01,0.1; one is 1.0.")
    ] = None,
    kernel: Annotated[
        Kernel | None, typer.Option(help="Default: rbf, and linear for over 20,000 rows or 2,000 features.")
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
    device: Annotated[
        Device | None,
        typer.Option(help="Where to compute: cpu (default), cuda (a GPU), or auto (a GPU if there is one)."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of finished fits: the same command resumes from it after a crash.")
    ] = None,
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

    The best mean over folds is optimistic, because it is the maximum of many. So the same search runs again
    without the held-out rows, or without those of each outer fold, and its choice is scored on them. The model that is
    saved comes from the search on all rows. Ctrl-C ends a search with the best point so far.
    """
    from widemargin.cli._cluster import opened
    from widemargin.cli._estimators import parsed, set_cluster
    from widemargin.cli._tuned import plain, show
    from widemargin.cli.train import announce, check_kept, fitted, keep, read, write_report
    from widemargin.estimators.searched import UnseenScores

    if outer is not None and hold_out is not None:
        raise ValueError("--outer and --hold-out are two ways to score a search: omit one of them.")
    if cluster == "mpi":
        raise ValueError("--cluster mpi divides rows, and tune needs all of them to make folds: use threads or dask.")
    parameters = parsed(param or [])
    estimator = _estimator(
        parameters, Cs=_grid("--Cs", Cs), gammas=_grid("--gammas", gammas), kernel=_text(kernel), cv=_folds(cv, seed),
        scoring=_scoring(scoring), selection=str(selection), refine=refine, class_weight=_weight(class_weight), tol=tol,
        max_time=max_time, checkpoint=_text(checkpoint), device=_text(device),
    )  # fmt: skip
    _check(estimator)
    check_kept(data, model, report)
    with opened(cluster) as place:
        set_cluster(estimator, place.cluster, parameters)
        rows = read(data, label, zero_based, precision, place)
        _set_kernel(estimator, rows, is_given=kernel is not None or gammas is not None or "kernel" in parameters)
        splits = _splits(rows.y, _HOLD_OUT if hold_out is None else hold_out, outer, cv, seed)
        score = _scorer(estimator, rows.y)
        if not as_json:
            announce(data, rows, f"Tuning {type(estimator).__name__}.", place)
        if scale == Scale.none:
            _remark_spans(rows.X)
        _compile(estimator, rows)
        _say_which(0, len(splits), estimator.checkpoint)
        fit = fitted(estimator, rows, scale, is_first=True)
        keep(fit, rows, model, None)
        scored = [] if fit.was_interrupted else list(_unseen(estimator, rows, scale, splits, score))
    unseen = UnseenScores(_deciding(estimator) or "accuracy", scored, len(splits))
    if report is not None:
        write_report(fit, rows, report, unseen if splits else None)
    if as_json:
        typer.echo(json.dumps(plain(fit, unseen, model, report)))
    else:
        show(fit, unseen, model, report)


# -- before ------------------------------------------------------------------------------------------------------------


def _estimator(parameters: dict[str, Any], **options: Any) -> Any:
    """With the parameters that are named on the command line, and those that have an option of their own."""
    from widemargin.cli._estimators import make
    from widemargin.estimators.kernel_cv import KernelSVCCV

    named = {f"--{name.replace('_', '-')}": (name, value) for name, value in options.items()}
    return make(KernelSVCCV, parameters, named)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _check(estimator: Any) -> None:
    """Raise ValueError before the file is read, for a kernel, a scorer or a grid that would suit no rows."""
    import numpy as np

    from widemargin.comm.solo import Solo
    from widemargin.strategies.protocol import Rows

    if estimator.kernel == "precomputed":
        raise ValueError("kernel=precomputed is for kernel matrices: tune reads rows of features.")
    if not np.array_equal(estimator.gammas, 5) and not estimator._kernel_with(1.0).needs_gamma:
        raise ValueError(f"The {estimator.kernel} kernel has no gamma: omit --gammas, or use --kernel rbf.")
    y = np.arange(2 * estimator.cv.get_n_splits()) % 2
    rows = Rows(y[:, None] + 1.0, y, np.ones(len(y)))
    estimator._prepared(rows, False, None, Solo())
    estimator._grids(rows.X, rows.weight, None)


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

    if not is_given:
        kernel, reason = kernel_for(*rows.X.shape)
        estimator.set_params(kernel=kernel)
        remark(f"No --kernel was given: using {kernel}, {reason.removeprefix('with kernel=linear, ')}.")


def _remark_spans(X: Any) -> None:
    """Suggest a scaler for columns of very different scales: the largest would decide alone."""
    from scipy.sparse import issparse

    from widemargin.cli._say import remark

    if issparse(X):  # it would take a second copy
        return
    spans = X.max(axis=0) - X.min(axis=0)
    spans = spans[spans > 0]
    if len(spans) and spans.max() > _MAX_RATIO_OF_SPANS * spans.min():
        ratio = float(f"{spans.max() / spans.min():.1g}")
        remark(f"Columns differ {ratio:,.0f}-fold in scale: try --scale standard.")


def _splits(
    y: np.ndarray, hold_out: float, outer: int | None, cv: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows for a search, and rows to score its choice on; each search has rows of every class for all of its folds."""
    import numpy as np
    from sklearn.model_selection import StratifiedShuffleSplit

    classes, counts = np.unique(y, return_counts=True)
    name, least = classes[counts.argmin()], int(counts.min())
    share = hold_out if outer is None else 1 / outer
    if outer is not None and outer > least:
        raise ValueError(f"--outer {outer} is more folds than class {name} has rows ({least}).")
    if 0 < share * len(y) < len(classes):
        enough = np.ceil(1000 * len(classes) / len(y)) / 1000
        raise ValueError(f"--hold-out {hold_out:g} is less than one row for each class: use at least {enough:g}.")
    left = least - int(np.ceil(share * least))
    if left < cv:
        how = f"--hold-out {hold_out:g}" if outer is None else f"--outer {outer}"
        leaves = f", and {how} leaves {left}" if share else f", too few for --cv {cv}"
        advice = f"use --cv {left}" if left > 1 else f"use --hold-out 0 --cv {least}"
        advice = advice if least > 1 else "a search needs 2 or more of each class"
        raise ValueError(f"Class {name} has {least} {'row' if least == 1 else 'rows'}{leaves}: {advice}.")
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


def _compile(estimator: Any, rows: Any) -> None:
    """Search on a few rows of two classes, so that times are those of fits; other machines compile on their own."""
    import warnings

    import numpy as np
    from sklearn.base import clone

    from widemargin.cli._one_fit import few_rows
    from widemargin.cli._say import console
    from widemargin.exceptions import InterruptedFitWarning

    if estimator.cluster is not None:
        return
    two = np.flatnonzero(np.isin(rows.y, np.unique(rows.y)[:2]))
    few, small = two[few_rows(rows.y[two])], clone(estimator)
    small.set_params(Cs=1, refine=False, tol=0.1, max_time=None, checkpoint=None, verbose=0)
    with console(stderr=True).status("Compiling"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            small.fit(rows.X[few], rows.y[few])
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None
        except ValueError:  # the search on all rows raises the same, or has rows enough
            pass


def _say_which(k: int, n_splits: int, checkpoint: str | None) -> None:
    from widemargin.cli._say import remark

    if n_splits:
        part = "all rows" if k == 0 else "without the held-out rows" if n_splits == 1 else f"without outer fold {k}"
        remark(f"Search {k + 1} of {n_splits + 1}: {part}.")
    if checkpoint is not None and any(Path(checkpoint).glob("search*.checkpoint")):
        remark(f"It resumes from checkpoint {checkpoint}.")


def _unseen(
    estimator: Any, rows: Any, scale: Scale, splits: Sequence[tuple[np.ndarray, np.ndarray]], score: Any
) -> Iterator[Unseen]:
    """The same search without some rows, scored on these; ends with a search that is interrupted."""
    import warnings

    from sklearn.base import clone

    from widemargin.cli._model import last_step
    from widemargin.cli.train import fitted
    from widemargin.estimators.searched import Unseen

    for k, (train, test) in enumerate(splits):
        search = clone(estimator)
        if estimator.checkpoint is not None:
            search.set_params(checkpoint=f"{estimator.checkpoint}-without-{k + 1}")
        _say_which(k + 1, len(splits), search.checkpoint)
        fit = fitted(search, rows._replace(X=rows.X[train], y=rows.y[train]), scale, is_first=True)
        if fit.was_interrupted:
            return
        X, y = rows.X[test], rows.y[test]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these rows have no column names
            ours, alone = (float(score(each, X, y)) for each in (fit.model, _largest_class(rows.y[train])))
        yield Unseen(len(test), ours, alone, last_step(fit.model).best_params_)
