"""Reports and plots of fitted models; they need the extra ``plot`` (matplotlib and jinja2)."""

from widemargin.reports.margins import plot_margins
from widemargin.reports.network import plot_network
from widemargin.reports.network_page import network_report
from widemargin.reports.page import Report, report
from widemargin.reports.paths import plot_sparse_path
from widemargin.reports.search import plot_search

__all__ = ["Report", "network_report", "plot_margins", "plot_network", "plot_search", "plot_sparse_path", "report"]
