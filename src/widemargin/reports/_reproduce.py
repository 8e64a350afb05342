"""How to fit the same model again: Python code, the seed, where it ran, and versions."""

from __future__ import annotations

import math
import platform
from dataclasses import is_dataclass
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold, StratifiedKFold

from widemargin import __version__
from widemargin.reports._html import shortened

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


def changed_parameters(estimator: Any) -> dict[str, Any]:
    defaults = {name: each.default for name, each in signature(type(estimator).__init__).parameters.items()}
    given = estimator.get_params(deep=False)
    # Compared as text: arrays and nan have no plain equality.
    return {name: value for name, value in given.items() if repr(value) != repr(defaults.get(name))}


def code(model: Any) -> str:
    """Python code that creates and fits the model; values that code cannot express become named comments."""
    writer = _Writer()
    call = writer.expression(model)
    imports = [f"from {home} import {', '.join(sorted(names))}" for home, names in sorted(writer.imports.items())]
    remarks = [f"# {name}: {shortened(what, 100)}" for name, what in writer.named.items()]
    return "\n".join([*imports, *remarks, f"model = {call}.fit(X, y)"])


class _Writer:
    """Writes estimators as calls, and collects the imports that the calls need."""

    def __init__(self) -> None:
        self.imports: dict[str, set[str]] = {}
        self.named: dict[str, str] = {}

    def expression(self, value: Any, name: str = "value") -> str:
        if isinstance(value, BaseEstimator):
            self._import(value)
            given = changed_parameters(value)
            return f"{type(value).__name__}({', '.join(f'{k}={self.expression(v, k)}' for k, v in given.items())})"
        if is_dataclass(value) and type(value).__module__.startswith("widemargin."):
            self._import(value)
            return repr(value)
        if isinstance(value, KFold | StratifiedKFold) and isinstance(value.random_state, Integral | None):
            self._import(value)
            return repr(value)
        if isinstance(value, np.generic):
            return self.expression(value.item(), name)
        if isinstance(value, list | tuple) and len(value) <= 50:
            inner = ", ".join(self.expression(each, f"{name}_{k}") for k, each in enumerate(value))
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, dict) and len(value) <= 50:
            items = (f"{self.expression(k)}: {self.expression(v, f'{name}_of')}" for k, v in value.items())
            return f"{{{', '.join(items)}}}"
        if value is None or isinstance(value, str | bool) or (isinstance(value, Real) and math.isfinite(value)):
            return repr(value)
        # An array, a function, a client or a graph.
        self.named[name] = repr(value)
        return name

    def _import(self, value: Any) -> None:
        parts = type(value).__module__.split(".")
        public = [parts[0]] if parts[0] == "widemargin" else [part for part in parts if not part.startswith("_")]
        self.imports.setdefault(".".join(public), set()).add(type(value).__name__)


def circumstances(model: Any) -> list[tuple[str, str]]:
    """Seed, place and versions of a fit, as names and values."""
    seed = "not needed: the fit is deterministic"
    if "random_state" in model.get_params(deep=False):
        seed = repr(model.random_state)
        if model.random_state is None:
            seed = "None: differs at every fit. Set an integer to get the same model again."
    return [
        ("seed", shortened(seed, 100)),
        ("ran on", _place(model)),
        ("widemargin", __version__),
        *((name, _version(name)) for name in _PACKAGES),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        ("platform", platform.platform()),
    ]


def _place(model: Any) -> str:
    cluster = getattr(model, "cluster", None)
    if hasattr(model, "graph_"):
        where = "simulated in one process" if cluster is None else "one on each worker of a Dask cluster"
        return f"{len(model.graph_)} peers, {where}"
    ranks = getattr(model, "n_machines_", None)
    if cluster is None:
        is_alone = getattr(getattr(model, "cost_", None), "messages", 0) == 0
        return "1 rank, this process" if is_alone else "several ranks of a cluster that this model no longer refers to"
    if isinstance(cluster, Integral):
        return f"{cluster} ranks on threads of one process"
    kind = "MPI ranks" if hasattr(cluster, "Get_rank") else "workers of a Dask cluster"
    return f"{kind}{'' if ranks is None else f', {ranks} of them'}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not found"
