"""scikit-learn classes, one file each, which is imported when the class is first used."""

# The module of every built-in estimator; its descriptor stands there, too.
BUILT_IN = {
    "HardMarginSVC": "hard_margin",
    "NuMarginSVC": "nu_margin",
    "NuMarginSVCCV": "nu_margin_cv",
    "KernelSVC": "kernel",
    "KernelSVCCV": "kernel_cv",
    "MarginDistributionSVC": "margin_distribution",
    "MarginDistributionSVCCV": "margin_distribution_cv",
    "SparseSVC": "sparse",
    "SparseSVCCV": "sparse_path",
    "DebiasedSparseSVC": "debiased",
    "GossipSVC": "gossip",
}
