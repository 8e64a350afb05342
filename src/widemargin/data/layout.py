"""How to read a file of rows, and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

MAX_LINE_BYTES = 1 << 26  # millions of values; a file that is compressed may have lines without end


@dataclass(frozen=True)
class Layout:
    """How to read a file.

    ``label`` is the label column of a table, by name or number: 1 is the first, -1 the last. With ``zero_based`` LIBSVM
    text counts features from 0. ``n_features`` and ``names`` are those of a model that the rows are for. Without
    ``needs_labels`` labels are optional and not read. Arrays of float32 or float64 keep their type unless
    ``is_dtype_wanted``.
    """

    label: str = "-1"
    zero_based: bool = False
    dtype: Any = np.float64
    n_features: int | None = None
    names: Sequence[str] | None = None
    needs_labels: bool = True
    is_dtype_wanted: bool = False


class FileRows(NamedTuple):
    """Rows, their labels (numbers or strings), and the names of the features if the file has them."""

    X: Any
    y: Any  # None if labels are not read
    names: list[str] | None


class Columns(NamedTuple):
    """Positions of the features and of the label in a table."""

    features: list[int]
    label: int | None


def label_position(label: str, header: Sequence[str] | None, width: int) -> int:
    """The column of the labels, from 0."""
    if header is not None and label in header:
        return list(header).index(label)
    try:
        number = int(label)
    except ValueError:
        known = "the file has no header" if header is None else f"the columns are {_listed(header)}"
        raise ValueError(f"there is no label column {label!r}; {known}.") from None
    if number == 0 or abs(number) > width:
        raise ValueError(f"there is no label column {number}; columns are 1 to {width}, or -1 for the last.")
    return number - 1 if number > 0 else width + number


def choose_columns(layout: Layout, header: Sequence[str] | None, width: int) -> Columns:
    """Features and labels among the columns of a table."""
    if header is not None and len(set(header)) < len(header):
        twice = next(name for name in header if list(header).count(name) > 1)
        raise ValueError(f"its column {twice!r} occurs more than once.")
    if header is not None and layout.names is not None:
        missing = [name for name in layout.names if name not in header]
        if missing:
            raise ValueError(f"it has no column {missing[0]!r}, which the model was trained with.")
        features = [list(header).index(name) for name in layout.names]
        if not layout.needs_labels:
            return Columns(features, None)
        label = label_position(layout.label, header, width)
        if label in features:
            raise ValueError(f"the label column, {header[label]!r}, is a feature of the model: choose it with --label.")
        return Columns(features, label)
    if not layout.needs_labels and width == layout.n_features:
        return Columns(list(range(width)), None)
    label = label_position(layout.label, header, width)
    features = [k for k in range(width) if k != label]
    if not features:
        raise ValueError("it has a label column and no other.")
    if layout.n_features is not None and len(features) != layout.n_features:
        raise ValueError(f"it has {len(features)} features beside the label, but {layout.n_features} are expected.")
    return Columns(features, label if layout.needs_labels else None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
