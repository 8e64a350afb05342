"""Tables of coefficients: all linear models have them, with names, sorted, as text, pandas and HTML."""

from __future__ import annotations

import builtins
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators.toy import ToySVC
from tests.problems_at_hand import overlapping
from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    KernelSVCCV,
    MarginDistributionSVC,
    MarginDistributionSVCCV,
    NuMarginSVC,
    NuMarginSVCCV,
    SparseSVC,
    SparseSVCCV,
)

LINEAR = {
    "hard margin": HardMarginSVC(),
    "nu": NuMarginSVC(),
    "nu, searched": NuMarginSVCCV(nus=2, refine=False),
    "C-SVM": KernelSVC(kernel="linear"),
    "C-SVM, batch perceptron": KernelSVC(kernel="linear", solver="batch-perceptron", random_state=0),
    "C-SVM, searched": KernelSVCCV(kernel="linear", Cs=2, refine=False),
    "margin distribution": MarginDistributionSVC(kernel="linear"),
    "margin distribution, dual": MarginDistributionSVC(kernel="linear", solver="dual-descent"),
    "margin distribution, searched": MarginDistributionSVCCV(kernel="linear", Cs=2, refine=False),
    "sparse": SparseSVC(),
    "sparse, searched": SparseSVCCV(n_alphas=5),
    "debiased": DebiasedSparseSVC(),
    "gossip": GossipSVC(alpha=1e-2),
    "one's own": ToySVC(),
}


