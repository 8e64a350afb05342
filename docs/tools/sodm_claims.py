"""Verdicts on the claims of SODM's paper, from the JSON that ``benchmarks.margin_distribution`` wrote.

A claim on k of 8 sets holds where it holds on that share of the sets here. Where one side did not end within its limit
the set is won by the other; where neither did, or one was not run, it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from tools.result_tables import number, table
from tools.sodm_tables import ODMS, SVMS, Found, accuracies, seconds, section, short

Verdict = tuple[str, str]  # and what was measured
TEXT_ENDS = "ended with two parts, as Algorithm 1 does,"
CODE_ENDS = "with four, as the authors' code does,"
THIRDS = "after two thirds of DSVRG's epochs"


def sodm_claims(results: Path) -> str:
    """Every claim that can be measured, with what was measured; those of sections that were not run say so."""
    rbf, linear = section(results, "tables_2_4"), section(results, "table_3")
    speedups, gradient = section(results, "figure_2"), section(results, "figure_4")
    rows = [
        ["SODM is the most accurate of the trees, RBF kernel: 7 of 8 sets",
         *most_accurate(rbf, "tables_2_4", "SODM", ODMS[:-1], 7 / 8)],
        ["the same, linear kernel: 6 of 8 sets", *most_accurate(linear, "table_3", "SODM", ODMS[:-1], 6 / 8)],
        ["SODM is the fastest of the trees, RBF kernel: 8 of 8 sets",
         *fastest(rbf, "tables_2_4", {-2: TEXT_ENDS, -3: CODE_ENDS})],
        ["the same, linear kernel: 8 of 8 sets", *fastest(linear, "table_3", {-2: THIRDS})],
        ["SODM almost never worsens the generalisation of ODM, RBF kernel",
         *as_accurate(rbf, "tables_2_4", "with two parts")],
        ["the same, linear kernel", *as_accurate(linear, "table_3", THIRDS)],
        ["SODM is nearly ten times faster than ODM", *faster_than_whole(rbf)],
        ["SSVM is less accurate than SODM: 8 of 8 sets", *less_accurate(rbf)],
        ["SSVM is slower than SODM: \"7\" of 8 sets, 6 by its table", *slower(rbf)],
        ["32 cores: more than 9 times faster, RBF kernel", *at_32(speedups, "rbf", 9.0)],
        ["32 cores: over 5 times faster, linear kernel", *at_32(speedups, "linear", 5.0)],
        ["DSVRG is over five times faster than SVRG", *times_faster(gradient, "SVRG")],
        ["DSVRG is over five times faster than CSVRG", *times_faster(gradient, "CSVRG")],
    ]  # fmt: skip
    return table(["the paper", "verdict", "measured here"], rows)


def sodm_appendix_b(results: Path) -> str:
    """What Appendix B says of the trees of one loss beside each other and beside those of the other."""
    rbf = section(results, "tables_2_4")
    rows = [
        ["DC-SVM is the most accurate of the SVM trees: 6 of 8 sets",
         *most_accurate(rbf, "tables_2_4", "DC-SVM", (*SVMS[:2], "SSVM"), 6 / 8)],
        ["SSVM is the fastest of the SVM trees: 7 of 8 sets", *faster(rbf, "SSVM", SVMS[:-1], 7 / 8)],
        ["DC-SVM is more accurate than DC-ODM: 5 of 8 sets",
         *most_accurate(rbf, "tables_2_4", "DC-SVM", ("DC-ODM",), 5 / 8)],
        ["DC-SVM and DC-ODM take nearly the same time: within 1.4 times, in its table", *as_fast(rbf, 1.4)],
        ["Ca-SVM is faster than Ca-ODM: 6 of 8 sets", *faster(rbf, "Ca-SVM", ("Ca-ODM",), 6 / 8)],
        ["DiP-SVM is faster than DiP-ODM: 7 of 8 sets", *faster(rbf, "DiP-SVM", ("DiP-ODM",), 7 / 8)],
        ["Ca-SVM is more accurate than Ca-ODM: 3 of 8 sets",
         *most_accurate(rbf, "tables_2_4", "Ca-SVM", ("Ca-ODM",), 3 / 8)],
        ["DiP-SVM is more accurate than DiP-ODM: 4 of 8 sets",
         *most_accurate(rbf, "tables_2_4", "DiP-SVM", ("DiP-ODM",), 4 / 8)],
    ]  # fmt: skip
    return table(["Appendix B", "verdict", "measured here"], rows)


def not_run(name: str) -> Verdict:
    return "not measured", f"`--only {name}`"


def verdict(n_yes: int, n: int, share: float = 1.0) -> str:
    """Whether a claim holds on that share of the sets, as the paper has it."""
    return "yes" if n_yes >= share * n else "no"


# -- two sides ---------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """One side beside the other, set by set."""

    values: list[Any]  # of sets where both ended
    won: int  # only the first side ended
    lost: int  # only the other

    @property
    def n(self) -> int:
        return len(self.values) + self.won + self.lost

    def n_yes(self, holds: Callable[[Any], bool]) -> int:
        return sum(map(holds, self.values)) + self.won

    def of(self, text: str, one: str, other: str) -> str:
        """The text, and how many sets one side did not end on."""
        parts = [text] * bool(self.values)
        parts += [f"{one} did not end within its limit on {self.lost}"] * (self.lost > 0)
        parts += [f"{other} did not end within its limit on {self.won}"] * (self.won > 0)
        return "; ".join(parts)


def compared(found: Found, mine: str, others: Sequence[str], value: Callable[[Found, list[str]], Any]) -> Compared:
    """``value(each, those of the others that ended)`` of every set; ``others`` are one side."""
    values, won, lost = [], 0, 0
    for each in found.values():
        there = [who for who in others if has_ended(each, who) is not None]
        ended, mine_ended = [who for who in there if has_ended(each, who)], has_ended(each, mine)
        if mine_ended is None or not there:
            continue
        if mine_ended and ended:
            values.append(value(each, ended))
        won += bool(mine_ended and not ended)
        lost += bool(ended and not mine_ended)
    return Compared(values, won, lost)


def has_ended(each: Found, who: str) -> bool | None:
    """Whether it ended on all splits that it was run on; None where it was not run."""
    found = [split[who] for split in each["splits"] if who in split]
    return not any("over" in one for one in found) if found else None


def accuracy(each: Found, who: str, level: int = -1) -> float:
    return mean(accuracies(each, who, level))


def taken(each: Found, who: str, level: int = -1) -> float:
    """Seconds of what has ended."""
    return seconds(each, who, level) or 1e-9


def span(values: Sequence[float]) -> str:
    return f"{number(min(values), 2)} to {number(max(values), 2)}"


def short_span(values: Sequence[float]) -> str:
    return f"{short(min(values))} to {short(max(values))}"


# -- claims ------------------------------------------------------------------------------------------------------------


def most_accurate(found: Found, name: str, mine: str, others: Sequence[str], share: float) -> Verdict:
    result = compared(
        found, mine, others, lambda each, them: accuracy(each, mine) - max(accuracy(each, who) for who in them)
    )
    if not result.n:
        return not_run(name)
    n, other = result.n_yes(lambda off: off > 0), "the best rival" if len(others) > 1 else others[0]
    text = f"less {other} {short_span(result.values)}" if result.values else ""
    text = f"ahead of {other} on {n} of {result.n} sets; " + result.of(text, mine, "every rival")
    return verdict(n, result.n, share), text


def fastest(found: Found, name: str, early: dict[int, str]) -> Verdict:
    """SODM to its end, and ended at earlier levels, beside the fastest rival at its root."""
    result = compared(
        found, "SODM", ODMS[:-1],
        lambda each, them: {
            level: min(taken(each, who) for who in them) / taken(each, "SODM", level) for level in (-1, *early)
        },
    )  # fmt: skip
    if not result.n:
        return not_run(name)

    def at(level: int) -> int:
        return result.n_yes(lambda ratios: ratios[level] > 1)

    def ratios(level: int) -> list[float]:
        return [each[level] for each in result.values]

    text = ""
    if result.values:
        text = f"{span(ratios(-1))} times as fast as the fastest rival, faster on {at(-1)} of {result.n} sets"
        text += "".join(f"; {how} {span(ratios(level))}, faster on {at(level)}" for level, how in early.items())
    return verdict(at(-1), result.n), result.of(text, "SODM", "every rival")


def as_accurate(found: Found, name: str, how: str) -> Verdict:
    """By the level before the last; within half a point is not worse."""
    result = compared(
        found, "SODM", ("ODM",),
        lambda each, _: [accuracy(each, "SODM", level) - accuracy(each, "ODM") for level in (-1, -2)],
    )  # fmt: skip
    n = result.n - result.won  # an ODM that did not end has no accuracy to worsen
    if not n:
        return not_run(name)
    ends, early = zip(*result.values, strict=True) if result.values else ((), ())
    text = f"{short_span(ends)} at its end, {short_span(early)} {how}" if ends else ""
    return verdict(sum(off > -0.005 for off in early), n), result._replace(won=0).of(text, "SODM", "ODM")


def faster_than_whole(found: Found) -> Verdict:
    result = compared(
        found, "SODM", ("ODM",),
        lambda each, _: [taken(each, "ODM") / taken(each, "SODM", level) for level in (-1, -2, -3)],
    )  # fmt: skip
    if not result.n:
        return not_run("tables_2_4")
    text = ""
    if result.values:
        root, two, four = zip(*result.values, strict=True)
        text = (
            f"eight workers, projected, beside ODM on one: {span(root)} times to the root, {span(two)} to two parts, "
            f"{span(four)} to four"
        )
    return verdict(result.n_yes(lambda ratios: ratios[1] > 8), result.n), result.of(text, "SODM", "ODM")


def less_accurate(found: Found) -> Verdict:
    result = compared(found, "SODM", ("SSVM",), lambda each, _: accuracy(each, "SSVM") - accuracy(each, "SODM"))
    if not result.n:
        return not_run("tables_2_4")
    n = result.n_yes(lambda off: off < 0)
    text = f"its accuracy less SODM's {short_span(result.values)}" if result.values else ""
    text = f"less accurate on {n} of {result.n} sets; " + result.of(text, "SODM", "SSVM")
    return verdict(n, result.n), text


def slower(found: Found) -> Verdict:
    result = compared(found, "SODM", ("SSVM",), lambda each, _: taken(each, "SODM") / taken(each, "SSVM"))
    if not result.n:
        return not_run("tables_2_4")
    n = result.n_yes(lambda ratio: ratio < 1)
    text = f"{span(result.values)} times as fast" if result.values else ""
    return verdict(n, result.n, 6 / 8), f"slower on {n} of {result.n} sets; " + result.of(text, "SODM", "SSVM")


def faster(found: Found, mine: str, others: Sequence[str], share: float) -> Verdict:
    result = compared(found, mine, others, lambda each, them: min(taken(each, who) for who in them) / taken(each, mine))
    if not result.n:
        return not_run("tables_2_4")
    n, other = result.n_yes(lambda ratio: ratio > 1), "the fastest rival" if len(others) > 1 else others[0]
    text = f"{span(result.values)} times as fast as {other}" if result.values else ""
    return verdict(n, result.n, share), f"faster on {n} of {result.n} sets; " + result.of(text, mine, "every rival")


def as_fast(found: Found, within: float) -> Verdict:
    result = compared(found, "DC-SVM", ("DC-ODM",), lambda each, _: taken(each, "DC-ODM") / taken(each, "DC-SVM"))
    if not result.n:
        return not_run("tables_2_4")
    n = sum(1 / within <= ratio <= within for ratio in result.values)
    text = f"DC-SVM is {span(result.values)} times as fast as DC-ODM" if result.values else ""
    return verdict(n, result.n), result.of(text, "DC-SVM", "DC-ODM")


def at_32(found: Found, kernel: str, asked: float) -> Verdict:
    found = {name: each for name, each in found.items() if kernel in each}
    if not found:
        return not_run("figure_2")
    texts, best = [], []
    for what in next(iter(found.values()))[kernel]["projected"]:
        ratios = [each[kernel]["projected"][what][-1] for each in found.values()]
        best.append(sum(ratio > asked for ratio in ratios))
        texts.append(f"{span(ratios)} {what}")
    holds = [verdict(n, len(found)) == "yes" for n in best]
    word = "yes" if all(holds) else "in one reading" if any(holds) else "no"
    return word, "projected, at best: " + ", ".join(texts)


def times_faster(found: Found, who: str) -> Verdict:
    found = {name: each for name, each in found.items() if who in each and "DSVRG, 4 nodes" in each}
    if not found:
        return not_run("figure_4")
    ratios, never, bounds = [], 0, []
    for each in found.values():
        mine, other = each["DSVRG, 4 nodes"], each[who]
        if other["near"] is None:
            never += mine["near"] is not None
        elif mine["near"]:
            ratios.append(other["near"] / mine["near"])
        if who == "SVRG":
            bounds.append(1 + other["gradient_seconds"] / max(other["step_seconds"], 1e-9))
    parts = [f"{span(ratios)} times as fast to the optimum's accuracy"] if ratios else []
    parts += [f"{who} does not come to within .001 of it on {never} of {len(found)} sets"] if never else []
    parts += [f"nodes share gradients only: on any number at most {number(max(bounds), 2)}"] if bounds else []
    return verdict(sum(ratio > 5 for ratio in ratios) + never, len(found)), "; ".join(parts)


TABLES: dict[str, Callable[[Path], str]] = {function.__name__: function for function in (sodm_claims, sodm_appendix_b)}
