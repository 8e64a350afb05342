"""What a fit says of itself: true to its certificate, and in notebooks beside scikit-learn's own diagram."""

from __future__ import annotations

import re

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

from tests.problems_at_hand import overlapping, separable
from widemargin import Certificate, GossipSVC, HardMarginSVC, KernelSVC, Ledger, NuMarginSVC
from widemargin.estimators.words import (
    amount,
    bounds_in_words,
    certificate_in_words,
    cost_in_words,
    duration,
    is_proved,
    percent,
    stop_in_words,
)
from widemargin.problems.protocol import gap_as_text


@pytest.fixture(scope="module")
def model():
    return KernelSVC().fit(*overlapping(0))


def with_certificate(primal, dual, kind=KernelSVC, **given):
    model = kind(**given)
    model.certificate_ = Certificate(primal, dual)
    return model


def test_the_sentence_is_of_what_the_certificate_brackets():
    assert certificate_in_words(with_certificate(2.0, 1.9986)) == (
        "The optimum lies between 1.9986 and 2: this model is within 0.071% of the best possible."
    )
    assert certificate_in_words(with_certificate(91.0, 2.5)).endswith("at most 37 times the best possible.")
    assert certificate_in_words(with_certificate(2.0, 0.5, NuMarginSVC)).endswith("this model is at least 25% of it.")
    assert certificate_in_words(with_certificate(2.0, 1.9, NuMarginSVC)).startswith("The widest possible margin lies")
    assert "level" in certificate_in_words(with_certificate(2.0, 1.9, slack=0.1))
    assert "every peer" in certificate_in_words(with_certificate(2.0, 1.9, GossipSVC))

    class Mine(HardMarginSVC):
        pass

    assert "margin" in certificate_in_words(with_certificate(2.0, 1.9, Mine))


def test_the_worst_of_several_problems_is_named_as_such():
    X, _ = overlapping(0, n=60)
    three = NuMarginSVC().fit(X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0))
    assert "Of 3 pairs of classes this is the one with the largest gap." in certificate_in_words(three)


def test_equal_bounds_are_optimal_and_absent_ones_prove_nothing():
    assert "no model has a better objective" in certificate_in_words(with_certificate(2.0, 2.0))
    assert "no model has a better objective" in certificate_in_words(with_certificate(0.0, 0.0))
    assert "no model has a better margin" in certificate_in_words(with_certificate(2.0, 2.0, NuMarginSVC))
    for primal, dual in ((2.0, 0.0), (2.0, -1.0), (2.0, -float("inf")), (float("nan"), 1.0)):
        without = with_certificate(primal, dual)
        assert not is_proved(without)
        assert "Nothing is proved" in certificate_in_words(without)
    assert "nothing is proved" in certificate_in_words(KernelSVC())


@pytest.mark.parametrize("relative", [0.3, 1e-2, 1e-4, 1e-6, 1e-9])
def test_bounds_have_the_digits_that_tell_them_apart_and_no_more(relative):
    low, high = bounds_in_words(Certificate(3.7, 3.7 * (1 - relative)))
    assert float(low) < float(high)
    assert (float(high) - float(low)) / 3.7 == pytest.approx(relative, rel=0.2)
    assert len(low) <= 14


@pytest.mark.parametrize("primal", [2.47896086123, 0.1, 1 / 3, 4.0, 123456.789])
@pytest.mark.parametrize("n_ulps", [0, 1, 3, 40])
def test_bounds_that_differ_by_rounding_are_printed_as_they_are(primal, n_ulps):
    """Nine digits, rounded outwards, would look like a gap of 1e-9."""
    dual = primal
    for _ in range(n_ulps):
        dual = float(np.nextafter(dual, 0))
    low, high = bounds_in_words(Certificate(primal, dual))
    assert (float(low), float(high)) == (dual, primal)


def test_a_gap_over_1_is_no_number_to_compare():
    """At overlap the lower bound of a distance is negative, and the gap in units of the tiny upper one is huge."""
    assert gap_as_text(5.4e13) == gap_as_text(1.0) == gap_as_text(float("inf")) == "1 or more"
    assert gap_as_text(0.999) == "9.99e-01"
    assert gap_as_text(4.25e-4, 1) == "4.2e-04"
    assert percent(5.4e13) == "over 100%"


