"""``widemargin compare``: all estimators, and those of scikit-learn, side by side on one file of rows."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._input import Data, Label, ZeroBased
from widemargin.cli.train import Scale

LARGEST_CLASS = "largest class alone"  # the line of a model that gives it for all rows
_MAX_STARTUP = 300.0  # seconds for a process to import and compile


def compare(
    data: Data,
    limit: Annotated[float, typer.Option(min=0.1, help="Seconds that each fit may take.")] = 60.0,
    test_share: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of the rows to hold out.")] = 0.25,
    only: Annotated[str | None, typer.Option(help="Models to compare, separated by commas; default: all.")] = None,
    scale: Annotated[Scale, typer.Option(help="Scale the features, fitted to the training rows.")] = Scale.none,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose parameters by cross-validation within the training rows.")
    ] = False,
    label: Label = "-1",
    zero_based: ZeroBased = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit all models to the same rows, and compare time, test error and certified gap.

    [bold]Example[/bold]:

      widemargin compare rows.csv --limit 30 --scale standard

      widemargin compare rows.svm --only nu-margin,kernel,SVC

      widemargin compare rows.csv --scale standard --tune

    Every model runs with its defaults, in a process of its own, which is stopped at the limit. The time is that of
    the fit alone, with everything compiled; the error is that on held-out rows; the gap is certified, if there is a
    certificate.

    With --tune models that have a version with cross-validation choose their parameters by it, and the time includes
    the search, which may take half of the limit. All other models, including scikit-learn's, keep their defaults.
    """
    from widemargin.cli._one_fit import stored, title
    from widemargin.cli._say import console

    names = _chosen(only)
    parts = _divided(data, label, zero_based, scale, test_share, seed)
    found: dict[str, dict[str, Any]] = {}
    screen = console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="widemargin-compare-") as folder:
        for part, (X, y) in parts.items():
            stored(Path(folder), part, X, y)
        for k, name in enumerate(names):
            which = f"{k + 1} of {len(names)}: {title(name, tune)}"
            with screen.status(which) as status:
                found[name] = measured(Path(folder), name, seed, limit, tune, partial(_update, status, which))
    if as_json:
        alone = {LARGEST_CLASS: {"test_error": _error_of_largest_class(parts)}}
        typer.echo(json.dumps({title(name, tune): each for name, each in found.items()} | alone))
        return
    _print(data, parts, found, tune)


def _update(status: Any, which: str, text: str) -> None:
    status.update(f"{which}, {text}")


def _chosen(only: str | None) -> list[str]:
    from widemargin.cli._estimators import hint
    from widemargin.cli._one_fit import THEIRS, ours

    known = {name.lower(): name for name in (*ours(), *THEIRS)}
    if only is None:
        return list(known.values())
    names = [each.strip() for each in only.split(",") if each.strip()]
    for name in names:
        if name.lower() not in known:
            near = hint(name, known.values())
            raise ValueError(f"There is no model {name!r}: it must be one of {', '.join(known.values())}{near}")
    if not names:
        raise ValueError(f"--only {only!r} names no model.")
    return [known[name.lower()] for name in names]


def _divided(data: Path, label: str, zero_based: bool, scale: Scale, share: float, seed: int) -> dict[str, Any]:
    """Training rows and held-out rows, both with all classes."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from widemargin.cli._input import plain_labels
    from widemargin.cli.train import scaled, scaler_for
    from widemargin.data.layout import Layout
    from widemargin.data.rows import read_rows

    rows = read_rows(data, Layout(label=label, zero_based=zero_based))
    y = plain_labels(rows.y)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"{data} has only one class, {classes[0]}: a comparison needs two or more.")
    if counts.min() < 2 or len(y) * min(share, 1 - share) < len(classes):
        raise ValueError(
            f"{data} has too few rows to hold some out: {len(y)} in all and {counts.min()} of class "
            f"{classes[counts.argmin()]}, and each part needs one of every class."
        )
    X, X_test, y, y_test = train_test_split(rows.X, y, test_size=share, random_state=seed, stratify=y)
    scaler = scaler_for(scale, X)
    if scaler is not None:
        X, X_test = scaled(scaler, X), scaler.transform(X_test)
    return {"train": (X, y), "test": (X_test, y_test)}


def measured(
    folder: Path,
    name: str,
    seed: int,
    limit: float,
    is_tuned: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Time, test error, gap and size of one model; ``{"timeout": limit}`` if it was stopped.

    ``tell`` is told how far a search is.
    """
    from widemargin.cli._one_fit import ours

    module = ours(is_tuned)[name][0].estimator.__module__ if name in ours() else "sklearn"
    seconds = str(limit / 2 if is_tuned else 0.0)  # of a search: the final fit needs some, too
    command = [sys.executable, "-m", "widemargin.cli._one_fit", str(folder), name, str(seed), module, seconds]
    # The child finds the package, and estimators of the user's own, where this process does.
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)])
    return asyncio.run(_outcome(command, {**os.environ, "PYTHONPATH": path}, limit, tell))


