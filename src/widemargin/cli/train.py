"""``widemargin train``: a model with its certificate from a file of rows."""

from __future__ import annotations

import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from widemargin.cli._input import Data, Label, ZeroBased
from widemargin.estimators import BUILT_IN

_DEFAULT = "Default: kernel, with kernel=linear for over 20,000 rows or 2,000 features."
_LARGE_FILE = 256 << 20  # bytes
_COMMANDS = [module.replace("_", "-") for name, module in BUILT_IN.items() if not name.endswith("CV")]


class Scale(StrEnum):
    none = "none"
    standard = "standard"
    maxabs = "maxabs"
    minmax = "minmax"


class Precision(StrEnum):
    auto = "auto"
    float32 = "float32"
    float64 = "float64"


class Fit(NamedTuple):
    """The fitted model, the rows as its last step saw them, and the time of the fit."""

    model: Any
    X: Any
    y: Any
    seconds: float
    was_interrupted: bool = False


def train(
    data: Data,
    estimator: Annotated[str | None, typer.Option(help=f"One of {', '.join(_COMMANDS)}. {_DEFAULT}")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the estimator; may be repeated.")
    ] = None,
    output: Annotated[Path, typer.Option(help="File of the model.")] = Path("model.wm"),
    label: Label = "-1",
    zero_based: ZeroBased = False,
    scale: Annotated[Scale, typer.Option(help="Scale features; the scaler is saved with the model.")] = Scale.none,
    precision: Annotated[
        Precision, typer.Option(help="Type of the features; auto is float32 for files over 256 MiB, else float64.")
    ] = Precision.auto,
    tol: Annotated[float | None, typer.Option(help="Relative gap at which the fit stops.")] = None,
    max_time: Annotated[
        float | None, typer.Option(help="Seconds after which the fit stops; per problem if there are several classes.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Where to run: threads:4, dask:tcp://host:8786, or mpi under mpirun.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report of the fit to this file.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Also export the model to this ONNX file.")] = None,
) -> None:
    """Train a model, print its certificate, and save it.

    [bold]Example[/bold]:

      widemargin train rows.csv --label kind --scale standard --output model.wm --report fit.html

      widemargin train a9a.svm.xz --estimator kernel --param C=10 --param gamma=0.05 --tol 1e-4

      widemargin train large.svm --estimator nu-margin --cluster threads:4 --max-time 600

    A bar shows how far the gap is from tol. Ctrl-C keeps the best model so far.
    """
    from widemargin.cli._cluster import opened
    from widemargin.cli._estimators import DEFAULT, find, make, parsed, set_cluster
    from widemargin.cli._say import console

    parameters = parsed(param or [])
    options = {"--tol": ("tol", tol), "--max-time": ("max_time", max_time), "--seed": ("random_state", seed)}
    model = make(find(estimator or DEFAULT).estimator, parameters, options)
    check_kept(data, output, report, onnx)
    with opened(cluster) as place:
        if place.size > 1 and (scale != Scale.none or report is not None):
            raise ValueError("--scale and --report need all rows in one process, and --cluster mpi divides them.")
        set_cluster(model, place.cluster, parameters)
        rows = read(data, label, zero_based, precision, place)
        if estimator is None:
            _choose_kernel(model, rows, place, is_given="kernel" in parameters)
        if place.rank == 0:
            announce(data, rows, f"Training {type(model).__name__}.", place)
        fit = fitted(model, rows, scale, is_first=place.rank == 0)
        right = place.total(right_and_sizes(fit))
    if place.rank == 0:
        keep(fit, rows, output, report, onnx)
        console().print(proved(fit, right, output))


# -- before ------------------------------------------------------------------------------------------------------------


def check_kept(data: Path, output: Path, report: Path | None, onnx: Path | None = None) -> None:
    """Raise ValueError for outputs that cannot be written, or need a package that is not installed."""
    from importlib.util import find_spec

    from widemargin.cli._input import check_outputs

    check_outputs({"the model": output, "the report": report, "the ONNX model": onnx}, data)
    for path, package, extra in ((report, "matplotlib", "plot"), (onnx, "onnx", "onnx")):
        if path is not None and find_spec(package) is None:
            raise ValueError(f"{path} needs {package}: pip install 'widemargin[{extra}]'.")


