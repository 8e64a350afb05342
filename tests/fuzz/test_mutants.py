"""The fuzzer sees what it should: wrong errors, half objects, and memory beyond what was given."""

from __future__ import annotations

import pytest

from tests.fuzz.mutants import attempts, try_all

VALID = [b"1 2:3\n"]


def test_mutants_are_the_same_for_a_seed_and_differ_from_what_they_come_from():
    one, other = list(attempts(VALID, 50, 0)), list(attempts(VALID, 50, 0))
    assert one == other
    assert len(set(one)) > 40
    assert one != list(attempts(VALID, 50, 1))


def test_another_error_than_a_refusal_is_not_let_through():
    def parse(data):
        raise KeyError("not a refusal")

    with pytest.raises(KeyError):
        try_all(parse, bool, (ValueError,), attempts(VALID, 1, 0))


def test_an_object_that_is_not_whole_is_an_error():
    with pytest.raises(AssertionError, match="not whole"):
        try_all(lambda data: data, lambda found: False, (ValueError,), attempts(VALID, 1, 0))


def test_memory_beyond_the_bytes_given_is_an_error():
    with pytest.raises(AssertionError, match="bytes were taken"):
        try_all(lambda data: bytearray(1 << 20), lambda found: True, (ValueError,), attempts(VALID, 1, 0))


def test_a_refusal_without_a_word_is_an_error():
    def parse(data):
        raise ValueError

    with pytest.raises(AssertionError, match="without a word"):
        try_all(parse, bool, (ValueError,), attempts(VALID, 1, 0))
