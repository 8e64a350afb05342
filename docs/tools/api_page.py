"""The reference: a page that lists every public name by what it is, made from the package itself.

So a name that joins ``__all__`` is on the page, and its docstring has a page of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
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
All estimators take scikit-learn's callbacks (``model.set_callbacks(...)``, see ``sklearn.callback``), which are told of
every certified sweep and may end the fit. What shows progress and keeps Ctrl-C from throwing a model away:
"""


def is_estimator(what: Any) -> bool:
    return inspect.isclass(what) and hasattr(what, "fit")


def is_complaint(what: Any) -> bool:
    return inspect.isclass(what) and issubclass(what, Exception)


def is_function(what: Any) -> bool:
    return inspect.isfunction(what)


def is_plain_class(what: Any) -> bool:
    return inspect.isclass(what) and not is_estimator(what) and not is_complaint(what)


KINDS: dict[str, Callable[[Any], bool]] = {
    "Estimators": is_estimator,
    "Functions": is_function,
    "What a fit leaves, and what it is given": is_plain_class,
    "Warnings and errors": is_complaint,
}


def listing(module: Any, names: Iterable[str]) -> str:
    """A table of names with the first sentence of each."""
    lines = [f".. currentmodule:: {module.__name__}", "", ".. autosummary::", "   :toctree: generated", ""]
    return "\n".join([*lines, *(f"   {name}" for name in sorted(names)), ""])


def titled(title: str, *parts: str, line: str = "-") -> str:
    return "\n".join([title, line * len(title), "", *parts])


def of_kind(module: Any, is_kind: Callable[[Any], bool]) -> list[str]:
    return [name for name in module.__all__ if is_kind(getattr(module, name))]


def beyond(module: Any) -> list[str]:
    """What a module offers that the package itself does not."""
    return [name for name in module.__all__ if name not in widemargin.__all__]


def page() -> str:
    """The whole page."""
    groups = {title: of_kind(widemargin, is_kind) for title, is_kind in KINDS.items()}
    parts = [HEAD]
    parts += [titled(title, listing(widemargin, names)) for title, names in groups.items() if names]
    parts.append(titled("Data sets: widemargin.data", listing(widemargin.data, beyond(widemargin.data))))
    parts.append(titled("Pictures: widemargin.reports", listing(widemargin.reports, beyond(widemargin.reports))))
    running = listing(widemargin.callbacks, beyond(widemargin.callbacks))
    parts.append(titled("While it runs: widemargin.callbacks", CALLBACKS, running))
    own = listing(widemargin.api, beyond(widemargin.api))
    parts.append(titled("Solvers and problems of your own: widemargin.api", own))
    return "\n\n".join(parts)


def write(folder: Path) -> None:
    """Write it where Sphinx finds it; left alone where it is the same, so that nothing is built again."""
    folder.mkdir(exist_ok=True)
    target, text = folder / "index.rst", page()
    if not target.exists() or target.read_text(encoding="utf8") != text:
        target.write_text(text, encoding="utf8")
