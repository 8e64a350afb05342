"""scikit-learn's whole battery, with no expected failure."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from widemargin import HardMarginSVC, NuMarginSVC


@parametrize_with_checks(
    [
        NuMarginSVC(),
        NuMarginSVC(solver="saddle", random_state=0),
        NuMarginSVC(cluster=2),
        HardMarginSVC(),
        HardMarginSVC(cluster=2),
    ]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
