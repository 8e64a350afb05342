"""Importing the package is cheap: it loads nothing heavy and compiles nothing. Each test is a fresh interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import widemargin


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def loaded_after(statement):
    return set(run_python(f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"))


def test_the_bare_import_loads_neither_engines_nor_scikit_learn():
    loaded = loaded_after("import widemargin")
    assert "widemargin" in loaded
    assert not loaded & {"dask", "distributed", "mpi4py", "matplotlib", "sklearn", "scipy", "numba", "pandas", "rich"}


@pytest.mark.parametrize("and_then", ["", "HardMarginSVC(cluster=2).fit([[0.], [1.], [2.], [3.]], [0, 0, 1, 1])"])
def test_an_estimator_loads_no_optional_package(and_then):
    loaded = loaded_after(f"from widemargin import NuMarginSVC, HardMarginSVC, max_nu\n{and_then}")
    assert "sklearn" in loaded
    assert not loaded & {"dask", "distributed", "mpi4py", "matplotlib", "onnx"}


# What is printed: compilations by the import of everything, and then by a fit, which shows that they are noticed.
COUNT_COMPILATIONS = """
import json
from numba.core.dispatcher import Dispatcher
calls = []
original = Dispatcher.compile
Dispatcher.compile = lambda self, signature: (calls.append(str(self)), original(self, signature))[1]
import widemargin, widemargin.data
from widemargin import HardMarginSVC, NuMarginSVC, max_nu
at_import = len(calls)
HardMarginSVC().fit([[0.], [1.]], [0, 1])
print(json.dumps([at_import, len(calls) - at_import]))
"""


def test_nothing_is_compiled_at_import():
    at_import, at_fit = run_python(COUNT_COMPILATIONS)
    assert at_import == 0
    assert at_fit > 0


def test_every_public_name_is_there_and_nothing_else():
    for name in widemargin.__all__:
        assert getattr(widemargin, name) is not None
    assert set(widemargin.__all__) <= set(dir(widemargin))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = widemargin.no_such_name


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import PackageNotFoundError, version

    try:
        assert version("widemargin") == widemargin.__version__
    except PackageNotFoundError:
        pytest.skip("run from the source tree, not installed")
