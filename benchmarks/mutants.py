"""How many small faults in the formulas and in the claims of peers do the tests notice?

    python -m benchmarks.mutants                          500 faults, drawn with seed 0
    python -m benchmarks.mutants --number 50 --seed 1     others
    python -m benchmarks.mutants --only polytope          of modules whose name begins so

A fault changes one place of a module: an operator, a comparison, a number, a condition, a value that is returned, an
error that is raised. Texts, annotations and decorators stay. The tests that ``TESTS`` names for the module run against
a copy of the package with that fault, the nearest first, until one fails: the fault is killed. Tests that take more
than ``LIMIT`` seconds kill it too. Faults that survive are listed with their lines; some change nothing that can be
observed, and count all the same. The tests must be installed: ``make test`` does that.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from benchmarks import _harness as harness
from benchmarks._harness import ROOT, Bar, Report

QUESTION = __doc__
LIMIT = 600.0  # seconds of the tests of a fault
AIM = 0.9
PACKAGE = Path("src/widemargin")
# The tests of a module, the nearest first; "*" stands for its name.
TESTS = {
    "problems": ["tests/problems/test_*.py", "tests/problems", "tests/properties"],
    "peers/claims.py": ["tests/peers/test_notary.py", "tests/peers/test_attacks.py", "tests/peers/test_exclusion.py"],
}
OPTIONS: dict[str, Any] = {
    "--number": {"type": int, "default": 500, "help": "faults to draw"},
    "--seed": {"type": int, "default": 0, "help": "of the draw"},
    "--only": {"default": "", "help": "modules whose name begins so"},
    "--workers": {"type": int, "default": os.cpu_count(), "help": "faults side by side"},
}


class Mutant(NamedTuple):
    module: str  # its path from the package
    line: int
    change: str
    source: str


def main() -> None:
    chosen = harness.arguments(QUESTION, options=OPTIONS)
    every = [mutant for path in modules() if path.stem.startswith(chosen.only) for mutant in mutants_of(path)]
    number = min(10 if chosen.quick else chosen.number, len(every))
    drawn = random.Random(chosen.seed).sample(every, number)
    print(f"{number} of {len(every)} faults in {len({each.module for each in every})} modules", flush=True)
    report = Report("mutants", quick=chosen.quick)
    outcomes = judged(drawn, chosen.workers)
    survivors = [each for each, is_killed in outcomes if not is_killed]
    totals, lost = Counter(each.module for each in drawn), Counter(each.module for each in survivors)
    by_module = {name: {"faults": n, "killed": n - lost[name]} for name, n in sorted(totals.items())}
    lines = sorted([each.module, each.line, each.change] for each in survivors)
    content = {"seed": chosen.seed, "of": len(every), "modules": by_module, "survivors": [str(line) for line in lines]}
    report.add("mutants", content)
    harness.show("Killed", ["module", "faults", "killed"], [[name, *each.values()] for name, each in by_module.items()])
    harness.show("Survivors", ["module", "line", "change"], lines)
    share = 1 - len(survivors) / max(1, number)
    report.bars([Bar(f"share of {number} faults killed", f">= {AIM:.0%}", f"{share:.1%}", share >= AIM)])


def modules() -> list[Path]:
    found = [ROOT / PACKAGE / "peers" / "claims.py", *(ROOT / PACKAGE / "problems").glob("*.py")]
    return sorted(path for path in found if path.stat().st_size)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every fault of a module: one place, one change."""
    tree = ast.parse(path.read_text(encoding="utf8"))
    kept = set(map(id, untouched(tree)))
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in kept:
            continue
        for new in changes(node):
            changed = Replace(number, new).of(tree)
            before, after = (ast.unparse(each).splitlines()[0][:90] for each in (node, new))
            name = path.relative_to(ROOT / PACKAGE).as_posix()
            yield Mutant(name, getattr(node, "lineno", 0), f"{before} -> {after}", ast.unparse(changed))


def untouched(tree: ast.Module) -> Iterator[ast.AST]:
    """What no test can or need notice: annotations, decorators, texts, and what builds the text of an error."""
    for node in ast.walk(tree):
        apart: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            apart = [*node.decorator_list, *filter(None, [node.returns])]
        elif isinstance(node, ast.ClassDef):
            apart = [*node.decorator_list]
        elif isinstance(node, ast.AnnAssign | ast.arg):
            apart = [*filter(None, [node.annotation])]
        elif isinstance(node, ast.JoinedStr):
            apart = [node]
        for each in apart:
            yield from ast.walk(each)


_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
             ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
             ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip
_CALLED = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "any": "all", "all": "any"}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    new = deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            new.ops = [_COMPARED[type(op)]()]
            yield new
        case ast.BinOp(op=op) if type(op) in _COMPUTED and not is_text(new):
            new.op = _COMPUTED[type(op)]()
            yield new
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield new
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
            new.test = ast.UnaryOp(ast.Not(), test)
            yield new
        case ast.Return(value=ast.expr() as value) if not is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.Raise():
            yield ast.Pass()
        case ast.Attribute(attr=name) if name in _CALLED:
            new.attr = _CALLED[name]
            yield new
        case ast.Name(id=name) if name in _CALLED:
            new.id = _CALLED[name]
            yield new


def is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str) for side in sides)


def is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


class Replace(ast.NodeTransformer):
    """A copy of a tree with another node in the place of that number of ``ast.walk``."""

    def __init__(self, number: int, new: ast.AST) -> None:
        self._number, self._new = number, new

    def of(self, tree: ast.Module) -> ast.Module:
        copy = deepcopy(tree)
        self._place = list(ast.walk(copy))[self._number]
        return ast.fix_missing_locations(self.visit(copy))

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._place else self.generic_visit(node)


# -- running the tests -------------------------------------------------------------------------------------------------


def judged(drawn: list[Mutant], n_workers: int) -> list[tuple[Mutant, bool]]:
    """Each fault, and whether it was killed; every worker has a copy of package and tests."""
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for k in range(n_workers):
            copies.put(copied(Path(folder) / str(k)))

        def judge(mutant: Mutant) -> tuple[Mutant, bool]:
            where = copies.get()
            found = is_killed(mutant, where)
            copies.put(where)
            print("." if found else f"\n{mutant.module}:{mutant.line}: {mutant.change}\n", end="", flush=True)
            return mutant, found

        if wrong := [name for name in TESTS if not passes(Path(folder) / "0", TESTS[name][1:])]:
            raise SystemExit(f"The tests of {', '.join(wrong)} fail without any fault.")
        with ThreadPool(n_workers) as pool:
            outcomes = list(pool.imap(judge, drawn))
    print(flush=True)
    return outcomes


def copied(where: Path) -> Path:
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, where / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml",):
        shutil.copy(ROOT / name, where)
    return where


def is_killed(mutant: Mutant, where: Path) -> bool:
    path = where / PACKAGE / mutant.module
    sound = path.read_text(encoding="utf8")
    path.write_text(mutant.source, encoding="utf8")
    try:
        return not all(passes(where, [target]) for target in tests_of(mutant.module, where))
    finally:
        path.write_text(sound, encoding="utf8")


def tests_of(module: str, where: Path) -> list[str]:
    """The nearest first; a module without tests of its own has only the others."""
    targets = next(targets for name, targets in TESTS.items() if module.startswith(name))
    named = [target.replace("*", Path(module).stem.lstrip("_")) for target in targets]
    return [target for target in named if (where / target).exists()]


def passes(where: Path, targets: list[str]) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(where / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long", *targets]
    try:
        ended = subprocess.run(command, cwd=where, env=environment, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


if __name__ == "__main__":
    main()
