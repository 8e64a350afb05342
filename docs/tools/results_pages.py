"""Pages that are made when the documentation is built.

Each folder of ``benchmarks/results`` becomes a page with its bars, pictures and tables; ``result_tables`` makes the
tables of the page of benchmarks, ``paper_tables`` those of the papers' pages, ``papers`` those of what is there of each
paper, ``api_page`` the reference; ARCHITECTURE, CONTRIBUTING and CHANGELOG become pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools import api_page, paper_tables, papers
from tools.result_tables import TABLES, table

PROJECT = ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")
_RESULT = re.compile(r"\]\((?:\.\./)*benchmarks/results/(\w+)/[\w.-]+\.(?:md|json)\)")
_PROJECT = re.compile(r"\]\((?:\.\./)*(" + "|".join(PROJECT) + r")\.md\)")
_DOCS = re.compile(r"\]\(docs/")


def relink(text: str, docname: str) -> str:
    """Turn links to files of a checkout into links to pages, for the page of that name."""
    up = "../" * docname.count("/")
    text = _RESULT.sub(rf"]({up}results/\1.md)", text)
    return _PROJECT.sub(lambda found: f"]({up}project/{found[1].lower()}.md)", text)


def write(results: Path, docs: Path) -> None:
    """Write all of them under ``docs``."""
    _put(docs / "api" / "index.rst", api_page.page())
    for name, make in {**TABLES, **paper_tables.TABLES}.items():
        _put(docs / "_generated" / f"{name}.md", make(results))
    for name, text in papers.pages(papers.load()).items():
        _put(docs / "_generated" / f"{name}.md", text)
    folders = sorted(path for path in results.iterdir() if path.is_dir() and not path.name.endswith("-quick"))
    for folder in folders:
        _put(docs / "results" / f"{folder.name}.md", _page(folder))
    _put(docs / "results" / "index.md", _index([folder.name for folder in folders]))
    for name in PROJECT:
        source = docs.parent / f"{name}.md"
        if source.exists():
            text = _DOCS.sub("](../", source.read_text(encoding="utf8"))
            _put(docs / "project" / f"{name.lower()}.md", relink(text, f"project/{name.lower()}"))


def _put(path: Path, text: str) -> None:
    """Write a page, unless it is the same: Sphinx rebuilds what is newer."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf8") != text:
        path.write_text(text, encoding="utf8")


def _index(names: list[str]) -> str:
    listed = "\n".join(names)
    return f"# All results\n\nA page for each benchmark.\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"


def _page(folder: Path) -> str:
    """Bars, pictures and tables of one benchmark."""
    parts = [f"# {folder.name.replace('_', ' ')}", f"Made by `python -m benchmarks.{folder.name}`."]
    bars, machines = [], []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf8"))
        bars += [[bar["claim"], bar["asked"], bar["measured"], "yes" if bar["is_met"] else "**no**"]
                 for bar in found.get("bars", [])]  # fmt: skip
        if "machine" in found:
            machines.append(_machine(found["machine"]))
    parts += machines[:1]
    if bars:
        parts += ["## Bars", table(["what", "asked", "measured", "met"], bars)]
    pictures, texts = sorted(folder.glob("*.png")), sorted(folder.glob("*.md"))
    parts += ["## Figures"] if pictures else []
    parts += [f"![{folder.name}: {path.stem}](../../benchmarks/results/{folder.name}/{path.name})" for path in pictures]
    parts += ["## Tables"] if texts else []
    parts += [_demoted(path.read_text(encoding="utf8")) for path in texts]
    return "\n\n".join(parts) + "\n"


def _machine(facts: dict) -> str:
    packages = ", ".join(
        f"{package} {version}" for package, version in facts["packages"].items() if version != "absent"
    )
    where = f"{facts['cores']} cores of {facts['cpu']}" + (f", {facts['card']}" if "card" in facts else "")
    return f"{where}, Python {facts['python']}, {packages}; {facts['date'][:10]}."


def _demoted(text: str) -> str:
    """With headings below those of the page."""
    return re.sub(r"^#+ (.*)$", r"### \1", text, flags=re.MULTILINE).strip()
