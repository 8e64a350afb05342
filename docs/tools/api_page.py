"""The reference: a page that lists every public name by kind, made from ``__all__``.

Autosummary makes the tables and a page for each name; it cannot tell estimators from other classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import widemargin
import widemargin.api
import widemargin.callbacks
import widemargin.data
import widemargin.reports

HEAD = """\
Reference
=========

Every public name. Parameters, fitted attributes and an example of each are on its own page; all examples run as tests.
"""
CALLBACKS = """\
All estimators take scikit-learn's callbacks (``model.set_callbacks(...)``, see ``sklearn.callback``), which are called
at every certified sweep and may end the fit. These show progress and keep the model on Ctrl-C:

"""


def kind(what: Any) -> str:
    """The heading that a public name is listed under."""
    if inspect.isfunction(what):
        return "Functions"
    if not inspect.isclass(what):
        return ""
    if issubclass(what, Exception):
        return "Warnings and errors"
    return "Estimators" if hasattr(what, "fit") else "Results and settings"


def section(title: str, module: Any, names: Iterable[str], text: str = "") -> str:
    """A heading and a table of names with the first sentence of each."""
    lines = [title, "-" * len(title), "", f"{text}.. currentmodule:: {module.__name__}", "", ".. autosummary::"]
    return "\n".join([*lines, "   :toctree: generated", "", *(f"   {name}" for name in sorted(names)), "", ""])


def page() -> str:
    """The whole page."""
    kinds = {name: kind(getattr(widemargin, name)) for name in widemargin.__all__}
    parts = [
        section(title, widemargin, [name for name in kinds if kinds[name] == title])
        for title in ("Estimators", "Functions", "Results and settings", "Warnings and errors")
    ]
    for title, module, text in (
        ("Data sets: widemargin.data", widemargin.data, ""),
        ("Plots: widemargin.reports", widemargin.reports, ""),
        ("Callbacks: widemargin.callbacks", widemargin.callbacks, CALLBACKS),
        ("Solvers and problems of your own: widemargin.api", widemargin.api, ""),
    ):
        parts.append(section(title, module, set(module.__all__) - set(widemargin.__all__), text))
    return "\n".join([HEAD, *parts])
