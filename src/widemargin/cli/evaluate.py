"""``widemargin evaluate``: how well a model predicts rows whose labels are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._input import Data, Label, ModelPath, ZeroBased

_MOST_CLASSES = 12  # largest confusion matrix that is printed


def evaluate(
    model: ModelPath,
    data: Data,
    label: Label = "-1",
    zero_based: ZeroBased = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare a model's predictions with the labels in a file.

    [bold]Example[/bold]:

      widemargin evaluate model.wm test.csv --label kind

    Accuracy, balanced accuracy (the mean over classes), the confusion matrix, and for two classes the area under the
    ROC curve.
    """
    from widemargin.cli._input import load_model

    found = judged(load_model(model), data, label, zero_based)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print(model, data, found)


def judged(model: Any, data: Path, label: str, zero_based: bool) -> dict[str, Any]:
    """All figures, as plain numbers and lists."""
    import numpy as np
    from sklearn.metrics import confusion_matrix, roc_auc_score

    from widemargin.cli._input import labels_as, named
    from widemargin.cli._model import warning
    from widemargin.cli.predict import predicted

    known, truth, guesses, scores = model.classes_, [], [], []
    for classes, values, y in predicted(model, data, label, zero_based, needs_labels=True):
        y = labels_as(known, y, data)
        strange = y[~np.isin(y, known)]
        if len(strange):
            raise ValueError(f"{data} has the label {strange[0]}; the model knows {named(known.tolist())}.")
        truth.append(y)
        guesses.append(np.array(classes))
        scores.append(values[:, 0])
    y = np.concatenate(truth)
    matrix = confusion_matrix(y, np.concatenate(guesses), labels=known)
    counts = matrix.sum(axis=1)
    present = counts > 0
    found = {
        "warning": dict(warning(model)).get("warning"),
        "rows": len(y),
        "accuracy": float(np.trace(matrix) / len(y)),
        "accuracy of the largest class": float(counts.max() / len(y)),
        "balanced accuracy": float((np.diag(matrix)[present] / counts[present]).mean()),
        "classes": known.tolist(),
        "confusion matrix": matrix.tolist(),
    }
    if len(known) == 2:
        found["AUC"] = float(roc_auc_score(y == known[1], np.concatenate(scores))) if present.all() else None
    return found


def _print(model: Path, data: Path, found: dict[str, Any]) -> None:
    import numpy as np

    from widemargin.cli._say import columns, console, facts
    from widemargin.estimators.words import beside_largest_class

    counts = np.sum(found["confusion matrix"], axis=1)
    shares = {"accuracy": counts / counts.sum(), "balanced accuracy": (counts > 0) / np.count_nonzero(counts)}
    pairs = [("warning", found["warning"])] if found["warning"] else []
    pairs += [("rows", f"{found['rows']:,}")]
    pairs += [(name, beside_largest_class(found[name], each)) for name, each in shares.items()]
    if "AUC" in found:
        auc = found["AUC"]
        pairs.append(("AUC", "undefined: all rows are of one class" if auc is None else f"{auc:.6f}"))
    screen = console()
    screen.print(facts(f"{model} on {data}", pairs))
    names = [str(each) for each in found["classes"]]
    if len(names) > _MOST_CLASSES:
        screen.print(f"The confusion matrix of {len(names)} classes is too wide to print; use --json.", markup=False)
        return
    rows = [[name, *(f"{n:,}" for n in row)] for name, row in zip(names, found["confusion matrix"], strict=True)]
    screen.print(columns(["is \\ predicted", *names], rows, title="Confusion matrix", may_fold=True))
