"""Rows and where they come from."""

from widemargin.data.fetch import DataSet, fetch, names
from widemargin.data.synthetic import make_nonseparable, make_separable, make_sparse_gaussians, make_sparse_nonseparable

__all__ = [
    "DataSet",
    "fetch",
    "make_nonseparable",
    "make_separable",
    "make_sparse_gaussians",
    "make_sparse_nonseparable",
    "names",
]
