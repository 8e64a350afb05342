"""Files that commands read and write: rows with labels, models, results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._say import remark

_ROWS = "Rows: LIBSVM text, .csv, .parquet or .npz (X and y); text also as .gz, .xz or .bz2."
Data = Annotated[Path, typer.Argument(help=_ROWS, show_default=False)]
ModelPath = Annotated[Path, typer.Argument(help="A model saved by train.", show_default=False)]
_LABEL = "Label column of a table: its name or its number (1 is the first, -1 the last)."
Label = Annotated[str, typer.Option(help=_LABEL)]
ZeroBased = Annotated[bool, typer.Option("--zero-based", help="LIBSVM text numbers features from 0, not from 1.")]


def check_outputs(outputs: Mapping[str, Path | None], *inputs: Path) -> None:
    """Raise ValueError before any work for outputs that cannot be written, or would replace an input or each other."""
    taken = {path.resolve(): "is an input" for path in inputs}
    for what, path in outputs.items():
        if path is None:
            continue
        _check_can_be_written(path, what)
        if path.resolve() in taken:
            raise ValueError(f"{path} {taken[path.resolve()]}: choose another file for {what}.")
        taken[path.resolve()] = f"already holds {what}"
    for path in filter(None, outputs.values()):
        if path.exists():
            remark(f"{path} exists and will be replaced.")


def _check_can_be_written(path: Path, what: str) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; {what} needs the name of a file.")
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent} to save {what} in.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file, so {what} cannot replace it.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: permission denied.")


def plain_labels(y: Any) -> Any:
    """Whole-number labels as integers of the smallest type that holds them; others unchanged."""
    import numpy as np

    if y.dtype.kind != "f" or not np.array_equal(y, np.rint(y)) or np.abs(y).max() > 2**53:
        return y
    kinds = (np.int8, np.int16, np.int32, np.int64)
    return y.astype(next(kind for kind in kinds if np.iinfo(kind).min <= y.min() and y.max() <= np.iinfo(kind).max))


def labels_as(classes: Any, y: Any, path: Path) -> Any:
    """Labels of a file in the type of a model's classes."""
    import numpy as np

    if classes.dtype.kind in "OUS" and y.dtype.kind not in "OUS":
        return np.array([str(each) for each in plain_labels(y).tolist()])
    if classes.dtype.kind not in "OUS" and y.dtype.kind in "OUS":
        try:
            return y.astype(np.float64)
        except ValueError:
            odd = next(each for each in y.tolist() if each not in set(map(str, classes.tolist())))
            raise ValueError(f"{path} has the label {odd!r}; the model knows {named(classes.tolist())}.") from None
    return y


def named(classes: list[Any], most: int = 8) -> str:
    return ", ".join(map(str, classes[:most])) + (f" and {len(classes) - most} more" if len(classes) > most else "")


def load_model(path: Path) -> Any:
    from widemargin.io.archive import load

    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a model.")
    if not path.exists():
        raise ValueError(f"{path} cannot be read: No such file or directory.")
    return load(path)
