"""The page about a fitted model: that its numbers are those of the fit, for every estimator, and that it is safe."""

from __future__ import annotations

import pickle
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.problems_at_hand import overlapping, separable
from widemargin import (
    DebiasedSparseSVC,
    DegenerateModelWarning,
    Faults,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    KernelSVCCV,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    SparseSVCCV,
    report,
)
from widemargin.data import make_sparse_gaussians
from widemargin.estimators.words import bounds_in_words
from widemargin.reports import _reproduce
from widemargin.reports._html import Html, render
from widemargin.reports._scores import Scored
from widemargin.reports._svg import _VARIABLES as PLACEHOLDERS
from widemargin.strategies.parts import Parts

pytest.importorskip("matplotlib", reason="needs the plot extra")

VOID = {"meta", "link"}
HOSTILE = ["<script>alert(1)</script>", '$\\frac{1$ & "quoted" \' \x00\x1b']


class Page(HTMLParser):
    """What a browser would find: elements, their attributes, and the text of each section."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.sections, self.at = [], [], {}, None
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "section":
            self.at = dict(attributes)["id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} closes another element"

    def handle_data(self, data):
        self.sections[self.at] = self.sections.get(self.at, "") + data + " "

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)

    def text(self, section):
        return " ".join(self.sections[section].split())


def assert_sound(page):
    """It loads nothing, runs nothing, and every id is there once."""
    seen = Page(page)
    assert not {"script", "img", "iframe", "object", "base", "form"} & {name for name, _ in seen.elements}
    ids = [given["id"] for _, given in seen.elements if "id" in given]
    assert len(ids) == len(set(ids))
    for name, given in seen.elements:
        assert not [each for each in given if each.startswith("on")], f"{name} {given}"
        for value in (given.get("href"), given.get("src")):
            is_here = value is None or value.startswith(("data:,", "data:image/png"))
            assert is_here or (value.startswith("#") and value[1:] in ids), value
        for value in re.findall(r"url\(([^)]*)\)", " ".join(filter(None, given.values()))):
            assert value.startswith("#"), value
            assert value[1:] in ids, value
    assert not [colour for colour in PLACEHOLDERS if colour in page], "a placeholder for a colour is left"
    assert len(page) < 1e6
    return seen


def test_the_watch_for_unsound_pages_finds_them():
    for wrong in ("<script></script>", "<img src='http://a.b/c'>", "<p id='a'></p><p id='a'></p>", "<a href='#x'></a>"):
        with pytest.raises(AssertionError):
            assert_sound(wrong)
    with pytest.raises(AssertionError, match="closes another"):
        Page("<p><b></p></b>")


@pytest.fixture(scope="module")
def rows():
    X, y = overlapping(0, n=120)
    return X, np.where(y > 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted(rows):
    """A model of each kind, by name, fitted when first asked for."""
    X, y = rows
    apart, noisy = separable(0), make_sparse_gaussians(600, 8, random_state=0)[:2]  # both bounds need an overlap
    kinds = {
        "hard": lambda: (HardMarginSVC().fit(*apart), *apart),
        "nu": lambda: (NuMarginSVC().fit(X, y), X, y),
        "kernel": lambda: (KernelSVC(C=10.0).fit(X, y), X, y),
        "kernel, chosen": lambda: (KernelSVCCV(Cs=3, gammas=3, cv=3).fit(X, y), X, y),
        "slack": lambda: (KernelSVC(slack=0.1, random_state=0).fit(X, y), X, y),
        "margin distribution": lambda: (MarginDistributionSVC(C=100.0).fit(X, y), X, y),
        "sparse": lambda: (SparseSVC().fit(X, y), X, y),
        "sparse, chosen": lambda: (SparseSVCCV(n_alphas=4, cv=3).fit(X, y), X, y),
        "debiased": lambda: (DebiasedSparseSVC(cluster=2).fit(*noisy), *noisy),
        "gossip": lambda: (GossipSVC(alpha=0.05, n_peers=5).fit(X, y), X, y),
        "three classes": lambda: (NuMarginSVC().fit(*load_iris(return_X_y=True)), *load_iris(return_X_y=True)),
    }
    found = {}
    return lambda name: found[name] if name in found else found.setdefault(name, kinds[name]())


KINDS = {
    "hard": {"features"},
    "nu": {"features"},
    "kernel": set(),
    "kernel, chosen": {"search"},
    "slack": set(),
    "margin distribution": set(),
    "sparse": {"features"},
    "sparse, chosen": {"features"},
    "debiased": {"features"},
    "gossip": {"features", "network"},
    "three classes": {"features", "parts"},
}
ALWAYS = {"certificate", "problem", "convergence", "scores", "size", "cost", "reproduce"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_estimator_has_its_sections_and_its_own_numbers(fitted, kind):
    model, X, y = fitted(kind)
    made = report(model, X, y)
    page = assert_sound(made.html)
    assert set(page.sections) - {None} == ALWAYS | KINDS[kind]
    for bound in bounds_in_words(model.certificate_):
        assert bound in page.text("certificate")
    assert f"accuracy {model.score(X, y):.4f}" in page.text("scores")
    assert type(model).__name__ in page.text("reproduce")
    assert page.count("figure") == page.count("svg") >= 1
    for name, given in page.elements:
        if name == "svg":
            assert given["role"] == "img"
            assert len(given["aria-label"]) > 20
            assert {"width", "height"}.isdisjoint(given)  # the page says how large it is


@pytest.mark.parametrize("kind", ["kernel", "gossip", "debiased"])
def test_a_model_without_rows_has_all_but_the_scores(fitted, kind):
    page = assert_sound(report(fitted(kind)[0]).html)
    assert set(page.sections) - {None} == (ALWAYS | KINDS[kind]) - {"scores"}


def test_a_page_about_a_useless_model_begins_with_the_warning():
    X, y = overlapping(0, n=60)
    with pytest.warns(DegenerateModelWarning):
        model = SparseSVC(alpha=50.0).fit(X, y)
    page = assert_sound(report(model, X, y).html)
    assert "Warning: SparseSVC has no coefficient and gives class" in page.text(None)  # before the first section
    assert ("p", {"class": "verdict open", "role": "alert"}) in page.elements
    assert "verdict good" not in report(model).html
    good = report(KernelSVC().fit(*separable(0))).html
    assert "Warning" not in good
    assert "verdict good" in good


def test_the_largest_class_stands_beside_every_accuracy(fitted):
    model, X, y = fitted("three classes")
    page = assert_sound(report(model, X, y).html)
    assert "training accuracy" in page.text("certificate")
    assert "largest class alone 33.33%" in page.text("certificate")
    assert page.text("scores").count("(largest class alone: 0.3333)") == 2  # also of the balanced accuracy


def test_the_confusion_matrix_is_that_of_the_rows_given(fitted):
    model, X, y = fitted("three classes")
    text = assert_sound(report(model, X, y).html).text("scores")
    matrix = confusion_matrix(y, model.predict(X))
    for name, line in zip("012", matrix, strict=True):
        assert f"{name} {' '.join(map(str, line))}" in text
    assert f"{(y != model.predict(X)).sum()} of 150" in text


def test_rows_go_through_the_steps_of_a_pipeline(rows):
    X, y = rows
    X = X * [1, 10, 100, 1000]
    model = make_pipeline(StandardScaler(), KernelSVC(C=3.0)).fit(X, y)
    page = assert_sound(report(model, X, y).html)
    assert f"accuracy {model.score(X, y):.4f}" in page.text("scores")
    assert "StandardScaler()" in page.text("problem")


@pytest.mark.parametrize("kind", ["kernel", "sparse", "gossip", "three classes"])
def test_the_lines_at_the_end_fit_the_same_model_again(fitted, kind):
    model, X, y = fitted(kind)
    found = {"X": X, "y": y}
    exec(_reproduce.code(model), found)
    np.testing.assert_array_equal(found["model"].decision_function(X), model.decision_function(X))


def test_the_lines_at_the_end_hold_pipelines_faults_and_what_cannot_be_typed(rows):
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), KernelSVC(C=np.float64(2), class_weight={"yes": 2, "no": 1}))
    found = {"X": X, "y": y}
    exec(_reproduce.code(pipeline), found)
    assert [name for name, _ in found["model"].steps] == [name for name, _ in pipeline.steps]
    assert found["model"][-1].get_params() == pipeline[-1].get_params()
    lines = _reproduce.code(GossipSVC(faults=Faults(drop=0.2, crash={2: 20}), topology=[(0, 1), (1, 2)]))
    assert "from widemargin import Faults, GossipSVC" in lines
    call = lines.splitlines()[-1].removeprefix("model = ").removesuffix(".fit(X, y)")
    assert eval(call, {"GossipSVC": GossipSVC, "Faults": Faults}).faults == Faults(drop=0.2, crash={2: 20})
    folds = StratifiedKFold(3, shuffle=True, random_state=7)
    exec(_reproduce.code(KernelSVCCV(Cs=[1.0], gammas=[1.0], cv=folds)), found)
    assert repr(found["model"].cv) == repr(folds)
    assert "# cv: KFold" in _reproduce.code(
        KernelSVCCV(cv=KFold(3, shuffle=True, random_state=np.random.RandomState(0)))
    )
    lines = _reproduce.code(KernelSVC(kernel=np.dot))
    assert "KernelSVC(kernel=kernel)" in lines
    assert "# kernel: <" in lines


def test_names_and_labels_are_text_wherever_they_stand(rows):
    pandas = pytest.importorskip("pandas")
    X, _ = overlapping(0, n=120, d=2)
    y = np.where(X.sum(axis=1) > 0, "<img src=x onerror=alert(1)>", "</style><script>$a$")
    frame = pandas.DataFrame(X, columns=HOSTILE)
    for model in (SparseSVC(alpha=0.01), DebiasedSparseSVC(alpha=0.01)):
        model.fit(frame, y)
        made = report(model, frame, y, title="</title><script>alert(2)</script>\ud800")
        page = assert_sound(made.html)
        assert "<script>alert(1)</script>" in page.text("features")
        assert "\ufffd" in page.text("features")  # what no page can hold
        assert "<img src=x onerror=alert(1)>" in page.text("problem")
        assert made.html.encode("utf8")


def test_templates_escape_all_but_markup():
    text = render("page.html.j2", title="<b>\x00", about=Html("<i>kind</i>"), made="", sections=[])
    assert "<h1>&lt;b&gt;\ufffd</h1>" in text
    assert "<i>kind</i>" in text


def test_a_parameter_may_say_anything():
    class Odd(dict):
        def __repr__(self):
            return "</code><script>alert(3)</script>"

    X, y = overlapping(0, n=40)
    page = assert_sound(report(KernelSVC(class_weight=Odd({-1: 1, 1: 2})).fit(X, y)).html)
    assert "</code><script>alert(3)</script>" in page.text("problem")


def test_what_ended_early_or_has_no_proof_says_so(rows):
    X, y = rows
    with pytest.warns(UserWarning, match="max_iter"):
        early = KernelSVC(C=1e4, max_iter=1, cluster=2).fit(X, y)
    text = assert_sound(report(early, X, y).html).text("certificate")
    assert "max_iter sweeps were done before the gap reached tol" in text
    with pytest.warns(UserWarning, match="max_iter"):
        blind = GossipSVC(alpha=0.05, n_peers=8, max_iter=2).fit(X, y)
    page = assert_sound(report(blind, X, y).html)
    assert "Nothing is proved" in page.text("certificate")
    assert "lower bound 0" not in page.text("certificate")
    unbounded = KernelSVC(kernel="sigmoid").fit(X, y)
    page = assert_sound(report(unbounded, X, y).html)
    assert "there is no lower bound" in page.text("certificate")
    assert "inf" not in page.text("convergence")


def test_models_that_were_kept_or_know_less_of_themselves_have_a_page(fitted):
    for kind in ("kernel", "gossip", "three classes"):
        model, X, y = fitted(kind)
        model = pickle.loads(pickle.dumps(model))
        assert_sound(report(model, X, y).html)
        for name in ("history_", "cost_", "parts_", "certificate_", "stop_reason_"):
            delattr(model, name)
        if kind != "gossip":  # which is drawn from its history
            page = assert_sound(report(model, X, y).html)
            assert "no certificate" in page.text("certificate")
            assert "not recorded" in page.text("cost")


def test_one_round_on_several_machines_has_points_and_no_intervals(rows):
    page = assert_sound(report(DebiasedSparseSVC(rounds=1, cluster=2).fit(*rows)).html)
    assert "p-value" not in page.text("features")
    assert "leaves a bias, so that there are no intervals" in page.text("features")


def test_many_rows_and_many_classes_stay_small():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 40, size=60_000)
    scores = rng.normal(size=(60_000, 40))
    scored = Scored(np.arange(40), scores, codes, Parts(40, "rest"))
    content = scored.content()
    assert "most frequent confusions" in content["confusion"].caption
    assert sum(len(content[name].rows) for name in ("confusion", "by_class")) <= 55
    assert len(scored.margins().figure.axes[0].get_yticklabels()) == 20


def test_names_of_classes_are_whole_in_tables_and_headings():
    rng = np.random.default_rng(0)
    names = [f"a class with a name of usual length, number {k}" for k in range(3)]
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 2 * np.eye(3)[y]
    page = assert_sound(report(NuMarginSVC().fit(X, np.array(names)[y]), X, np.array(names)[y]).html)
    for name in names:
        assert page.text("scores").count(name) >= 2  # the confusion matrix, and the table by class
        assert f"{names[0]} against {name}" in page.text("parts") or name == names[0]
        assert name in page.text("features")


def test_debiased_features_are_sorted_by_z_and_have_adjusted_p_values():
    frame = load_iris(as_frame=True)
    model = make_pipeline(StandardScaler(), DebiasedSparseSVC()).fit(frame.data, frame.target == 1)
    text = Page(report(model).html).text("features")
    lines = model[-1].summary(frame.data.columns).frame()
    places = [text.index(f"{name} ") for name in lines.index]
    assert places == sorted(places)
    assert "p-value BH interval" in text
    assert "by Benjamini-Hochberg" in text


def test_what_cannot_be_reported_is_said_before_any_work(fitted):
    model, X, y = fitted("kernel")
    with pytest.raises(TypeError, match="LogisticRegression"):
        report(LogisticRegression())
    with pytest.raises(NotFittedError):
        report(KernelSVC(), X, y)
    with pytest.raises(ValueError, match="y is None"):
        report(model, X)
    with pytest.raises(ValueError, match=r"labels \['perhaps'\]"):
        report(model, X, np.where(y == "yes", "yes", "perhaps"))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        report(model, X, y[:-1])
    with pytest.raises(ValueError, match="no rows"):
        report(model, X[:0], y[:0])


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_a_package_the_extra_is_named(fitted, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"A report needs {package}: pip install 'widemargin\[plot\]'"):
        report(fitted("kernel")[0])


def test_the_style_of_the_user_neither_enters_nor_changes(fitted):
    import matplotlib

    model, X, y = fitted("nu")
    before = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", report(model, X, y).html)
    with matplotlib.rc_context({"text.color": "#ff00ff", "font.size": 30}):
        after = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", report(model, X, y).html)
        assert matplotlib.rcParams["font.size"] == 30
    assert before == after  # and the same model gives the same page


def test_it_is_saved_and_shown_in_a_frame_of_its_own(fitted, tmp_path):
    made = report(fitted("kernel")[0], title="Caf\u00e9 <1>")
    assert made.save(tmp_path / "page.html").read_text(encoding="utf8") == made.html
    assert "<title>Caf\u00e9 &lt;1&gt;</title>" in made.html
    ((name, given),) = Page(made._repr_html_()).elements
    assert name == "iframe"
    assert given["srcdoc"] == made.html
    assert given["title"] == "Caf\u00e9 <1>"
    assert "sandbox" in given
    with pytest.raises(ValueError, match="which is not a folder"):
        made.save(tmp_path / "nowhere" / "page.html")
    with pytest.raises(ValueError, match="is a folder"):
        made.save(tmp_path)


@pytest.mark.parametrize("before", [StandardScaler(), PCA(2)], ids=["scaler", "other features"])
def test_features_have_the_names_that_the_steps_before_give_them(before):
    frame = load_iris(as_frame=True)
    model = make_pipeline(before, HardMarginSVC()).fit(frame.data, frame.target == 0)
    text = Page(report(model).html).text("features")
    expected = list(frame.data.columns) if isinstance(before, StandardScaler) else ["pca0", "pca1"]
    assert all(name in text for name in expected)
