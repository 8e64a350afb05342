"""Pictures of what was fitted; they need matplotlib (``pip install 'widemargin[plot]'``)."""

from widemargin.report.margins import plot_margins
from widemargin.report.network import plot_network
from widemargin.report.paths import plot_sparse_path

__all__ = ["plot_margins", "plot_network", "plot_sparse_path"]
