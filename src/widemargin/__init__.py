"""Support vector machines that scale from a laptop to a cluster, each answer with a proof of how good it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widemargin import data
    from widemargin.comm.faults import Faults
    from widemargin.estimators.debiased import DebiasedSparseSVC
    from widemargin.estimators.gossip import GossipSVC
    from widemargin.estimators.hard_margin import HardMarginSVC
    from widemargin.estimators.kernel import KernelSVC
    from widemargin.estimators.margin_distribution import MarginDistributionSVC
    from widemargin.estimators.nu_margin import NuMarginSVC, max_nu
    from widemargin.estimators.sparse import SparseSVC
    from widemargin.estimators.sparse_path import SparseSVCCV, sparse_svc_path
    from widemargin.exceptions import (
        InterruptedFitWarning,
        ModelFileError,
        OverlapWarning,
        PeerLost,
        PrecisionWarning,
    )
    from widemargin.io.archive import load, save
    from widemargin.io.onnx import to_onnx
    from widemargin.ledger import Ledger
    from widemargin.problems.protocol import Certificate
    from widemargin.reports.page import Report, report

__version__ = "0.1.0"

# Where each public name lives; it is imported when first asked for, so that importing the package costs nothing.
_HOMES = {
    "Certificate": "widemargin.problems.protocol",
    "DebiasedSparseSVC": "widemargin.estimators.debiased",
    "Faults": "widemargin.comm.faults",
    "GossipSVC": "widemargin.estimators.gossip",
    "HardMarginSVC": "widemargin.estimators.hard_margin",
    "InterruptedFitWarning": "widemargin.exceptions",
    "KernelSVC": "widemargin.estimators.kernel",
    "Ledger": "widemargin.ledger",
    "MarginDistributionSVC": "widemargin.estimators.margin_distribution",
    "ModelFileError": "widemargin.exceptions",
    "NuMarginSVC": "widemargin.estimators.nu_margin",
    "OverlapWarning": "widemargin.exceptions",
    "PeerLost": "widemargin.exceptions",
    "PrecisionWarning": "widemargin.exceptions",
    "Report": "widemargin.reports.page",
    "SparseSVC": "widemargin.estimators.sparse",
    "SparseSVCCV": "widemargin.estimators.sparse_path",
    "load": "widemargin.io.archive",
    "max_nu": "widemargin.estimators.nu_margin",
    "report": "widemargin.reports.page",
    "save": "widemargin.io.archive",
    "sparse_svc_path": "widemargin.estimators.sparse_path",
    "to_onnx": "widemargin.io.onnx",
}

__all__ = [
    "Certificate",
    "DebiasedSparseSVC",
    "Faults",
    "GossipSVC",
    "HardMarginSVC",
    "InterruptedFitWarning",
    "KernelSVC",
    "Ledger",
    "MarginDistributionSVC",
    "ModelFileError",
    "NuMarginSVC",
    "OverlapWarning",
    "PeerLost",
    "PrecisionWarning",
    "Report",
    "SparseSVC",
    "SparseSVCCV",
    "data",
    "load",
    "max_nu",
    "report",
    "save",
    "sparse_svc_path",
    "to_onnx",
]


def __getattr__(name: str) -> Any:
    if name == "data":
        return import_module("widemargin.data")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
