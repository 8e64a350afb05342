"""A parser of LIBSVM text: one pass over the bytes of whole lines."""

import numpy as np

from widemargin.compiled.decimals import nearest_bits
from widemargin.compiled.jit import compiled

# Errors of a line.
GOOD, BAD_LABEL, BAD_INDEX, INDEX_TOO_SMALL, INDEX_TOO_LARGE, NOT_ASCENDING, BAD_VALUE = range(7)
# What became of a number.
_EXACT, _UNSURE, _NO_NUMBER = range(3)

LARGEST_INDEX = 2**31 - 2
EXACT_MANTISSA = 2**53  # up to here one multiplication or division by a power of ten rounds once
_POWERS = 10.0 ** np.arange(23)
_LARGEST_EXPONENT = 10_000  # numbers with larger exponents are left to the caller

_TAB, _NEWLINE, _RETURN, _SPACE, _HASH, _PLUS, _MINUS, _POINT = 9, 10, 13, 32, 35, 43, 45, 46
_ZERO, _NINE, _COLON, _UPPER_E, _LOWER_E, _LOWER_D, _LOWER_I, _LOWER_Q = 48, 57, 58, 69, 101, 100, 105, 113


@compiled()
def _is_blank(byte):
    return byte in (_SPACE, _TAB, _RETURN)


@compiled()
def _ends_token(text, at):
    return at >= len(text) or _is_blank(text[at]) or text[at] == _NEWLINE or text[at] == _HASH


@compiled()
def _number(text, at, largest_mantissa):
    """The decimal number at a position: its value, where it ends, and whether the value is the nearest float64."""
    sign = 1.0
    if at < len(text) and (text[at] == _PLUS or text[at] == _MINUS):
        sign = -1.0 if text[at] == _MINUS else 1.0
        at += 1
    mantissa, power, n_digits, is_cut = np.uint64(0), 0, 0, False
    is_behind_point = False
    while at < len(text):
        byte = text[at]
        if _ZERO <= byte <= _NINE:
            n_digits += 1
            if mantissa < np.uint64(10**18):  # one more digit fits into 64 bits
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - _ZERO)
                power -= is_behind_point
            else:
                is_cut = True
                power += not is_behind_point
        elif byte == _POINT and not is_behind_point:
            is_behind_point = True
        else:
            break
        at += 1
    if n_digits == 0:
        return 0.0, at, _NO_NUMBER
    if at < len(text) and (text[at] == _LOWER_E or text[at] == _UPPER_E):
        at += 1
        exponent_sign, exponent, has_digits = 1, 0, False
        if at < len(text) and (text[at] == _PLUS or text[at] == _MINUS):
            exponent_sign = -1 if text[at] == _MINUS else 1
            at += 1
        while at < len(text) and _ZERO <= text[at] <= _NINE:
            exponent = min(_LARGEST_EXPONENT, 10 * exponent + text[at] - _ZERO)
            has_digits = True
            at += 1
        if not has_digits:
            return 0.0, at, _NO_NUMBER
        is_cut |= exponent == _LARGEST_EXPONENT
        power += exponent_sign * exponent
    if mantissa == 0:
        return sign * 0.0, at, _EXACT
    if is_cut:
        return 0.0, at, _UNSURE
    if mantissa <= largest_mantissa and -22 <= power <= 22:
        value = sign * np.float64(mantissa)
        return (value * _POWERS[power] if power >= 0 else value / _POWERS[-power]), at, _EXACT
    bits, is_sure = nearest_bits(mantissa, power)
    if not is_sure:
        return 0.0, at, _UNSURE
    return sign * np.array([bits]).view(np.float64)[0], at, _EXACT


@compiled()
def parse_libsvm(text, base, largest_mantissa, largest_value, labels, row_ends, indices, values, unsure):
    """Fill ``labels`` and ``row_ends`` for each row, ``indices`` (from 0) and ``values`` for each entry.

    ``text`` is bytes of whole lines; ``base`` is the number of the first feature. Digits up to ``largest_mantissa`` are
    treated as exact. The few numbers that this does not decide are left to the caller: each row of ``unsure`` is the
    begin and end of one in the text, and its entry, or -1 - row for a label. Returns the numbers of rows, entries and
    undecided numbers, the error (``GOOD`` if there is none), and its position.
    """
    n, at, row, entry, n_unsure = len(text), 0, 0, 0, 0
    while at < n:
        while at < n and _is_blank(text[at]):
            at += 1
        if at < n and text[at] != _NEWLINE and text[at] != _HASH:
            begin = at
            number, at, how = _number(text, at, np.uint64(EXACT_MANTISSA))
            if how == _NO_NUMBER or not _ends_token(text, at):
                return row, entry, n_unsure, BAD_LABEL, begin
            labels[row] = number
            if how == _UNSURE:
                unsure[n_unsure, 0], unsure[n_unsure, 1], unsure[n_unsure, 2] = begin, at, -1 - row
                n_unsure += 1
            before = base - 1
            while True:
                while at < n and _is_blank(text[at]):
                    at += 1
                if at >= n or text[at] == _NEWLINE or text[at] == _HASH:
                    break
                begin = at
                if n - at > 4 and text[at] == _LOWER_Q and text[at + 1] == _LOWER_I and text[at + 2] == _LOWER_D:
                    while not _ends_token(text, at):  # a query id, used in ranking only
                        at += 1
                    continue
                index = 0
                while at < n and _ZERO <= text[at] <= _NINE:
                    index = min(10 * index + text[at] - _ZERO, LARGEST_INDEX + 2)
                    at += 1
                if at == begin or at >= n or text[at] != _COLON:
                    return row, entry, n_unsure, BAD_INDEX, begin
                if index < base:
                    return row, entry, n_unsure, INDEX_TOO_SMALL, begin
                if index > LARGEST_INDEX:
                    return row, entry, n_unsure, INDEX_TOO_LARGE, begin
                if index <= before:
                    return row, entry, n_unsure, NOT_ASCENDING, begin
                before = index
                first_digit = at + 1
                number, at, how = _number(text, first_digit, largest_mantissa)
                if how == _NO_NUMBER or not _ends_token(text, at) or abs(number) > largest_value:
                    return row, entry, n_unsure, BAD_VALUE, begin
                if how == _UNSURE:
                    unsure[n_unsure, 0], unsure[n_unsure, 1], unsure[n_unsure, 2] = first_digit, at, entry
                    n_unsure += 1
                indices[entry], values[entry] = index - base, number
                entry += 1
            row_ends[row] = entry
            row += 1
        while at < n and text[at] != _NEWLINE:  # a comment
            at += 1
        at += 1
    return row, entry, n_unsure, GOOD, 0
