from __future__ import annotations

import math

import pytest

from widemargin.problems.protocol import Certificate


@pytest.mark.parametrize(
    ("primal", "dual", "gap", "relative"),
    [
        (2.0, 1.5, 0.5, 0.25),
        (-2.0, -2.5, 0.5, 0.25),
        (1.5, 2.0, 0.5, 1 / 3),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, -1.0, 1.0, math.inf),
        (math.inf, -math.inf, math.inf, math.nan),
    ],
)
def test_gap_and_relative_gap_are_those_of_the_contract(primal, dual, gap, relative):
    certificate = Certificate(primal, dual)
    assert certificate.gap == gap
    assert certificate.relative == pytest.approx(relative, nan_ok=True)


def test_a_certificate_without_any_bound_satisfies_no_tolerance():
    assert not Certificate(math.inf, -math.inf).relative <= 1e9