def read(data: Path, label: str, zero_based: bool, precision: Precision, place: Any) -> Any:
    """Rows with the labels of two or more classes."""
    import numpy as np

    from widemargin.cli._input import plain_labels
    from widemargin.data.layout import Layout
    from widemargin.data.rows import read_rows

    is_large = data.is_file() and data.stat().st_size > _LARGE_FILE
    by_size = Precision.float32 if is_large else Precision.float64
    is_given = precision != Precision.auto
    layout = Layout(label, zero_based, np.dtype(precision if is_given else by_size), is_dtype_wanted=is_given)
    rows = read_rows(data, layout, (place.rank, place.size))
    y = plain_labels(rows.y)
    if y.dtype.kind == "f":
        odd = y[(y != np.rint(y)).argmax()]
        raise ValueError(
            f"{data} has the label {odd:g}, and classes are integers or text: is --label {label} the right column?"
        )
    if place.size == 1 and (y == y[0]).all():
        raise ValueError(f"{data} has only one class, {y[0]}: training needs two or more.")
    return rows._replace(y=y)


def _choose_kernel(model: Any, rows: Any, place: Any, *, is_given: bool) -> None:
    """Set the kernel by the number of rows of all ranks, unless it is given."""
    import numpy as np

    from widemargin.cli._estimators import DEFAULT, kernel_for
    from widemargin.cli._say import remark

    n_rows = int(place.total(np.array([rows.X.shape[0]]))[0])
    kernel, reason = kernel_for(n_rows, rows.X.shape[1])
    if is_given:
        reason = "the estimator with kernels of all kinds"
    else:
        model.set_params(kernel=kernel)
    if place.rank == 0:
        remark(f"No --estimator was given: using {DEFAULT}, {reason}.")


def announce(data: Path, rows: Any, what: str, place: Any) -> None:
    import numpy as np

    from widemargin.cli._input import named
    from widemargin.cli._say import console

    n, d = rows.X.shape
    storage = "dense" if isinstance(rows.X, np.ndarray) else f"{rows.X.nnz / max(1, n * d):.2%} nonzero"
    share = f" on this rank, of {place.size}" if place.size > 1 else ""
    sizes = f"{n:,} rows{share}, {d:,} features, {rows.X.dtype}, {storage}"
    text = f"{data}: {sizes}; classes {named(np.unique(rows.y).tolist())}. {what}"
    console().print(text, markup=False, soft_wrap=True)


# -- the fit -----------------------------------------------------------------------------------------------------------


def fitted(estimator: Any, rows: Any, scale: Scale, *, is_first: bool) -> Fit:
    """Fit the steps one by one: inside a pipeline Ctrl-C would end everything and keep no model."""
    from sklearn.pipeline import make_pipeline

    from widemargin.callbacks import shown_by
    from widemargin.cli._progress import GapBar
    from widemargin.cli._say import console, remark
    from widemargin.exceptions import DegenerateModelWarning, InterruptedFitWarning

    begin, stream = time.perf_counter(), console(stderr=True)
    stream.quiet = not is_first  # one rank of an MPI job prints for all
    bars: list[GapBar] = []

    def bar_of(name: str, tol: float) -> GapBar:
        if bars:  # that of the search: a terminal shows one at a time
            bars[-1].close()
            name = "Final fit"
        bars.append(GapBar(stream, name, tol))
        return bars[-1]

    scaler = scaler_for(scale, rows.X)
    X = rows.X if scaler is None else scaled(scaler, rows.X)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with shown_by(bar_of):
                estimator.fit(X, rows.y)
        finally:
            if bars:
                bars[-1].close()
    not_here = (DeprecationWarning, DegenerateModelWarning)  # the latter is the first line of the table below
    for text in dict.fromkeys(str(each.message) for each in told if not issubclass(each.category, not_here)):
        if is_first:
            remark(text)
    _name(scaler or estimator, estimator, rows.names)
    model = estimator if scaler is None else make_pipeline(scaler, estimator)
    was_interrupted = any(issubclass(each.category, InterruptedFitWarning) for each in told)
    return Fit(model, X, rows.y, time.perf_counter() - begin, was_interrupted)


