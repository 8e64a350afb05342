"""What scikit-learn keeps private and this package needs is still there, and named in one file only."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import widemargin
from tests.problems_at_hand import overlapping

ROOT = Path(widemargin.__file__).parent
HOME = "sklearn_private.py"


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("sklearn"))


def is_private(module, name):
    return name.startswith("_") or any(part.startswith("_") for part in module.split("."))


@pytest.mark.parametrize(("module", "name"), sorted(imports_of(ROOT / HOME)))
def test_what_is_imported_is_still_there(module, name):
    moved = (
        f"scikit-learn {sklearn.__version__} has no {module}.{name} any more. Find its new place, or write what "
        f"it did, in src/widemargin/{HOME}; nothing else has to change."
    )
    try:
        found = import_module(module)
    except ImportError:
        pytest.fail(moved)
    assert hasattr(found, name), moved


@pytest.mark.parametrize(
    ("kind", "name", "use"),
    [
        (BaseEstimator, "_get_param_names", f"parameter_names in {HOME}"),
        (BaseEstimator, "_validate_params", f"validate_parameters in {HOME}"),
        (BaseEstimator, "_html_repr", "what notebooks show, in estimators/_base.py"),
        (CallbackSupportMixin, "_init_callback_context", "callbacks, in estimators/_base.py"),
    ],
)
def test_methods_that_are_used_or_replaced_are_still_there(kind, name, use):
    assert hasattr(kind, name), f"scikit-learn {sklearn.__version__} has no {kind.__name__}.{name} any more: see {use}."


def test_constraints_are_still_validated_by_that_attribute():
    from widemargin.sklearn_private import validate_parameters

    told = ""
    try:
        validate_parameters(LogisticRegression(C=-1))
    except ValueError as error:
        told = str(error)
    moved = f"scikit-learn {sklearn.__version__} does not read _parameter_constraints any more: see {HOME}."
    assert "'C' parameter" in told, moved


def test_the_output_of_a_transformer_is_still_known():
    from widemargin.sklearn_private import output_of

    moved = f"scikit-learn {sklearn.__version__} keeps what set_output was given elsewhere: see output_of in {HOME}."
    assert output_of(StandardScaler()) == "default", moved
    assert output_of(StandardScaler().set_output(transform="pandas")) == "pandas", moved


def test_no_other_attributes_are_left_on_an_estimator():
    from widemargin.sklearn_private import FIT_STATE

    model = widemargin.NuMarginSVC().fit(*overlapping(0, n=40))
    private = {name for name in model.__getstate__() if name.startswith("_")}
    assert private <= FIT_STATE, f"scikit-learn sets {private - FIT_STATE} on estimators: see FIT_STATE in {HOME}."


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_are_imported_in_one_file_only(path):
    found = [f"{module}.{name}" for module, name in imports_of(path) if is_private(module, name)]
    assert found == [] or path == ROOT / HOME, f"{path} imports {found}: take it from widemargin.{HOME[:-3]}."


def test_the_walker_finds_private_names(tmp_path):
    (tmp_path / "new.py").write_text("from sklearn.base import _fit_context\nimport sklearn.utils._set_output\n")
    assert [is_private(*each) for each in imports_of(tmp_path / "new.py")] == [True, True]
    (tmp_path / "new.py").write_text("from sklearn.base import clone\nimport sklearn.utils\n")
    assert [is_private(*each) for each in imports_of(tmp_path / "new.py")] == [False, False]