async def _outcome(
    command: list[str], environment: dict[str, str], limit: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    """What the process of one model prints; the limit counts from its line ``ready``."""
    pipe, silent = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=silent, env=environment)
    assert child.stdout is not None
    late: dict[str, Any] = {"failed": f"its process did not start within {_MAX_STARTUP:g} s"}
    try:
        line = await asyncio.wait_for(child.stdout.readline(), _MAX_STARTUP)
        if line == b"ready\n":
            late, end = {"timeout": limit}, time.monotonic() + limit
            line = await asyncio.wait_for(child.stdout.readline(), limit)
            while line.startswith(b'{"n_done"'):
                tell("point {n_done} of {n_points}".format(**json.loads(line)))
                line = await asyncio.wait_for(child.stdout.readline(), end - time.monotonic())
        if not line:
            return {"failed": f"its process exited with code {await child.wait()}"}
        found: dict[str, Any] = json.loads(line)
        return {"failed": found["error"]} if found["error"] else found
    except TimeoutError:
        return late
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def _print(data: Path, parts: dict[str, Any], found: dict[str, dict[str, Any]], is_tuned: bool) -> None:
    from widemargin.cli._one_fit import title
    from widemargin.cli._say import columns, console
    from widemargin.estimators.searched import parameters_in_words
    from widemargin.estimators.words import amount

    rows, warnings, remarks = [], [], []
    for name, each in found.items():
        model = title(name, is_tuned)
        if "test_error" in each:
            gap = "-" if each["gap"] is None else f"{each['gap']:.1e}"
            measures = [f"{each['seconds']:.3f}", f"{each['test_error']:.2%}", gap, each["stop_reason"] or "-"]
            rows.append([model, *measures, amount(each["bytes"])])
            if each.get("chosen"):
                remarks.append(f"{model} chose {parameters_in_words(each['chosen'])}.")
            warnings += [each["warning"]] if each.get("warning") else []
            if each.get("n_not_tried"):
                remarks.append(f"{model}: {each['n_not_tried']} points were not tried in time; raise --limit.")
        elif "timeout" in each:
            rows.append([model, f"over {each['timeout']:g}", "-", "-", "time limit", "-"])
        else:
            rows.append([model, "-", "-", "-", "failed", "-"])
            remarks.append(f"{model}: {each['failed']}")
    rows.append([LARGEST_CLASS, "-", f"{_error_of_largest_class(parts):.2%}", "-", "-", "-"])
    (X, _), (X_test, _) = parts["train"], parts["test"]
    heading = f"{data}: {X.shape[0]:,} training rows, {X_test.shape[0]:,} held out, {X.shape[1]:,} features"
    titles = ["model", "search\n+ fit s" if is_tuned else "fit s", "test\nerror", "certified", "stopped by", "size"]
    if is_tuned:
        remarks.append("All other models, including scikit-learn's, keep their defaults.")
    screen = console()
    for text in warnings:
        screen.print(f"Warning: {text}", markup=False, soft_wrap=True)
    screen.print(columns(titles, rows, title=heading))
    for text in remarks:
        screen.print(text, markup=False, soft_wrap=True)


def _error_of_largest_class(parts: dict[str, Any]) -> float:
    """The error on held-out rows of the class that is the largest among the training rows."""
    import numpy as np

    (_, y), (_, y_test) = parts["train"], parts["test"]
    classes, counts = np.unique(y, return_counts=True)
    return float(np.mean(y_test != classes[counts.argmax()]))
