"""Kinds of clusters and collections, by their types: neither dask nor mpi4py is imported."""

from typing import Any


def is_dask(value: Any) -> bool:
    """Whether ``value`` is a Dask collection or client; does not import dask."""
    return any(base.__module__.split(".")[0] in ("dask", "distributed") for base in type(value).__mro__)


def is_mpi(cluster: Any) -> bool:
    """Whether ``cluster`` is an mpi4py communicator; does not import mpi4py."""
    return any(base.__module__.split(".")[0] == "mpi4py" for base in type(cluster).__mro__)
