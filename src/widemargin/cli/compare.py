"""``widemargin compare``: all suitable estimators, and scikit-learn's, side by side on one file of rows."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._input import Data, Label, ZeroBased
from widemargin.cli.train import Scale

_STARTUP = 300.0  # seconds for a process to import and compile


def compare(
    data: Data,
    limit: Annotated[float, typer.Option(min=0.1, help="Seconds that each model may take.")] = 60.0,
    test_share: Annotated[float, typer.Option(min=0.01, max=0.9, help="Part of the rows held out.")] = 0.25,
    only: Annotated[str | None, typer.Option(help="Models, with commas between them; all if not given.")] = None,
    scale: Annotated[Scale, typer.Option(help="Scale the features, by the rows that are not held out.")] = Scale.none,
    label: Label = "-1",
    zero_based: ZeroBased = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the rows held out, and of models.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Fit all suitable models to the same rows, each with its defaults, and show what each takes and gives.

    [bold]Example[/bold]:

      widemargin compare rows.csv --limit 30 --scale standard

      widemargin compare rows.svm --only nu-margin,kernel,SVC

    Every model runs in a process of its own that is ended at the limit. Seconds are those of the fit alone, with
    everything compiled; the error is on rows held out; the gap is certified, where there is a certificate.
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
            with screen.status(f"{k + 1} of {len(names)}: {title(name)}"):
                found[name] = measured(Path(folder), name, seed, limit)
    if as_json:
        typer.echo(json.dumps({title(name): each for name, each in found.items()}))
        return
    _print(data, parts, found)


def _chosen(only: str | None) -> list[str]:
    import difflib

    from widemargin.cli._one_fit import OURS, THEIRS

    known = {name.lower(): name for name in (*OURS, *THEIRS)}
    if only is None:
        return list(known.values())
    names = [each.strip() for each in only.split(",") if each.strip()]
    for name in names:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
            hint = f"; did you mean {known[near[0]]!r}?" if near else "."
            raise ValueError(f"There is no model {name!r}: it must be one of {', '.join(known.values())}{hint}")
    if not names:
        raise ValueError(f"--only {only!r} names no model.")
    return [known[name.lower()] for name in names]


def _divided(data: Path, label: str, zero_based: bool, scale: Scale, share: float, seed: int) -> dict[str, Any]:
    """Rows to train on and rows held out, both with all classes."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from widemargin.cli._input import plain_labels
    from widemargin.cli.train import _scaler, scaled
    from widemargin.data.layout import Layout
    from widemargin.data.rows import read_rows

    rows = read_rows(data, Layout(label=label, zero_based=zero_based))
    y = plain_labels(rows.y)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(f"{data} has one class only, {classes[0]}: a comparison needs rows of two or more.")
    if counts.min() < 2 or len(y) * min(share, 1 - share) < len(classes):
        raise ValueError(
            f"{data} has too few rows to hold some out: {len(y)} in all and {counts.min()} of class "
            f"{classes[counts.argmin()]}, and each part needs one of every class."
        )
    X, X_test, y, y_test = train_test_split(rows.X, y, test_size=share, random_state=seed, stratify=y)
    scaler = _scaler(scale, X)
    if scaler is not None:
        X, X_test = scaled(scaler, X), scaler.transform(X_test)
    return {"train": (X, y), "test": (X_test, y_test)}


def measured(folder: Path, name: str, seed: int, limit: float) -> dict[str, Any]:
    """What one model takes and gives; ``{"timeout": limit}`` for one that was ended."""
    command = [sys.executable, "-m", "widemargin.cli._one_fit", str(folder), name, str(seed)]
    # The package may not be installed: the child finds it where this process has.
    own = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        started = _line(child, _STARTUP)
        if started is None:
            return {"failed": f"its process was not ready to begin after {_STARTUP:g} s"}
        if not started:
            return {"failed": f"its process ended with the code {child.wait()} before it began"}
        if started != b"ready":
            return {"failed": json.loads(started)["error"]}
        begin = time.monotonic()
        answer = _line(child, limit)
        if answer is None:
            return {"timeout": limit}
        if not answer:
            return {"failed": f"its process ended with the code {child.wait()} after {time.monotonic() - begin:.1f} s"}
        found = json.loads(answer)
        return {"failed": found["error"]} if found["error"] else found
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def _line(child: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """The next line of a process, empty at its end; None when it does not come in time."""
    assert child.stdout is not None
    text, until = b"", time.monotonic() + seconds
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        piece = os.read(child.stdout.fileno(), 1)  # the next line is not ours to take yet
        if not piece:
            break
        text += piece
    return text.strip()


def _print(data: Path, parts: dict[str, Any], found: dict[str, dict[str, Any]]) -> None:
    from widemargin.cli._one_fit import title
    from widemargin.cli._say import columns, console
    from widemargin.estimators.words import amount

    rows, remarks = [], []
    for name, each in found.items():
        if "test_error" in each:
            gap = "-" if each["gap"] is None else f"{each['gap']:.1e}"
            stop = each["stop_reason"] or "-"
            rows.append(
                [title(name), f"{each['seconds']:.3f}", f"{each['test_error']:.2%}", gap, stop, amount(each["bytes"])]
            )
        elif "timeout" in each:
            rows.append([title(name), f"over {each['timeout']:g}", "-", "-", "time limit", "-"])
        else:
            rows.append([title(name), "-", "-", "-", "failed", "-"])
            remarks.append(f"{title(name)}: {each['failed']}")
    (X, _), (X_test, _) = parts["train"], parts["test"]
    heading = f"{data}: {X.shape[0]:,} rows to train on, {X_test.shape[0]:,} held out, {X.shape[1]:,} features"
    titles = ["model", "fit s", "test error", "certified", "stopped by", "size"]
    screen = console()
    screen.print(columns(titles, rows, title=heading))
    for text in remarks:
        screen.print(text, markup=False, soft_wrap=True)
