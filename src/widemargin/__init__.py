"""Support vector machines that scale from a laptop to a cluster, each answer with a proof of how good it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from widemargin.estimators import BUILT_IN

if TYPE_CHECKING:
    from widemargin import data as data
    from widemargin.comm.faults import Faults as Faults
    from widemargin.estimators.debiased import DebiasedSparseSVC as DebiasedSparseSVC
    from widemargin.estimators.gossip import GossipSVC as GossipSVC
    from widemargin.estimators.hard_margin import HardMarginSVC as HardMarginSVC
    from widemargin.estimators.kernel import KernelSVC as KernelSVC
    from widemargin.estimators.kernel_cv import KernelSVCCV as KernelSVCCV
    from widemargin.estimators.kernel_path import kernel_svc_path as kernel_svc_path
    from widemargin.estimators.margin_distribution import MarginDistributionSVC as MarginDistributionSVC
    from widemargin.estimators.margin_distribution_cv import MarginDistributionSVCCV as MarginDistributionSVCCV
    from widemargin.estimators.nu_margin import NuMarginSVC as NuMarginSVC
    from widemargin.estimators.nu_margin import max_nu as max_nu
    from widemargin.estimators.nu_margin_cv import NuMarginSVCCV as NuMarginSVCCV
    from widemargin.estimators.sparse import SparseSVC as SparseSVC
    from widemargin.estimators.sparse_path import SparseSVCCV as SparseSVCCV
    from widemargin.estimators.sparse_path import sparse_svc_path as sparse_svc_path
    from widemargin.exceptions import CheckpointWarning as CheckpointWarning
    from widemargin.exceptions import DegenerateModelWarning as DegenerateModelWarning
    from widemargin.exceptions import InterruptedFitWarning as InterruptedFitWarning
    from widemargin.exceptions import ModelFileError as ModelFileError
    from widemargin.exceptions import OverlapWarning as OverlapWarning
    from widemargin.exceptions import PeerLost as PeerLost
    from widemargin.exceptions import PrecisionWarning as PrecisionWarning
    from widemargin.io.archive import load as load
    from widemargin.io.archive import save as save
    from widemargin.io.onnx import to_onnx as to_onnx
    from widemargin.ledger import Ledger as Ledger
    from widemargin.privacy_account import PrivacyAccount as PrivacyAccount
    from widemargin.problems.protocol import Certificate as Certificate
    from widemargin.reports.page import Report as Report
    from widemargin.reports.page import report as report

__version__ = "0.1.0"

# The module of each public name, which is imported when the name is first used.
_MODULES = {
    **{name: f"estimators.{module}" for name, module in BUILT_IN.items()},
    **dict.fromkeys(
        (
            "CheckpointWarning",
            "DegenerateModelWarning",
            "InterruptedFitWarning",
            "ModelFileError",
            "OverlapWarning",
            "PeerLost",
            "PrecisionWarning",
        ),
        "exceptions",
    ),
    "Certificate": "problems.protocol",
    "Faults": "comm.faults",
    "Ledger": "ledger",
    "PrivacyAccount": "privacy_account",
    "Report": "reports.page",
    "kernel_svc_path": "estimators.kernel_path",
    "load": "io.archive",
    "max_nu": "estimators.nu_margin",
    "report": "reports.page",
    "save": "io.archive",
    "sparse_svc_path": "estimators.sparse_path",
    "to_onnx": "io.onnx",
}

__all__ = sorted([*_MODULES, "data"])


def __getattr__(name: str) -> Any:
    if name == "data":
        return import_module("widemargin.data")
    if name in _MODULES:
        return getattr(import_module(f"widemargin.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
