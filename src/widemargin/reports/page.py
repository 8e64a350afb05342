"""One page about a fitted model: what it solves, how good it provably is, how it got there, and what it cost."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.estimators._base import MarginClassifier
from widemargin.reports._html import Html, element, joined, markup, shortened
from widemargin.reports._scores import judged
from widemargin.reports._sections import SECTIONS, Subject
from widemargin.reports._svg import drawing, require_matplotlib

# Nothing is loaded from anywhere, and nothing runs: a browser holds the page to it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_HEIGHT = 800  # pixels of a report within a notebook


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
            The file; its folder must exist. A file that is there is replaced.

        Returns
        -------
        path : Path
        """
        target = Path(path)
        if target.is_dir() or not target.parent.is_dir():
            reason = "is a folder" if target.is_dir() else f"lies in {target.parent}, which is no folder"
            raise ValueError(f"path={str(path)!r} {reason}: give the name of a file in a folder that exists.")
        target.write_text(self.html, encoding="utf8")
        return target

    def __repr__(self) -> str:
        return f"Report({self.title!r}, {len(self.html) / 1000:.0f} kB of HTML)"

    def _repr_html_(self) -> str:
        """A frame of its own: the styles of the page and of a notebook do not meet."""
        frame = f'width="100%" height="{_HEIGHT}" style="border:1px solid gray" sandbox'
        return f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.html)}" {frame}></iframe>'


def report(model: Any, X: Any = None, y: Any = None, *, title: str | None = None) -> Report:
    """Put all that is known of a fitted model on one page of HTML, which needs no network and no other file.

    Parameters
    ----------
    model : estimator of widemargin, or Pipeline that ends in one
        Fitted.
    X : {array-like, sparse matrix} of shape (n_samples, n_features), default=None
        Rows to judge the model on, as ``model.predict`` takes them; with them come scores, the confusion matrix and
        margins.
    y : array-like of shape (n_samples,), default=None
        Their labels.
    title : str, default=None
        The heading; None is the name of the estimator.

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
    estimator = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(estimator, MarginClassifier):
        raise TypeError(
            f"A report is that of an estimator of widemargin, or of a Pipeline that ends in one, and this is "
            f"{type(estimator).__name__}. Of a search, give its best_estimator_."
        )
    check_is_fitted(estimator)
    if (X is None) != (y is None):
        lacking = "y" if y is None else "X"
        raise ValueError(f"{lacking} is None: give rows and their labels, both or neither.")
    require_matplotlib()
    heading = type(estimator).__name__ if title is None else shortened(title, 200)
    rows = None
    if X is not None:
        are_votes = estimator._parts.are_votes
        rows = judged(model, estimator.classes_, are_votes, X, y)
    subject = Subject(model, estimator, rows)
    with drawing():
        made = [(anchor, name, make(subject)) for anchor, name, make in SECTIONS]
    sections = [(anchor, name, body) for anchor, name, body in made if body]
    return Report(heading, _page(heading, type(estimator).__name__, sections))


def _page(title: str, kind: str, sections: list[tuple[str, str, Html]]) -> str:
    style = (files("widemargin.reports") / "page.css").read_text(encoding="utf8")
    head = joined(
        [
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Html('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
            element("title", title),
            element("style", Html(style)),
        ]
    )
    made = f"Report on a fitted {kind}, made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    contents = [element("a", name, href=f"#{anchor}") for anchor, name, _ in sections]
    top = element("header", element("h1", title), element("p", made, class_="small"), element("nav", *contents))
    body = [element("section", element("h2", name), content, id=anchor) for anchor, name, content in sections]
    page = element("body", element("main", top, *body))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{markup(head)}</head>{page}</html>\n'
