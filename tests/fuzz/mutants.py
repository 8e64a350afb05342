"""Bytes that are nearly right, or not at all, from a seeded generator; and the one way to try them on a parser."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# What numbers in a format are likely to be checked against, as bytes.
_STRANGERS = (
    b"\xff\xff\xff\x7f",
    b"\xff" * 8,
    b"\0" * 8,
    b"\x80",
    b"\n",
    b":",
    b",",
    b"nan",
    b"inf",
    b"-",
    b"1e999",
    b"99999999999999999999",
    b'"',
    b"{",
    b"\xef\xbb\xbf",
    b"\0",
)
SECONDS = 20.0  # in which any answer must have come; a hang takes for ever, and a busy machine some seconds


def mutated(valid: bytes, rng: np.random.Generator) -> bytes:
    """Valid bytes with one to four changes."""
    data = bytearray(valid)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(data) + 1))
        length = int(rng.integers(1, 24))
        match int(rng.integers(7)):
            case 0 if data:
                data[at % len(data)] ^= 1 << int(rng.integers(8))
            case 1:
                data[at : at + length] = rng.bytes(length)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + length]
            case 4:
                stranger = _STRANGERS[int(rng.integers(len(_STRANGERS)))]
                data[at : at + len(stranger)] = stranger
            case 5:
                data[at:at] = _STRANGERS[int(rng.integers(len(_STRANGERS)))]
            case _:
                data[at:at] = data[at : at + 4 * length]
    return bytes(data)


def attempts(valid: list[bytes], n: int, seed: int) -> Iterator[bytes]:
    """Three in four are mutants, the others noise of any length up to a few hundred."""
    rng = np.random.default_rng(seed)
    for trial in range(n):
        if trial % 4 == 3:
            yield rng.bytes(int(rng.integers(0, 400)))
        else:
            yield mutated(valid[int(rng.integers(len(valid)))], rng)


def try_all(
    parse: Callable[[bytes], Any],
    is_valid: Callable[[Any], bool],
    refusals: tuple[type[BaseException], ...],
    data: Iterator[bytes],
    *,
    times: int = 200,
    spare: int = 1 << 18,
) -> tuple[int, int]:
    """How many were accepted and refused; anything else than a valid object or a refusal is an error.

    A parser may take ``spare`` bytes and ``times`` those that it was given: objects of Python are that much larger
    than what they are read from.
    """
    n_accepted = n_refused = 0
    tracemalloc.start()
    try:
        for each in data:
            tracemalloc.reset_peak()
            before, begin = tracemalloc.get_traced_memory()[0], time.monotonic()
            try:
                found = parse(each)
            except refusals as error:
                assert str(error), f"refused without a word: {each!r}"  # noqa: PT017
                n_refused += 1
            else:
                assert is_valid(found), f"accepted, and yet not whole: {each!r} gave {found!r}"
                n_accepted += 1
                del found
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken <= spare + times * len(each), f"{taken} bytes were taken for {len(each)}: {each!r}"
            assert time.monotonic() - begin < SECONDS, f"no answer in {SECONDS:g} s: {each!r}"
    finally:
        tracemalloc.stop()
    return n_accepted, n_refused
