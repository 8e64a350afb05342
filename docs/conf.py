"""Settings of Sphinx for ``make docs``. Neither the build nor the pages use the network."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from tools import results_pages  # noqa: E402

import widemargin  # noqa: E402

project = "widemargin"
author = "the widemargin developers"
copyright = author
release = version = widemargin.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "tools.mathml",
]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "_generated", "tools", "auto_examples/**/*.ipynb", "auto_examples/*.md5"]
# Every reference must exist, except those to other libraries, whose inventories are on the network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!widemargin\.).*")]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # functions in sphinx_gallery_conf cannot be cached

autosummary_generate = True
autodoc_typehints = "none"  # docstrings give types in words
numpydoc_show_class_members = False  # methods follow on the same page, see _templates
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "widemargin"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["widemargin.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "install": [], "choose": [], "certificates": [], "benchmarks": []}  # one page each
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]+\.py$",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": False,  # with -W a broken example fails the build after all others have run
    "show_signature": False,
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "min_reported_time": 20,
    "write_computation_times": False,  # that page loads scripts from elsewhere
}
# The gallery draws with Agg, which warns at every plt.show().
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)


def setup(app):
    """Make pages before Sphinx looks for sources."""
    results_pages.write(HERE.parent / "benchmarks" / "results", HERE)
    app.connect("source-read", _link_within_the_pages)


def _link_within_the_pages(app, docname, source):
    """Turn links to files of a checkout into links to pages."""
    source[0] = results_pages.relink(source[0], docname)
    if "{toctree}" in source[0]:
        source[0] = _entries_that_exist(source[0])


def _entries_that_exist(text):
    """The text without patterns of a toctree that match no page."""

    def entry(found):
        return found[0] if any(HERE.glob(f"{found[1]}.md")) else ""

    return re.sub(r"^([\w/]+\*)\n", entry, text, flags=re.MULTILINE)