def _name(first: Any, estimator: Any, names: list[str] | None) -> None:
    """Name columns, and use ordinary integers as classes: if ``fit`` did, both would cost memory for every row."""
    import numpy as np

    if names is not None:
        first.feature_names_in_ = np.array(names, dtype=object)
    if estimator.classes_.dtype.kind == "i":
        estimator.classes_ = estimator.classes_.astype(int)


def scaler_for(scale: Scale, X: Any) -> Any:
    if scale == Scale.none:
        return None
    from scipy.sparse import issparse
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

    if scale == Scale.minmax and issparse(X):
        raise ValueError("--scale minmax would make sparse rows dense: use --scale maxabs, which keeps zeros.")
    if scale == Scale.standard:
        return StandardScaler(with_mean=not issparse(X))
    return MaxAbsScaler() if scale == Scale.maxabs else MinMaxScaler()


def scaled(scaler: Any, X: Any) -> Any:
    """Rows scaled by a scaler that is fitted to them; values that overflow are an error."""
    import numpy as np
    from scipy.sparse import issparse

    with np.errstate(all="ignore"):
        out = scaler.fit_transform(X)
    if not np.isfinite(out.data if issparse(out) else out).all():
        raise ValueError(
            f"Values of up to {float(abs(X).max()):.0e} are too large to be scaled: change their units first."
        )
    return out


def right_and_sizes(fit: Fit) -> Any:
    """The numbers of rows classified correctly, and of each class; in blocks, to bound the memory of scores."""
    import numpy as np

    from widemargin.cli._model import last_step
    from widemargin.data.shard import view_rows

    estimator, right, step, n = last_step(fit.model), 0, 10_000, fit.X.shape[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these rows have no column names
        for begin in range(0, n, step):
            end = min(n, begin + step)
            right += int((estimator.predict(view_rows(fit.X, begin, end)) == fit.y[begin:end]).sum())
    codes, n_classes = np.searchsorted(estimator.classes_, fit.y), len(estimator.classes_)
    return np.array([right, *np.bincount(codes, minlength=n_classes)])


# -- afterwards --------------------------------------------------------------------------------------------------------


def keep(fit: Fit, rows: Any, output: Path, report: Path | None, onnx: Path | None = None) -> None:
    from widemargin.data.files import write_whole
    from widemargin.io.archive import save

    save(fit.model, output)
    if onnx is not None:
        from widemargin.io.onnx import to_onnx

        write_whole(onnx, to_onnx(fit.model).SerializeToString())
    if report is not None:
        write_report(fit, rows, report)


def write_report(fit: Fit, rows: Any, path: Path, unseen: Any = None) -> None:
    """Write a report; ``unseen`` are scores of a search on rows that it has not seen."""
    from widemargin.reports.page import page_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page_of(fit.model, rows.X, rows.y, unseen=unseen).save(path)


def proved(fit: Fit, right: Any, output: Path, form: str = ".2%") -> Any:
    """A table with the certificate; ``form`` is that of accuracies."""
    import numpy as np

    from widemargin.cli._model import last_step, proof, size_bytes, warning
    from widemargin.cli._say import facts
    from widemargin.estimators.words import amount, beside_largest_class

    estimator, (n_right, *sizes) = last_step(fit.model), right.tolist()
    n = sum(sizes)
    accuracy = beside_largest_class(n_right / n, np.array(sizes) / n, form)
    pairs = [
        *warning(fit.model),
        *proof(fit.model, fit.seconds),
        ("training accuracy", f"{accuracy}  ({n - n_right:,} of {n:,} rows wrong)"),
        ("size", f"{amount(size_bytes(estimator))} of arrays; {output} has {amount(output.stat().st_size)}"),
    ]
    return facts(f"{type(estimator).__name__}: certificate", pairs)
