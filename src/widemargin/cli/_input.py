"""Files that commands read and write: rows with labels, models, results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._say import remark

Data = Annotated[
    Path,
    typer.Argument(
        help="Rows: LIBSVM text, .csv, .parquet or .npz (X and y); text also as .gz, .xz or .bz2.", show_default=False
    ),
]
ModelPath = Annotated[Path, typer.Argument(help="A model saved by train.", show_default=False)]
Label = Annotated[
    str, typer.Option(help="Label column of a table: its name or its number (1 is the first, -1 the last).")
]
ZeroBased = Annotated[bool, typer.Option("--zero-based", help="LIBSVM text numbers features from 0, not from 1.")]
TEXT_OF_FLOAT32 = 256 << 20  # bytes: numbers of larger files are held as float32


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


def precision_for(path: Path, wanted: str) -> str:
    """``float32`` or ``float64``; ``"auto"`` chooses by the size of the file."""
    if wanted != "auto":
        return wanted
    return "float32" if path.is_file() and path.stat().st_size > TEXT_OF_FLOAT32 else "float64"


def plain_labels(y: Any) -> Any:
    """Whole-number labels as integers of the smallest type that holds them; others unchanged."""
    import numpy as np

    if y.dtype.kind != "f" or not np.array_equal(y, np.rint(y)) or np.abs(y).max() > 2**53:
        return y
    low, high = y.min(), y.max()
    kinds = (np.int8, np.int16, np.int32, np.int64)
    return y.astype(next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max))


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
            raise ValueError(f"{path} has the label {odd!r}; the model knows {named(classes)}.") from None
    return y


def named(classes: Any, most: int = 8) -> str:
    """Classes with commas between them."""
    each = [str(value) for value in classes.tolist()]
    return ", ".join(each[:most]) + (f" and {len(each) - most} more" if len(each) > most else "")


def load_model(path: Path) -> Any:
    """Load a model; ValueError if the path is no file."""
    from widemargin.io.archive import load

    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a model.")
    if not path.exists():
        raise ValueError(f"{path} cannot be read: No such file or directory.")
    return load(path)
