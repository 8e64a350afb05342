"""What is there of the five papers: benchmarks/papers.toml, checked, and a table of it for each page.

    python docs/tools/papers.py        counts for each paper, and whatever is wrong with the list

The list has every algorithm, rival, set, table, figure and claim that can be checked, with the file of code, where it
is shown (a file of results, or a test), the settings, and its state:

    Y            at the paper's settings, or as it is printed
    reduced      fewer rows, runs, sets or seconds than the paper's
    variant      another form than the paper's
    missing      not there
    unavailable  needs data that cannot be had; counted apart
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "benchmarks" / "papers.toml"
STATES = ("Y", "reduced", "variant", "missing", "unavailable")
KINDS = ("algorithm", "rival", "set", "table", "figure", "claim")
KEYS = {"kind", "item", "state", "where", "shown", "settings", "note"}
PAPERS = {"saddle": "Saddle", "sbp": "Batch perceptron", "sodm": "SODM", "gadget": "GADGET", "l1svm": "1-norm"}
AIM = 0.85  # of the items that can be had
_WORDS = {"Y": "yes"}


def load(path: Path = LIST) -> dict[str, list[dict[str, Any]]]:
    """Items of each paper, in the order of the list."""
    return tomllib.loads(path.read_text(encoding="utf8"))


def faults(papers: dict[str, list[dict[str, Any]]], root: Path = ROOT) -> list[str]:
    """What is wrong with the list: states and kinds that there are not, files that are gone, reasons that are owed."""
    found = [f"{name}: no such paper" for name in papers if name not in PAPERS]
    for paper, items in papers.items():
        names = Counter((each.get("kind"), each.get("item")) for each in items)
        found += [f"{paper}: {item} stands there {n} times" for (_, item), n in names.items() if n > 1]
        for each in items:
            found += [f"{paper}, {each.get('item')}: {fault}" for fault in _faults_of(each, root)]
    return found


def _faults_of(each: dict[str, Any], root: Path) -> list[str]:
    state, files = each.get("state"), [*each.get("where", []), *each.get("shown", [])]
    found = [f"unknown key {key!r}" for key in each.keys() - KEYS]
    if not each.get("item"):
        found.append("it has no name")
    if state not in STATES:
        found.append(f"its state {state!r} is none of {', '.join(STATES)}")
    if each.get("kind") not in KINDS:
        found.append(f"its kind {each.get('kind')!r} is none of {', '.join(KINDS)}")
    found += [f"{file} is not there" for file in files if not (root / file).is_file()]
    if state in ("Y", "reduced", "variant") and not (each.get("where") and each.get("shown")):
        found.append("it does not say where it is and where it is shown")
    if state != "Y" and not each.get("note"):
        found.append(f"it is {state}, and no reason is given")
    if state == "reduced" and not each.get("note", "").startswith("reduced: "):
        found.append("its note does not begin with 'reduced: '")
    return found


def counts(papers: dict[str, list[dict[str, Any]]]) -> dict[str, Counter[str]]:
    """How many items of each paper have each state."""
    return {paper: Counter(each["state"] for each in items) for paper, items in papers.items()}


def share(states: Counter[str]) -> float:
    """The share of Y in what can be had."""
    return states["Y"] / max(1, states.total() - states["unavailable"])


def table_of_counts(papers: dict[str, list[dict[str, Any]]]) -> str:
    """One line for each paper, and the sum."""
    by_paper = counts(papers)
    lines = [*((PAPERS[paper], by_paper[paper]) for paper in PAPERS), ("all five", sum(by_paper.values(), Counter()))]
    rows = [
        [name, str(states.total()), *(str(states[state]) for state in STATES), f"{100 * share(states):.0f}%"]
        for name, states in lines
    ]
    head = ["paper", "items", "as in the paper", *STATES[1:], "share of what can be had"]
    return _table(head, rows)


def table_of(items: list[dict[str, Any]]) -> str:
    """Item by item, for the page of one paper."""
    rows = []
    for each in items:
        files = [", ".join(f"`{file}`" for file in each.get(key, [])) for key in ("where", "shown")]
        remark = "; ".join(filter(None, [each.get("settings"), each.get("note")]))
        rows.append([each["item"], _WORDS.get(each["state"], each["state"]), *files, remark])
    return _table(["item", "there", "code", "shown in", "settings, and why not"], rows)


def pages(papers: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """What is included in the pages, by name; ValueError where the list is wrong."""
    wrong = faults(papers)
    if wrong:
        raise ValueError("benchmarks/papers.toml: " + "; ".join(wrong))
    return {"papers": table_of_counts(papers)} | {f"papers_{name}": table_of(items) for name, items in papers.items()}


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("||", "‖").replace("|", "\\|") for cell in line) + " |"
                     for line in lines) + "\n"  # fmt: skip


if __name__ == "__main__":
    content = load()
    print(table_of_counts(content))
    wrong = faults(content)
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)
