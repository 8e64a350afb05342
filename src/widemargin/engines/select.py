"""Which engine runs a fit; engines of packages that are not asked for are not imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any


def is_dask(value: Any) -> bool:
    """Whether this is a Dask collection or client, found out without importing dask."""
    return any(base.__module__.split(".")[0] in ("dask", "distributed") for base in type(value).__mro__)


def is_mpi(cluster: Any) -> bool:
    """Whether this is an mpi4py communicator, found out without importing mpi4py."""
    return any(base.__module__.split(".")[0] == "mpi4py" for base in type(cluster).__mro__)


def launcher(cluster: Any, X: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """The function that launches a task on this kind of cluster, for this kind of rows."""
    if is_dask(X) and not (cluster is None or is_dask(cluster)) and not is_mpi(cluster):
        raise ValueError(f"X is a Dask collection; cluster={cluster!r} must be a dask.distributed.Client or None.")
    return _engine(cluster, is_dask(X)).launch


def mapper(cluster: Any) -> Callable[[Callable[[Any, Any], Any], Any, list[Any]], list[Any]]:
    """The function that does independent work side by side: ``(work, shared, items)`` to all ``work(shared, item)``."""
    return partial(_engine(cluster, False).map_items, cluster)


def grower(cluster: Any) -> Callable[..., None]:
    """The function that grows a tree of work; see :func:`widemargin.engines.inline.grow`."""
    return partial(_engine(cluster, False).grow, cluster)


def _engine(cluster: Any, is_collection: bool) -> Any:
    if is_mpi(cluster):
        from widemargin.engines import mpi

        return mpi
    if is_dask(cluster) or is_collection:
        try:
            from widemargin.engines import dask
        except ImportError as error:
            raise ImportError(f"Fits on Dask need more packages: pip install 'widemargin[dask]' ({error}).") from error
        return dask
    if cluster is None or isinstance(cluster, Integral):
        from widemargin.engines import inline

        return inline
    raise TypeError(
        f"cluster={cluster!r} must be None, a number of ranks, a dask.distributed.Client or an mpi4py communicator."
    )
