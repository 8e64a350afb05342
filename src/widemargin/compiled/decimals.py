"""The float64 nearest to ``mantissa * 10^power``, for mantissas of up to 19 digits.

By the algorithm of Eisel and Lemire: the mantissa times the leading 128 bits of a power of five decides the rounding,
except in rare cases that are left to the caller. D. Lemire: Number Parsing at a Gigabyte per Second, 2021.
"""

import numpy as np

from widemargin.compiled.jit import compiled

LARGEST_POWER = 64


def _leading_bits(power: int) -> int:
    """The first 128 bits of ``5^power``, rounded down; rounded up for -27 to -1, where a product may be exact."""
    five = 5 ** abs(power)
    if power >= 0:
        shift = 128 - five.bit_length()
        return five << shift if shift >= 0 else five >> -shift
    quotient = (1 << (2 * five.bit_length() + 128)) // five
    return (quotient >> (quotient.bit_length() - 128)) + (power >= -27)


_FIVES = [_leading_bits(power) for power in range(-LARGEST_POWER, LARGEST_POWER + 1)]
_HIGH = np.array([bits >> 64 for bits in _FIVES], dtype=np.uint64)
_LOW = np.array([bits & (2**64 - 1) for bits in _FIVES], dtype=np.uint64)
_HALF, _MASK = np.uint64(32), np.uint64(2**32 - 1)


@compiled()
def _product(a, b):
    """The high and the low 64 bits of a product."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _MASK, b >> _HALF, b & _MASK
    low, middle, other = a_low * b_low, a_high * b_low, a_low * b_high
    carry = ((low >> _HALF) + (middle & _MASK) + (other & _MASK)) >> _HALF
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF) + carry, a * b


@compiled()
def nearest_bits(mantissa, power):
    """The bits of the nearest float64, and whether they are certain; ``mantissa`` is a positive uint64."""
    one, zero = np.uint64(1), np.uint64(0)
    if power < -LARGEST_POWER or power > LARGEST_POWER:
        return zero, False
    shift = 0
    while mantissa < np.uint64(1 << 63):
        mantissa <<= one
        shift += 1
    high, low = _product(mantissa, _HIGH[power + LARGEST_POWER])
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):  # lower bits may carry into the 55 leading ones
        more, _ = _product(mantissa, _LOW[power + LARGEST_POWER])
        low += more
        if low < more:
            high += one
    if low == np.uint64(2**64 - 1) and (power < -27 or power > 55):
        return zero, False
    top = np.int64(high >> np.uint64(63))
    drop = np.uint64(top + 9)
    digits = high >> drop
    exponent = ((217706 * power) >> 16) + 63 + top - shift + 1023
    is_halfway = low <= one and -4 <= power <= 23 and (digits & np.uint64(3)) == one and (digits << drop) == high
    if is_halfway:
        digits &= ~one  # round half to even
    digits = (digits + (digits & one)) >> one
    if digits >= np.uint64(1 << 53):
        digits = np.uint64(1 << 52)
        exponent += 1
    if exponent <= 0 or exponent >= 2047:
        return zero, False
    return (digits & ~np.uint64(1 << 52)) | (np.uint64(exponent) << np.uint64(52)), True