@pytest.fixture(autouse=True)
def text_as_wide_as_without_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def fitted(name, n_classes=2):
    X, y = overlapping(0, n=90)
    if n_classes == 3:
        y = np.array(["low", "middle", "high"])[np.digitize(X[:, 1], [-0.5, 1.0])]
    frame = pd.DataFrame(X, columns=["age", "height", "weight", "dose"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LINEAR[name].fit(frame, y)


@pytest.mark.parametrize("name", LINEAR)
def test_every_linear_model_has_a_table_of_its_coefficients(name):
    model = fitted(name)
    table = model.summary()
    lines = table.frame()
    assert sorted(lines.index) == ["age", "dose", "height", "weight"]
    np.testing.assert_array_equal(lines["coef"].loc[list(model.feature_names_in_)], model.coef_[0])
    size = lines["z" if "z" in lines else "coef"].abs()
    assert size.is_monotonic_decreasing
    text, html = str(table), table._repr_html_()
    assert text.splitlines()[0] == f"{type(model).__name__}: class 1.0 against -1.0"
    assert "in favour of class 1.0" in text
    for shown in (text, html):
        assert all(feature in shown for feature in lines.index[lines["coef"] != 0])
    assert model.summary(sort=False).frame().index.tolist() == list(model.feature_names_in_)


@pytest.mark.parametrize("name", LINEAR)
def test_several_classes_have_a_table_for_each_problem(name):
    model = fitted(name, n_classes=3)
    tables = model.summary()
    pairs = [f"{model.classes_[i]} against {model.classes_[j]}" for i, j in ((0, 1), (0, 2), (1, 2))]
    rest = [f"{each} against the rest" for each in model.classes_]
    assert tables.names == (pairs if model._parts.multi_class == "pairs" else rest)
    assert len(tables) == 3
    for k, table in enumerate(tables):
        assert f"class {tables.names[k]}" in str(table).splitlines()[0]
        assert f"class {tables.names[k]}" in str(tables)
        assert f"class {tables.names[k]}" in tables._repr_html_()
        of_problem = tables.frame().loc[tables.names[k]]
        np.testing.assert_array_equal(of_problem["coef"].loc[list(model.feature_names_in_)], model.coef_[k])


def test_a_positive_coefficient_is_in_favour_of_the_class_that_is_named():
    """Of three pairs and of one against the rest: rows with more of the feature score higher for that class."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for model in (KernelSVC(kernel="linear"), SparseSVC(alpha=1e-3), GossipSVC(alpha=1e-2)):
        for table in model.fit(X, names).summary():
            favoured = table.notes[-1].removeprefix("Positive coefficients are in favour of class ").rstrip(".")
            others = set(table.title.removeprefix(f"{type(model).__name__}: class ").split(" against ")) - {favoured}
            against = names != favoured if "the rest" in others else names == others.pop()
            lines = table.frame()
            coef = lines["coef"].loc[[f"x{k}" for k in range(4)]].to_numpy()
            assert (X[names == favoured] @ coef).mean() > (X[against] @ coef).mean()


def test_many_problems_are_cut_and_counted():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 5
    X = rng.normal(size=(150, 3)) + np.eye(5)[y][:, :3] * 3
    tables = NuMarginSVC().fit(X, y).summary()
    assert len(tables) == 10
    assert str(tables).count("NuMarginSVC: class") == tables._repr_html_().count("NuMarginSVC: class") == 6
    assert "... and 4 more problems" in str(tables)
    assert "... and 4 more problems" in tables._repr_html_()
    assert len(tables.frame()) == 30
    assert [table.title for table in tables[-2:]] == [tables[8].title, tables[9].title]


def test_zeros_are_counted_and_not_listed():
    X = np.random.default_rng(0).normal(size=(90, 40))
    model = SparseSVC(alpha=0.1).fit(X, X[:, 0] + X[:, 3] > 0)
    text = str(model.summary())
    assert 0 < model.n_features_selected_ < 25
    assert f"{40 - model.n_features_selected_} features have a coefficient of exactly 0" in text
    assert len([line for line in text.splitlines() if line.startswith("x")]) == model.n_features_selected_
    assert len(model.summary().frame()) == 40


def test_long_tables_are_cut_and_say_what_is_missing():
    X, y = overlapping(0, n=90, d=40)
    table = NuMarginSVC().fit(X, y).summary()
    assert "... and 15 more, with smaller coefficients" in str(table)
    assert "... and 15 more, with smaller coefficients" in table._repr_html_()
    assert table._repr_html_().count("<tr>") == 26


def test_the_certificate_and_what_a_search_chose_are_below():
    model = fitted("C-SVM, searched")
    assert f"Chosen by cross-validation: C={model.best_params_['C']:.4g}" in " ".join(str(model.summary()).split())
    assert "best possible" in " ".join(str(fitted("C-SVM").summary()).split())
    three = fitted("C-SVM", n_classes=3).summary()
    assert str(three).count("best possible") == 1  # it is that of the worst


# -- names -------------------------------------------------------------------------------------------------------------


def test_unnamed_features_are_numbered_from_0_as_in_scikit_learn():
    X, y = overlapping(0)
    model = NuMarginSVC().fit(X, y)
    scaler = StandardScaler().fit(X)
    assert sorted(model.summary().frame().index) == scaler.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]


def test_the_last_step_of_a_pipeline_gets_its_names():
    X, y = overlapping(0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = make_pipeline(StandardScaler(), NuMarginSVC()).fit(frame, y)
    table = pipeline[-1].summary(pipeline[:-1].get_feature_names_out())
    assert sorted(table.names) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature_names has 3 names, and NuMarginSVC was fitted to 4 features"):
        pipeline[-1].summary(["a", "b", "c"])


def test_names_are_text_and_no_markup():
    X, y = overlapping(0)
    html = NuMarginSVC().fit(X, np.where(y > 0, "<i>yes</i>", "no")).summary(["<b>", "b", "c", "d"])._repr_html_()
    assert "&lt;b&gt;" in html
    assert "&lt;i&gt;yes" in html
    assert "<i>" not in html


def test_long_names_are_whole():
    X, y = overlapping(0)
    name = "mean concentration of the substance after forty days"
    assert name in str(NuMarginSVC().fit(X, y).summary([name, "b", "c", "d"]))


# -- models without ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [KernelSVC(), GossipSVC(kernel="rbf"), MarginDistributionSVC(), KernelSVCCV(Cs=1, gammas=1)]
)
def test_kernel_models_have_no_table_and_say_what_to_use(model):
    with pytest.raises(NotFittedError):
        model.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*overlapping(0))
    with pytest.raises(ValueError, match=r"with kernel='rbf' has no coefficients.*permutation_importance"):
        model.summary()


def test_the_kernel_that_counts_is_that_of_the_fit():
    model = KernelSVC(kernel="linear").fit(*overlapping(0)).set_params(kernel="rbf")
    assert len(model.summary().names) == 4


def test_a_linear_margin_distribution_machine_says_who_keeps_its_dual_coefficients():
    model = fitted("margin distribution")
    assert not hasattr(model, "dual_coef_")
    with pytest.raises(AttributeError, match=r"no support_: with kernel='linear' nearly every row.*dual-descent"):
        _ = model.support_
    with pytest.raises(AttributeError, match="'MarginDistributionSVC' object has no attribute 'nothing'"):
        _ = model.nothing
    with pytest.raises(AttributeError, match="object has no attribute 'support_'"):
        _ = MarginDistributionSVC(kernel="linear").support_
    both, X = fitted("margin distribution, dual"), overlapping(0, n=90)[0]
    np.testing.assert_allclose(both.dual_coef_ @ X[both.support_], both.coef_, rtol=1e-9)


# -- figures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_figures_tell_coefficients_apart_at_any_scale(scale):
    X, y = overlapping(0)
    model = NuMarginSVC().fit(X / scale, y)
    lines = [line.split() for line in str(model.summary()).splitlines() if line.startswith("x")]
    found = {name: float(value) for name, value in lines}
    largest = np.abs(model.coef_[0]).max()
    for k, coef in enumerate(model.coef_[0]):
        assert found[f"x{k}"] == pytest.approx(coef, abs=1e-3 * largest)


def test_a_zero_is_not_a_tiny_coefficient():
    X, y = overlapping(0)
    model = NuMarginSVC().fit(X, y)
    model.coef_ = np.array([[1.0, 1e-9, 0.0, -2e-7]])
    lines = [line.split() for line in str(model.summary()).splitlines() if line.startswith("x")]
    assert lines == [["x0", "1.000"], ["x3", "-2.0e-07"], ["x1", "1.0e-09"]]


def test_columns_that_a_narrow_terminal_has_no_room_for_are_named(monkeypatch):
    model = fitted("debiased")
    wide = str(model.summary())
    monkeypatch.setenv("COLUMNS", "60")
    narrow = str(model.summary())
    rows = [line for line in narrow.splitlines() if line.startswith(("age", "dose", "feature"))]
    assert len(max(rows, key=len)) < len(max(wide.splitlines(), key=len))
    assert "Columns that do not fit this width: coef, std err, Holm" in " ".join(narrow.split())
    assert "std err" in wide
    assert "do not fit" not in wide
    assert "std err" in model.summary()._repr_html_()


def test_without_pandas_the_table_prints_and_frame_says_what_is_missing(monkeypatch):
    model = fitted("debiased")
    imports = builtins.__import__

    def without_pandas(name, *args, **options):
        if name.split(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return imports(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    table = model.summary()
    assert "age" in str(table)
    assert "age" in table._repr_html_()
    assert table.columns["coef"].shape == (4,)
    with pytest.raises(ImportError, match="needs pandas: pip install pandas"):
        table.frame()
