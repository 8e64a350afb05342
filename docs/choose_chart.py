"""The questions of choose.md as a picture: ``python docs/choose_chart.py`` writes choose.svg beside this file.

The picture has a ground of its own, so that it reads alike on light and on dark pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape


class Step(NamedTuple):
    """A question, and what a yes leads to."""

    question: tuple[str, ...]
    answer: str
    remark: str
    is_elsewhere: bool = False


STEPS = (
    Step(
        ("Must rows stay with their owners,", "and is there no server?"), "GossipSVC", "peers that write to neighbours"
    ),
    Step(("Do you need intervals", "for coefficients?"), "DebiasedSparseSVC", "on one machine or many"),
    Step(("Do you want few features,", "the others exactly zero?"), "SparseSVC, SparseSVCCV", "the 1-norm SVM, exact"),
    Step(("Is accuracy on a mixed table", "all that counts?"), "another library", "gradient boosting", True),
    Step(
        ("Is a straight boundary too little,", "with over 200,000 rows and no GPU?"),
        "another library",
        "or a feature map",
        True,
    ),
    Step(
        ("Is it too little, and are all", "margins to be alike?"), "MarginDistributionSVC", "or MarginDistributionSVCCV"
    ),
    Step(("Is a straight boundary", "too little?"), "KernelSVC", "KernelSVCCV chooses C and gamma"),
    Step(("Does a hyperplane separate", "the classes, for a fact?"), "HardMarginSVC", "the widest margin"),
    Step(("Is a share of rows in doubt", "the natural parameter?"), "NuMarginSVC", "NuMarginSVCCV chooses nu"),
)
LAST = Step(("",), 'KernelSVC(kernel="linear")', "the C-SVM, tuned by C")

WIDTH, ROW, TOP = 720, 84, 24
QUESTION_X, QUESTION_WIDTH, ANSWER_X, ANSWER_WIDTH, BOX = 24, 310, 424, 272, 56
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
STYLE = f"""
  text {{ font-family: {FONT}; font-size: 15px; fill: #1b1f24; }}
  .small {{ font-size: 12.5px; fill: #3d444d; }}
  .name {{ font-weight: 600; fill: #ffffff; }}
  .under {{ font-size: 12.5px; fill: #ffffff; }}
  .way {{ stroke: #57606a; stroke-width: 1.6; fill: none; marker-end: url(#tip); }}
"""


def draw() -> str:
    """The picture, as SVG."""
    height = TOP + ROW * len(STEPS) + BOX + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Which estimator? The first yes is the answer.</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" rx="12" fill="#f6f8fa"/>',
    ]
    middle = QUESTION_X + QUESTION_WIDTH / 2
    for number, step in enumerate(STEPS):
        y = TOP + ROW * number
        parts += _question(step, y)
        parts += _answer(step, ANSWER_X, y, ANSWER_WIDTH)
        parts.append(f'<path class="way" d="M{QUESTION_X + QUESTION_WIDTH} {y + BOX / 2}H{ANSWER_X - 3}"/>')
        parts.append(_text(379, y + BOX / 2 - 7, "yes", "small"))
        parts.append(f'<path class="way" d="M{middle} {y + BOX}V{y + ROW - 3}"/>')
        parts.append(_text(middle + 20, y + BOX + 18, "no", "small"))
    parts += _answer(LAST, QUESTION_X, TOP + ROW * len(STEPS), QUESTION_WIDTH)
    return "\n".join([*parts, "</svg>", ""])


def _question(step: Step, y: float) -> list[str]:
    box = (
        f'<rect x="{QUESTION_X}" y="{y}" width="{QUESTION_WIDTH}" height="{BOX}" rx="8" fill="#fff" stroke="#8c959f"/>'
    )
    return [
        box,
        *(_text(QUESTION_X + QUESTION_WIDTH / 2, y + 24 + 20 * k, line) for k, line in enumerate(step.question)),
    ]


def _answer(step: Step, x: float, y: float, width: float) -> list[str]:
    colour = "#57606a" if step.is_elsewhere else "#0a4f8a"
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{BOX}" rx="8" fill="{colour}"/>',
        _text(x + width / 2, y + 24, step.answer, "name"),
        _text(x + width / 2, y + 43, step.remark, "under"),
    ]


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{style}>{escape(words)}</text>'


if __name__ == "__main__":
    Path(__file__).with_suffix("").with_name("choose.svg").write_text(draw(), encoding="utf8")
