"""Formulas as MathML, which browsers show without scripts or remote fonts.

Docutils converts LaTeX to MathML; this registers it with Sphinx: ``html_math_renderer = "mathml"``.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def to_mathml(tex: str, *, as_block: bool = False) -> str:
    r"""LaTeX as MathML.

    Docutils reads ``\tfrac12`` as twelve over what follows, LaTeX as one over two: braces make it unambiguous.
    """
    braced = re.sub(r"\\([td]?frac)\s*(\d)\s*(\w)", r"\\\1{\2}{\3}", tex)
    return tex2mathml(braced, as_block=as_block)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(to_mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{to_mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
