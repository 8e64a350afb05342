"""Kinds of clusters and collections, by their types: neither dask nor mpi4py is imported."""

from typing import Any

_packages_of: dict[type, frozenset[str]] = {}  # of types that were asked for


def is_dask(value: Any) -> bool:
    """Whether ``value`` is a Dask collection or client; does not import dask."""
    return not _packages(type(value)).isdisjoint(("dask", "distributed"))


def is_mpi(cluster: Any) -> bool:
    """Whether ``cluster`` is an mpi4py communicator; does not import mpi4py."""
    return "mpi4py" in _packages(type(cluster))


def _packages(kind: type) -> frozenset[str]:
    """Where a type and its bases come from."""
    if kind not in _packages_of:
        _packages_of[kind] = frozenset(base.__module__.split(".")[0] for base in kind.__mro__)
    return _packages_of[kind]
