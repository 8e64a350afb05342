"""One page about a fitted model: its problem, its certificate, how the fit converged, and what it cost."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.data.files import write_whole
from widemargin.estimators.registry import descriptor_of
from widemargin.estimators.searched import UnseenScores
from widemargin.estimators.words import useless_in_words
from widemargin.reports._html import render, require_plot_extra, shortened
from widemargin.reports._scores import score_rows
from widemargin.reports._sections import SECTIONS, Subject, scores_of_search
from widemargin.reports._svg import drawing

_NOTEBOOK_HEIGHT = 800  # pixels


@dataclass(frozen=True, repr=False)
class Report:
    """A finished page: show it in a notebook, or ``save`` it. ``html`` is its text, which needs no other file.

    Parameters
    ----------
    title : str
        The heading.
    html : str
        The whole page.

    Examples
    --------
    >>> from widemargin import HardMarginSVC, report
    >>> page = report(HardMarginSVC().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]), title="Four rows")
    >>> page.title, page.html.lstrip().lower().startswith("<!doctype html")
    ('Four rows', True)
    """

    title: str
    html: str

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, and return its path.

        Parameters
        ----------
        path : str or path
            The file, in an existing folder; an existing file is replaced.

        Returns
        -------
        path : Path
        """
        target = Path(path)
        if target.is_dir() or not target.parent.is_dir():
            reason = "is a folder" if target.is_dir() else f"is in {target.parent}, which is not a folder"
            raise ValueError(f"path={str(path)!r} {reason}: give the name of a file in an existing folder.")
        write_whole(target, self.html.encode("utf8"))
        return target

    def __repr__(self) -> str:
        return f"Report({self.title!r}, {len(self.html) / 1000:.0f} kB of HTML)"

    def _repr_html_(self) -> str:
        """The page in a frame, so that its style and that of the notebook do not mix."""
        frame = f'width="100%" height="{_NOTEBOOK_HEIGHT}" style="border:1px solid gray" sandbox'
        return f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.html)}" {frame}></iframe>'


def report(model: Any, X: Any = None, y: Any = None, *, title: str | None = None, note: str | None = None) -> Report:
    """Describe a fitted model on one page of HTML, which needs no network and no other file.

    Parameters
    ----------
    model : estimator of widemargin, or Pipeline that ends in one
        Fitted.
    X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Rows to score the model on, as ``model.predict`` takes them: adds scores, the confusion matrix and margins.
    y : array-like of shape (n_samples,), default=None
        Their labels.
    title : str, default=None
        The heading; None is the name of the estimator.
    note : str, default=None
        A sentence of your own below the heading, for example a score on rows that the model has not seen.

    Returns
    -------
    report : Report
        Has ``html`` and ``save(path)``; Jupyter shows it.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> import widemargin
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> page = widemargin.report(widemargin.NuMarginSVC().fit(scale(X), y), title="Which tumours are malignant")
    >>> "lies between" in page.html
    True
    """
    return page_of(model, X, y, title=title, note=note)


def page_of(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    note: str | None = None,
    unseen: UnseenScores | None = None,
) -> Report:
    """The report, with the scores of a search on rows that it has not seen if they are known."""
    estimator = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if descriptor_of(type(estimator)) is None:
        raise TypeError(
            f"model is a {type(estimator).__name__}: a report needs an estimator of widemargin, or a Pipeline ending "
            "in one. Pass the best_estimator_ of a search."
        )
    check_is_fitted(estimator)
    if (X is None) != (y is None):
        raise ValueError(f"{'y' if y is None else 'X'} is None: give both rows and labels, or neither.")
    require_plot_extra()
    kind = type(estimator).__name__
    heading = kind if title is None else shortened(title, 200)
    scored = None if X is None else score_rows(model, estimator.classes_, estimator._parts, X, y)
    subject = Subject(model, estimator, scored, unseen)
    with drawing():
        contents = [(anchor, name, describe(subject)) for anchor, name, describe in SECTIONS]
    sections = [(anchor, name, content) for anchor, name, content in contents if content is not None]
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    content: dict[str, Any] = {
        "title": heading,
        "note": note,
        "about": f"Report on a fitted {kind}",
        "made": made,
        "warning": useless_in_words(estimator),
    }
    content["unseen"] = None if unseen is None else scores_of_search(unseen)
    return Report(heading, render("page.html.j2", **content, sections=sections))
