"""``widemargin predict``: labels, and scores, for the rows of a file, block by block."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from widemargin.cli._input import Data, Label, ModelPath, ZeroBased


def predict(
    model: ModelPath,
    data: Data,
    output: Annotated[Path | None, typer.Option(help="Output CSV file (default: standard output).")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Add the scores of each row.")] = False,
    label: Label = "-1",
    zero_based: ZeroBased = False,
) -> None:
    """Predict the class of each row; labels in the file are ignored and may be missing.

    [bold]Example[/bold]:

      widemargin predict model.wm new.csv --output classes.csv --scores

    Prints one line per row: the class and, with --scores, the score (two classes: positive for the second) or one score
    per class. Columns of a table with a header are matched by name. A class that a spreadsheet would run as a formula
    is written with a leading quote ('=1+1), and read without it.
    """
    from widemargin.cli._input import check_outputs, load_model
    from widemargin.cli._say import remark
    from widemargin.data.tables import as_cell, breaks_cells, without_breaks

    check_outputs({"the predictions": output}, model, data)
    fitted = load_model(model)
    blocks = predicted(fitted, data, label, zero_based)
    first = next(blocks)  # errors in the file show before anything is written
    n_rows = 0
    with _written(output) as file:
        known = fitted.classes_.tolist()
        are_quoted = any(map(breaks_cells, known))
        writer = csv.writer(
            file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if are_quoted else csv.QUOTE_MINIMAL
        )
        titles = ["score"] if len(known) == 2 else [f"score {without_breaks(each)}" for each in known]
        writer.writerow(["class", *titles] if scores else ["class"])
        cells = {each: as_cell(each) for each in known}
        for classes, values, _ in chain([first], blocks):
            labels = (cells[each] for each in classes)
            writer.writerows([each, *found] if scores else [each] for each, found in zip(labels, values, strict=True))
            n_rows += len(classes)
    if output is not None:
        remark(f"{n_rows:,} rows predicted, in {output}.")


def predicted(model: Any, data: Path, label: str, zero_based: bool, *, needs_labels: bool = False) -> Iterator[Any]:
    """Classes, scores and labels of the rows, in blocks; each a list, array and array (or None)."""
    import numpy as np
    import scipy.sparse as sp

    from widemargin.cli._model import feature_names, last_step, scaler_of
    from widemargin.data.layout import Layout
    from widemargin.data.rows import iterate_rows

    layout = Layout(label, zero_based, np.dtype(np.float64), model.n_features_in_, feature_names(model), needs_labels)
    is_centred = getattr(scaler_of(model), "with_mean", False) or type(scaler_of(model)).__name__ == "MinMaxScaler"
    is_empty = True
    for block in iterate_rows(data, layout):
        if not block.X.shape[0]:
            continue
        is_empty = False
        X = block.X.toarray() if is_centred and sp.issparse(block.X) else block.X
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")  # yet they were matched
            values = model.decision_function(X)
        yield last_step(model)._labels(values).tolist(), values.reshape(len(values), -1), block.y
    if is_empty:
        raise ValueError(f"{data} is empty.")


@contextmanager
def _written(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that is written whole or not at all."""
    if path is None:
        yield sys.stdout
        return
    from widemargin.data.files import written_whole

    with written_whole(path) as content:
        file = io.TextIOWrapper(content, encoding="utf8", newline="")
        yield file
        file.detach()  # which flushes it
