"""The list of what is there of the five papers: it names files that exist, and owns up to what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(not (ROOT / "docs" / "tools").is_dir(), reason="not run from a checkout")


@pytest.fixture
def papers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from tools import papers

    return papers


def listed(**changes):
    """A list of one item that is right, but for these changes."""
    item = {"kind": "table", "item": "Table 1", "state": "Y", "where": ["a.py"], "shown": ["b.json"], **changes}
    return {"saddle": [{key: value for key, value in item.items() if value is not None}]}


def test_the_list_is_right_and_has_all_five_papers(papers):
    content = papers.load()
    assert papers.faults(content) == []
    assert set(content) == set(papers.PAPERS)
    assert all(len(items) >= 20 for items in content.values())


def test_results_that_are_shown_are_kept_by_git_and_tests_that_are_shown_have_tests(papers):
    for items in papers.load().values():
        for each in items:
            for file in each.get("shown", []):
                assert "-quick/" not in file
                if file.startswith("tests/"):
                    assert "def test_" in (ROOT / file).read_text(encoding="utf8"), file


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"state": "done", "note": "soon"}, "its state 'done'"),
        ({"kind": "poem"}, "its kind 'poem'"),
        ({"where": ["gone.py"]}, "gone.py is not there"),
        ({"shown": None}, "where it is shown"),
        ({"state": "variant"}, "no reason is given"),
        ({"state": "reduced", "note": "one run"}, "does not begin with"),
        ({"state": "missing", "where": None, "shown": None}, "no reason is given"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_what_is_wrong_is_found(papers, tmp_path, changes, fault):
    for name in ("a.py", "b.json"):
        (tmp_path / name).touch()
    assert papers.faults(listed(), tmp_path) == []
    (found,) = papers.faults(listed(**changes), tmp_path)
    assert fault in found


def test_an_item_stands_there_once(papers, tmp_path):
    for name in ("a.py", "b.json"):
        (tmp_path / name).touch()
    (found,) = papers.faults({"saddle": listed()["saddle"] * 2}, tmp_path)
    assert "2 times" in found


def test_what_cannot_be_had_is_counted_apart(papers):
    states = ["Y"] * 3 + ["reduced"] + ["unavailable"] * 4
    items = [{"state": state} for state in states]
    assert papers.share(papers.counts({"saddle": items})["saddle"]) == 0.75


def test_pages_show_every_item(papers):
    content = papers.load()
    pages = papers.pages(content)
    for name, items in content.items():
        lines = pages[f"papers_{name}"].splitlines()
        assert len(lines) == 2 + len(items)
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
        assert f"../_generated/papers_{name}.md" in (ROOT / "docs" / "papers" / f"{name}.md").read_text(encoding="utf8")
    (total,) = [line for line in pages["papers"].splitlines() if line.startswith("| all five")]
    assert total.split(" | ")[1] == str(sum(map(len, content.values())))


def test_a_list_with_a_fault_makes_no_page(papers):
    with pytest.raises(ValueError, match=r"gone\.py is not there"):
        papers.pages(listed(where=["gone.py"], shown=["README.md"]))
