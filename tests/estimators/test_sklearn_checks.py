"""scikit-learn's whole battery; what may fail is named in the contract, with the reason, and tested in another way."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

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

# Weighted and repeated rows take different paths to the same optimum, and end anywhere within tol of it; the same at a
# tight tol: test_kernel.py::test_a_weight_is_a_number_of_copies_at_a_tight_tolerance, test_margin_distribution.py,
# test_kernel_cv.py.
ANOTHER_PATH = {
    f"check_sample_weight_equivalence_on_{kind}_data": "stops at tol on another path than repeated rows"
    for kind in ("dense", "sparse")
}


# The perceptron draws rows, and from other rows it draws others; that its bounds hold the same optimum:
# test_batch_perceptron.py::test_a_weight_is_a_number_of_copies_in_both_bounds.
OTHER_DRAWS = dict.fromkeys(ANOTHER_PATH, "draws rows at random, and others where rows are repeated")


# The same at a tight tol: test_gossip.py::test_a_weight_is_a_number_of_copies_at_a_tight_tolerance.
OTHER_PEERS = dict.fromkeys(ANOTHER_PATH, "repeated rows lie at other peers")


def expected_failures(estimator):
    if isinstance(estimator, MarginDistributionSVC):
        return ANOTHER_PATH if estimator.kernel != "linear" else {}
    if isinstance(estimator, GossipSVC):
        return OTHER_PEERS
    if isinstance(estimator, KernelSVCCV):
        return ANOTHER_PATH if estimator.kernel != "linear" else {}
    if not isinstance(estimator, KernelSVC):
        return {}
    if estimator.solver == "batch-perceptron" or estimator.slack is not None:
        return OTHER_DRAWS
    return ANOTHER_PATH if estimator.kernel != "linear" else {}


@parametrize_with_checks(
    [
        NuMarginSVC(tol=1e-7),
        NuMarginSVC(solver="saddle", random_state=0, tol=1e-7),
        NuMarginSVC(tol=1e-7, cluster=2),
        HardMarginSVC(),
        HardMarginSVC(cluster=2),
        NuMarginSVCCV(nus=3, cv=3, tol=1e-7),
        KernelSVC(),
        KernelSVC(cluster=2),
        KernelSVC(kernel="linear", tol=1e-7),
        KernelSVC(kernel="linear", tol=1e-7, cluster=2),
        KernelSVC(solver="batch-perceptron", random_state=0, max_iter=30),
        KernelSVC(solver="batch-perceptron", random_state=0, max_iter=30, cluster=2),
        KernelSVC(slack=0.05, random_state=0, max_iter=30),
        KernelSVCCV(Cs=3, gammas=2, cv=3, refine=False),
        KernelSVCCV(Cs=3, cv=2, kernel="linear", tol=1e-7),
        MarginDistributionSVC(),
        MarginDistributionSVC(cluster=2),
        MarginDistributionSVC(kernel="linear", tol=1e-12),
        MarginDistributionSVCCV(Cs=2, gammas=2, cv=3, refine=False),
        MarginDistributionSVCCV(Cs=2, cv=2, kernel="linear", tol=1e-12),
        MarginDistributionSVC(solver="partition-merge", n_partitions=2, random_state=0),
        SparseSVC(),
        SparseSVC(cluster=2),
        SparseSVCCV(n_alphas=6, cv=3),
        DebiasedSparseSVC(alpha=0.01),
        GossipSVC(n_peers=3, tol=1e-2, max_iter=100),
        GossipSVC(n_peers=2, solver="push-sum", max_iter=50),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
