"""The pages of the documentation: what their code prints is what they show, and what they name exists."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import warnings
from pathlib import Path

import pytest

import widemargin
from widemargin.peers.records import KINDS

DOCS = Path(__file__).resolve().parents[1] / "docs"
GUIDES = sorted((DOCS / "guide").glob("*.md"))
OTHERS = ("choose", "other_libraries", "probabilities", "peers", "privacy", "own_solver")
PAGES = [*GUIDES, *(DOCS / f"{name}.md" for name in OTHERS)]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the pages are in a checkout, not in what is installed")


def says_the_same(shown: str, printed: str) -> bool:
    """Whether words are equal, and numbers to two percent or two in the last digit shown."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    for one, other in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        decimals = len(one.partition(".")[2]) if "e" not in one else 0
        last_digit = 0.0 if "." not in one or "e" in one else 10.0**-decimals
        if abs(float(one) - float(other)) > max(2.01 * last_digit, 0.02 * abs(float(one))):
            return False
    return True


def run_page(page: Path) -> int:
    """Run all blocks of a page one after the other; how many have shown what they print."""
    names: dict = {}
    n_shown = 0
    for code, shown in BLOCK.findall(page.read_text(encoding="utf8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            exec(compile(code, str(page), "exec"), names)
        assert says_the_same(shown, printed.getvalue()), f"{page.name} shows\n{shown}\nand prints\n{printed.getvalue()}"
        n_shown += bool(shown.strip())
    return n_shown


def test_other_words_or_numbers_are_noticed():
    assert says_the_same("gap 0.958, 3 of [1, 2]\n", "gap 0.957, 3 of [1, 2]\n")
    assert not says_the_same("gap 0.958\n", "gap 0.9\n")
    assert not says_the_same("gap 0.958\n", "max_iter 0.958\n")
    assert not says_the_same("3 peers\n", "4 peers\n")
    assert not says_the_same("True\n", "")


def test_a_page_that_shows_something_else_fails(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf8")
    with pytest.raises(AssertionError, match="shows"):
        run_page(page)


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "choose"], ids=lambda page: page.stem)
def test_a_page_prints_what_it_shows(page):
    assert run_page(page) > 0


def test_a_solver_takes_at_most_60_lines():
    [(solver, _), *_] = BLOCK.findall((DOCS / "own_solver.md").read_text(encoding="utf8"))
    assert "class FrankWolfe(Solver" in solver
    assert len(solver.splitlines()) <= 60


def test_every_estimator_has_a_guide_that_says_when_not_to_use_it():
    estimators = [name for name in widemargin.__all__ if name.endswith(("SVC", "SVCCV"))]
    texts = [page.read_text(encoding="utf8") for page in GUIDES]
    for name in estimators:
        assert any(name in text.partition("## A first")[0] for text in texts), f"no guide opens with {name}"
    for page, text in zip(GUIDES, texts, strict=True):
        parts = ["## The problem", "## A first model", "## How the parameters act", "## Reading the result"]
        assert "## When not to use it" in text, page.name
        assert all(part in text for part in parts), page.name


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_parameters_in_the_tables_of_a_guide_exist(page):
    """In code a keyword that an estimator does not know is an error when run; in tables nothing runs."""
    text = page.read_text(encoding="utf8")
    estimator = getattr(widemargin, re.match(r"# (\w+):", text)[1])
    cells = re.findall(r"^\| (`[^|]*`[^|]*) \|", text, re.MULTILINE)
    named = {word for cell in cells for word in re.findall(r"`([a-z_]+)", cell)}
    assert named
    assert named <= set(estimator().get_params()), f"{page.name} names {sorted(named - set(estimator().get_params()))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_cited_files_exist(page):
    text = page.read_text(encoding="utf8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "auto_examples/" in target:  # made when the documentation is built
            name = Path(target).with_suffix(".py").name
            assert (DOCS.parent / "examples" / name).is_file(), f"{page.name}: {target}"
        else:
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
    for cited in re.findall(r"`(benchmarks/[\w./]+)`", text):
        assert (DOCS.parent / cited).exists(), f"{page.name}: {cited}"


def test_the_page_of_peers_says_what_each_kind_of_record_reveals():
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "peers.md").read_text(encoding="utf8"), re.MULTILINE)
    assert rows == [kind.__name__ for kind in KINDS]


def test_the_page_of_privacy_begins_with_whom_it_does_not_protect():
    _, first, *_ = (DOCS / "privacy.md").read_text(encoding="utf8").split("\n\n")
    assert first.startswith("**Members see what members see, and are not protected from each other**")


def test_the_chart_is_what_its_script_draws_and_names_estimators_that_exist():
    spec = importlib.util.spec_from_file_location("choose_chart", DOCS / "choose_chart.py")
    assert spec is not None
    assert spec.loader is not None
    chart = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chart)
    assert (DOCS / "choose.svg").read_text(encoding="utf8") == chart.draw()
    words = " ".join(f"{step.answer} {step.remark}" for step in (*chart.STEPS, chart.LAST))
    named = set(re.findall(r"[A-Z]\w+SVC(?:CV)?", words))
    assert named == {name for name in widemargin.__all__ if name.endswith(("SVC", "SVCCV"))}
    page = (DOCS / "choose.md").read_text(encoding="utf8")
    assert all(name in page for name in named)
