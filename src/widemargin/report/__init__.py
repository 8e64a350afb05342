"""Pictures of what was fitted; they need matplotlib (``pip install 'widemargin[plot]'``)."""

from widemargin.report.paths import plot_sparse_path

__all__ = ["plot_sparse_path"]
