"""Selection of the engine for a fit; an engine's package is imported only when it is used."""

from functools import cache
from importlib import import_module
from numbers import Integral
from typing import Any, cast

from widemargin.comm.clusters import is_dask, is_mpi
from widemargin.engines.protocol import Engine, RankProgram, Watch


def launch(rows: Any, cluster: Any, program: RankProgram, watch: Watch) -> Any:
    """Run the program on the ranks that hold the rows; the outcome of rank 0."""
    return engine_for(cluster, rows.X).launch(rows, cluster, program, watch)


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


@cache
def _engine(name: str) -> Engine:
    return cast(Engine, import_module(f"widemargin.engines.{name}"))
