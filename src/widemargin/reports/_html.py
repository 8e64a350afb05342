"""The templates of a report, and text that a page can hold. Jinja2 escapes every string that is not ``Html``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

# Control characters, which HTML forbids, and unpaired surrogates, which UTF-8 cannot encode.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Markup, which jinja2 inserts as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


class Shared(NamedTuple):
    """A cell that shows a share of 1 as a shade of its ground, or as a bar beside its text."""

    share: float
    kind: str  # "shade" or "bar"
    inside: str = ""
    beside: str = ""


class Table(NamedTuple):
    """A table; the first ``n_names`` columns are words."""

    head: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    caption: str | None = None
    n_names: int = 1
    is_confusion: bool = False


def require_plot_extra() -> None:
    """Raise ImportError if a package that reports need is missing."""
    for name in ("matplotlib", "jinja2"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ImportError(f"A report needs {name}: pip install 'widemargin[plot]'.") from error


def render(template: str, **content: Any) -> str:
    from jinja2 import Environment, PackageLoader

    pages = Environment(
        loader=PackageLoader("widemargin.reports"),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["shortened"] = shortened
    return pages.get_template(template).render(**content)


def printable(value: Any) -> str:
    """Text, with a replacement for characters that a page cannot hold."""
    return _FORBIDDEN.sub("\ufffd", str(value))


def shortened(value: Any, max_length: int) -> str:
    """Text in one line, cut with an ellipsis if it is longer."""
    line = " ".join(printable(value).split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"
