"""Reports and plots of fitted models; they need the extra ``plot`` (matplotlib and jinja2)."""

from widemargin.reports.margins import plot_margins
from widemargin.reports.network import plot_network
from widemargin.reports.page import Report, report
from widemargin.reports.paths import plot_sparse_path
from widemargin.reports.search import plot_search

__all__ = ["Report", "plot_margins", "plot_network", "plot_search", "plot_sparse_path", "report"]
