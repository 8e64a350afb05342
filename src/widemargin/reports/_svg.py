"""Figures of matplotlib as SVG within a page: colours of the page in dark and light, ids of their own, words to read.

Figures are drawn with placeholders for colours, which become the variables of the page's style sheet.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from widemargin.reports._html import Html, element, joined, printable

INK, FAINT, PAPER = "#010203", "#040506", "#070809"
FIRST, SECOND, THIRD = "#0a0b0c", "#0d0e0f", "#101112"
_VARIABLES = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    PAPER: "var(--paper)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
}
WIDTH = 4.7  # inches: letters stay legible on a telephone, and two figures stand side by side on a desk
_STYLE: Any = {
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": "none",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched, and is small
    "svg.hashsalt": "widemargin",  # the same figure, the same bytes
}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def require_matplotlib() -> None:
    """Say what to install where it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        message = "A report draws with matplotlib, which is not installed: pip install 'widemargin[plot]'."
        raise ImportError(message) from error


@contextmanager
def drawing() -> Iterator[None]:
    """Within it figures are drawn in the style of reports, whatever the user's own style is."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # Letters that the measuring font lacks are shown by the fonts of the reader.
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def blank(height: float, width: float = WIDTH) -> tuple[Any, Any]:
    """A figure with one pair of axes, which nobody but the caller holds; within ``drawing``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def plain_powers(axis: Any) -> None:
    """Powers of ten without the markup that matplotlib typesets itself."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def power(value: float, _: Any) -> str:
        exponent = f"{value:.0e}".split("e")[1]
        return f"10{str(int(exponent)).translate(raised)}"

    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_formatter(NullFormatter())


def captioned(figure: Any, number: int, label: str, caption: Any) -> Html:
    """The figure in the page: ``label`` says to those who do not see it what it shows."""
    return element("figure", _inline(figure, f"f{number}-", label), element("figcaption", caption))


def _inline(figure: Any, prefix: str, label: str) -> Html:
    """SVG that may stand among others in a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            # Its style sheet would reach the whole page, and its metadata name addresses.
            if child.tag.split("}")[-1] in ("style", "metadata"):
                parent.remove(child)
    for node in root.iter():
        node.tag = node.tag.split("}")[-1]
        node.attrib = {name.split("}")[-1]: _adapted(name, value, prefix) for name, value in node.attrib.items()}
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": printable(label)}
    return Html(ElementTree.tostring(root, encoding="unicode"))


def _adapted(name: str, value: str, prefix: str) -> str:
    """An attribute with ids of this figure only, and the colours of the page."""
    name = name.split("}")[-1]
    if name == "id":
        return prefix + value
    if name == "href" and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    if name == "style":
        for placeholder, variable in _VARIABLES.items():
            value = value.replace(placeholder, variable)
    return _REFERENCE.sub(lambda found: f"url(#{prefix}{found[1]})", value)


def side_by_side(figures: list[Html]) -> Html:
    """Figures beside each other where there is room, else below each other."""
    return element("div", joined(figures), class_="figures") if figures else Html("")
