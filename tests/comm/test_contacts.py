"""Whom a peer writes to when its neighbours fall silent."""

from __future__ import annotations

import numpy as np

from widemargin.comm.contacts import Contacts


def contacts(*neighbours):
    found = Contacts(2, np.random.default_rng(0))
    found.addresses |= {j: f"there:{j}" for j in neighbours}
    return found


def test_a_peer_that_hears_from_enough_neighbours_reaches_out_to_nobody():
    book = contacts(1, 2)
    for j in (1, 2):
        book.hear(j, 10.0)
    book.learn([(7, "there:7")], 10.0)
    assert book.present(11.0) == [(1, "there:1"), (2, "there:2")]
    assert book.reach_out(11.0) is None
    assert book.reach_out(20.0) == (7, "there:7")  # both are silent


def test_those_that_were_told_of_long_ago_are_not_tried():
    book = contacts(1)
    book.learn([(7, "there:7")], 0.0)
    assert book.reach_out(100.0) is None


def test_tries_leave_time_for_an_answer():
    book = contacts()
    book.learn([(7, "there:7")], 0.0)
    assert book.reach_out(1.0) is not None
    assert book.reach_out(1.5) is None


def test_few_are_remembered_and_the_latest_stay():
    book = contacts()
    book.learn([(j, f"there:{j}") for j in range(1000)], 0.0)
    assert {book.reach_out(t)[0] for t in range(0, 40, 3)} <= set(range(1000 - 64, 1000))


def test_a_peer_introduces_itself_to_one_that_is_silent_and_not_more_often_than_it_must():
    book = contacts(1)
    assert book.is_silent(1, 0.0)
    book.note_introduction(1, 0.0)
    assert not book.is_silent(1, 0.5)
    book.hear(1, 1.0)
    assert not book.is_silent(1, 1.9)
    assert book.is_silent(1, 2.5)
    book.forget(1)
    assert book.present(2.5) == []
