"""Pieces of a page in which every string is escaped unless it is markup of ours."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Characters that no HTML or XML may hold, and halves of characters that no file can.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Markup; any other string is text, and escaped before it is put among markup."""

    __slots__ = ()


def printable(value: Any) -> str:
    """Text without the characters that a page cannot hold."""
    return _FORBIDDEN.sub("\ufffd", str(value))


def shortened(value: Any, most: int) -> str:
    """Text in one line, with an ellipsis where it is longer than ``most`` characters."""
    line = " ".join(printable(value).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def markup(content: Any) -> Html:
    """Markup as it is, and anything else escaped."""
    return content if isinstance(content, Html) else Html(html.escape(printable(content)))


def joined(pieces: Iterable[Any]) -> Html:
    """Pieces one after the other, each escaped unless it is markup."""
    return Html("".join(markup(piece) for piece in pieces))


def element(name: str, *content: Any, **attributes: Any) -> Html:
    """An element; ``class_`` is the attribute class, and an underscore within a name is a dash."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(printable(value))}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def table(
    head: Sequence[Any], lines: Iterable[Sequence[Any]], *, caption: Any = None, n_names: int = 1, class_: str = ""
) -> Html:
    """A table that scrolls within itself where it is too wide; the first ``n_names`` columns are words."""

    def cell(k: int, content: Any, name: str) -> Html:
        return element(name, content, class_="name" if k < n_names else "number")

    top = element("tr", *(cell(k, each, "th") for k, each in enumerate(head)))
    body = [element("tr", *(cell(k, each, "td") for k, each in enumerate(line))) for line in lines]
    parts = [element("thead", top)] if any(head) else []
    parts.append(element("tbody", *body))
    if caption is not None:
        parts.insert(0, element("caption", caption))
    return element("div", element("table", *parts), class_=f"wide {class_}".strip())


def pairs(lines: Iterable[tuple[Any, Any]]) -> Html:
    """Names and what they are, one below the other."""
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in lines))
