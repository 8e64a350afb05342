"""What users read: every public name is explained, with all its parameters, by an example that runs.

Sections are read as numpydoc does: a title, a line of dashes, and entries that begin at the left.
"""

from __future__ import annotations

import doctest
import inspect
import re
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

import widemargin
import widemargin.api
import widemargin.callbacks
import widemargin.data
import widemargin.reports

# Examples may leave out what differs between machines, and break lines where they like.
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Those that read a public set; they are skipped where there is no folder of them.
NEED_DATA = {"widemargin.data.DataSet", "widemargin.data.fetch"}


def public(*modules: ModuleType) -> dict[str, object]:
    """Everything that these modules list in ``__all__``, but modules; each once, by the first name it has."""
    found: dict[str, object] = {}
    for module in modules:
        for name in module.__all__:
            what = getattr(module, name)
            if not inspect.ismodule(what) and all(what is not other for other in found.values()):
                found[f"{module.__name__}.{name}"] = what
    return found


PUBLIC = public(widemargin, widemargin.data, widemargin.reports, widemargin.callbacks, widemargin.api)


def section(doc: str, title: str) -> str:
    """The text under a title of a docstring, or nothing."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n---|\Z)", inspect.cleandoc(doc), re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def documented(doc: str, title: str) -> dict[str, str]:
    """Entries of a section that lists names, and the type of each."""
    entries = re.findall(r"^(\w[^\n]*?)(?: : ([^\n]*))?$", section(doc, title), re.MULTILINE)
    return {name.strip("*"): kind for names, kind in entries for name in names.replace(",", " ").split()}


def parameters(what: object) -> list[str]:
    """What a callable takes, or the constructor of a class."""
    return [name for name in inspect.signature(what).parameters if name not in {"self", "args", "kwargs"}]


def differences(what: object) -> set[str]:
    """Parameters that are taken and not documented, or documented and not taken."""
    return set(parameters(what)) ^ set(documented(inspect.getdoc(what) or "", "Parameters"))


def is_plain_complaint(what: object) -> bool:
    """A warning or an error that takes what all of them take, a message."""
    return isinstance(what, type) and issubclass(what, Exception) and "__init__" not in vars(what)


def public_methods(what: object) -> list[str]:
    """Methods of a class that are written here, not inherited from scikit-learn or Python."""
    if not isinstance(what, type):
        return []
    return [
        name
        for name, method in inspect.getmembers(what, inspect.isfunction)
        if not name.startswith("_") and method.__module__.startswith("widemargin")
    ]


def examples_of(name: str) -> doctest.DocTest:
    doc = inspect.getdoc(PUBLIC[name]) or ""
    return doctest.DocTestParser().get_doctest(doc, {}, name, None, 0)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_example_runs_and_shows_what_it_says(name, request):
    if name in NEED_DATA:
        request.getfixturevalue("real")
    plt.switch_backend("Agg")
    examples, said = examples_of(name), []
    failed, tried = doctest.DocTestRunner(optionflags=OPTIONS).run(examples, out=said.append)
    plt.close("all")
    assert tried > 0, f"{name} has no example"
    assert failed == 0, "".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_explained(name):
    doc = inspect.getdoc(PUBLIC[name]) or ""
    first = doc.split("\n\n")[0]
    assert first.endswith("."), f"the first paragraph of {name} is no sentence: {first!r}"
    assert ">>>" in section(doc, "Examples"), f"{name} has no section Examples"


@pytest.mark.parametrize("name", [name for name, what in PUBLIC.items() if not is_plain_complaint(what)])
def test_every_parameter_is_documented_and_no_other(name):
    assert differences(PUBLIC[name]) == set()


@pytest.mark.parametrize("name", [name for name, what in PUBLIC.items() if hasattr(what, "fit")])
def test_fitted_attributes_are_documented_by_name(name):
    """Those that every estimator has."""
    listed = documented(PUBLIC[name].__doc__, "Attributes")
    assert {"classes_", "certificate_", "stop_reason_", "history_", "cost_", "n_iter_", "parts_"} <= set(listed)
    assert all(attribute.endswith("_") for attribute in listed)


@pytest.mark.parametrize("name", [name for name, what in PUBLIC.items() if public_methods(what)])
def test_every_method_is_explained(name):
    methods = {each: getattr(PUBLIC[name], each) for each in public_methods(PUBLIC[name])}
    assert {each for each, method in methods.items() if not inspect.getdoc(method)} == set()
    if hasattr(PUBLIC[name], "fit"):
        assert {each: differences(method) - {"self"} for each, method in methods.items() if differences(method)} == {}


# -- the readers above notice what is wrong ----------------------------------------------------------------------------


def _well(alpha, beta=1):
    """Do something.

    Parameters
    ----------
    alpha : int
        One.
    beta : int, default=1
        Two.

    Returns
    -------
    gamma : int
    """


def _badly(alpha, beta=1):
    """Do something.

    Parameters
    ----------
    alpha : int
        One.
    delta : int
        Not there.
    """


def test_missing_and_invented_parameters_are_noticed():
    assert differences(_well) == set()
    assert differences(_badly) == {"beta", "delta"}
    assert differences(lambda alpha: alpha) == {"alpha"}


def test_sections_end_where_the_next_begins():
    assert documented(_well.__doc__, "Parameters") == {"alpha": "int", "beta": "int, default=1"}
    assert documented(_well.__doc__, "Returns") == {"gamma": "int"}
    assert section(_well.__doc__, "Examples") == ""


def test_the_estimators_are_among_the_names():
    assert {"widemargin.NuMarginSVC", "widemargin.data.fetch", "widemargin.reports.plot_margins"} <= set(PUBLIC)
    assert "fit" in public_methods(widemargin.NuMarginSVC)
    assert "get_params" not in public_methods(widemargin.NuMarginSVC)
    assert is_plain_complaint(widemargin.OverlapWarning)
    assert not is_plain_complaint(widemargin.PeerLost)
