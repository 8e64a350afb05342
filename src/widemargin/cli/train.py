"""``widemargin train``: from a file of rows to a model with its certificate."""

from __future__ import annotations

import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from widemargin.cli._input import Data, Label, ZeroBased


class Scale(StrEnum):
    """How features are scaled before the estimator sees them."""

    none = "none"
    standard = "standard"
    maxabs = "maxabs"
    minmax = "minmax"


class Precision(StrEnum):
    """How numbers are held."""

    auto = "auto"
    float32 = "float32"
    float64 = "float64"


class Fit(NamedTuple):
    """What came out: the whole model, the rows as its last step saw them, and the time."""

    model: Any
    X: Any
    y: Any
    seconds: float


def train(
    data: Data,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="hard-margin, nu-margin, kernel, margin-distribution, sparse, debiased or gossip. If not given: "
            "kernel, with kernel=linear for over 20,000 rows or 2,000 features."
        ),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the estimator; again for more.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where to keep the model.")] = Path("model.wm"),
    label: Label = "-1",
    zero_based: ZeroBased = False,
    scale: Annotated[Scale, typer.Option(help="Scale the features; what scales them is kept with the model.")] = (
        Scale.none
    ),
    precision: Annotated[
        Precision, typer.Option(help="How numbers are held; auto is float32 for files over 256 MiB.")
    ] = Precision.auto,
    tol: Annotated[float | None, typer.Option(help="Relative gap at which to stop.")] = None,
    max_time: Annotated[
        float | None,
        typer.Option(help="Seconds after which to stop with what there is; of each class, where there are several."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Where to run: threads:4, dask:tcp://host:8786, or mpi under mpirun.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Of everything random.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page about the fit, as HTML.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write the model for ONNX runtimes, too.")] = None,
) -> None:
    """Train a model, print what is proved of it, and keep it.

    [bold]Example[/bold]:

      widemargin train rows.csv --label kind --scale standard --output model.wm --report fit.html

      widemargin train a9a.svm.xz --estimator kernel --param C=10 --param gamma=0.05 --tol 1e-4

      widemargin train large.svm --estimator nu-margin --cluster threads:4 --max-time 600

    A bar shows the gap on its way to tol. Ctrl-C keeps the best model so far.
    """
    from widemargin.cli._cluster import opened
    from widemargin.cli._estimators import full_name, make, parsed

    parameters = parsed(param or [])
    wanted = None if estimator is None else full_name(estimator)
    options = {"--tol": ("tol", tol), "--max-time": ("max_time", max_time), "--seed": ("random_state", seed)}
    if wanted is not None:
        make(wanted, parameters, options)  # what is wrong with it is said before the file is read
    _check_outputs(data, output, report, onnx)
    with opened(cluster) as place:
        if place.size > 1 and (scale != Scale.none or report is not None):
            raise ValueError("--scale and --report need all rows in one process, and --cluster mpi divides them.")
        rows = _read(data, label, zero_based, precision, place)
        name, parameters = (wanted, parameters) if wanted is not None else _chosen(rows, parameters, place)
        model = make(name, parameters, {**options, "--cluster": ("cluster", place.cluster)})
        if place.rank == 0:
            _announce(data, rows, name, place)
        fit = _fit(model, rows, scale, is_first=place.rank == 0)
        right = place.total(_right_and_all(fit))
    if place.rank == 0:
        _keep(fit, rows, output, report, onnx)
        _print_proof(fit, right, output)


# -- before ------------------------------------------------------------------------------------------------------------


def _check_outputs(data: Path, output: Path, report: Path | None, onnx: Path | None) -> None:
    from importlib.util import find_spec

    from widemargin.cli._input import check_outputs

    check_outputs({"the model": output, "the report": report, "the ONNX model": onnx}, data)
    for path, package, extra in ((report, "matplotlib", "plot"), (onnx, "onnx", "onnx")):
        if path is not None and find_spec(package) is None:
            raise ValueError(f"{path} needs {package}: pip install 'widemargin[{extra}]'.")


def _read(data: Path, label: str, zero_based: bool, precision: Precision, place: Any) -> Any:
    import numpy as np

    from widemargin.cli._input import plain_labels, precision_for
    from widemargin.data.layout import Layout
    from widemargin.data.rows import read_rows

    dtype = np.dtype(precision_for(data, precision))
    layout = Layout(label, zero_based, dtype, is_dtype_wanted=precision != Precision.auto)
    rows = read_rows(data, layout, (place.rank, place.size))
    y = plain_labels(rows.y)
    if y.dtype.kind == "f":
        odd = y[(y != np.rint(y)).argmax()]
        raise ValueError(
            f"{data} has the label {odd:g}, and classes are whole numbers or text: is --label {label} the right column?"
        )
    if place.size == 1 and (y == y[0]).all():
        raise ValueError(f"{data} has one class only, {y[0]}: training needs rows of two or more.")
    return rows._replace(y=y)


def _chosen(rows: Any, parameters: dict[str, Any], place: Any) -> tuple[str, dict[str, Any]]:
    """The usual estimator for the rows of all ranks, so that all choose the same."""
    import numpy as np

    from widemargin.cli._estimators import usual
    from widemargin.cli._say import remark

    n_rows = int(place.total(np.array([rows.X.shape[0]]))[0])
    name, parameters, reason = usual(n_rows, rows.X.shape[1], parameters)
    if place.rank == 0:
        remark(f"No --estimator was given: taking {name}, {reason}.")
    return name, parameters


def _announce(data: Path, rows: Any, name: str, place: Any) -> None:
    import numpy as np

    from widemargin.cli._estimators import ESTIMATORS
    from widemargin.cli._input import named
    from widemargin.cli._say import console

    n, d = rows.X.shape
    storage = "dense" if isinstance(rows.X, np.ndarray) else f"{rows.X.nnz / max(1, n * d):.2%} not zero"
    share = f" on this rank, of {place.size}" if place.size > 1 else ""
    console().print(
        f"{data}: {n:,} rows{share}, {d:,} features, {rows.X.dtype}, {storage}; classes {named(np.unique(rows.y))}. "
        f"Training {ESTIMATORS[name]}.",
        markup=False,
        soft_wrap=True,
    )


# -- the fit -----------------------------------------------------------------------------------------------------------


def _fit(estimator: Any, rows: Any, scale: Scale, *, is_first: bool) -> Fit:
    """Fit the steps one by one: inside a pipeline Ctrl-C would end the whole, and keep nothing."""
    from widemargin.callbacks import shown_by
    from widemargin.cli._progress import GapBar
    from widemargin.cli._say import console, remark

    begin, stream = time.perf_counter(), console(stderr=True)
    stream.quiet = not is_first  # of the ranks of an MPI job one speaks for all
    bars: list[GapBar] = []

    def bar_of(name: str, tol: float) -> GapBar:
        bars.append(GapBar(stream, name, tol))
        return bars[-1]

    scaler = _scaler(scale, rows.X)
    X = rows.X if scaler is None else scaled(scaler, rows.X)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with shown_by(bar_of):
                estimator.fit(X, rows.y)
        finally:
            for bar in bars:
                bar.close()
    for text in dict.fromkeys(str(each.message) for each in told if not issubclass(each.category, DeprecationWarning)):
        if is_first:
            remark(text)
    if estimator.classes_.dtype.kind == "i":  # many labels are held small; the few classes are ordinary integers
        estimator.classes_ = estimator.classes_.astype(int)
    model = estimator
    if scaler is not None:
        from sklearn.pipeline import make_pipeline

        model = make_pipeline(scaler, estimator)
    if rows.names is not None:  # the first step is the one that meets the columns of a table
        import numpy as np

        (estimator if scaler is None else scaler).feature_names_in_ = np.array(rows.names, dtype=object)
    return Fit(model, X, rows.y, time.perf_counter() - begin)


def _scaler(scale: Scale, X: Any) -> Any:
    if scale == Scale.none:
        return None
    from scipy.sparse import issparse
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

    if scale == Scale.minmax and issparse(X):
        raise ValueError("--scale minmax would make sparse rows dense: use --scale maxabs, which keeps zeros.")
    makers = {
        Scale.standard: lambda: StandardScaler(with_mean=not issparse(X)),
        Scale.maxabs: MaxAbsScaler,
        Scale.minmax: MinMaxScaler,
    }
    return makers[scale]()


def scaled(scaler: Any, X: Any) -> Any:
    """Rows as a scaler that is fitted to them makes them; those that it cannot hold are refused in words."""
    import numpy as np
    from scipy.sparse import issparse

    with np.errstate(all="ignore"):
        out = scaler.fit_transform(X)
    if not np.isfinite(out.data if issparse(out) else out).all():
        largest = float(abs(X).max())
        raise ValueError(f"Values of up to {largest:.0e} are too large to be scaled: bring them to other units first.")
    return out


def _right_and_all(fit: Fit) -> Any:
    """How many rows the model has right, and how many there are; in blocks, as scores of all would be large."""
    import numpy as np

    from widemargin.cli._model import last_step
    from widemargin.data.shard import view_rows

    estimator, right, step, n = last_step(fit.model), 0, 10_000, fit.X.shape[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the columns of these rows have no names, and need none
        for begin in range(0, n, step):
            end = min(n, begin + step)
            right += int((estimator.predict(view_rows(fit.X, begin, end)) == fit.y[begin:end]).sum())
    return np.array([right, n])


# -- afterwards --------------------------------------------------------------------------------------------------------


def _keep(fit: Fit, rows: Any, output: Path, report: Path | None, onnx: Path | None) -> None:
    from widemargin.data.files import write_whole
    from widemargin.io.archive import save

    save(fit.model, output)
    if onnx is not None:
        from widemargin.io.onnx import to_onnx

        write_whole(onnx, to_onnx(fit.model).SerializeToString())
    if report is not None:
        from widemargin.reports.page import report as page

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            page(fit.model, rows.X, rows.y).save(report)


def _print_proof(fit: Fit, right: Any, output: Path) -> None:
    from widemargin.cli._model import file_size, last_step, proof, size_bytes
    from widemargin.cli._say import console, facts
    from widemargin.estimators.words import amount

    estimator = last_step(fit.model)
    pairs = [
        *proof(fit.model, fit.seconds),
        ("training accuracy", f"{right[0] / right[1]:.2%}  ({right[1] - right[0]:,} of {right[1]:,} rows wrong)"),
        ("size", f"{amount(size_bytes(estimator))} of numbers; {output} has {amount(file_size(output))}"),
    ]
    console().print(facts(f"{type(estimator).__name__}: certificate", pairs))
