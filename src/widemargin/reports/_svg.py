"""Figures of matplotlib as SVG within a page.

They are drawn with placeholders for colours, which become variables of the page's style sheet: dark and light.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from widemargin.reports._html import Html, printable

INK, FAINT, PAPER, FIRST, SECOND, THIRD = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f", "#101112"
_VARIABLES = {
    INK: "--ink", FAINT: "--faint", PAPER: "--paper", FIRST: "--first", SECOND: "--second", THIRD: "--third",
}  # fmt: skip
_WIDTH = 4.7  # inches: legible on a phone, and two figures fit side by side on a desktop
_STYLE: Any = {
    **dict.fromkeys(("font.size", "axes.labelsize"), 9.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "axes.facecolor": PAPER,
    "figure.facecolor": "none",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched, and is small
    "svg.hashsalt": "widemargin",  # the same figure, the same bytes
}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of reports, whatever the user's own style is."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # The reader's browser has fonts for letters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def blank(height: float, *shape: int, **layout: Any) -> tuple[Any, Any]:
    """A figure with its axes, unknown to pyplot; call it within ``drawing``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots(*shape, **layout)


def plain_powers(axis: Any) -> None:
    """Label powers of ten with plain characters, not with markup that matplotlib typesets."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def power(value: float, _: Any) -> str:
        return f"10{str(int(f'{value:.0e}'.split('e')[1])).translate(raised)}"

    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_formatter(NullFormatter())


def inline(figure: Any, prefix: str, label: str) -> Html:
    """A figure as SVG; ``prefix`` makes its ids unique in the page, ``label`` describes it for screen readers."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            # The style sheet would apply to the whole page, and the metadata hold remote addresses.
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
    """An attribute with prefixed ids and the colours of the page."""
    name = name.split("}")[-1]
    if name == "id":
        return prefix + value
    if name == "href" and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    if name == "style":
        for placeholder, variable in _VARIABLES.items():
            value = value.replace(placeholder, f"var({variable})")
    return _REFERENCE.sub(lambda found: f"url(#{prefix}{found[1]})", value)