@pytest.mark.parametrize("seed", range(20))
def test_what_is_printed_is_proved_too(seed):
    """Rounded outwards: printed bounds hold the proved ones, and a printed gap is no smaller than the proved one."""
    rng = np.random.default_rng(seed)
    primal = float(rng.lognormal(sigma=5))
    proof = Certificate(primal, primal * (1 - 10 ** rng.uniform(-7, -0.1)))
    for low, high in (bounds_in_words(proof), proof.as_text(), proof.as_text(3)):
        assert float(low) <= proof.dual <= proof.primal <= float(high)
    assert proof.relative * (1 - 1e-12) <= float(percent(proof.relative)[:-1]) / 100 <= 1.1 * proof.relative


def test_numbers_are_as_one_reads_them():
    assert [percent(value) for value in (1.0, 0.1, 0.00071, 2.6e-7, 1e-12)] == [
        "100%",
        "10%",
        "0.071%",
        "0.000026%",
        "less than 0.000001%",
    ]
    assert [duration(value) for value in (2e-6, 0.0125, 3.14159, 600)] == ["2 µs", "12.5 ms", "3.14 s", "10 min"]
    assert [amount(value) for value in (0, 999, 2500, 3.2e6, 5e9)] == ["0 B", "999 B", "2.5 kB", "3.2 MB", "5 GB"]


def test_the_cost_has_what_was_spent_and_nothing_else():
    spent = Ledger(messages=1200, bytes=9600, lost_peers=1, seconds={"sweep": 1.5, "start": 0.5})
    assert cost_in_words(spent) == [
        ("time", "2 s"),
        ("messages", "1,200"),
        ("sent", "9.6 kB"),
        ("machines lost", "1"),
    ]
    assert cost_in_words(Ledger()) == []


def test_the_time_of_compilation_stands_beside_that_of_the_work():
    spent = Ledger(seconds={"sweep": 0.2, "compile": 18.5, "start": 0.073})
    assert cost_in_words(spent) == [("time", "273 ms"), ("compilation", "18.5 s")]
    assert cost_in_words(Ledger(seconds={"sweep": 0.2, "compile": 0.01})) == [("time", "200 ms")]


def test_every_reason_to_stop_that_a_docstring_names_is_explained():
    import widemargin

    kinds = [getattr(widemargin, name) for name in widemargin.__all__ if name.endswith(("SVC", "SVCCV"))]
    found = set()
    for kind in kinds:
        told = re.search(r"stop_reason_ : str\n(.*?)\n    history_", kind.__doc__, re.DOTALL)
        found |= set(re.findall(r'``"(\w+)"``', told[1])) if told else set()
    assert {"gap", "overlap", "split", "stationary"} <= found
    unfitted = KernelSVC()
    for reason in found:
        unfitted.stop_reason_ = reason
        assert stop_in_words(unfitted) != f"{reason}."


def without_numbers(page):
    """Scikit-learn numbers its diagrams."""
    return re.sub(r"id-\d+", "id", page)


def test_notebooks_show_the_diagram_and_below_it_the_fit(model):
    page = model._repr_html_()
    assert without_numbers(page).startswith(without_numbers(estimator_html_repr(model)))
    assert certificate_in_words(model) in page
    assert f"{model.cost_.kernel_evaluations:,} kernel evaluations" in page
    assert without_numbers(model._repr_mimebundle_()["text/html"]) == without_numbers(page)


def test_an_estimator_that_is_not_fitted_is_shown_as_scikit_learn_does():
    unfitted = KernelSVC(C=3)
    assert without_numbers(unfitted._repr_html_()) == without_numbers(estimator_html_repr(unfitted))
    assert "widemargin-fit" not in make_pipeline(unfitted)._repr_html_()


def test_the_configuration_of_scikit_learn_holds(model):
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_whatever_a_fit_says_is_escaped():
    model = HardMarginSVC().fit(*separable(0))
    model.stop_reason_ = "<script>alert(1)</script>"
    model.cost_.seconds = {"<b>": 1.0}
    below = model._repr_html_().split("widemargin-fit")[1]
    assert "&lt;script&gt;alert(1)" in below
    assert "<script>" not in below
