"""Imports between folders: the arrows of ARCHITECTURE.md, none back, and no private module from another folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import widemargin

ROOT = Path(widemargin.__file__).parent

# Who may import whom within the package; a part may always import itself.
FOUNDATION = {"codec", "compiled", "cores", "data", "ledger", "exceptions", "pauses", "rounding"}
ALLOWED = {
    "exceptions": set(),
    "rounding": set(),
    "sklearn_private": set(),
    "threadpoolctl_private": set(),
    "codec": {"exceptions"},
    "ledger": {"codec", "compiled"},
    "pauses": set(),
    "cores": {"pauses", "sklearn_private", "threadpoolctl_private"},
    "compiled": {"rounding"},
    "data": {"compiled", "cores", "exceptions", "pauses"},
    "problems": FOUNDATION,
    "comm": FOUNDATION,
    "kernels": FOUNDATION,
    "solvers": FOUNDATION | {"problems", "comm", "kernels"},
    "peers": FOUNDATION | {"problems", "comm"},
    "engines": FOUNDATION | {"problems", "comm", "peers"},
    "api": {"comm", "data", "problems", "solvers"},
    "callbacks": {"problems"},  # shows a certificate
    "checkpoint": FOUNDATION | {"problems"},
    "privacy_account": {"data"},
    "strategies": FOUNDATION
    | {
        "problems",
        "comm",
        "kernels",
        "solvers",
        "peers",
        "engines",
        "checkpoint",
        "privacy_account",
        "sklearn_private",
    },
    "estimators": FOUNDATION
    | {"problems", "comm", "kernels", "solvers", "peers", "engines", "strategies", "callbacks", "checkpoint"}
    | {"privacy_account", "sklearn_private"},
    "reports": FOUNDATION | {"problems", "estimators", "strategies", "__version__"},
    "io": FOUNDATION | {"kernels", "estimators", "strategies", "sklearn_private", "__version__"},
    "cli": FOUNDATION
    | {
        "problems",
        "comm",
        "peers",
        "engines",
        "strategies",
        "callbacks",
        "estimators",
        "reports",
        "io",
        "sklearn_private",
    }
    | {"sklearn_private", "__version__"},
}
# Packages that only certain files may import, as a test of the path within the package.
RESERVED = {
    "sklearn": lambda path: (
        path.parts[0] in {"estimators", "strategies", "data", "reports", "io", "cli", "sklearn_private.py"}
    ),
    "dask": lambda path: path.name.startswith("dask") and path.parts[0] in {"comm", "engines"},
    "distributed": lambda path: (
        (path.name.startswith("dask") and path.parts[0] in {"comm", "engines"}) or path == Path("cli/_cluster.py")
    ),
    "mpi4py": lambda path: (
        (path.name == "mpi.py" and path.parts[0] in {"comm", "engines"}) or path == Path("cli/_cluster.py")
    ),
    "pyarrow": lambda path: path == Path("data/tables.py"),
    "matplotlib": lambda path: path.parts[0] == "reports",
    "networkx": lambda path: path.name in {"topology.py", "network.py"} and path.parts[0] in {"peers", "reports"},
    "zmq": lambda path: path.name.startswith("zmq") and path.parts[0] == "comm",
    "nacl": lambda path: path == Path("comm/identity.py"),
    "typer": lambda path: path.parts[0] == "cli",
    "rich": lambda path: path.parts[0] in {"cli", "callbacks.py"},
    "torch": lambda path: (
        path.parts[0] == "kernels" and ("torch" in path.name or path.name in {"arrays.py", "devices.py"})
    ),
    "triton": lambda path: path == Path("kernels/torch_cuda.py"),
    "onnx": lambda path: path == Path("io/onnx.py"),
    "cupy": lambda path: path == Path("kernels/arrays.py"),
}


def imported(source: str, package: str) -> Iterator[str]:
    """Full names of all that a module imports, wherever it does; ``package`` is what a leading dot means.

    Under ``if TYPE_CHECKING:`` a module may name the protocol of a folder above it, which imports nothing.
    """
    tree = ast.parse(source)
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            block.body = [node for node in block.body if not _names_a_protocol(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _names_a_protocol(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".protocol")


def wrong_arrows(path: Path, source: str) -> list[str]:
    """What a file at ``path`` within the package imports and must not."""
    part = path.parts[0].removesuffix(".py")
    package = ".".join(["widemargin", *path.parts[:-1]])
    wrong = []
    for name in imported(source, package):
        top, *rest = name.split(".")
        if top in RESERVED and not RESERVED[top](path):
            wrong.append(f"{path} imports {name}")
        if top == "widemargin" and part != "__init__":
            target = rest[0] if rest else ""
            if target != part and target not in ALLOWED.get(part, set()):
                wrong.append(f"{path} imports {name}")
    return wrong


def foreign_private_modules(path: Path, source: str) -> list[str]:
    """Modules with a leading underscore that a file at ``path`` within the package imports from another folder."""
    wrong = []
    for name in imported(source, ".".join(["widemargin", *path.parts[:-1]])):
        top, *rest = name.split(".")
        private = [k for k, part in enumerate(rest) if part.startswith("_") and not part.startswith("__")]
        if top == "widemargin" and private:
            folder = Path(*rest[: private[0]])
            if (ROOT / folder).is_dir() and folder != path.parent:  # else it is a name within a module
                wrong.append(f"{path} imports {name}")
    return wrong


FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def test_all_files_are_looked_at():
    assert len(FILES) > 25
    assert Path("solvers/saddle.py") in FILES
    assert {path.parts[0].removesuffix(".py") for path in FILES} - {"__init__"} <= set(ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_arrow_points_back(path):
    assert wrong_arrows(path, (ROOT / path).read_text(encoding="utf8")) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("problems/new.py", "from widemargin.comm.solo import Solo"),
        ("problems/new.py", "from widemargin.solvers import saddle"),
        ("solvers/new.py", "import sklearn"),
        ("solvers/new.py", "def late():\n    from sklearn.base import clone"),
        ("solvers/new.py", "import widemargin.estimators._base"),
        ("solvers/new.py", "from widemargin import NuMarginSVC"),
        ("solvers/new.py", "from ..engines import inline"),
        ("solvers/new.py", "from .. import engines"),
        ("comm/new.py", "from widemargin.solvers.saddle import SaddlePoint"),
        ("engines/new.py", "from widemargin import estimators"),
        ("engines/new.py", "from widemargin.solvers.run import run"),
        ("compiled/new.py", "from widemargin.data.shard import Shard"),
        ("data/new.py", "from widemargin.comm.solo import Solo"),
        ("data/new.py", "from widemargin.kernels.protocol import KernelRows"),
        ("data/new.py", "if TYPE_CHECKING:\n    from widemargin.kernels.on_cpu import RowsOnCPU"),
        ("ledger.py", "import widemargin.data"),
        ("codec.py", "from widemargin.kernels.points import Points"),
        ("solvers/new.py", "from widemargin.sklearn_private import Interval"),
        ("exceptions.py", "from widemargin.ledger import Ledger"),
        ("callbacks.py", "from widemargin.estimators import nu_margin"),
        ("estimators/new.py", "import dask.array"),
        ("estimators/new.py", "from distributed import Client"),
        ("engines/inline.py", "from mpi4py import MPI"),
        ("engines/mpi.py", "import dask"),
        ("engines/new.py", "import importlib\nimportlib.import_module('dask')"),
        ("estimators/dask.py", "import dask"),
        ("estimators/new.py", "import matplotlib.pyplot as plt"),
        ("solvers/flat_dual.py", "import torch"),
        ("kernels/on_cpu.py", "from torch import cuda"),
        ("kernels/on_torch.py", "import triton"),
        ("estimators/_kernel.py", "import cupy"),
        ("kernels/torch_working_set.py", "import triton"),
        ("io/archive.py", "import onnx"),
        ("__init__.py", "import dask"),
        ("unheard_of/new.py", "from widemargin.data import fetch"),
    ],
)
def test_the_walker_finds_a_wrong_arrow(path, source):
    assert wrong_arrows(Path(path), source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("solvers/new.py", "from widemargin.problems.polytope import NuMargin\nimport numpy"),
        ("solvers/new.py", "from . import _hulls\nfrom .run import run"),
        ("estimators/new.py", "from sklearn.base import clone\nfrom widemargin.engines import inline"),
        ("engines/dask.py", "import dask\nfrom distributed import Client"),
        ("comm/mpi.py", "from mpi4py import MPI"),
        ("reports/plots.py", "import matplotlib.pyplot as plt"),
        ("kernels/torch_cuda.py", "import torch\nimport triton.language as tl"),
        ("data/fetch.py", "from widemargin.compiled import csr"),
        ("data/shard.py", "if TYPE_CHECKING:\n    from widemargin.kernels.protocol import KernelRows"),
        ("__init__.py", "from widemargin.estimators.nu_margin import NuMarginSVC"),
    ],
)
def test_the_walker_lets_a_right_arrow_pass(path, source):
    assert wrong_arrows(Path(path), source) == []


@pytest.mark.parametrize("path", FILES, ids=str)
def test_private_modules_are_imported_within_their_folder_only(path):
    assert foreign_private_modules(path, (ROOT / path).read_text(encoding="utf8")) == []


@pytest.mark.parametrize(
    ("path", "source", "is_wrong"),
    [
        ("cli/new.py", "from widemargin.estimators._base import MarginClassifier", True),
        ("cli/new.py", "from widemargin.estimators import _base", True),
        ("cli/new.py", "import widemargin.estimators._base as base", True),
        ("cli/new.py", "def late():\n    from ..estimators._base import MarginClassifier", True),
        ("engines/new.py", "import importlib\nimportlib.import_module('widemargin.solvers._hulls')", True),
        ("__init__.py", "from widemargin.estimators._base import MarginClassifier", True),
        ("estimators/new.py", "from widemargin.estimators._base import MarginClassifier", False),
        ("estimators/new.py", "from . import _base\nfrom ._linear import LinearClassifier", False),
        ("solvers/new.py", "from widemargin.kernels.on_cpu import _Prepared", False),
        ("reports/new.py", "from sklearn.utils._param_validation import Interval", False),
        ("cli/new.py", "from widemargin import __version__", False),
    ],
)
def test_a_private_module_of_another_folder_is_found(path, source, is_wrong):
    assert bool(foreign_private_modules(Path(path), source)) == is_wrong


def test_no_rank_takes_its_randomness_from_a_global_seed():
    """Randomness is passed: no legacy numpy.random functions anywhere in the package."""
    legacy = {"seed", "rand", "randn", "random", "normal", "uniform", "randint", "choice", "permutation", "shuffle"}
    for path in FILES:
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"np.random", "numpy.random"}:
                assert node.attr not in legacy, f"{path}:{node.lineno} uses np.random.{node.attr}"
