"""Check that built pages load nothing from the network: ``python remote_assets.py FOLDER`` lists what they do load.

Assets are scripts, styles, pictures, fonts and frames, but not links that a reader may follow.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_REMOTE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
_SOURCES = ("src", "srcset", "poster", "data")
_LINKS_THAT_LOAD = {
    "stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest",
}  # fmt: skip


class _Assets(HTMLParser):
    """Addresses that a browser loads when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.found += [given[name] for name in _SOURCES if name in given]
        self.found += _IN_STYLE.findall(given.get("style", ""))
        if tag == "link" and set(given.get("rel", "").lower().split()) & _LINKS_THAT_LOAD:
            self.found.append(given.get("href", ""))

    handle_startendtag = handle_starttag


def in_page(text: str) -> list[str]:
    """Remote addresses that a page loads."""
    reader = _Assets()
    reader.feed(text)
    styles = re.findall(r"<style.*?</style>", text, re.DOTALL | re.IGNORECASE)
    return [found for found in reader.found if _REMOTE.match(found)] + [
        at for style in styles for at in in_style(style)
    ]


def in_style(text: str) -> list[str]:
    """Remote addresses that a style sheet loads."""
    return _IN_STYLE.findall(text)


def in_folder(folder: Path) -> list[str]:
    """``page: address`` for each."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".html", ".css"}:
            look = in_page if path.suffix == ".html" else in_style
            found += [f"{path.relative_to(folder)}: {at}" for at in look(path.read_text(encoding="utf8"))]
    return found


if __name__ == "__main__":
    remote = in_folder(Path(sys.argv[1]))
    sys.exit("Loaded from the network:\n" + "\n".join(remote) if remote else 0)
