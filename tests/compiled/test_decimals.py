"""Decimal numbers become the nearest float64, as Python's own reader makes them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from widemargin.compiled.decimals import LARGEST_POWER, nearest_bits


def nearest(mantissa, power):
    bits, is_sure = nearest_bits(np.uint64(mantissa), power)
    return float(np.uint64(bits).view(np.float64)) if is_sure else None


def test_random_numbers_of_up_to_19_digits(seed):
    draw = random.Random(seed)
    unsure = 0
    for _ in range(10_000):
        mantissa = draw.randrange(1, 10 ** draw.randint(1, 19))
        power = draw.randint(-LARGEST_POWER, LARGEST_POWER) if draw.random() < 0.5 else draw.randint(-22, 2)
        found = nearest(mantissa, power)
        unsure += found is None
        assert found in (None, float(f"{mantissa}e{power}")), (mantissa, power)
    assert unsure < 10


@pytest.mark.parametrize("whole", [2**53 + 1, 2**53 + 3, 2**54 + 2, 2**54 + 6, 2**60 + 128, 2**60 + 384])
@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_halves_go_to_the_even_one(whole, power):
    """Whole numbers in the middle between two float64, also when written with zeros behind them."""
    if whole * 10**power < 10**19:
        assert nearest(whole * 10**power, -power) in (None, float(whole))
        assert nearest(whole, 0) in (None, float(whole))


def test_beyond_its_table_it_is_not_sure():
    assert nearest(1, LARGEST_POWER + 1) is None
    assert nearest(1, -LARGEST_POWER - 1) is None
