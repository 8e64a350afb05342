"""Selection of the engine for a fit; an engine's package is imported only when it is used."""

from importlib import import_module
from numbers import Integral
from typing import Any, cast

from widemargin.engines.protocol import Engine


def is_dask(value: Any) -> bool:
    """Whether ``value`` is a Dask collection or client; does not import dask."""
    return any(base.__module__.split(".")[0] in ("dask", "distributed") for base in type(value).__mro__)


def is_mpi(cluster: Any) -> bool:
    """Whether ``cluster`` is an mpi4py communicator; does not import mpi4py."""
    return any(base.__module__.split(".")[0] == "mpi4py" for base in type(cluster).__mro__)


def engine_for(cluster: Any, X: Any = None) -> Engine:
    """The engine for this kind of cluster and rows."""
    if is_mpi(cluster):
        return _engine("mpi")
    if is_dask(cluster) or (is_dask(X) and cluster is None):
        try:
            return _engine("dask")
        except ImportError as error:
            raise ImportError(f"Fits on Dask need extra packages: pip install 'widemargin[dask]' ({error}).") from error
    if is_dask(X):
        raise ValueError(f"X is a Dask collection; cluster={cluster!r} must be a dask.distributed.Client or None.")
    if cluster is None or isinstance(cluster, Integral):
        return _engine("inline")
    raise TypeError(
        f"cluster={cluster!r} must be None, a number of ranks, a dask.distributed.Client or an mpi4py communicator."
    )


def _engine(name: str) -> Engine:
    return cast(Engine, import_module(f"widemargin.engines.{name}"))
